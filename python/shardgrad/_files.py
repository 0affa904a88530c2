"""Files of tensors by name, with words for what PyTorch's programs put into theirs."""

import os
from collections.abc import Mapping
from typing import Optional, Union

from ._core import InputError, Tensor, _load, _save

_Path = Union[str, "os.PathLike[str]"]


def save(state: Mapping[str, Tensor], path: _Path) -> None:
    """Writes tensors by name into a safetensors file, which many programs open. It takes its name when it is whole."""
    named = state.items() if isinstance(state, Mapping) else [("", state)]
    wrong = [f"a {type(value).__name__}" + (f" under {name!r}" if name != "" else "") for name, value in named
             if not (name and isinstance(name, str) and isinstance(value, Tensor))]
    if wrong:
        raise InputError(f"save: {wrong[0]} where a file has tensors by name, as model.state_dict() is; numbers go into a JSON "
                         "file, a whole run into save_checkpoint")
    _save(dict(state), path)


def _begin(path: _Path) -> bytes:
    if not os.path.isfile(path):
        return b""
    with open(path, "rb") as file:
        return file.read(4)


def load(path: _Path, map_location: Optional[str] = None, weights_only: bool = True) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the cpu or on the device `map_location`.

    `weights_only` is PyTorch's, and means nothing: a file has nothing but tensors.
    """
    try:
        state = _load(path)
    except InputError:
        if _begin(path) not in (b"PK\3\4", b"\x80\x02\x8a\n"):
            raise
        raise InputError(f"load: '{os.fspath(path)}' is a pickle of PyTorch's, which runs what is in it; where PyTorch is, "
                         "safetensors.torch.save_file(state, path) writes what load reads") from None
    return state if map_location is None else {name: value.to(map_location) for name, value in state.items()}
