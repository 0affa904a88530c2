"""Layers and losses as functions."""

from typing import Optional, Sequence

from .._core import (adaptive_avg_pool2d, attention, avg_pool2d, binary_cross_entropy_with_logits, conv1d, conv2d,
                     cross_entropy, dropout, elu, embedding, gelu, group_norm, huber_loss, kl_div, l1_loss, layer_norm,
                     leaky_relu, linear, linear_cross_entropy, log_softmax, max_pool2d, mse_loss, nll_loss, one_hot, relu, rms_norm,
                     rope, sigmoid, silu, smooth_l1_loss, softmax, softplus, swiglu, tanh)
from .._core import InputError, Tensor, _reduced_loss, broadcast_to, cat
from .._function import Function as _Function
from ._activations import glu, hardswish, logsigmoid, mish, prelu, relu6, selu
from ._attention import scaled_dot_product_attention
from ._windows import adaptive_avg_pool1d, avg_pool1d, dropout2d, max_pool1d


def _padded(x: Tensor, dim: int, amount: int, value: float, after: bool) -> Tensor:
    """So many elements more at one end of a dimension, or less."""
    if amount < 0:
        return x.narrow(dim, 0 if after else -amount, x.size(dim) + amount)
    if amount == 0:
        return x
    more = x.new_full([*x.shape[:dim], amount, *x.shape[dim + 1:]], value)
    return cat([x, more] if after else [more, x], dim)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    """x with `value`, 0 unless given, around it.

    pad is (before, after) of the last dimension, then of the one before it, and so on; negative numbers cut elements off.
    """
    if mode != "constant":
        raise InputError(f"pad: mode '{mode}' is not offered; 'constant' is")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise InputError(f"pad: {len(pad)} numbers are no pairs of dimensions of {tuple(x.shape)}")
    for i in range(0, len(pad), 2):
        dim = x.ndim - 1 - i // 2
        x = _padded(_padded(x, dim, pad[i], value or 0, False), dim, pad[i + 1], value or 0, True)
    return x


def _norm(x: Tensor, p: float, dim: int) -> Tensor:
    """PyTorch's vector norms, which are none where p is 0, the number of what is not 0, or less."""
    if p > 0:
        return x.norm(p, dim, True)
    if x.element_size() < 4:
        return _norm(x.float(), p, dim).to(x.dtype)
    if p == 0:
        return (x != 0).to(x.dtype).sum(dim, True)
    if p == float("-inf"):
        return x.abs().min(dim, True).values
    none = x == 0  # one of them makes it 0, with no gradient
    sums = (x.abs().masked_fill(none, 1) ** p).sum(dim, True)
    return (sums ** (1 / p)).masked_fill(none.any(dim, True), 0)


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over its p-norm along dim, which counts as eps where it is smaller."""
    return x / _norm(x, float(p), dim).clamp(min=eps)


def _broadcast(x: Tensor, other: Tensor) -> Tensor:
    """x in the shape that it has beside the other."""
    missing = other.ndim - x.ndim
    extents = [1] * missing + list(x.shape)
    theirs = [1] * -missing + list(other.shape)
    shape = [b if a == 1 else a for a, b in zip(extents, theirs)]
    return x if shape == list(x.shape) else broadcast_to(x, shape)


def _direction(x: Tensor, dim: int, eps: float) -> Tensor:
    """normalize, with the norm's own gradient where it counts as eps, too, as PyTorch's cosine_similarity has it."""
    size = x.norm(2, dim, True)
    return x / (size + (eps - size).clamp(min=0).detach())


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along dim; norms count as eps where they are smaller."""
    x1, x2 = _broadcast(x1, x2), _broadcast(x2, x1)
    return (_direction(x1, dim, eps) * _direction(x2, dim, eps)).sum(dim)


def _log(x: Tensor) -> Tensor:
    return x.log().clamp(min=-100)


def _log_other(x: Tensor) -> Tensor:
    return (-x).log1p().clamp(min=-100)


class _BinaryCrossEntropy(_Function):
    """With PyTorch's gradient, whose divisor is not below 1e-12."""

    @staticmethod
    def forward(ctx, x, target):
        ctx.save_for_backward(x, target)
        return -(target * _log(x) + (1 - target) * _log_other(x))

    @staticmethod
    def backward(ctx, dy):
        x, target = ctx.saved_tensors
        dx = dy * (x - target) / (x * (1 - x)).clamp(min=1e-12) if ctx.needs_input_grad[0] else None
        return dx, dy * (_log_other(x) - _log(x)) if ctx.needs_input_grad[1] else None


def _check_probabilities(x: Tensor, target: Tensor) -> None:
    if not ((x >= 0) & (x <= 1)).all():
        raise InputError("binary_cross_entropy: the input has numbers outside [0, 1], which are no probabilities; of logits "
                         "it is binary_cross_entropy_with_logits")
    if not ((target >= 0) & (target <= 1)).all():
        raise InputError("binary_cross_entropy: the target has numbers outside [0, 1], which are no probabilities")


def binary_cross_entropy(x: Tensor, target: Tensor, weight: Optional[Tensor] = None, reduction: str = "mean",
                         count: Optional[float] = None) -> Tensor:
    """-t · log x - (1 - t) · log(1 - x) of probabilities x, whose logarithms are not below -100.

    The weight is broadcast to x. On the cpu what is no probability is refused, of x and of the target; no other device is
    waited for to look. Where x is made by sigmoid, binary_cross_entropy_with_logits of what it was given loses no digits.
    The gradient of a target is of these logarithms, and finite where x is 0 or 1; PyTorch's is infinite there.
    """
    if x.shape != target.shape:
        raise InputError(f"binary_cross_entropy: input {list(x.shape)} and target {list(target.shape)} must have the same "
                         "shape")
    if x.device == "cpu":
        _check_probabilities(x, target)
    if x.element_size() < 4:
        x, target = x.float(), target.float()
    losses = _BinaryCrossEntropy.apply(x, target)
    if weight is not None:
        losses = losses * broadcast_to(weight.to(losses.dtype), losses.shape)
    return _reduced_loss("binary_cross_entropy", losses, reduction, count)
