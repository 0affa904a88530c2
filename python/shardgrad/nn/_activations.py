"""Activations made of other operations, as functions and as modules."""

from typing import Callable

from .._core import InputError, Tensor, bfloat16, float16, ones, where
from .._core._nn import Module, Parameter


def _rounded_once(x: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Of 16 bits computed in float32."""
    return of(x.float()).to(x.dtype) if x.dtype in (bfloat16, float16) else of(x)


def relu6(x: Tensor, inplace: bool = False) -> Tensor:
    """x within 0 and 6."""
    return x.relu().masked_fill(x >= 6, 6)


def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    """x · relu6(x + 3) / 6"""
    return _rounded_once(x, lambda y: y * (y + 3).clamp(0, 6) / 6)


def mish(x: Tensor, inplace: bool = False) -> Tensor:
    """x · tanh(softplus(x))"""
    return _rounded_once(x, lambda y: y * y.softplus().tanh())


def selu(x: Tensor, inplace: bool = False) -> Tensor:
    """1.0507 · elu(x, 1.6733), which keeps mean 0 and variance 1."""
    return _rounded_once(x, lambda y: y.elu(1.6732632423543772848170429916717) * 1.0507009873554804934193349852946)


def logsigmoid(x: Tensor) -> Tensor:
    """log σ(x)"""
    return -(-x).softplus()


def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half along dim times σ of the second."""
    if x.size(dim) % 2:
        raise InputError(f"glu: dimension {dim} of {tuple(x.shape)} has no two halves")
    half = x.size(dim) // 2
    return _rounded_once(x, lambda y: y.narrow(dim, 0, half) * y.narrow(dim, half, half).sigmoid())


def prelu(x: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight · x, with one weight or one for each channel, dimension 1."""
    if weight.numel() != 1 and (x.ndim < 2 or weight.shape != (x.size(1),)):
        raise InputError(f"prelu: weights {tuple(weight.shape)} are neither one nor one for each channel of {tuple(x.shape)}")
    shape = [1] * x.ndim if weight.numel() == 1 else [1, -1] + [1] * (x.ndim - 2)
    return where(x > 0, x, x * weight.reshape(shape))


class _Of(Module):
    """A module that is a function; `inplace` is PyTorch's: it computes out of place."""

    def __init__(self, inplace: bool = False):
        super().__init__()


class ReLU6(_Of):
    """x within 0 and 6."""

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return relu6(x)


class Hardswish(_Of):
    """x · relu6(x + 3) / 6"""

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return hardswish(x)


class Mish(_Of):
    """x · tanh(softplus(x))"""

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return mish(x)


class SELU(_Of):
    """1.0507 · elu(x, 1.6733), which keeps mean 0 and variance 1."""

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return selu(x)


class LogSigmoid(Module):
    """log σ(x)"""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return logsigmoid(x)


class GLU(Module):
    """The first half along dim times σ of the second."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return glu(x, self.dim)


class PReLU(Module):
    """x where x > 0, else weight · x: one weight, or one for each channel, that is trained."""

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25):
        super().__init__()
        self.weight = Parameter(ones(num_parameters) * init)

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return prelu(x, self.weight)
