"""A learning rate that is lowered when a score does not get better."""

import math
from typing import Any, Sequence, Union

from .._core import InputError
from .._core._optim import Optimizer
from ._rates import per_group, plain


class ReduceLROnPlateau:
    """Times `factor` when more than `patience` scores in a row were no better than the best one by `threshold`."""

    def __init__(self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = "rel", cooldown: int = 0,
                 min_lr: Union[float, Sequence[float]] = 0.0, eps: float = 1e-8):
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise InputError(f"ReduceLROnPlateau: mode '{mode}', threshold_mode '{threshold_mode}'; there are min and max, "
                             "rel and abs")
        if not factor < 1:
            raise InputError(f"ReduceLROnPlateau: factor {factor} is not below 1")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, float(factor), plain(patience)
        self.threshold, self.threshold_mode = float(threshold), threshold_mode
        self.cooldown, self.eps = plain(cooldown), float(eps)
        self.min_lrs = per_group("ReduceLROnPlateau", "rates of min_lr", min_lr, optimizer)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0
        self._last_lr = [group["lr"] for group in optimizer.param_groups]

    def is_better(self, score: float, best: float) -> bool:
        """Whether a score is better than another one by more than the threshold."""
        sign = -1 if self.mode == "min" else 1
        needed = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return score < needed if self.mode == "min" else score > needed

    def step(self, metrics: Any) -> None:
        """Hears of a score, a number or a tensor of one, the same on all ranks; lowers the rates where it is time."""
        score = float(metrics)
        self.last_epoch += 1
        if self.is_better(score, self.best):
            self.best, self.num_bad_epochs = score, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def _reduce(self) -> None:
        for group, least in zip(self.optimizer.param_groups, self.min_lrs):
            lower = max(group["lr"] * self.factor, least)
            if group["lr"] - lower > self.eps:
                group["lr"] = lower

    def get_last_lr(self) -> list[float]:
        """The rates as they are."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict takes: all but the optimizer, whose own state has its rates."""
        return {name: value for name, value in vars(self).items() if name != "optimizer"}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state_dict was taken."""
        vars(self).update(state)
