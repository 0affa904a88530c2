"""Every line of the table in docs/from-pytorch.md runs in Python word for word, with `import shardgrad as torch`."""

import ast
import re
from pathlib import Path

import pytest
import shardgrad as torch

LINE = re.compile(r'^  LINE\(("(?:[^"\\]|\\.)*"),\s(.*?),\s+("(?:[^"\\]|\\.)*")\);$', re.M | re.S)
SOURCE = Path(__file__).parents[1] / "autograd" / "pytorch_lines_test.cpp"
LINES = [(ast.literal_eval(left), ast.literal_eval(text)) for left, _, text in LINE.findall(SOURCE.read_text())]


def value_of(text):
    names = {"torch": torch, "F": torch.nn.functional, "i": torch.tensor([2, 0]), "labels": torch.tensor([0, 2]),
             "x": torch.tensor([[1., -2., 3.], [-4., 5., 6.]]), "y": torch.tensor([[2., 2., 2.], [1., 1., 1.]]),
             "v": torch.tensor([3., 1., 2.])}
    *before, last = text.split("; ")
    exec("; ".join(before), names)
    return eval(last, names)


@pytest.mark.parametrize("line, text", LINES)
def test_a_line_prints_what_it_does_in_pytorch(line, text):
    value = value_of(line)
    assert (str(value.numpy()) if isinstance(value, torch.Tensor) else str(int(value))) == text


def test_there_are_sixty_of_them():
    assert len(LINES) >= 60 and len(LINES) == SOURCE.read_text().count("  LINE(")
