"""In which order samples come."""

import random


def shuffled(count: int, *depends_on: object) -> list[int]:
    """0 … count - 1 in an order that follows from the words alone, whatever else was drawn."""
    order = list(range(count))
    random.Random(" ".join(map(str, depends_on))).shuffle(order)
    return order
