#!/usr/bin/env python3
"""Writes tests/fixtures/*.json: what PyTorch computes for the operations and training runs that the tests repeat.

    make_fixtures.py [FOLDER]        needs torch (Debian package python3-torch, or PyPI); any version from 1.13 on

The files are committed, so neither a build nor the tests need PyTorch.
"""
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

torch.set_num_threads(1)


def numbers(tensor):
    if tensor.is_floating_point():
        return [float(f"{v:.9g}") for v in tensor.detach().reshape(-1).tolist()]
    return tensor.reshape(-1).tolist()


def entry(tensor):
    kind = "f32" if tensor.is_floating_point() else "u8" if tensor.dtype == torch.bool else "i64"
    return {"dtype": kind, "shape": list(tensor.shape), "values": [int(v) for v in numbers(tensor)] if kind != "f32" else numbers(tensor)}


def randn(*shape):
    return torch.randn(*shape, requires_grad=True)


def positive(*shape):
    return (torch.rand(*shape) * 2 + 0.25).requires_grad_()


def index(below, *shape):
    return torch.randint(0, below, shape)


def linear(activation):
    return lambda x, w, b: activation(F.linear(x, w, b))


def batch_norm(x, w, b):
    return F.batch_norm(x, None, None, w, b, training=True, eps=1e-5)


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


# name: (function, inputs). The C++ side is the table in tests/autograd/fixtures_test.cpp.
def operations():
    x, y = randn(4, 5), randn(4, 5)
    return {
        "add_broadcast": (torch.add, [randn(3, 1), randn(2, 1, 5)]),
        "sub_broadcast": (torch.sub, [randn(3, 5), randn(5)]),
        "mul_broadcast": (torch.mul, [randn(3, 1), randn(5)]),
        "div_broadcast": (torch.div, [randn(3, 5), positive(3, 1)]),
        "where": (torch.where, [torch.rand(3, 5) > 0.5, randn(3, 5), randn(5)]),
        "exp": (torch.exp, [x]),
        "log": (torch.log, [positive(4, 5)]),
        "sqrt": (torch.sqrt, [positive(4, 5)]),
        "tanh": (torch.tanh, [x]),
        "sigmoid": (torch.sigmoid, [x]),
        "relu": (F.relu, [x]),
        "gelu_erf": (F.gelu, [x]),
        "gelu_tanh": (gelu_tanh, [x]),
        "abs": (torch.abs, [x]),
        "pow_3": (lambda v: torch.pow(v, 3), [x]),
        "pow_1.5": (lambda v: torch.pow(v, 1.5), [positive(4, 5)]),
        "clamp": (lambda v: torch.clamp(v, -0.5, 0.8), [x]),
        "permute": (lambda v: v.permute(2, 0, 1), [randn(2, 3, 4)]),
        "slice": (lambda v: v[:, 1:3], [x]),
        "cat": (lambda a, b: torch.cat([a, b], 1), [x, randn(4, 2)]),
        "index_select": (lambda v, i: torch.index_select(v, 1, i), [x, index(5, 7)]),
        "gather": (lambda v, i: torch.gather(v, 1, i), [x, index(5, 4, 3)]),
        "scatter_add": (lambda v, i, s: torch.scatter_add(v, 1, i, s), [x, index(5, 4, 6), randn(4, 6)]),
        "embedding": (lambda t, i: F.embedding(i, t), [randn(6, 3), index(6, 2, 5)]),
        "sum": (torch.sum, [x]),
        "sum_0": (lambda v: v.sum(0), [x]),
        "mean": (torch.mean, [x]),
        "mean_1_kept": (lambda v: v.mean(1, keepdim=True), [x]),
        "max_1": (lambda v: v.max(1).values, [x]),
        "norm": (torch.norm, [x]),
        "softmax": (lambda v: F.softmax(v, -1), [x]),
        "log_softmax": (lambda v: F.log_softmax(v, -1), [x]),
        "matmul": (torch.matmul, [randn(3, 6), randn(6, 4)]),
        "matmul_batch": (torch.matmul, [randn(2, 3, 6), randn(2, 6, 4)]),
        "matmul_transposed": (lambda a, b: torch.matmul(a.T, b.T), [randn(6, 3), randn(4, 6)]),
        "linear": (F.linear, [randn(2, 3, 5), randn(4, 5), randn(4)]),
        "linear_relu": (linear(F.relu), [randn(6, 5), randn(4, 5), randn(4)]),
        "linear_gelu": (linear(gelu_tanh), [randn(6, 5), randn(4, 5), randn(4)]),
        "layer_norm": (lambda v, w, b: F.layer_norm(v, (8,), w, b), [randn(3, 8), randn(8), randn(8)]),
        "batch_norm": (batch_norm, [randn(9, 4), randn(4), randn(4)]),
        "mse_loss": (F.mse_loss, [x, y]),
        "cross_entropy": (F.cross_entropy, [randn(6, 5), index(5, 6)]),
        "cross_entropy_ignored": (lambda v, i: F.cross_entropy(v, i, ignore_index=2), [randn(9, 4), index(4, 9)]),
        "batch_norm_images": (batch_norm, [randn(3, 2, 4, 5), randn(2), randn(2)]),
        "max_pool2d": (lambda v: F.max_pool2d(v, 3, 2, 1), [randn(2, 2, 5, 6)]),
        "max_pool2d_equal": (lambda v: F.max_pool2d(v, 2, 1), [(index(3, 1, 2, 4, 5) - 1.0).requires_grad_()]),
        "avg_pool2d": (lambda v: F.avg_pool2d(v, 3, 2, 1), [randn(2, 2, 5, 6)]),
        "adaptive_avg_pool2d": (lambda v: F.adaptive_avg_pool2d(v, 3), [randn(2, 2, 5, 7)]),
    }


