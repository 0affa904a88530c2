"""Learning rates over time, by PyTorch's formulas: each step() sets the rate of every group of an optimizer::

    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=900)
    for batch in loader:
        ...
        optimizer.step()
        scheduler.step()

On several ranks all make the same calls. shardgrad.optim.schedule has the same curves as functions of the step.
"""

import math
from typing import Any, Callable, Optional, Sequence, Union

from .._core import InputError
from .._core._optim import Optimizer
from ._plateau import ReduceLROnPlateau

__all__ = ["CosineAnnealingLR", "LRScheduler", "LambdaLR", "OneCycleLR", "ReduceLROnPlateau", "StepLR"]


class LRScheduler:
    """Derive from it and write get_lr(), which gives a rate for each group from base_lrs and last_epoch."""

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.base_lrs = [group["lr"] for group in optimizer.param_groups]
        self.last_epoch = -1
        self.step()

    def get_lr(self) -> Sequence[float]:
        """The rate of each group at last_epoch."""
        raise NotImplementedError("a scheduler needs a get_lr()")

    def step(self) -> None:
        """Goes on by one, and sets the rates."""
        self.last_epoch += 1
        self._last_lr = [float(lr) for lr in self.get_lr()]
        for group, lr in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = lr

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict takes: all but the optimizer and functions. The optimizer's own state has its rates."""
        return {name: value for name, value in vars(self).items() if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state_dict was taken."""
        vars(self).update(state)


class StepLR(LRScheduler):
    """Times gamma after every step_size steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def get_lr(self) -> Sequence[float]:
        """base · gamma^(step // step_size)"""
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class LambdaLR(LRScheduler):
    """Times a function of the step, one for all groups or one for each."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Union[Callable[[int], float], Sequence[Callable[[int], float]]]):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise InputError(f"LambdaLR: {len(self.lr_lambdas)} functions for {groups} groups of parameters")
        super().__init__(optimizer)

    def get_lr(self) -> Sequence[float]:
        """base · function(step)"""
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas)]


class CosineAnnealingLR(LRScheduler):
    """Down to eta_min in T_max steps along half a cosine, and up again in as many."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def get_lr(self) -> Sequence[float]:
        """eta_min + (base - eta_min) · (1 + cos(π · step / T_max)) / 2"""
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


def _between(start: float, end: float, part: float, strategy: str) -> float:
    """`part` of the way from start to end, straight or along half a cosine."""
    return start + (end - start) * (part if strategy == "linear" else (1 - math.cos(math.pi * part)) / 2)


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr, and down to a final_div_factor-th of where it began. Momentum stays."""

    def __init__(self, optimizer: Optimizer, max_lr: Union[float, Sequence[float]], total_steps: Optional[int] = None,
                 epochs: Optional[int] = None, steps_per_epoch: Optional[int] = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = False, div_factor: float = 25.0,
                 final_div_factor: float = 1e4):
        if cycle_momentum:
            raise InputError("OneCycleLR: an optimizer keeps its momentum; cycle_momentum=False")
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise InputError("OneCycleLR: it needs total_steps, or epochs and steps_per_epoch")
        if anneal_strategy not in ("cos", "linear"):
            raise InputError(f"OneCycleLR: anneal_strategy '{anneal_strategy}' is neither cos nor linear")
        self.total_steps = total_steps if total_steps is not None else (epochs or 0) * (steps_per_epoch or 0)
        groups = len(optimizer.param_groups)
        self.max_lrs = list(max_lr) if isinstance(max_lr, Sequence) else [max_lr] * groups
        self.pct_start, self.anneal_strategy = pct_start, anneal_strategy
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer)

    def get_lr(self) -> Sequence[float]:
        """Where the step is on the way up or down."""
        if self.last_epoch > self.total_steps:
            raise InputError(f"OneCycleLR: step {self.last_epoch} of {self.total_steps}")
        top, last = self.pct_start * self.total_steps - 1, self.total_steps - 1
        rates = []
        for high in self.max_lrs:
            low = high / self.div_factor
            if self.last_epoch <= top:
                rates.append(_between(low, high, self.last_epoch / top if top else 1.0, self.anneal_strategy))
            else:
                part = (self.last_epoch - top) / (last - top)
                rates.append(_between(high, low / self.final_div_factor, part, self.anneal_strategy))
        return rates
