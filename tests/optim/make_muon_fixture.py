#!/usr/bin/env python3
"""Writes muon_fixture.h: weights and momentum after four steps of PyTorch's Muon, in f64.

    make_muon_fixture.py > muon_fixture.h        (made with PyTorch 2.15)

PyTorch computes the products of its iteration in bf16. Here its own code runs in f64, so that formulas can be compared
to the last digits; `as_it_is` is a run of the unchanged optimizer. Element i of a weight starts at sin(i + 1); its
gradient at step t is cos(0.7 i² + t). The test computes the same.
"""
import inspect

import torch
from torch.optim import _muon as muon

STEPS = 4
CASES = [
    ("wide", (3, 5), dict(lr=0.1)),
    ("tall", (5, 3), dict(lr=0.1)),
    ("plain_momentum", (3, 5), dict(lr=0.1, momentum=0.8, nesterov=False, weight_decay=0)),
    ("like_adamw", (5, 3), dict(lr=0.1, weight_decay=0.3, adjust_lr_fn="match_rms_adamw")),
    ("unclamped", (3, 5), dict(lr=0.1, adjust_lr_fn="spectral_unclamped")),
    ("cubic", (4, 4), dict(lr=0.1, ns_coefficients=(1.5, -0.5, 0.0), ns_steps=9, eps=3.0)),
    ("as_it_is", (5, 3), dict(lr=0.1)),
]


def show(name, values):
    rows = [", ".join(repr(v) for v in values[i:i + 4]) for i in range(0, len(values), 4)]
    print(f"inline const std::vector<double> {name} = {{\n    " + ",\n    ".join(rows) + "};")


def in_double(function):
    source = inspect.getsource(function)
    assert source.count("torch.bfloat16") == 1
    space = dict(vars(muon))
    exec(source.replace("torch.bfloat16", "torch.float64"), space)
    return space[function.__name__]


AS_IT_IS = muon._zeropower_via_newtonschulz
IN_DOUBLE = in_double(AS_IT_IS)

print("#pragma once\n// Made by make_muon_fixture.py.\n\n#include <vector>\n")
print(f"namespace muon_fixture {{\n\n// clang-format off\n// PyTorch {torch.__version__}")
for name, shape, options in CASES:
    muon._zeropower_via_newtonschulz = AS_IT_IS if name == "as_it_is" else IN_DOUBLE
    i = torch.arange(shape[0] * shape[1], dtype=torch.float64)
    weight = torch.sin(i + 1).view(shape).requires_grad_()
    optimizer = torch.optim.Muon([weight], **options)
    for t in range(STEPS):
        weight.grad = torch.cos(0.7 * i * i + t).view(shape)
        optimizer.step()
    show(name, weight.flatten().tolist())
    show(f"{name}_momentum_buffer", optimizer.state[weight]["momentum_buffer"].flatten().tolist())
print("// clang-format on\n\n}  // namespace muon_fixture")
