"""Losses whose weights move, and are saved, with them."""

from typing import Optional

from .._core import Tensor, _check_reduction
from .._core._nn import Module
from .functional import binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, nll_loss


class _Weighted(Module):
    """loss(x, target, count), with weights that are a buffer, or None."""

    def __init__(self, name: str, weight: Optional[Tensor], reduction: str):
        super().__init__()
        _check_reduction(reduction)
        self._reduction = reduction
        if weight is None:
            setattr(self, name, None)
        else:
            self.register_buffer(name, weight)


class BCELoss(_Weighted):
    """binary_cross_entropy of probabilities: loss(x, target, count)."""

    weight: Optional[Tensor]

    def __init__(self, weight: Optional[Tensor] = None, reduction: str = "mean"):
        super().__init__("weight", weight, reduction)

    def forward(self, x: Tensor, target: Tensor, count: Optional[float] = None) -> Tensor:
        """What a call computes."""
        return binary_cross_entropy(x, target, self.weight, self._reduction, count)


class BCEWithLogitsLoss(_Weighted):
    """binary_cross_entropy_with_logits: loss(x, target, count)."""

    pos_weight: Optional[Tensor]

    def __init__(self, reduction: str = "mean", pos_weight: Optional[Tensor] = None):
        super().__init__("pos_weight", pos_weight, reduction)

    def forward(self, x: Tensor, target: Tensor, count: Optional[float] = None) -> Tensor:
        """What a call computes."""
        return binary_cross_entropy_with_logits(x, target, self._reduction, self.pos_weight, count)


class NLLLoss(_Weighted):
    """nll_loss: loss(log_probs, target, count). The mean divides by count, or by what there is."""

    weight: Optional[Tensor]

    def __init__(self, weight: Optional[Tensor] = None, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__("weight", weight, reduction)
        self._ignore_index = ignore_index

    def forward(self, x: Tensor, target: Tensor, count: Optional[float] = None) -> Tensor:
        """What a call computes."""
        return nll_loss(x, target, self.weight, self._ignore_index, self._reduction, count)


class CrossEntropyLoss(_Weighted):
    """cross_entropy: loss(logits, target, count). The mean divides by count, or by what there is."""

    weight: Optional[Tensor]

    def __init__(self, weight: Optional[Tensor] = None, ignore_index: int = -100, reduction: str = "mean",
                 label_smoothing: float = 0.0):
        super().__init__("weight", weight, reduction)
        self._ignore_index, self._label_smoothing = ignore_index, label_smoothing

    def forward(self, x: Tensor, target: Tensor, count: Optional[float] = None) -> Tensor:
        """What a call computes."""
        return cross_entropy(x, target, self.weight, self._ignore_index, self._reduction, self._label_smoothing, count)
