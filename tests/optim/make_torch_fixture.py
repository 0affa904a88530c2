#!/usr/bin/env python3
"""Writes torch_fixture.h: weights and state after five steps of PyTorch's optimizers, in f64.

    make_torch_fixture.py > torch_fixture.h        (made with PyTorch 1.13, rmsprop and adagrad with 2.15)

Element i of the weight starts at sin(i + 1); its gradient at step t is cos(0.7 i + t). The test computes the same.
"""
import torch

COUNT, STEPS = 9, 5
CASES = [
    ("sgd", torch.optim.SGD, dict(lr=0.1)),
    ("sgd_decay", torch.optim.SGD, dict(lr=0.1, weight_decay=0.03)),
    ("sgd_momentum", torch.optim.SGD, dict(lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.03)),
    ("sgd_nesterov", torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.03)),
    ("adam", torch.optim.Adam, dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6)),
    ("adam_decay", torch.optim.Adam, dict(lr=0.05, weight_decay=0.1)),
    ("adamw", torch.optim.AdamW, dict(lr=0.05, weight_decay=0.1)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=0.05, alpha=0.9, weight_decay=0.03)),
    ("rmsprop_momentum", torch.optim.RMSprop, dict(lr=0.05, momentum=0.8, eps=1e-6)),
    ("adagrad", torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.05, weight_decay=0.03)),
    ("adagrad_initial", torch.optim.Adagrad, dict(lr=0.1, initial_accumulator_value=0.5)),
]


def show(name, values):
    rows = [", ".join(repr(v) for v in values[i:i + 4]) for i in range(0, len(values), 4)]
    print(f"inline const std::vector<double> {name} = {{\n    " + ",\n    ".join(rows) + "};")


print("#pragma once\n// Made by make_torch_fixture.py.\n\n#include <vector>\n")
print(f"namespace torch_fixture {{\n\n// clang-format off\n// PyTorch {torch.__version__}")
for name, optimizer_type, options in CASES:
    weight = torch.sin(torch.arange(COUNT, dtype=torch.float64) + 1).requires_grad_()
    optimizer = optimizer_type([weight], **options)
    for t in range(STEPS):
        weight.grad = torch.cos(0.7 * torch.arange(COUNT, dtype=torch.float64) + t)
        optimizer.step()
    show(name, weight.tolist())
    for key, value in sorted(optimizer.state[weight].items()):
        if torch.is_tensor(value) and value.numel() == COUNT:
            show(f"{name}_{key}", value.tolist())
print("// clang-format on\n\n}  // namespace torch_fixture")
