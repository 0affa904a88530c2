"""Rates that fall by factors; each goes on from the rate as it is."""

from bisect import bisect_right
from typing import Sequence

from .._core import InputError
from .._core._optim import Optimizer
from ._rates import plain
from ._scheduler import LRScheduler


class ExponentialLR(LRScheduler):
    """Times gamma at each step, from the rate as it is."""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = float(gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        """The rate times gamma, but for the first step."""
        return [lr * self.gamma if self.last_epoch > 0 else lr for lr in self._rates()]

    def _lr_alone(self) -> Sequence[float]:
        return [base * self.gamma**self.last_epoch for base in self.base_lrs]


class MultiStepLR(LRScheduler):
    """Times gamma at each of the milestones, from the rate as it is."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = sorted(map(plain, milestones)), float(gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        """The rate times gamma for each milestone that is at this step."""
        return [lr * self.gamma ** self.milestones.count(self.last_epoch) for lr in self._rates()]

    def _lr_alone(self) -> Sequence[float]:
        return [base * self.gamma ** bisect_right(self.milestones, self.last_epoch) for base in self.base_lrs]


class ConstantLR(LRScheduler):
    """Times factor for total_iters steps, and then as it was."""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0 < factor <= 1:
            raise InputError(f"ConstantLR: factor {factor} is not above 0 and at most 1")
        self.factor, self.total_iters = float(factor), plain(total_iters)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        """The rate times factor at the first step, over factor at the last."""
        times = self.factor if self.last_epoch == 0 else 1 / self.factor if self.last_epoch == self.total_iters else 1.0
        return [lr * times for lr in self._rates()]

    def _lr_alone(self) -> Sequence[float]:
        return [base * (self.factor if self.last_epoch < self.total_iters else 1.0) for base in self.base_lrs]


class PolynomialLR(LRScheduler):
    """Down to 0 in total_iters steps, as a power of what is left of them."""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = plain(total_iters), float(power)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        """The rate times what the power has become of what it was a step ago."""
        step, steps = self.last_epoch, self.total_iters
        if step == 0 or step > steps:
            return self._rates()
        times = ((1 - step / steps) / (1 - (step - 1) / steps)) ** self.power
        return [lr * times for lr in self._rates()]

    def _lr_alone(self) -> Sequence[float]:
        left = max(1 - self.last_epoch / self.total_iters, 0.0)
        return [base * left**self.power for base in self.base_lrs]
