"""Writes random programs of operations, and what PyTorch makes of them in f64, for programs_test.cpp.

    programs.py FILE [COUNT [SEED]]        needs torch; tests/autograd/programs.json is COUNT 70, SEED 1

A program is a list of steps. Step k makes tensor number len(inputs) + k of earlier ones: [name, [tensors…], {numbers}].
Kept are all results, and the gradients of the sum of all steps' results times fixed weights. Programs whose
numbers are large, not finite, or jump when the inputs move by 1e-9 are not kept: two implementations may differ there.
A program has `errors`, and is run in f32 and bf16 too, where rounding changes no branch, and both PyTorch in f32 and bf16, and
f64 of inputs that have moved by a quarter of BOUNDS, are right to a quarter of BOUNDS for each step and the inputs. They are
how far PyTorch in f32 and bf16 is from f64 in each result and gradient, at most: of these inputs, and where they and each
step's result have moved by a rounding, so that no number is right by luck.
"""
import json
import math
import random
import sys
import warnings

import torch

from program_steps import ALONG, BINARY, BRANCHING, CONSTANT, DIMS, EVERY, LAYERS, UNARY, run_step, shaped

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)
warnings.simplefilter("ignore")

BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}  # the certificate's, as certified_tolerance() of certify/certify.h
NAMES = {torch.float32: "f32", torch.bfloat16: "bf16"}
NOT_POSSIBLE = (RuntimeError, IndexError, ValueError, TypeError)


def run(program, inputs, change):
    tensors = list(inputs)
    for name, args, numbers in program["steps"]:
        tensors.append(change(run_step(name, [tensors[i] for i in args], numbers).to(inputs[0].dtype)))
    return tensors


def weights(shape):
    """The same numbers as programs_test.cpp has."""
    n = math.prod(shape)
    return torch.tensor([((i * 7 + 3) % 11 - 5) / 8 for i in range(n)]).reshape(shape)


def outcome(program, inputs, change=lambda y: y):
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    tensors = run(program, leaves, change)
    results = tensors[len(leaves):]
    loss = sum((y * weights(y.shape)).sum() for y in results)
    grads = torch.autograd.grad(loss, leaves, allow_unused=True) if loss.requires_grad else [None] * len(leaves)
    return results, [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads)]


# --- making programs ---------------------------------------------------------------------------------------------------
POSITIVE = {"log", "sqrt", "rsqrt", "reciprocal", "log1p"}
NORMALISED = {  # what has mean 0 and variance 1 then: rows of
    "layer_norm": lambda x: shaped(x, [3, 4]), "group_norm": lambda x: shaped(x, [4, 6]),
    "batch_norm": lambda x: shaped(x, [4, 3]).t(), "sync_batch_norm": lambda x: shaped(x, [4, 3]).t(),
}
EQUATIONS = {
    "ij,jk->ik": [[2, 3], [3, 4]], "bij,bkj->bik": [[2, 2, 3], [2, 3, 3]], "...ii,i->...": [[2, 3, 3], [3]],
    "ij,ij": [[2, 3], [2, 3]], "ij,k->jki": [[2, 3], [2]],
}


def numbers_of(rng, name, x):
    """The numbers of a step whose first tensor is x."""
    def some(**choices):
        return {key: rng.choice(values) for key, values in choices.items()}
    if name in ALONG:
        return {"dim": rng.randrange(-x.dim(), x.dim())}
    if name in DIMS:
        return {"dims": rng.sample(range(x.dim()), min(2, x.dim())), "keepdim": rng.random() < 0.5}
    if name == "einsum":
        equation = rng.choice(sorted(EQUATIONS))
        return {"equation": equation, "shapes": EQUATIONS[equation]}
    order = list(range(x.dim()))
    rng.shuffle(order)
    return {
        "affine": some(scale=[-1.5, 0.5, 2], shift=[0, 0.25, -1]), "rdiv": some(value=[0.5, 1.5, 3]),
        "masked": some(value=[0.5, 1.5, 3]), "rpow": some(value=[0.5, 1.5, 3]), "power": some(exponent=[2, 3, 0.5, -1]),
        "clamp": {"low": -0.75, "high": 1.25}, "expand": {"shape": [2] + list(x.shape)}, "permute": {"order": order},
        "reshape": {"shape": [x.numel()] if x.dim() != 1 else [1, x.numel()]},
        "repeat": {"times": [rng.choice([1, 2]) for _ in range(x.dim() + rng.randrange(2))]},
        "conv1d": some(stride=[1, 2]), "conv2d": some(stride=[1, 2], groups=[1, 2]), "max_pool2d": some(stride=[1, 2]),
        "avg_pool2d": some(stride=[1, 2]),
    }.get(name, {})


