"""Writes random programs of operations, and what PyTorch makes of them in f64, for programs_test.cpp.

    programs.py FILE [COUNT [SEED]]        needs torch; tests/autograd/programs.json is COUNT 50, SEED 1

A program is a list of steps. Step k makes tensor number len(inputs) + k of earlier ones: [name, [tensors…], {numbers}].
Kept are the last three results, and the gradients of the sum of all steps' results times fixed weights. Programs whose
numbers are large, not finite, or jump when the inputs move by 1e-9 are not kept: two implementations may differ there.
"""
import json
import math
import random
import sys
import warnings

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
warnings.simplefilter("ignore")

# --- what a step's name means in PyTorch; programs_test.cpp has the same names ---------------------------------------
UNARY = {
    "neg": torch.neg, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "relu": torch.relu, "abs": torch.abs, "silu": F.silu, "gelu": F.gelu, "sin": torch.sin, "cos": torch.cos,
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "square": torch.square, "log1p": torch.log1p,
    "expm1": torch.expm1, "erf": torch.erf, "softplus": F.softplus, "elu": F.elu, "leaky_relu": F.leaky_relu,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "sign": torch.sign,
    "sum": torch.sum, "mean": torch.mean, "max": torch.max, "min": torch.min, "norm": torch.norm, "prod": torch.prod,
    "var": torch.var, "std": torch.std, "tril": torch.tril, "triu": torch.triu, "squeeze": torch.squeeze,
    "flatten": torch.flatten, "t": torch.t, "clone": torch.clone,
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "pow": torch.pow, "matmul": torch.matmul, "outer": torch.outer, "remainder": torch.remainder,
    "floor_divide": lambda a, b: torch.floor(a / b), "mse_loss": F.mse_loss,
}
ALONG = {
    "sum_dim": torch.sum, "mean_dim": torch.mean, "var_dim": torch.var, "std_dim": torch.std, "prod_dim": torch.prod,
    "logsumexp": torch.logsumexp, "cumsum": torch.cumsum, "softmax": torch.softmax, "log_softmax": torch.log_softmax,
    "max_dim": lambda x, d: torch.max(x, d).values, "min_dim": lambda x, d: torch.min(x, d).values,
    "sort": lambda x, d: torch.sort(x, dim=d, stable=True).values,
    "sort_down": lambda x, d: torch.sort(x, dim=d, descending=True, stable=True).values,
    "top2": lambda x, d: torch.topk(x, 2, d).values, "unsqueeze": torch.unsqueeze, "flip": lambda x, d: torch.flip(x, [d]),
    "roll": lambda x, d: torch.roll(x, 1, d), "select": lambda x, d: torch.select(x, d, -1),
    "stack_self": lambda x, d: torch.stack([x, 2 * x], d), "cat_self": lambda x, d: torch.cat([x, -x], d),
    "chunk": lambda x, d: torch.chunk(x, 2, d)[0],
    "steps": lambda x, d: x.index_select(d, torch.arange(0, x.size(d), 2)),
    "order": lambda x, d: torch.gather(x, d, torch.argsort(x, dim=d, stable=True)),
    "at_largest": lambda x, d: torch.gather(x, d, torch.argmax(x, d, keepdim=True)),
    "share_above": lambda x, d: (x > x.mean(d, keepdim=True)).to(x.dtype).mean(d),
    "rare": lambda x, d: torch.any(x > 1, d).to(x.dtype) + 2 * torch.all(x > -1, d).to(x.dtype),
}


def picked(x):
    rows = torch.arange(x.size(0))
    return x[rows, rows % x.size(1)]


def put(x, v):
    y = x.clone()
    y[0] = v
    return y


OTHER = {
    "affine": lambda a, n: n["scale"] * a[0] + n["shift"],
    "rdiv": lambda a, n: n["value"] / a[0],
    "power": lambda a, n: torch.pow(a[0], n["exponent"]),
    "rpow": lambda a, n: torch.pow(n["value"], a[0]),
    "clamp": lambda a, n: torch.clamp(a[0], n["low"], n["high"]),
    "where": lambda a, n: torch.where(a[0] > a[1], a[0], 2 * a[1]),
    "masked": lambda a, n: a[0].masked_fill((a[0] < 0) | (a[0] > 2), n["value"]),
    "kept": lambda a, n: a[0][(a[0] >= 0) & ~(a[0] == 1)],
    "reshape": lambda a, n: a[0].reshape(n["shape"]),
    "expand": lambda a, n: a[0].expand(n["shape"]),
    "permute": lambda a, n: a[0].permute(n["order"]),
    "repeat": lambda a, n: a[0].repeat(n["times"]),
    "index": lambda a, n: a[0][..., None, 1:],
    "picked": lambda a, n: picked(a[0]),
    "put": lambda a, n: put(a[0], a[1]),
    "layer_norm": lambda a, n: F.layer_norm(a[0], [a[0].size(-1)]),
    "cross_entropy": lambda a, n: F.cross_entropy(a[0], torch.arange(a[0].size(0)) % a[0].size(1)),
    "sum_dims": lambda a, n: a[0].sum(n["dims"], keepdim=True),
}


EVERY = set(UNARY) | set(BINARY) | set(ALONG) | set(OTHER)


def run_step(name, args, numbers):
    if name in UNARY:
        return UNARY[name](*args)
    if name in BINARY:
        return BINARY[name](*args)
    if name in ALONG:
        return ALONG[name](args[0], numbers["dim"])
    return OTHER[name](args, numbers)


def run(program, inputs):
    tensors = list(inputs)
    for name, args, numbers in program["steps"]:
        tensors.append(run_step(name, [tensors[i] for i in args], numbers))
    return tensors


