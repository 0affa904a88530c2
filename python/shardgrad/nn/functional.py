"""Layers and losses as functions."""

from typing import Optional, Sequence

from .._core import (adaptive_avg_pool2d, attention, avg_pool2d, binary_cross_entropy_with_logits, conv1d, conv2d,
                     cross_entropy, dropout, elu, embedding, gelu, group_norm, huber_loss, kl_div, l1_loss, layer_norm,
                     leaky_relu, linear, linear_cross_entropy, log_softmax, max_pool2d, mse_loss, nll_loss, one_hot, relu, rms_norm,
                     rope, sigmoid, silu, smooth_l1_loss, softmax, softplus, swiglu, tanh)
from .._core import InputError, Tensor, cat
from .._core import zeros_like as _zeros_like


def _padded(x: Tensor, dim: int, amount: int, value: float, after: bool) -> Tensor:
    """So many elements more at one end of a dimension, or less."""
    if amount < 0:
        return x.narrow(dim, 0 if after else -amount, x.size(dim) + amount)
    if amount == 0:
        return x
    more = x.new_full([*x.shape[:dim], amount, *x.shape[dim + 1:]], value)
    return cat([x, more] if after else [more, x], dim)


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0) -> Tensor:
    """x with `value` around it: pad is (before, after) of the last dimension, then of the one before it, and so on.

    Negative numbers cut elements off.
    """
    if mode != "constant":
        raise InputError(f"pad: mode '{mode}' is not offered; 'constant' is")
    if len(pad) % 2 or len(pad) > 2 * x.ndim:
        raise InputError(f"pad: {len(pad)} numbers are no pairs of dimensions of {tuple(x.shape)}")
    for i in range(0, len(pad), 2):
        dim = x.ndim - 1 - i // 2
        x = _padded(_padded(x, dim, pad[i], value, False), dim, pad[i + 1], value, True)
    return x


def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over its p-norm along dim, which counts as eps where it is smaller."""
    return x / x.norm(p, dim, True).clamp(min=eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between x1 and x2 along dim; norms count as eps where they are smaller."""
    norms = x1.norm(dim=dim).clamp(min=eps) * x2.norm(dim=dim).clamp(min=eps)
    return (x1 * x2).sum(dim) / norms


def _log(p: Tensor) -> Tensor:
    """Logarithms, not below -100 as in PyTorch; without a gradient where p is 0."""
    none = p == 0
    return p.masked_fill(none, 1).log().clamp(min=-100).masked_fill(none, -100)


def binary_cross_entropy(x: Tensor, target: Tensor, weight: Optional[Tensor] = None, reduction: str = "mean",
                         count: Optional[float] = None) -> Tensor:
    """-t · log x - (1 - t) · log(1 - x) of probabilities x, whose logarithms are not below -100.

    Where x is made by sigmoid, binary_cross_entropy_with_logits of what it was given loses no digits.
    """
    losses = -(target * _log(x) + (1 - target) * _log(1 - x))
    if weight is not None:
        losses = losses * weight
    return l1_loss(losses, _zeros_like(losses), reduction=reduction, count=count)  # none is negative
