"""An optimizer's groups of parameters, as PyTorch's programs read and set them."""

from collections.abc import Iterator, MutableMapping
from typing import Any

from ._core import InputError


class ParamGroup(MutableMapping[str, Any]):
    """Parameters that were given together: 'params', 'lr', which can be set, and 'weight_decay'.

    Once a scheduler has been made, 'initial_lr', too, which the optimizer keeps.
    """

    def __init__(self, optimizer: Any, params: list, number: int, first: int, alone: bool):
        self._optimizer, self._params, self._number, self._alone = optimizer, params, number, alone
        self._places = range(first, first + len(params))
        self._initial = vars(optimizer).setdefault("_initial_lrs", {})

    def __getitem__(self, option: str) -> Any:
        if option == "params":
            return self._params
        if option == "initial_lr":
            return self._initial[self._number]
        if option not in tuple(self):
            raise KeyError(option)
        if option == "lr" and self._alone:
            return self._optimizer.lr
        if option == "lr" and not self._params:
            return self._optimizer._empty_lrs[self._number]
        of = self._optimizer._lr_of if option == "lr" else self._optimizer._weight_decay_of
        return of(self._places[0])

    def __setitem__(self, option: str, value: Any) -> None:
        if option == "initial_lr":
            self._initial[self._number] = float(value)
            return
        if option != "lr":
            raise InputError(f"a group of parameters: '{option}' cannot be set, only 'lr'; make the optimizer anew")
        if self._alone:
            self._optimizer.lr = value
        elif not self._params:
            self._optimizer._empty_lrs[self._number] = float(value)
        else:
            for place in self._places:
                self._optimizer._set_lr_of(place, value)

    def __delitem__(self, option: str) -> None:
        raise InputError(f"a group of parameters keeps its '{option}'")

    def __iter__(self) -> Iterator[str]:
        yield from ("params", "lr", "weight_decay") if self._params else ("params", "lr")
        if self._number in self._initial:
            yield "initial_lr"

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def __repr__(self) -> str:
        return f"ParamGroup({dict(self)})"
