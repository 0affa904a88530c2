"""Operations written in Python, and recompute."""

from ._core import _apply_function, _checkpoint


class Function:
    """An operation with a gradient of its own::

        class Cube(sg.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x * x

            @staticmethod
            def backward(ctx, dy):
                (x,) = ctx.saved_tensors
                return 3 * x * x * dy

        y = Cube.apply(x)

    backward gives one gradient for each argument of forward, None for what is no tensor or needs none.
    """

    @staticmethod
    def forward(ctx, *args):
        """What apply computes, with a FunctionContext first."""
        raise NotImplementedError("a Function needs a static forward(ctx, ...)")

    @staticmethod
    def backward(ctx, *gradients):
        """The gradients of forward's arguments, given those of its results."""
        raise NotImplementedError("a Function needs a static backward(ctx, ...)")

    @classmethod
    def apply(cls, *args):
        """Calls forward with these arguments, recorded for backward."""
        return _apply_function(cls, *args)


def checkpoint(function, *args, offload_inputs=False, use_reentrant=None, **kwargs):
    """A call of the function with these arguments, whose inside is not kept for backward, but computed again there.

    Only the tensors among the arguments are held between. Gradients are the same bits; dropout draws the same masks.
    `use_reentrant` is PyTorch's, and means nothing here.
    """
    return _checkpoint(function, args, kwargs, offload_inputs)
