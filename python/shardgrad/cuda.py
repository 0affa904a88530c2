"""What this process knows of GPUs."""

from ._core import _cuda_device_count

__all__ = ["device_count", "is_available"]


def is_available() -> bool:
    """Whether there is a GPU, and the library was built for it."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs this process sees; a rank computes on one of them."""
    return _cuda_device_count()
