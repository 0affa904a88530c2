"""What this process knows of GPUs."""

from ._core import _cuda_device_count, _cuda_synchronize, manual_seed

__all__ = ["device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all", "synchronize"]


def is_available() -> bool:
    """Whether there is a GPU, and the library was built for it."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs this process sees; a rank computes on one of them."""
    return _cuda_device_count()


def manual_seed_all(seed: int) -> None:
    """As manual_seed: numbers on all devices follow from one seed."""
    manual_seed(seed)


def synchronize(device: object = None) -> None:
    """Returns when the GPU has done what it was given; throws what has failed there."""
    _cuda_synchronize()


def empty_cache() -> None:
    """PyTorch's; memory that tensors leave is used again by itself, and nothing is to be done."""