def propose(rng, tensors, names):
    """A step of one of these names that may be possible."""
    name, i = rng.choice(sorted(names)), rng.randrange(len(tensors))
    if tensors[i].dim() == 0 and (name in ALONG or name in DIMS):
        i = max(range(len(tensors)), key=lambda k: tensors[k].dim())
    args = [i]
    if name in BINARY or name in LAYERS or name in ("where", "put"):
        args.append(rng.randrange(len(tensors)))
    return name, args, numbers_of(rng, name, tensors[i])


def good(y):
    return y.numel() > 0 and y.numel() <= 48 and y.dim() <= 4 and torch.isfinite(y).all() and y.abs().max() < 50


def possible(name, args, numbers):
    x = args[0]
    if name in POSITIVE and x.min() < 0.2:
        return False
    if name in ("div", "remainder", "floor_divide") and args[1].abs().min() < 0.2:
        return False
    if name in ("pow", "power") and x.min() < 0.2 or name == "rdiv" and x.abs().min() < 0.2:
        return False
    if name.startswith("norm") and run_step(name, args, numbers).min() < 0.1:
        return False
    if name.startswith("std") and run_step(name, args, numbers).min() < 0.05:
        return False
    if name in NORMALISED and NORMALISED[name](x).var(-1).min() < 0.01:
        return False  # equal numbers but for rounding, which would be magnified
    if name == "top2" and (x.sort(numbers["dim"]).values.diff(dim=numbers["dim"]) == 0).any():
        return False  # it does not say which of equal ones it takes
    return name != "put" or x.dim() > 0


def make(rng, names, missing):
    shapes = [[3], [2, 3], [3, 4], [2, 3, 4], [1, 4], [], [4, 1], [2, 1, 3], [3, 2, 1, 2]]
    inputs = []
    for shape in rng.sample(shapes, rng.randrange(2, 4)):
        low, high = rng.choice([(-2, 2), (-2, 2), (0.5, 2)])
        inputs.append(torch.tensor([round(rng.uniform(low, high), 6) for _ in range(math.prod(shape))]).reshape(shape))
    tensors, steps = list(inputs), []
    wanted = rng.randrange(5, 12)
    for _ in range(400):
        if len(steps) == wanted:
            break
        left = (missing & names) - {step[0] for step in steps}
        try:
            name, args, numbers = propose(rng, tensors, left if left and rng.random() < 0.6 else names)
            given = [tensors[i] for i in args]
            y = run_step(name, given, numbers).to(torch.float64) if possible(name, given, numbers) else None
        except NOT_POSSIBLE:
            continue
        if y is not None and good(y):
            steps.append([name, args, numbers])
            tensors.append(y)
    return {"inputs": [{"shape": list(x.shape), "values": x.flatten().tolist()} for x in inputs], "steps": steps}, inputs


def steady(program, inputs):
    """Results and gradients where they hardly change with the inputs, else None."""
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


def moved(x, part, k):
    """Each element up or down by a part of the largest; k says which go up."""
    up = torch.tensor([(i * 7 + 3) * (k + 2) % 11 < 5 for i in range(x.numel())]).reshape(x.shape)
    return x + part * x.detach().abs().max() * (2 * up - 1).to(x.dtype)


