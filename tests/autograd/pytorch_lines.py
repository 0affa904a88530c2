"""Runs the left side of every LINE in pytorch_lines_test.cpp with PyTorch: it must print what the test expects.

    pytorch_lines.py        needs torch and numpy; scripts/test --all runs it where they are
"""
import ast
import pathlib
import re
import sys

import torch
import torch.nn.functional as F

LINE = re.compile(r'^  LINE\(("(?:[^"\\]|\\.)*"),\s(.*?),\s+("(?:[^"\\]|\\.)*")\);$', re.M | re.S)


def value_of(text):
    names = {"torch": torch, "F": F, "int": int, "bool": bool, "i": torch.tensor([2, 0]), "labels": torch.tensor([0, 2]),
             "x": torch.tensor([[1., -2., 3.], [-4., 5., 6.]]), "y": torch.tensor([[2., 2., 2.], [1., 1., 1.]]),
             "v": torch.tensor([3., 1., 2.])}
    *before, last = text.split("; ")
    exec("; ".join(before), names)
    return eval(last, names)


def printed(value):
    return str(value.numpy()) if isinstance(value, torch.Tensor) else str(int(value))


def main():
    source = pathlib.Path(__file__).with_name("pytorch_lines_test.cpp").read_text()
    lines = [(ast.literal_eval(left), ast.literal_eval(text)) for left, _, text in LINE.findall(source)]
    wrong = [f"{left}: PyTorch prints {printed(value_of(left))!r}, the test expects {text!r}" for left, text in lines
             if printed(value_of(left)) != text]
    print("\n".join(wrong) or f"{len(lines)} lines")
    return 1 if wrong or len(lines) < 60 or len(lines) != source.count("  LINE(") else 0


if __name__ == "__main__":
    sys.exit(main())