def run_operation(call, inputs):
    for tensor in inputs:
        tensor.grad = None
    result = call(*inputs)
    upstream = torch.randn_like(result)
    result.backward(upstream)
    grads = [entry(t.grad) if t.requires_grad else None for t in inputs]
    return {"inputs": [entry(t) for t in inputs], "result": entry(result), "upstream": entry(upstream), "grads": grads}


def make_optimizer(kind, parameters):
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    if kind == "nesterov":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=0.01, weight_decay=0.01)
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def train(kind, loss_kind, steps=5):
    """An MLP 6-8-5-3 with ReLU, on the same batch of 7 every step."""
    sizes = [6, 8, 5, 3]
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
    start = [entry(p) for p in parameters]
    x, labels = torch.randn(7, 6), index(3, 7)
    optimizer = make_optimizer(kind, parameters)
    losses, first_grads = [], None
    for _ in range(steps):
        h = x
        for layer in layers[:-1]:
            h = F.relu(layer(h))
        out = layers[-1](h)
        loss = F.cross_entropy(out, labels) if loss_kind == "cross_entropy" else F.mse_loss(out, F.one_hot(labels, 3).float())
        optimizer.zero_grad()
        loss.backward()
        first_grads = first_grads or [entry(p.grad) for p in parameters]
        losses.append(loss.item())
        optimizer.step()
    return {"optimizer": kind, "loss": loss_kind, "x": entry(x), "labels": entry(labels), "start": start,
            "losses": losses, "first_grads": first_grads, "end": [entry(p) for p in parameters]}


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "tests" / "fixtures")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1234)
    made = {name: run_operation(*case) for name, case in operations().items()}
    runs = [train(kind, loss) for kind, loss in (("sgd", "mse"), ("nesterov", "cross_entropy"), ("adam", "mse"), ("adamw", "cross_entropy"))]
    for name, content in (("operations", made), ("training", runs)):
        (folder / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")
    print(f"{len(made)} operations and {len(runs)} training runs from PyTorch {torch.__version__} in {folder}")


if __name__ == "__main__":
    main()
