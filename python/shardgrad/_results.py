"""What C++ makes objects of by name: results of more than one tensor, and what copies and pickles are made by."""

from collections.abc import Iterator
from typing import NamedTuple, Optional, TypeVar

from ._core import Tensor, _remake
from ._core._nn import _handle_of


T = TypeVar("T")


class Walk(list[T]):
    """What a module's walks give: a list, and an iterator over it, as they are in PyTorch."""

    _rest: Optional[Iterator[T]] = None

    def __iter__(self) -> Iterator[T]:
        return super().__iter__() if self._rest is None else self._rest

    def __next__(self) -> T:
        if self._rest is None:
            self._rest = super().__iter__()
        return next(self._rest)


class IncompatibleKeys(NamedTuple):
    """Names that load_state_dict(strict=False) has passed over: of the model alone, and of the state alone."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class ValuesAndIndices(NamedTuple):
    """Values along a dimension, and where they were."""

    values: Tensor
    indices: Tensor


def remake(*state):
    """A tensor again, of what Tensor.__reduce__ gave."""
    return _remake(*state)


def remake_module(kind, base, options):
    """A module of class `kind` without its __init__: as `base`, the class of C++ below it, makes it."""
    module = kind.__new__(kind)
    vars(module)["_made"] = (base, options)  # of a copy, whose __init__ calls no reset_parameters
    base.__init__(module, **options)
    return module


def set_state(module, state):
    """As pickle does: None is no state."""
    if state is not None:
        module.__setstate__(state)


def restore_module(module, state):
    """Gives a module that remake_module has made its parts, and then what its __getstate__ gave."""
    parts, attributes = state
    module._set_parts(parts)
    set_state(module, attributes)


def remake_handle(hooks, hook):
    """The handle of a hook that is in a copied module's list."""
    return _handle_of(hooks, hook)
