"""What every scheduler of rates does."""

from typing import Any, Optional, Sequence

from .._core import InputError
from .._core._optim import Optimizer


def check_begins(scheduler: object, last_epoch: int) -> None:
    if last_epoch != -1:
        raise InputError(f"{type(scheduler).__name__}: last_epoch {last_epoch}; a run that goes on makes the scheduler as "
                         "before, with -1, and calls load_state_dict")


class LRScheduler:
    """Derive from it and write get_lr(), which gives a rate for each group from base_lrs and last_epoch.

    The last_epoch that it is made with is PyTorch's, and -1: a run that goes on calls load_state_dict.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        check_begins(self, last_epoch)
        self.optimizer = optimizer
        self.base_lrs = [float(group.setdefault("initial_lr", group["lr"])) for group in optimizer.param_groups]
        self.last_epoch = -1
        self.step()

    def get_lr(self) -> Sequence[float]:
        """The rate of each group at last_epoch."""
        raise NotImplementedError("a scheduler needs a get_lr()")

    def _lr_alone(self) -> Sequence[float]:
        """The same from base_lrs, where get_lr goes on from the rates as they are."""
        return self.get_lr()

    def _rates(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def step(self, epoch: Optional[int] = None) -> None:
        """Goes on by one, or to this number from the base rates, and sets the rates."""
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        self._last_lr = [float(lr) for lr in (self.get_lr() if epoch is None else self._lr_alone())]
        for group, lr in zip(self.optimizer.param_groups, self._last_lr):
            group["lr"] = lr

    def _undo(self) -> None:
        """The step that it has made when it was made."""
        self.last_epoch -= 1

    def get_last_lr(self) -> list[float]:
        """The rates that were set last."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict takes: all but the optimizer and functions. The optimizer's own state has its rates."""
        return {name: value for name, value in vars(self).items() if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on where a state_dict was taken; the optimizer loads its own state before."""
        vars(self).update(state)
        for group, base in zip(self.optimizer.param_groups, self.base_lrs):
            group["initial_lr"] = base