def weights(shape):
    """The same numbers as programs_test.cpp has."""
    n = math.prod(shape)
    return torch.tensor([((i * 7 + 3) % 11 - 5) / 8 for i in range(n)]).reshape(shape)


def outcome(program, inputs):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    tensors = run(program, leaves)
    results = tensors[len(leaves):]
    loss = sum((y * weights(y.shape)).sum() for y in results)
    grads = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    return results, [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]


# --- making programs ---------------------------------------------------------------------------------------------------
POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal", "log1p"}


def propose(rng, tensors):
    """A step that may be possible."""
    i = rng.randrange(len(tensors))
    x = tensors[i]
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(sorted(UNARY)), [i], {}
    if kind < 0.5:
        return rng.choice(sorted(BINARY)), [i, rng.randrange(len(tensors))], {}
    if kind < 0.75 and x.dim() > 0:
        return rng.choice(sorted(ALONG)), [i], {"dim": rng.randrange(-x.dim(), x.dim())}
    name = rng.choice(sorted(OTHER))
    args, numbers = [i], {}
    if name == "affine":
        numbers = {"scale": rng.choice([-1.5, 0.5, 2]), "shift": rng.choice([0, 0.25, -1])}
    elif name in ("rdiv", "masked", "rpow"):
        numbers = {"value": rng.choice([0.5, 1.5, 3])}
    elif name == "power":
        numbers = {"exponent": rng.choice([2, 3, 0.5, -1])}
    elif name == "clamp":
        numbers = {"low": -0.75, "high": 1.25}
    elif name in ("where", "put"):
        args.append(rng.randrange(len(tensors)))
    elif name == "reshape":
        numbers = {"shape": [x.numel()] if x.dim() != 1 else [1, x.numel()]}
    elif name == "expand":
        numbers = {"shape": [2] + list(x.shape)}
    elif name == "permute":
        order = list(range(x.dim()))
        rng.shuffle(order)
        numbers = {"order": order}
    elif name == "repeat":
        numbers = {"times": [rng.choice([1, 2]) for _ in range(x.dim() + rng.randrange(2))]}
    elif name == "sum_dims":
        numbers = {"dims": sorted(rng.sample(range(x.dim()), min(2, x.dim()))) if x.dim() else []}
    return name, args, numbers


def good(y):
    return y.numel() > 0 and y.numel() <= 48 and y.dim() <= 4 and torch.isfinite(y).all() and y.abs().max() < 50


def possible(name, args, numbers):
    if name in POSITIVE and (args[0].min() < 0.2):
        return False
    if name in ("div", "remainder", "floor_divide") and args[1].abs().min() < 0.2:
        return False
    if name in ("pow", "power") and args[0].min() < 0.2 or name == "rdiv" and args[0].abs().min() < 0.2:
        return False
    if name == "sum_dims" and len(numbers["dims"]) == 0 or name == "mse_loss" and args[0].shape != args[1].shape:
        return False
    if name == "norm" and args[0].norm() < 0.1 or name.startswith("std") and args[0].numel() < 3:
        return False
    return name != "put" or args[0].dim() > 0


def make(rng):
    shapes = [[3], [2, 3], [3, 4], [2, 3, 4], [1, 4], [], [4, 1]]
    inputs = []
    for shape in rng.sample(shapes, rng.randrange(2, 4)):
        low, high = rng.choice([(-2, 2), (-2, 2), (0.5, 2)])
        inputs.append(torch.tensor([round(rng.uniform(low, high), 6) for _ in range(math.prod(shape))]).reshape(shape))
    tensors, steps = list(inputs), []
    wanted = rng.randrange(5, 12)
    for _ in range(400):
        if len(steps) == wanted:
            break
        name, args, numbers = propose(rng, tensors)
        given = [tensors[i] for i in args]
        if not possible(name, given, numbers):
            continue
        try:
            y = run_step(name, given, numbers)
        except (RuntimeError, IndexError, ValueError):
            continue
        if good(y):
            steps.append([name, args, numbers])
            tensors.append(y)
    return {"inputs": [{"shape": list(x.shape), "values": x.flatten().tolist()} for x in inputs], "steps": steps}, inputs


def steady(program, inputs):
    """Whether results and gradients hardly change with the inputs."""
    results, grads = outcome(program, inputs)
    if not all(torch.isfinite(y).all() and (y.numel() == 0 or y.abs().max() < 1e4) for y in [*results, *grads]):
        return None
    for step in (1e-9, -1e-9):
        moved = [x + step * (1 + weights(x.shape)) for x in inputs]
        again = outcome(program, moved)
        for a, b in zip([*results, *grads], [*again[0], *again[1]]):
            if a.shape != b.shape or (a - b).abs().max() > 1e-4:
                return None
    return results, grads


def main():
    path, count, seed = sys.argv[1], int((sys.argv + ["50"])[2]), int((sys.argv + ["50", "1"])[3])
    rng = random.Random(seed)
    programs, used = [], {}
    while len(programs) < count:
        program, inputs = make(rng)
        made = steady(program, inputs) if program["steps"] else None
        names = [step[0] for step in program["steps"]]
        missing = EVERY - set(used)
        if made is None or (missing and not missing & set(names)):
            continue  # first every operation once
        for name in names:
            used[name] = used.get(name, 0) + 1
        program["expected"] = [{"shape": list(y.shape), "values": y.flatten().tolist()} for y in made[0][-3:]]
        program["gradients"] = [g.flatten().tolist() for g in made[1]]
        programs.append(program)
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(p, separators=(",", ":")) for p in programs) + "\n]\n")
    print(f"{count} programs, {sum(used.values())} steps, {len(used)} operations")
    if EVERY - set(used):
        sys.exit("none of: " + " ".join(sorted(EVERY - set(used))))


if __name__ == "__main__":
    main()
