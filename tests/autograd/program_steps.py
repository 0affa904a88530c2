"""What the steps of programs.py mean in PyTorch. program_steps.h and program_layers.h have the same names.

A step is a function of its tensors `a` and its numbers `n`.
"""
import math

import torch
import torch.nn.functional as F


def shaped(x, shape):
    """The elements of x, as often as they are needed, in this shape: so that a layer takes any tensor."""
    flat, count = x.flatten(), math.prod(shape)
    return flat.repeat(-(-count // flat.numel()))[:count].reshape(shape)


UNARY = {
    "neg": torch.neg, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "relu": torch.relu, "abs": torch.abs, "silu": F.silu, "gelu": F.gelu, "sin": torch.sin, "cos": torch.cos,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "square": torch.square, "log1p": torch.log1p,
    "expm1": torch.expm1, "erf": torch.erf, "softplus": lambda x: F.softplus(x, threshold=40), "elu": F.elu, "leaky_relu": F.leaky_relu,
    "huber": lambda x: F.huber_loss(x, torch.zeros_like(x), reduction="none", delta=0.75),
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "round": torch.round, "sign": torch.sign,
    "sum": torch.sum, "mean": torch.mean, "max": torch.max, "min": torch.min, "norm": torch.norm, "prod": torch.prod,
    "var": torch.var, "std": torch.std, "tril": torch.tril, "triu": torch.triu, "squeeze": torch.squeeze,
    "flatten": torch.flatten, "t": torch.t, "clone": torch.clone, "cast": lambda x: x.to(torch.float32).to(x.dtype),
    # one of equal elements is of no gradient, so that it shows whose the others' is
    "max_of_ties": lambda x: torch.max(torch.stack([x.detach(), x])),
    "min_of_ties": lambda x: torch.min(torch.stack([x.detach(), x.abs(), x])),
    "amax_of_ties": lambda x: torch.amax(torch.stack([x.detach(), x, x - 1]), [0]),
    "where_largest": lambda x: x.flatten()[torch.argmax(x)] - x.flatten()[torch.argmin(x)],
    "isnan": lambda x: torch.isnan(torch.log(x)), "isinf": lambda x: torch.isinf(1 / torch.trunc(x)),
    "isfinite": lambda x: torch.isfinite(torch.log(torch.trunc(x))), "logical_not": lambda x: torch.logical_not(x.round()),
    "any": lambda x: torch.any(x > 1), "all": lambda x: torch.all(x > -1),
    "count_nonzero": lambda x: torch.count_nonzero(x > 0), "nonzero": lambda x: torch.nonzero(x > 0),
    "zeros_like": lambda x: x - torch.zeros_like(x), "ones_like": lambda x: x + torch.ones_like(x),
    "full_like": lambda x: x * torch.full_like(x, 1.5), "zeros": lambda x: x - torch.zeros(x.shape),
    "ones": lambda x: x + torch.ones(x.shape), "full": lambda x: x * torch.full(x.shape, 1.5),
    "arange": lambda x: x.flatten() + torch.arange(x.numel()), "eye": lambda x: shaped(x, [3, 4]) * torch.eye(3, 4),
    "linspace": lambda x: x.flatten() * torch.linspace(-1, 1, x.numel()),
    "one_hot": lambda x: F.one_hot(torch.arange(4) % 3, 3).to(x.dtype) @ shaped(x, [3, 2]),
}
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "pow": torch.pow, "matmul": torch.matmul, "remainder": torch.remainder,
    "outer": lambda a, b: torch.outer(shaped(a, [3]), shaped(b, [4])),
    "floor_divide": lambda a, b: torch.floor_divide(a.detach(), b.detach()),  # it has no gradient there
    **{name: lambda a, b, compare=getattr(torch, name): compare(a.round(), b.round())
       for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: lambda a, b, joined=getattr(torch, name): joined(a > 0, b > 0)
       for name in ("logical_and", "logical_or", "logical_xor")},
    "mse_loss": lambda a, b: F.mse_loss(shaped(a, [2, 3]), shaped(b, [2, 3])),
    "l1_loss": lambda a, b: F.l1_loss(shaped(a, [2, 3]), shaped(b, [2, 3])),
    "smooth_l1_loss": lambda a, b: F.smooth_l1_loss(shaped(a, [2, 3]), shaped(b, [2, 3]), beta=0.5),
    "huber_loss": lambda a, b: F.huber_loss(shaped(a, [2, 3]), shaped(b, [2, 3]), delta=0.75),
    "kl_div": lambda a, b: F.kl_div(shaped(a, [2, 3]).log_softmax(1), shaped(b, [2, 3]).softmax(1)),
    "binary_cross_entropy_with_logits": lambda a, b: F.binary_cross_entropy_with_logits(
        shaped(a, [2, 3]), shaped(b, [2, 3]).sigmoid()),
}
ALONG = {
    "sum_dim": torch.sum, "mean_dim": torch.mean, "var_dim": torch.var, "std_dim": torch.std, "prod_dim": torch.prod,
    "norm_dim": lambda x, d: torch.norm(x, dim=d),
    "logsumexp": torch.logsumexp, "cumsum": torch.cumsum, "softmax": torch.softmax, "log_softmax": torch.log_softmax,
    "max_dim": lambda x, d: torch.max(x, d).values, "min_dim": lambda x, d: torch.min(x, d).values,
    "sort": lambda x, d: torch.sort(x, dim=d, stable=True).values,
    "sort_down": lambda x, d: torch.sort(x, dim=d, descending=True, stable=True).values,
    "top2": lambda x, d: torch.topk(x, 2, d).values, "unsqueeze": torch.unsqueeze, "flip": lambda x, d: torch.flip(x, [d]),
    "roll": lambda x, d: torch.roll(x, 1, d), "select": lambda x, d: torch.select(x, d, -1),
    "transpose": lambda x, d: torch.transpose(x, 0, d),
    "stack_self": lambda x, d: torch.stack([x, 2 * x], d), "cat_self": lambda x, d: torch.cat([x, -x], d),
    "chunk": lambda x, d: torch.chunk(x, 2, d)[0], "split": lambda x, d: torch.split(x, [1, x.size(d) - 1], d)[1],
    "steps": lambda x, d: x.index_select(d, torch.arange(0, x.size(d), 2)),
    "index_select": lambda x, d: x.index_select(d, torch.tensor([x.size(d) - 1, 0, 0])),
    "order": lambda x, d: torch.gather(x, d, torch.argsort(x, dim=d, stable=True)),
    "at_largest": lambda x, d: torch.gather(x, d, torch.argmax(x, d, keepdim=True)),
    "at_smallest": lambda x, d: torch.gather(x, d, torch.argmin(x, d, keepdim=True)),
    "share_above": lambda x, d: (x > x.mean(d, keepdim=True)).to(x.dtype).mean(d),
    "rare": lambda x, d: torch.any(x > 1, d).to(x.dtype) + 2 * torch.all(x > -1, d).to(x.dtype),
}
DIMS = {
    "sum_dims": torch.sum, "mean_dims": torch.mean, "amax": torch.amax, "amin": torch.amin, "logsumexp_dims": torch.logsumexp,
    "var_dims": lambda x, d, keepdim: torch.var(x, d, keepdim=keepdim),
    "std_dims": lambda x, d, keepdim: torch.std(x, d, correction=0, keepdim=keepdim),
    "norm_dims": lambda x, d, keepdim: torch.linalg.vector_norm(x, 2, d, keepdim),
    "any_dims": lambda x, d, keepdim: torch.any(x > 1, d, keepdim),
    "all_dims": lambda x, d, keepdim: torch.all(x > -1, d, keepdim),
}


def picked(x):
    rows = torch.arange(x.size(0))
    return x[rows, rows % x.size(1)]


def put(x, v):
    y = x.clone()
    y[0] = v
    return y


def attention(x):
    q, k, v = x.split([6, 3, 3], -1)
    heads = q.reshape(2, 3, 2, 3).transpose(1, 2)
    y = F.scaled_dot_product_attention(heads, *(t.unsqueeze(1).expand(2, 2, 3, 3) for t in (k, v)), is_causal=True)
    return y.transpose(1, 2).reshape(2, 3, 6)


def rope(x):
    """Of heads of 4 numbers: a query, a key, and a value, which stays."""
    angles = (torch.arange(3.).reshape(3, 1, 1) * torch.tensor([1, 100 ** -0.5])).to(x.dtype)
    heads = x.reshape(1, 3, 3, 4)
    first, second, cos, sin = heads[:, :, :2, :2], heads[:, :, :2, 2:], angles.cos(), angles.sin()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    return torch.cat([turned, heads[:, :, 2:]], 2).reshape(1, 3, 12)


def batch_norm(a, n):
    weight = shaped(a[1], [3])
    return F.batch_norm(shaped(a[0], [4, 3]), None, None, weight, weight + 1, training=True)


LABELS = torch.tensor([2, 0, 3])
LAYERS = {  # of two tensors; but for einsum of given shapes
    "linear": lambda a, n: F.linear(shaped(a[0], [3, 4]), shaped(a[1], [2, 4]), shaped(a[1], [2])),
    "linear_gelu": lambda a, n: F.gelu(F.linear(shaped(a[0], [3, 4]), shaped(a[1], [2, 4])), approximate="tanh"),
    "layer_norm": lambda a, n: F.layer_norm(shaped(a[0], [3, 4]), [4], shaped(a[1], [4]), shaped(a[1], [4])),
    "rms_norm": lambda a, n: F.rms_norm(shaped(a[0], [3, 4]), [4], shaped(a[1], [4]), 1e-6),
    "group_norm": lambda a, n: F.group_norm(shaped(a[0], [2, 4, 3]), 2, shaped(a[1], [4]), shaped(a[1], [4])),
    "batch_norm": batch_norm, "sync_batch_norm": batch_norm,
    "batch_norm_apply": lambda a, n: F.batch_norm(
        shaped(a[0], [4, 3]), torch.tensor([0.5, -1, 0]).to(a[0]), torch.tensor([1, 4, 0.25]).to(a[0]), shaped(a[1], [3]),
        shaped(a[1], [3]), eps=0),
    "swiglu": lambda a, n: F.silu(shaped(a[0], [2, 6])[:, :3]) * shaped(a[0], [2, 6])[:, 3:],
    "attention": lambda a, n: attention(shaped(a[0], [2, 3, 12])), "rope": lambda a, n: rope(shaped(a[0], [1, 3, 12])),
    "embedding": lambda a, n: F.embedding(torch.tensor([[2, 0], [3, 2]]), shaped(a[0], [4, 3])),
    "scatter_add": lambda a, n: shaped(a[0], [2, 4]).scatter_add(1, torch.tensor([[0, 3], [1, 1]]), shaped(a[1], [2, 2])),
    "conv1d": lambda a, n: F.conv1d(shaped(a[0], [2, 2, 5]), shaped(a[1], [2, 2, 2]), shaped(a[1], [2]), n["stride"], 1),
    "conv2d": lambda a, n: F.conv2d(
        shaped(a[0], [1, 2, 4, 3]), shaped(a[1], [2, 2 // n["groups"], 2, 3]), None, n["stride"], (1, 0), 1, n["groups"]),
    "max_pool2d": lambda a, n: F.max_pool2d(shaped(a[0], [1, 2, 4, 3]), 2, n["stride"], 1),
    "avg_pool2d": lambda a, n: F.avg_pool2d(shaped(a[0], [1, 2, 4, 3]), (3, 2), n["stride"], 1, count_include_pad=False),
    "adaptive_avg_pool2d": lambda a, n: F.adaptive_avg_pool2d(shaped(a[0], [1, 2, 4, 3]), (3, 2)),
    "nll_loss": lambda a, n: F.nll_loss(shaped(a[0], [3, 4]).log_softmax(1), LABELS),
    "cross_entropy": lambda a, n: F.cross_entropy(shaped(a[0], [3, 4]), LABELS),
    "cross_entropy_smoothed": lambda a, n: F.cross_entropy(shaped(a[0], [3, 4]), LABELS, label_smoothing=0.1),
    "linear_cross_entropy": lambda a, n: F.cross_entropy(F.linear(shaped(a[0], [3, 4]), shaped(a[1], [4, 4])), LABELS),
    "einsum": lambda a, n: torch.einsum(n["equation"], *(shaped(x, shape) for x, shape in zip(a, n["shapes"]))),
}
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
}
EVERY = set(UNARY) | set(BINARY) | set(ALONG) | set(DIMS) | set(LAYERS) | set(OTHER)

# Where rounding an operand may change which way is taken, and with it a result or a gradient by more than rounding.
BRANCHING = {
    "relu", "abs", "leaky_relu", "floor", "ceil", "trunc", "round", "sign", "max", "min", "max_of_ties", "min_of_ties",
    "amax_of_ties", "where_largest", "isnan", "isinf", "isfinite", "logical_not", "any", "all", "count_nonzero", "nonzero",
    "maximum", "minimum", "remainder", "floor_divide", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or",
    "logical_xor", "l1_loss", "max_dim", "min_dim", "sort", "sort_down", "top2", "order", "at_largest", "at_smallest",
    "share_above", "rare", "amax", "amin", "any_dims", "all_dims", "max_pool2d", "clamp", "where", "masked", "kept",
}

# Whose results have no gradient.
CONSTANT = {
    "isnan", "isinf", "isfinite", "logical_not", "any", "all", "count_nonzero", "nonzero", "floor_divide", "eq", "ne", "lt",
    "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "share_above", "rare", "any_dims", "all_dims",
}


def run_step(name, a, n):
    if name in UNARY:
        return UNARY[name](a[0])
    if name in BINARY:
        return BINARY[name](*a)
    if name in ALONG:
        return ALONG[name](a[0], n["dim"])
    if name in DIMS:
        return DIMS[name](a[0], n["dims"], keepdim=n["keepdim"])
    return (LAYERS | OTHER)[name](a, n)
