"""Learning rates over time, by PyTorch's formulas: each step() sets the rate of every group of an optimizer::

    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=900)
    for batch in loader:
        ...
        optimizer.step()
        scheduler.step()

Schedulers of one optimizer stack as in PyTorch: the first one keeps each group's rate as its 'initial_lr', and what is
said to go on from the rate as it is multiplies what others have set. On several ranks all make the same calls.
shardgrad.optim.schedule has the same curves as functions of the step.
"""

import math
import operator
from bisect import bisect_right
from typing import Any, Callable, Optional, Sequence, Union

from .._core import InputError
from .._core._optim import Optimizer
from ._plateau import ReduceLROnPlateau
from ._rates import per_group, plain
from ._scheduler import LRScheduler, check_begins
from ._stages import ConstantLR, ExponentialLR, MultiStepLR, PolynomialLR

__all__ = ["ConstantLR", "CosineAnnealingLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR",
           "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR"]


class StepLR(LRScheduler):
    """Times gamma after every step_size steps, from the rate as it is."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = plain(step_size), float(gamma)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        """The rate times gamma where step_size steps are over."""
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma if falls else lr for lr in self._rates()]

    def _lr_alone(self) -> Sequence[float]:
        return [base * self.gamma ** (self.last_epoch // self.step_size) for base in self.base_lrs]


class LinearLR(LRScheduler):
    """From start_factor to end_factor of the rate in total_iters steps, in a straight line."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
                 last_epoch: int = -1):
        if not (0 < start_factor <= 1 and 0 <= end_factor <= 1):
            raise InputError(f"LinearLR: factors {start_factor} and {end_factor} are not above 0 and at most 1")
        self.start_factor, self.end_factor, self.total_iters = float(start_factor), float(end_factor), plain(total_iters)
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float:
        part = min(step, self.total_iters) / self.total_iters if self.total_iters else 1.0
        return self.start_factor + (self.end_factor - self.start_factor) * part

    def get_lr(self) -> Sequence[float]:
        """The rate times what the line's height has become of what it was a step ago."""
        before = self._factor(self.last_epoch - 1) if self.last_epoch > 0 else 1.0
        return [lr * self._factor(self.last_epoch) / before if before else lr for lr in self._rates()]

    def _lr_alone(self) -> Sequence[float]:
        return [base * self._factor(self.last_epoch) for base in self.base_lrs]


class LambdaLR(LRScheduler):
    """The base rates times a function of the step, one for all groups or one for each."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Union[Callable[[int], float], Sequence[Callable[[int], float]]],
                 last_epoch: int = -1):
        self.lr_lambdas = per_group("LambdaLR", "functions", lr_lambda, optimizer, lambda function: function)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> Sequence[float]:
        """base · function(step)"""
        return [base * function(self.last_epoch) for base, function in zip(self.base_lrs, self.lr_lambdas)]


class CosineAnnealingLR(LRScheduler):
    """Down to eta_min in T_max steps along half a cosine, and up again in as many, from the rate as it is."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = plain(T_max), float(eta_min)
        super().__init__(optimizer, last_epoch)

    def _height(self, step: int) -> float:
        return 1 + math.cos(math.pi * step / self.T_max)

    def get_lr(self) -> Sequence[float]:
        """Of the rate what is above eta_min, times what the cosine's height has become of what it was a step ago."""
        step, rates = self.last_epoch, self._rates()
        if step == 0:
            return rates
        if (step - 1 - self.T_max) % (2 * self.T_max) == 0:  # up from eta_min, of which nothing is above
            return [lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
                    for lr, base in zip(rates, self.base_lrs)]
        return [self.eta_min + (lr - self.eta_min) * self._height(step) / self._height(step - 1) for lr in rates]

    def _lr_alone(self) -> Sequence[float]:
        return [self.eta_min + (base - self.eta_min) * self._height(self.last_epoch) / 2 for base in self.base_lrs]


