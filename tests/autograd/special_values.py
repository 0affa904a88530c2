"""Writes what PyTorch makes of special values in f32, and of their gradients, for special_values_test.cpp.

    special_values.py FILE LAYERS        needs torch; special_values.json and special_layers.json are written by it

Steps are those of program_steps.py. Each is tried on every value, on every pair of some, or along columns that have one.
Gradients are those of the sum of a result times 1, 1.25, 1.5, 1.75, 1, … Subnormals have lines of their own, behind one that
begins with 0 and -0: they may count as these. Of what goes into a layer or a loss one number is special.
"""
import json
import sys
import warnings

import torch

from program_steps import run_step

torch.set_num_threads(1)
warnings.simplefilter("ignore")

VALUES = ["0", "-0", "nan", "inf", "-inf", "3e38", "-3e38", "88.75", "-104", "1.5", "-1.5"]
SUBNORMALS = ["1e-40", "-1e-40"]
IN_PAIRS = ["0", "-0", "nan", "inf", "-inf", "3e38", "-104", "1.5", "-2"]
ONE = ("neg exp log sqrt tanh sigmoid relu abs silu gelu gelu_tanh sin cos rsqrt reciprocal square log1p expm1 erf softplus "
       "elu leaky_relu huber floor ceil trunc round sign isnan isinf isfinite logical_not").split()
PAIR = ("add sub mul div maximum minimum pow remainder floor_divide eq ne lt le gt ge logical_and logical_or logical_xor "
        "where").split()
COLUMN = ("sum_dim mean_dim var_dim std_dim prod_dim norm_dim logsumexp cumsum softmax log_softmax max_dim min_dim sort "
          "sort_down at_largest at_smallest rare amax amin").split()
WHOLE = "sum mean max min norm prod var std any all count_nonzero".split()
IN_LAYERS = ["-0", "nan", "inf", "-inf", "88.75", "-104"]
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy_with_logits".split()
LAYERS = {  # and how many numbers go in
    "matmul": 4, "linear": 12, "layer_norm": 12, "rms_norm": 12, "group_norm": 24, "batch_norm": 12, "swiglu": 12, "attention": 72,
    "embedding": 12, "conv1d": 20, "conv2d": 24, "max_pool2d": 24, "avg_pool2d": 24, "adaptive_avg_pool2d": 24, "nll_loss": 12,
    "cross_entropy": 12, "cross_entropy_smoothed": 12, "linear_cross_entropy": 12,
}
WEIGHTED = "matmul linear layer_norm rms_norm group_norm batch_norm conv1d conv2d linear_cross_entropy".split()


def cases():
    alone = [(name, {}) for name in ONE] + [("clamp", {"low": -1.5, "high": 1.5})]
    alone += [("power", {"exponent": exponent}) for exponent in (0, 0.5, 2, 3, -1, -0.5)]
    for name, numbers in alone:
        yield name, numbers, [VALUES]
        yield name, numbers, [SUBNORMALS]
    yield "clamp", {"low": 0, "high": 1.5}, [VALUES]  # a subnormal may count as the bound
    for name in PAIR:
        yield name, {}, [[a for a in IN_PAIRS for _ in IN_PAIRS], IN_PAIRS * len(IN_PAIRS)]
    columns = [["0.5"] * len(VALUES) * 2, VALUES * 2, ["-1"] * len(VALUES) + VALUES]
    for name in COLUMN:
        numbers = {"dims": [0], "keepdim": False} if name.startswith("a") and name[1] == "m" else {"dim": 0}
        yield name, numbers, [columns]
    for name in WHOLE:
        for value in VALUES:
            yield name, {}, [[value, "0.5", value]]


def with_one(value, count, place=0):
    """Numbers of no pattern, and this one among them."""
    return [value if i == place else str((i * i * 7 + i * 3) % 16 / 4 - 1.75) for i in range(count)]


def layers():
    """One element is special: of a loss's first or second operand, of a layer's input or weight, of a label's logit or another."""
    for value in IN_LAYERS:
        for name in LOSSES:
            yield name, {"special": [value, 0]}, [with_one(value, 6), with_one("0.5", 6)]
            if name[0] != "b":
                yield name, {"special": [value, 1]}, [with_one("0.5", 6), with_one(value, 6)]
        for name, count in LAYERS.items():
            numbers = {"special": [value, 0]} | ({"stride": 1, "groups": 1} if "conv" in name or "pool" in name else {})
            first, second = with_one(value, count), [with_one("0.5", 4 if name == "matmul" else 8)] * (name in WEIGHTED)
            yield name, numbers, squares(name, [first, *second])
            if "entropy" in name or name == "nll_loss":
                yield name, numbers, [with_one(value, count, 2), *second]
            if second:
                numbers = numbers | {"special": [value, 1]}
                yield name, numbers, squares(name, [with_one("0.5", count), with_one(value, len(second[0]))])


def squares(name, inputs):
    return [[rows[:2], rows[2:]] for rows in inputs] if name == "matmul" else inputs


def text(x):
    return " ".join(f"{v:.7g}" for v in x.detach().to(torch.float64).flatten().tolist())


def numbers_in(rows):
    if isinstance(rows[0], list):
        return torch.stack([numbers_in(row) for row in rows])
    return torch.tensor([float(v) for v in rows], dtype=torch.float32)


def write(path, cases):
    lines = []
    for name, numbers, inputs in cases:
        leaves = [numbers_in(rows).requires_grad_() for rows in inputs]
        y = run_step(name, leaves, numbers)
        line = {"step": name, "numbers": numbers, "shapes": [list(x.shape) for x in leaves],
                "inputs": [text(x) for x in leaves], "result": text(y)}
        if y.requires_grad:
            ramp = 1 + torch.arange(y.numel()).reshape(y.shape) % 4 / 4
            grads = torch.autograd.grad((y * ramp).sum(), leaves)
            line["gradients"] = [text(g) for g in grads]
        lines.append(json.dumps(line, separators=(",", ":")))
    with open(path, "w") as out:
        out.write("[\n" + ",\n".join(lines) + "\n]\n")


def main():
    write(sys.argv[1], cases())
    write(sys.argv[2], layers())


if __name__ == "__main__":
    main()
