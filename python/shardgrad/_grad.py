"""Gradients without touching the leaves."""

from typing import Optional, Sequence, Union

from ._core import InputError, Tensor, _grad


def _listed(given):
    return [given] if isinstance(given, Tensor) else list(given)


def grad(outputs: Union[Tensor, Sequence[Tensor]], inputs: Union[Tensor, Sequence[Tensor]],
         grad_outputs: Union[Tensor, Sequence[Optional[Tensor]], None] = None, retain_graph: bool = False,
         create_graph: bool = False, allow_unused: bool = True) -> tuple[Optional[Tensor], ...]:
    """The gradients of the outputs' sum for each of `inputs`, leaves or computed; None where it does not depend on one.

    Nothing is added to leaves. `grad_outputs` multiply the outputs; those of one element need none. `create_graph` is
    refused: gradients are not recorded. With allow_unused=False an input that the outputs do not depend on is refused.
    """
    gradients = [] if grad_outputs is None else _listed(grad_outputs)
    found = tuple(_grad(_listed(outputs), _listed(inputs), gradients, retain_graph, create_graph))
    if not allow_unused and any(each is None for each in found):
        raise InputError(f"grad: the outputs do not depend on input {found.index(None)}; with allow_unused=True its "
                         "gradient is None")
    return found
