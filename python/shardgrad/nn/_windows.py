"""Pooling of one dimension, by that of two, and dropout of whole channels."""

import operator
from typing import Optional, Sequence, Union

from .._core import InputError, Tensor, adaptive_avg_pool2d, avg_pool2d, dropout, max_pool2d
from .._core._nn import Module

Extent = Union[int, Sequence[int]]


def _row(of: str, given: Optional[Extent], above: int) -> Optional[list[int]]:
    """A window's number as that of an image of one row."""
    if given is None:
        return None
    single = hasattr(given, "__index__") and not getattr(given, "ndim", 0)  # arrays have the method, too
    numbers = [operator.index(given)] if single else [operator.index(number) for number in given]
    if len(numbers) != 1:
        raise InputError(f"{of}: kernels, strides, paddings and sizes are one number, got {len(numbers)}")
    return [above, numbers[0]]


def _image(of: str, x: Tensor) -> Tensor:
    if x.ndim not in (2, 3):
        raise InputError(f"{of}: the input is (samples, channels, length) or (channels, length), got {tuple(x.shape)}")
    return x.unsqueeze(-2) if x.ndim == 3 else x.unsqueeze(-2).unsqueeze(0)


def _without_row(y: Tensor, like: Tensor) -> Tensor:
    return y.squeeze(-2) if like.ndim == 3 else y.squeeze(-2).squeeze(0)


def max_pool1d(x: Tensor, kernel_size: Extent, stride: Optional[Extent] = None, padding: Extent = 0, dilation: Extent = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Tensor:
    """The largest of each window; stride is the kernel's size unless given."""
    sizes = [_row("max_pool1d", given, above) for given, above in ((kernel_size, 1), (stride, 1), (padding, 0), (dilation, 1))]
    return _without_row(max_pool2d(_image("max_pool1d", x), *sizes, ceil_mode, return_indices), x)


def avg_pool1d(x: Tensor, kernel_size: Extent, stride: Optional[Extent] = None, padding: Extent = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window; stride is the kernel's size unless given."""
    sizes = [_row("avg_pool1d", given, above) for given, above in ((kernel_size, 1), (stride, 1), (padding, 0))]
    return _without_row(avg_pool2d(_image("avg_pool1d", x), *sizes, ceil_mode, count_include_pad), x)


def adaptive_avg_pool1d(x: Tensor, output_size: Extent) -> Tensor:
    """The means of output_size parts of each row."""
    size = _row("adaptive_avg_pool1d", output_size, 1)
    return _without_row(adaptive_avg_pool2d(_image("adaptive_avg_pool1d", x), size), x)


def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zeroes each channel of each sample, dimension 1, with probability p, never in place."""
    if x.ndim < 3:
        raise InputError(f"dropout2d: the input is (samples, channels, …), got {tuple(x.shape)}")
    if not training or p == 0:
        return x
    kept = dropout(x.detach().new_ones([*x.shape[:2]] + [1] * (x.ndim - 2)), p) != 0
    return (x * kept.to(x.dtype)) * (1 / (1 - p))


class MaxPool1d(Module):
    """The largest of each window of (samples, channels, length)."""

    def __init__(self, kernel_size: Extent, stride: Optional[Extent] = None, padding: Extent = 0, dilation: Extent = 1,
                 return_indices: bool = False, ceil_mode: bool = False):
        super().__init__()
        self._windows = kernel_size, stride, padding, dilation, ceil_mode, return_indices

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return max_pool1d(x, *self._windows)


class AvgPool1d(Module):
    """The mean of each window of (samples, channels, length)."""

    def __init__(self, kernel_size: Extent, stride: Optional[Extent] = None, padding: Extent = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True):
        super().__init__()
        self._windows = kernel_size, stride, padding, ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return avg_pool1d(x, *self._windows)


class AdaptiveAvgPool1d(Module):
    """The means of so many parts of each row."""

    def __init__(self, output_size: Extent):
        super().__init__()
        self._size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return adaptive_avg_pool1d(x, self._size)


class Dropout2d(Module):
    """Zeroes each channel of each sample with probability p in training."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p < 1:
            raise InputError(f"Dropout2d: probability {p} is not within [0, 1)")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """What a call computes."""
        return dropout2d(x, self.p, self.training)