class SequentialLR(LRScheduler):
    """One scheduler after another: the next one begins, from the base rates, at each milestone. Any of them may be such a
    sequence itself."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int],
                 last_epoch: int = -1):
        check_begins(self, last_epoch)
        for each in schedulers:
            if not isinstance(each, LRScheduler):
                raise InputError(f"SequentialLR: a {type(each).__name__} is no scheduler that goes on step by step")
        if len(schedulers) != len(milestones) + 1 or any(each.optimizer is not optimizer for each in schedulers):
            raise InputError(f"SequentialLR: {len(schedulers)} schedulers, {len(milestones)} milestones; it takes one "
                             "scheduler more, all of this optimizer")
        if any(later < before for before, later in zip(milestones, milestones[1:])):
            raise InputError(f"SequentialLR: milestones {list(milestones)} do not go up")
        self.optimizer, self.last_epoch = optimizer, 0
        self._schedulers, self._milestones = list(schedulers), list(map(plain, milestones))
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self._undo()
        self._let_step(None)

    def _undo(self) -> None:
        for each in self._schedulers:
            each._undo()

    def _let_step(self, epoch: Optional[int]) -> None:
        """The scheduler whose time it is."""
        one = self._schedulers[bisect_right(self._milestones, self.last_epoch)]
        one.step(epoch)
        self._last_lr = one.get_last_lr()

    def step(self, epoch: Optional[int] = None) -> None:
        """Goes on by one, or begins with 0, and lets the scheduler whose time it is set the rates."""
        if epoch not in (None, 0):
            raise InputError(f"SequentialLR: it goes on step by step, or begins with 0, and not at {epoch}")
        self.last_epoch = self.last_epoch + 1 if epoch is None else 0
        begins = epoch == 0 or self.last_epoch in self._milestones
        self._let_step(0 if begins else None)

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict takes, with the schedulers' own."""
        return super().state_dict() | {"_schedulers": [each.state_dict() for each in self._schedulers]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state_dict was taken; the optimizer loads its own state before."""
        for each, its in zip(self._schedulers, state["_schedulers"]):
            each.load_state_dict(its)
        super().load_state_dict({name: value for name, value in state.items() if name != "_schedulers"})


def _between(start: float, end: float, part: float, strategy: str) -> float:
    """`part` of the way from start to end, straight or along half a cosine."""
    return start + (end - start) * (part if strategy == "linear" else (1 - math.cos(math.pi * part)) / 2)


class OneCycleLR(LRScheduler):
    """Up from max_lr / div_factor to max_lr, and down to a final_div_factor-th of where it began. Momentum stays."""

    def __init__(self, optimizer: Optimizer, max_lr: Union[float, Sequence[float]], total_steps: Optional[int] = None,
                 epochs: Optional[int] = None, steps_per_epoch: Optional[int] = None, pct_start: float = 0.3,
                 anneal_strategy: str = "cos", cycle_momentum: bool = False, div_factor: float = 25.0,
                 final_div_factor: float = 1e4, last_epoch: int = -1):
        check_begins(self, last_epoch)
        if cycle_momentum:
            raise InputError("OneCycleLR: an optimizer keeps its momentum; cycle_momentum=False")
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            total_steps = operator.index(epochs) * operator.index(steps_per_epoch)
        if total_steps is None or operator.index(total_steps) < 1:
            raise InputError("OneCycleLR: it needs total_steps, or epochs and steps_per_epoch, of at least one step")
        if not 0 <= pct_start <= 1:
            raise InputError(f"OneCycleLR: pct_start {pct_start} is no part of all steps, from 0 to 1")
        if anneal_strategy not in ("cos", "linear"):
            raise InputError(f"OneCycleLR: anneal_strategy '{anneal_strategy}' is neither cos nor linear")
        self.total_steps, self.pct_start, self.anneal_strategy = operator.index(total_steps), float(pct_start), anneal_strategy
        self.max_lrs = per_group("OneCycleLR", "rates of max_lr", max_lr, optimizer)
        self.div_factor, self.final_div_factor = float(div_factor), float(final_div_factor)
        for group, high in zip(optimizer.param_groups, self.max_lrs):
            group["initial_lr"] = high / self.div_factor
        super().__init__(optimizer, last_epoch)

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
                part = (self.last_epoch - top) / (last - top) if last > top else 1.0
                rates.append(_between(high, low / self.final_div_factor, part, self.anneal_strategy))
        return rates
