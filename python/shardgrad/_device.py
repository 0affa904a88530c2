"""Names of devices that know their parts."""

from typing import Optional

from ._core import InputError, parse_device


class device(str):
    """Where tensors are: the name "cpu", "cuda", … Wherever a name is taken, one of these is."""

    def __new__(cls, type: str, index: Optional[int] = None) -> "device":
        name, _, number = str(type).partition(":")
        if number:
            index = int(number) if number.isdecimal() else -1
        if index not in (None, 0):
            raise InputError(f"device: there is no '{name}:{number or index}', for a rank has one device; write '{name}'")
        return super().__new__(cls, parse_device(name))

    @property
    def type(self) -> str:
        """The name."""
        return str(self)

    @property
    def index(self) -> Optional[int]:
        """0, or None of the cpu."""
        return None if self == "cpu" else 0
