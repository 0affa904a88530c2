"""Operations by themselves, in this library or in PyTorch: the same lines of Python, as both have the same names.

    operations.py shardgrad|torch [THREADS]     answers lines: names | check NAME | run NAME COUNT

A case is an expression of x, y (1024 x 1024, f32), positive p, ids (of 512 rows, or 1024 in each column), mask and row
(1024). `check` gives the sums of the result, and of the gradient of x; `run` seconds of forward, and of both.
"""
import importlib
import sys
import time

library = sys.argv[1]
L = importlib.import_module(library)
threads = int(sys.argv[2]) if len(sys.argv) > 2 else 1
L.set_num_threads(threads)
F = L.nn.functional

SIDE = 1024
NO_GRADIENT = {"argmax", "sign", "floor", "round", "isnan", "x > y", "any", "all", "nonzero", "argsort", "tril of i64"}
CASES = {
    **{name: (lambda x, name=name: getattr(L, name)(x)) for name in (
        "sin", "cos", "exp", "tanh", "sigmoid", "erf", "abs", "sign", "floor", "round", "square", "expm1", "isnan")},
    **{name: (lambda x, name=name: getattr(L, name)(x.abs() + 0.5)) for name in ("log", "sqrt", "rsqrt", "log1p", "reciprocal")},
    **{name: (lambda x, name=name: getattr(F, name)(x)) for name in (
        "silu", "softplus", "leaky_relu", "elu", "gelu", "relu")},
    "x + y": lambda x: x + y, "x * row": lambda x: x * row, "x / p": lambda x: x / p,
    "maximum": lambda x: L.maximum(x, y), "pow(p, y)": lambda x: L.pow(p, y), "x ** 2": lambda x: x ** 2,
    "x ** 3.5": lambda x: p ** 3.5, "remainder": lambda x: L.remainder(x, p), "x > y": lambda x: x > y,
    "where": lambda x: L.where(mask, x, y), "masked_fill": lambda x: x.masked_fill(mask, 0.),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    **{f"{name}()": (lambda x, name=name: getattr(x, name)()) for name in (
        "sum", "mean", "max", "min", "var", "std", "norm")},
    "prod()": lambda x: (1 + x * 1e-6).prod(),
    **{f"{name}({dim})": (lambda x, name=name, dim=dim: getattr(x, name)(dim)) for name in (
        "sum", "mean", "var", "std", "logsumexp", "cumsum", "softmax", "log_softmax") for dim in (0, 1)},
    **{f"{name}({dim})": (lambda x, name=name, dim=dim: getattr(x, name)(dim)[0]) for name in (
        "max", "min") for dim in (0, 1)},
    **{f"prod({dim})": (lambda x, dim=dim: (1 + x * 1e-3).prod(dim)) for dim in (0, 1)},
    "norm over 1": lambda x: x.norm(dim=1), "argmax": lambda x: x.argmax(1), "any": lambda x: mask.any(1),
    "all": lambda x: mask.all(), "topk(10)": lambda x: x.topk(10, 1)[0], "topk(10, 0)": lambda x: x.topk(10, 0)[0],
    "sort(1)": lambda x: x.sort(1)[0], "sort(0)": lambda x: x.sort(0)[0], "argsort": lambda x: x.argsort(1),
    "t + y": lambda x: x.t() + y, "cat(0)": lambda x: L.cat([x, y], 0), "cat(1)": lambda x: L.cat([x, y], 1),
    "stack": lambda x: L.stack([x, y]), "flip(0)": lambda x: x.flip(0), "flip(1)": lambda x: x.flip(1),
    "repeat": lambda x: x.repeat(2, 1), "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1),
    "permute": lambda x: x.reshape(32, 32, 1024).permute(1, 0, 2).contiguous(),
    "transposed": lambda x: x.reshape(32, 32, 1024).permute(2, 1, 0).contiguous(),
    "slice": lambda x: x[100:900, ::2] * 1., "columns": lambda x: x[:, 17:530] * 1., "x[ids]": lambda x: x[ids],
    "x[mask]": lambda x: x[mask], "nonzero": lambda x: mask.nonzero(), "gather": lambda x: x.gather(0, many),
    "index_select": lambda x: x.index_select(1, ids), "scatter_add": lambda x: y.scatter_add(0, many, x),
    "index_put of rows": lambda x: L.index_put(x, (ids,), y[:512]), "outer": lambda x: L.outer(row, row) + x,
    "embedding": lambda x: F.embedding(ids, x), "one_hot": lambda x: F.one_hot(ids, 1024).to(L.float32) @ x,
    "matmul": lambda x: x @ y, "x @ row": lambda x: x @ row,
    "bmm": lambda x: x.reshape(64, 128, 128) @ y.reshape(64, 128, 128),
    "mse_loss": lambda x: F.mse_loss(x, y), "l1_loss": lambda x: F.l1_loss(x, y), "huber": lambda x: F.huber_loss(x, y),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, y), "kl_div": lambda x: F.kl_div(x, p, reduction="sum"),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, mask.to(L.float32)),
    "cross_entropy": lambda x: F.cross_entropy(x, classes), "nll_loss": lambda x: F.nll_loss(x, classes),
    "cross_entropy, smoothing": lambda x: F.cross_entropy(x, classes, label_smoothing=0.1),
    "layer_norm": lambda x: F.layer_norm(x, (1024,), row, shift), "dropout": lambda x: F.dropout(x, 0.1) * 0.,
    "group_norm": lambda x: groups(x.reshape(32, 32, 1024)),
}


groups = L.nn.GroupNorm(8, 32)


def wave(n, step, phase=0.):
    ramp = L.arange(n).to(L.float32)  # else many were 1, the largest; and without 0.1 sums nearly 0
    return (ramp * step + phase).sin() * (0.9 + (ramp * 1.7e-5).cos() * 0.1) + 0.1


x, y = (wave(SIDE * SIDE, step).reshape(SIDE, SIDE) for step in (0.7, 0.31))
p, row, shift = x.abs() + 0.5, wave(SIDE, 0.2), wave(SIDE, 0.3)
mask = y > 0
ids = L.arange(512) * 7 % 1000
classes = L.arange(SIDE) * 13 % SIDE
many = (L.arange(SIDE * SIDE) * 31 % SIDE).reshape(SIDE, SIDE)


def both(name):
    """The case's result, and the gradient of its sum by weights; None where it has none."""
    leaf = x.detach().requires_grad_(True)
    z = CASES[name](leaf)
    if name in NO_GRADIENT or not z.requires_grad:
        return z, None
    z.backward(weights_of(z))
    return z, leaf.grad


weights = {}


def weights_of(z):
    shape = tuple(z.shape)
    if shape not in weights:
        weights[shape] = wave(z.numel(), 0.13, 1.).reshape(shape)
    return weights[shape]


def forward(name):
    with L.no_grad():
        return CASES[name](x)


def seconds(work, name, count):
    begin = time.perf_counter()
    for _ in range(count):
        work(name)
    return (time.perf_counter() - begin) / count


def main():
    for line in sys.stdin:
        word, *rest = line.rstrip("\n").split("\t")
        if word == "names":
            print(*CASES, sep="\t", flush=True)
        elif word == "check":
            z, gradient = both(rest[0])
            z = z.detach().to(L.float64)
            sums = [(z * z).sum().item()] if gradient is None else [
                (z * z).sum().item(), (gradient * gradient).to(L.float64).sum().item()]
            print(*sums, flush=True)
        else:
            count = int(rest[1])
            print(seconds(forward, rest[0], count), seconds(both, rest[0], count), flush=True)


if __name__ == "__main__":
    main()
