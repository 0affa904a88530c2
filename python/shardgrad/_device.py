"""Names of devices that know their parts."""

from typing import Optional

from ._core import parse_device


class device(str):
    """Where tensors are: the name "cpu", "cuda", … Wherever a name is taken, one of these is."""

    def __new__(cls, type: str, index: Optional[int] = None) -> "device":
        return super().__new__(cls, parse_device(type if index is None else f"{type}:{index}"))

    @property
    def type(self) -> str:
        """The name."""
        return str(self)

    @property
    def index(self) -> Optional[int]:
        """0, or None of the cpu."""
        return None if self == "cpu" else 0
