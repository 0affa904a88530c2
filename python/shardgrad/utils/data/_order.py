"""In which order samples come."""

import random
from typing import Any

from ..._core import InputError


def check_no_generator(name: str, generator: Any) -> None:
    """PyTorch's generators are not here."""
    if generator is not None:
        raise InputError(f"{name}: there are no generators; give a seed, or call sg.manual_seed(seed) before")


def random_of(*depends_on: object) -> random.Random:
    """Random numbers that follow from the words alone, whatever else was drawn."""
    return random.Random(" ".join(map(str, depends_on)))


def shuffled(count: int, *depends_on: object) -> list[int]:
    """0 … count - 1 in an order that follows from the words alone."""
    order = list(range(count))
    random_of(*depends_on).shuffle(order)
    return order
