"""Losses that are made of other functions."""

from typing import Optional

from .._core import Tensor
from .._core._nn import Module
from .functional import binary_cross_entropy


class BCELoss(Module):
    """binary_cross_entropy of probabilities: loss(x, target, count)."""

    def __init__(self, weight: Optional[Tensor] = None, reduction: str = "mean"):
        super().__init__()
        self._weight, self._reduction = weight, reduction

    def forward(self, x: Tensor, target: Tensor, count: Optional[float] = None) -> Tensor:
        """What a call computes."""
        return binary_cross_entropy(x, target, self._weight, self._reduction, count)
