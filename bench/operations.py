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
NO_GRADIENT = {"argmax", "argmin", "sign", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "x > y", "any",
               "all", "nonzero", "count_nonzero", "argsort", "floor_divide", "logical_and", "logical_or", "logical_xor",
               "logical_not"}
# Libraries draw other numbers: each takes its time, and is 0 in the sums.
RANDOM = {"rand": lambda x: L.rand(SIDE, SIDE), "randn": lambda x: L.randn(SIDE, SIDE),
          "randint": lambda x: L.randint(0, 1000, (SIDE, SIDE)), "randperm": lambda x: L.randperm(SIDE * SIDE),
          "bernoulli": lambda x: L.bernoulli(chance), "multinomial": lambda x: L.multinomial(chance, 64, replacement=True)}
CASES = {
    **{name: (lambda x, name=name: getattr(L, name)(x)) for name in (
        "sin", "cos", "exp", "tanh", "sigmoid", "erf", "abs", "sign", "floor", "ceil", "trunc", "round", "square", "expm1",
        "isnan", "isinf", "isfinite", "logical_not")},
    **{name: (lambda x, name=name: getattr(L, name)(x.abs() + 0.5)) for name in ("log", "sqrt", "rsqrt", "log1p", "reciprocal")},
    **{name: (lambda x, name=name: getattr(F, name)(x)) for name in (
        "silu", "softplus", "leaky_relu", "elu", "gelu", "relu")},
    "x + y": lambda x: x + y, "x * row": lambda x: x * row, "x / p": lambda x: x / p,
    **{name: (lambda x, name=name: getattr(L, name)(mask, other_mask)) for name in (
        "logical_and", "logical_or", "logical_xor")},
    "floor_divide": lambda x: L.floor_divide(x, p), "minimum": lambda x: L.minimum(x, y),
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
    **{f"{name}({dim})": (lambda x, name=name, dim=dim: getattr(L, name)(x, dim)) for name in ("amax", "amin") for dim in (0, 1)},
    **{f"{name}(0, 2)": (lambda x, name=name: getattr(L, name)(x.reshape(32, 32, 1024), dim=(0, 2))) for name in (
        "sum", "mean", "var", "std", "norm", "logsumexp")},
    "argmin": lambda x: x.argmin(0), "count_nonzero": lambda x: L.count_nonzero(mask),
    "norm over 1": lambda x: x.norm(dim=1), "argmax": lambda x: x.argmax(1), "any": lambda x: mask.any(1),
    "all": lambda x: mask.all(), "topk(10)": lambda x: x.topk(10, 1)[0], "topk(10, 0)": lambda x: x.topk(10, 0)[0],
    "sort(1)": lambda x: x.sort(1)[0], "sort(0)": lambda x: x.sort(0)[0], "argsort": lambda x: x.argsort(1),
    "t + y": lambda x: x.t() + y, "cat(0)": lambda x: L.cat([x, y], 0), "cat(1)": lambda x: L.cat([x, y], 1),
    "stack": lambda x: L.stack([x, y]), "flip(0)": lambda x: x.flip(0), "flip(1)": lambda x: x.flip(1),
    "roll(0)": lambda x: L.roll(x, 100, 0), "roll(1)": lambda x: L.roll(x, 100, 1),
    "chunk": lambda x: L.chunk(x, 4, 1)[2] * 1., "split": lambda x: L.split(x, 256, 1)[1] * 1.,
    "repeat": lambda x: x.repeat(2, 1), "tril": lambda x: x.tril(), "triu": lambda x: x.triu(1),
    "permute": lambda x: x.reshape(32, 32, 1024).permute(1, 0, 2).contiguous(),
    "transposed": lambda x: x.reshape(32, 32, 1024).permute(2, 1, 0).contiguous(),
    "slice": lambda x: x[100:900, ::2] * 1., "columns": lambda x: x[:, 17:530] * 1., "x[ids]": lambda x: x[ids],
    "x[mask]": lambda x: x[mask], "nonzero": lambda x: mask.nonzero(), "gather": lambda x: x.gather(0, many),
    "index_select": lambda x: x.index_select(1, ids), "scatter_add": lambda x: y.scatter_add(0, many, x),
    "index_put of rows": lambda x: L.index_put(x, (ids,), y[:512]), "outer": lambda x: L.outer(row, row) + x,
    "embedding": lambda x: F.embedding(ids, x), "one_hot": lambda x: F.one_hot(ids, 1024).to(L.float32) @ x,
    "einsum": lambda x: L.einsum("bij,bkj->bik", x.reshape(64, 128, 128), y.reshape(64, 128, 128)),
    "linear": lambda x: F.linear(x, y, row), "matmul": lambda x: x @ y, "x @ row": lambda x: x @ row,
    "bmm": lambda x: x.reshape(64, 128, 128) @ y.reshape(64, 128, 128),
    "mse_loss": lambda x: F.mse_loss(x, y), "l1_loss": lambda x: F.l1_loss(x, y), "huber": lambda x: F.huber_loss(x, y),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, y), "kl_div": lambda x: F.kl_div(x, p, reduction="sum"),
    "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, mask.to(L.float32)),
    "cross_entropy": lambda x: F.cross_entropy(x, classes), "nll_loss": lambda x: F.nll_loss(x, classes),
    "cross_entropy, smoothing": lambda x: F.cross_entropy(x, classes, label_smoothing=0.1),
    "layer_norm": lambda x: F.layer_norm(x, (1024,), row, shift), "dropout": lambda x: F.dropout(x, 0.1) * 0.,
    "group_norm": lambda x: groups(x.reshape(32, 32, 1024)), "rms_norm": lambda x: rms(x),
    "batch_norm": lambda x: batches(x), "batch_norm of images": lambda x: channels(x.reshape(16, 64, 32, 32)),
    "conv1d": lambda x: F.conv1d(x.reshape(32, 32, 1024), y[:32, :96].reshape(32, 32, 3), padding=1),
    "conv2d": lambda x: F.conv2d(x.reshape(16, 64, 32, 32), y[:64, :576].reshape(64, 64, 3, 3), padding=1),
    "max_pool2d": lambda x: F.max_pool2d(x.reshape(16, 64, 32, 32), 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x.reshape(16, 64, 32, 32), 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x.reshape(16, 64, 32, 32), 1),
    "LSTM": lambda x: lstm(x.reshape(32, 64, 512)[:, :, :128] * 1.)[0],
    "GRU": lambda x: gru(x.reshape(32, 64, 512)[:, :, :128] * 1.)[0],
    **{f"{name} of numbers": (lambda x, name=name: getattr(L, name)(SIDE, SIDE)) for name in ("zeros", "ones", "eye")},
    "full": lambda x: L.full((SIDE, SIDE), 2.5), "arange": lambda x: L.arange(SIDE * SIDE),
    "linspace": lambda x: L.linspace(0, 1, SIDE * SIDE), **RANDOM,
}