def errors_of(program, inputs, made):
    """How far PyTorch is from f64 by dtype, None where rounding is magnified or changes which way is taken."""
    if BRANCHING & {step[0] for step in program["steps"]}:
        return None
    exact, errors = [*made[0], *made[1]], {}

    def differences(inputs, *change):
        results, grads = outcome(program, inputs, *change)
        return [float((a - b).abs().max()) for a, b in zip([*results, *grads], exact)]
    for dtype, bound in BOUNDS.items():
        rounding = torch.finfo(dtype).eps / 2
        try:
            own = [differences([x.to(dtype) for x in inputs])]
            own += [differences([moved(x, rounding, k).to(dtype) for x in inputs], lambda y, k=k: moved(y, rounding, k + 1))
                    for k in range(3)]
        except NOT_POSSIBLE:
            return None  # PyTorch has not all of it in 16 bits
        allowed = [bound / 4 * (len(program["steps"]) + 1) * max(1, float(b.abs().max())) for b in exact]
        for found in [*own, *(differences([moved(x, bound / 4, k) for x in inputs]) for k in range(5))]:
            if not all(error <= most for error, most in zip(found, allowed)):
                return None
        errors[NAMES[dtype]] = [float(f"{max(each):.2e}") for each in zip(*own)]
    return errors


def digits(x):
    """To a part of 1e-14."""
    return [float(f"{v:.15g}") for v in x.flatten().tolist()]


def kept(program, inputs, made):
    program["errors"] = errors_of(program, inputs, made)
    program["expected"] = [{"shape": list(y.shape), "values": digits(y), "grad": y.requires_grad} for y in made[0]]
    program["gradients"] = [digits(g) for g in made[1]]
    return program


def past_one(program, step):
    """Whether it is along a dimension that has an extent of 1, and others, inside."""
    shapes = [y["shape"] for y in [*program["inputs"], *program["expected"]]]
    shape, numbers = shapes[step[1][0]], step[2]
    dims = [d % len(shape) for d in numbers.get("dims", [numbers.get("dim")])]
    inside = shape[min(dims) + 1:]
    return shape[min(dims)] > 1 and 1 in inside and max(inside) > 1


# Where steps have to occur at least once: which, and whether this step of this program does.
OCCASIONS = {
    "at all": (EVERY, lambda program, step: True),
    "with a gradient": (EVERY - CONSTANT, lambda program, step: program["expected"][program["steps"].index(step)]["grad"]),
    "in f32 and bf16": (EVERY - BRANCHING, lambda program, step: program["errors"] is not None),
    "past an extent of 1": (set(ALONG) | set(DIMS), lambda program, step: step[0] in ALONG | DIMS and past_one(program, step)),
}


def missing_in(occasion, programs):
    steps, occurs = OCCASIONS[occasion]
    return steps - {step[0] for program in programs for step in program["steps"] if occurs(program, step)}


def next_program(rng, programs):
    """One that has a step which is missing, while there are such; None where it did not come out so."""
    occasion = next((o for o in OCCASIONS if missing_in(o, programs)), "at all")
    missing = missing_in(occasion, programs)
    smooth = occasion == "in f32 and bf16" or rng.random() < 0.6 and not (missing and missing <= BRANCHING)
    program, inputs = make(rng, EVERY - BRANCHING if smooth else EVERY, missing)
    if not program["steps"] or missing and not missing & {step[0] for step in program["steps"]}:
        return None
    made = steady(program, inputs)
    if made is None:
        return None
    program = kept(program, inputs, made)
    return None if missing and not missing - missing_in(occasion, [program]) else program


def main():
    path, count, seed = sys.argv[1], int((sys.argv + ["70"])[2]), int((sys.argv + ["70", "1"])[3])
    rng = random.Random(seed)
    programs, tries = [], 0
    while len(programs) < count and tries < 200 * count:
        tries += 1
        program = next_program(rng, programs)
        programs += [program] if program else []
    with open(path, "w") as out:
        out.write(f'{{"branching":{json.dumps(sorted(BRANCHING))},\n"programs":[\n')
        out.write(",\n".join(json.dumps(p, separators=(",", ":")) for p in programs) + "\n]}\n")
    rounded = sum(p["errors"] is not None for p in programs)
    print(f"{len(programs)} programs, {rounded} of them in f32 and bf16 too, {sum(len(p['steps']) for p in programs)} steps")
    lacks = [f"fewer than {count}"] * (len(programs) < count) + [
        f"{occasion}: none of {' '.join(sorted(missing))}"
        for occasion in OCCASIONS if (missing := missing_in(occasion, programs))]
    if lacks:
        sys.exit("\n".join(lacks))


if __name__ == "__main__":
    main()
