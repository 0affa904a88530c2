"""What PyTorch's programs do to parameters and their gradients, and to sequences of different lengths."""

from typing import Iterable, Optional, Union

from ..._core import InputError, Tensor, cat
from ..._core import _optim
from ..._scopes import no_grad as _no_grad
from . import rnn

__all__ = ["clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "rnn", "vector_to_parameters"]


def clip_grad_norm_(parameters: Union[Tensor, Iterable[Tensor]], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = True, foreach: Optional[bool] = None) -> float:
    """Scales the gradients down to this norm, if theirs is larger; theirs.

    One that is not finite is refused, as error_if_nonfinite=True says; a GradScaler's `unscale_` leaves none.
    """
    if not error_if_nonfinite:
        raise InputError("clip_grad_norm_: a norm that is not finite is refused here; leave error_if_nonfinite out")
    return _optim.clip_grad_norm_([parameters] if isinstance(parameters, Tensor) else list(parameters), max_norm, norm_type)


def clip_grad_value_(parameters: Union[Tensor, Iterable[Tensor]], clip_value: float) -> None:
    """Brings each element of the gradients within -clip_value and clip_value."""
    with _no_grad():
        for each in [parameters] if isinstance(parameters, Tensor) else parameters:
            if each.grad is not None:
                each.grad.copy_(each.grad.clamp(-clip_value, clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements in a row, differentiably."""
    return cat([each.flatten() for each in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Writes a row of elements, as parameters_to_vector makes one, into the parameters."""
    parameters, begin = list(parameters), 0
    count = sum(each.numel() for each in parameters)
    if vec.shape != (count,):
        raise InputError(f"vector_to_parameters: {tuple(vec.shape)} is no row of the parameters' {count} elements")
    with _no_grad():
        for each in parameters:
            each.copy_(vec[begin:begin + each.numel()].reshape(each.shape))
            begin += each.numel()
