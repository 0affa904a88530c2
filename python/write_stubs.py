#!/usr/bin/env python3
"""Writes the type stubs of the extension, by nanobind's stubgen, with what it cannot know put right.

    write_stubs.py FOLDER        shardgrad/_core/*.pyi and shardgrad/py.typed in FOLDER, which PYTHONPATH has
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PATTERNS = '''
# Exceptions are called shardgrad.InputError, and are the extension's.
^shardgrad\\._core\\.(Error)$:
    class Error(RuntimeError): ...

^shardgrad\\._core\\.(InputError)$:
    class InputError(Error, ValueError): ...

^shardgrad\\._core\\.(MissingError)$:
    class MissingError(Error): ...

^shardgrad\\._core\\.(OutOfMemoryError)$:
    class OutOfMemoryError(Error, MemoryError): ...

^shardgrad\\._core\\.(RankFailedError)$:
    class RankFailedError(Error): ...

'''
# What signatures name that the extension does not import.
IMPORTS = {"list[ParamGroup]": "from shardgrad._groups import ParamGroup", "typing.": "import typing",
           "Walk[": "from shardgrad._results import IncompatibleKeys, Walk", "shardgrad._device.": "import shardgrad._device"}
# Inside Tensor its methods float, int, bool and its property dtype hide the types of these names.
HIDDEN = {"int": "builtins.int", "float": "builtins.float", "bool": "builtins.bool", "dtype": "_dtype"}


def stubgen(folder):
    patterns = folder / "patterns.txt"
    patterns.write_text(PATTERNS)
    subprocess.run([sys.executable, "-m", "nanobind.stubgen", "--quiet", "--recursive", "--include-private", "-m",
                    "shardgrad._core", "-p", str(patterns), "-O", str(folder)], check=True)


def with_types_of_tensor(text):
    """The class Tensor with names of types that its own names do not hide."""
    begin = text.index("class Tensor:")
    end = re.compile(r"^\S", re.M).search(text, begin + 1).start()
    # A type, not a parameter or a method of that name.
    name = re.compile(r"(?<=-> )(int|float|bool|dtype)\b|(?<![\w.])(int|float|bool|dtype)\b(?!\s*[:(])")
    lines = [name.sub(lambda m: HIDDEN[m[0]], line) if "def " in line else line for line in text[begin:end].splitlines(True)]
    return text[:begin] + "_dtype = dtype\n\n" + "".join(lines) + text[end:]


def with_differences_allowed(text):
    """Comparisons give tensors, and operators in place take numbers, which Python's own rules for types do not foresee."""
    for name in "eq", "ne":
        text = text.replace(f"    @overload\n    def __{name}__(", f"    @overload  # type: ignore[override]\n    def __{name}__(", 1)
    return re.sub(r"^(    def __i\w+__\(.*: \.\.\.)$", r"\1  # type: ignore[misc]", text, flags=re.M)


def with_results_of_calls(text):
    """What a layer's call gives is what its forward gives; of a module of Python's nobody knows."""
    classes = re.split(r"^(?=class )", text, flags=re.M)
    for i, body in enumerate(classes):
        forward = re.search(r"def forward\(.*\) -> (.*?):", body)
        result = forward[1] if forward else "typing.Any"
        classes[i] = re.sub(r"(def __call__\(.*\) -> )object:", lambda m: f"{m[1]}{result}:", body)
    return "".join(classes)


def mended(text):
    if "class Tensor:" in text:
        text = with_differences_allowed(with_types_of_tensor(text))
        text = text.replace("import enum\n", "import builtins\nimport enum\n", 1)
        text = re.sub(r"(def (?:__i\w+__|[a-z]\w*_)\(.*\) -> )object:", r"\1Tensor:", text)  # the object itself
        text = re.sub(r"-> (?:shardgrad\._core\.)?Tensor \| object", "-> typing.Any", text)
    text = with_results_of_calls(text)
    for word, line in IMPORTS.items():
        if word in text:
            text = f"{line}\n{text}"
    return text


def main():
    target = Path(sys.argv[1]) / "shardgrad"
    with tempfile.TemporaryDirectory(prefix="stubs ") as folder:
        stubgen(Path(folder))
        for path in Path(folder).rglob("*.pyi"):
            to = target / path.relative_to(folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(mended(path.read_text()))
    (target / "py.typed").touch()


if __name__ == "__main__":
    main()
