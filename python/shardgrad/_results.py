"""What C++ makes objects of by name: results of more than one tensor, and tensors out of a pickle."""

from typing import NamedTuple

from ._core import Tensor, _remake


class ValuesAndIndices(NamedTuple):
    """Values along a dimension, and where they were."""

    values: Tensor
    indices: Tensor


def remake(*state):
    """A tensor again, of what Tensor.__reduce__ gave."""
    return _remake(*state)