def filled(module):
    """The same parameters in both libraries."""
    getattr(module, "materialize", lambda: None)()  # here parameters have no memory before
    with L.no_grad():
        for parameter in module.parameters():
            parameter.copy_(wave(parameter.numel(), 0.17).reshape(*parameter.shape) * 0.1)
    return module


def wave(n, step, phase=0.):
    ramp = L.arange(n).to(L.float32)  # else many were 1, the largest; and without 0.1 sums nearly 0
    return (ramp * step + phase).sin() * (0.9 + (ramp * 1.7e-5).cos() * 0.1) + 0.1


x, y = (wave(SIDE * SIDE, step).reshape(SIDE, SIDE) for step in (0.7, 0.31))
p, row, shift = x.abs() + 0.5, wave(SIDE, 0.2), wave(SIDE, 0.3)
mask = y > 0
ids = L.arange(512) * 7 % 1000
classes = L.arange(SIDE) * 13 % SIDE
many = (L.arange(SIDE * SIDE) * 31 % SIDE).reshape(SIDE, SIDE)
other_mask, chance = x > 0, p / 3
groups, rms, batches, channels = L.nn.GroupNorm(8, 32), L.nn.RMSNorm(SIDE, eps=1e-6), L.nn.BatchNorm1d(SIDE), L.nn.BatchNorm2d(64)
lstm, gru = filled(L.nn.LSTM(128, 128, batch_first=True)), filled(L.nn.GRU(128, 128, batch_first=True))


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
            z = z.detach().to(L.float64) * (rest[0] not in RANDOM)
            sums = [(z * z).sum().item()] if gradient is None else [
                (z * z).sum().item(), (gradient * gradient).to(L.float64).sum().item()]
            print(*sums, flush=True)
        else:
            count = int(rest[1])
            print(seconds(forward, rest[0], count), seconds(both, rest[0], count), flush=True)


if __name__ == "__main__":
    main()
