"""Sequences of different lengths as one tensor."""

from typing import Sequence

from ..._core import InputError, Tensor, cat, stack

__all__ = ["pad_sequence"]


def _padded(x: Tensor, length: int, value: float, left: bool) -> Tensor:
    if x.size(0) == length:
        return x
    more = x.new_full([length - x.size(0), *x.shape[1:]], value)
    return cat([more, x] if left else [x, more])


def pad_sequence(sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0,
                 padding_side: str = "right") -> Tensor:
    """Sequences (length, …) as (longest, sequences, …), or with batch_first (sequences, longest, …)."""
    if padding_side not in ("left", "right"):
        raise InputError(f"pad_sequence: padding_side '{padding_side}' is neither left nor right")
    if not sequences:
        raise InputError("pad_sequence: there are no sequences")
    longest = max(each.size(0) for each in sequences)
    value = padding_value if sequences[0].is_floating_point() else int(padding_value)
    return stack([_padded(each, longest, value, padding_side == "left") for each in sequences], 0 if batch_first else 1)
