"""Rates that schedulers are given for each group of parameters."""

from collections.abc import Callable, Sequence
from typing import Any

from .._core import InputError
from .._core._optim import Optimizer


def plain(number: Any) -> Any:
    """A number of NumPy's as one of Python's, which JSON keeps."""
    return number.item() if hasattr(number, "item") else number


def per_group(name: str, what: str, given: Any, optimizer: Optimizer, kind: Callable[[Any], Any] = float) -> list:
    """One for all groups, or a list with one for each, also of NumPy's."""
    groups = len(optimizer.param_groups)
    listed = isinstance(given, Sequence) or getattr(given, "ndim", 0) > 0
    found = [kind(each) for each in given] if listed else [kind(given)] * groups
    if len(found) != groups:
        raise InputError(f"{name}: {len(found)} {what} for {groups} groups of parameters")
    return found
