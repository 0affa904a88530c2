"""The work of bench/gpu_bench.cpp in PyTorch, under the same names, one JSON object per line.

    gpu_torch.py eager|compile|graph [--device cuda] [--only PART] [--tiny]

compile: what torch.compile is for. graph: whole training steps, captured as CUDA graphs. What fails is a row with an
"error", and what comes after it is measured all the same; the exit code is then 1.
"""
import argparse
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("mode", choices=("eager", "compile", "graph"))
parser.add_argument("--device", default="cuda")
parser.add_argument("--only", choices=("products", "mlps", "bandwidths", "losses", "convolutions", "optimizers",
                                       "transformers"))
parser.add_argument("--tiny", action="store_true")
options = parser.parse_args()
mode, device, tiny = options.mode, options.device, options.tiny
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
chosen = torch.compile if mode == "compile" else lambda function: function


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(times, work):
    rounds = []
    for _ in range(2 if tiny else 8):
        wait()
        begin = time.perf_counter()
        for _ in range(1 if tiny else times):
            work()
        wait()
        rounds.append((time.perf_counter() - begin) / (1 if tiny else times))
    return statistics.median(rounds[1:])


def report(name, value, unit):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


def rand(*shape, dtype=torch.float32):
    return torch.rand(*shape, device=device).to(dtype)


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, device=device).to(dtype)


ROWS, COLUMNS = (32, 64) if tiny else (16384, 4096)


def bandwidths():
    add = chosen(torch.add)
    layer_norm = chosen(lambda x, weight, bias: F.layer_norm(x, (COLUMNS,), weight, bias))
    softmax = chosen(lambda x: torch.softmax(x, -1))
    first = chosen(lambda x: x.topk(10).values)
    added = chosen(lambda x, index, source: x.scatter_add(1, index, source))
    index = torch.randint(COLUMNS, (ROWS, COLUMNS), device=device)
    for name, dtype in DTYPES.items():
        a, b = (rand(ROWS, COLUMNS, dtype=dtype) for _ in range(2))
        c, weight, bias = torch.empty_like(a), rand(COLUMNS, dtype=dtype), rand(COLUMNS, dtype=dtype)
        moved = 1e-9 * a.numel() * a.element_size()
        if mode == "eager":
            report(f"copy {name}", 2 * moved / seconds_of(20, lambda: c.copy_(a)), "GB/s")
        report(f"add {name}", 3 * moved / seconds_of(20, lambda: add(a, b)), "GB/s")
        report(f"layer_norm {name}", 2 * moved / seconds_of(20, lambda: layer_norm(a, weight, bias)), "GB/s")
        report(f"softmax {name}", 2 * moved / seconds_of(20, lambda: softmax(a)), "GB/s")
        report(f"topk(10) of rows {name}", moved / seconds_of(20, lambda: first(a)), "GB/s")
        moved_by_index = 3 * moved + 8e-9 * a.numel()
        report(f"scatter_add along rows {name}", moved_by_index / seconds_of(20, lambda: added(a, index, b)), "GB/s")


def losses():
    loss = chosen(F.cross_entropy)
    vocabulary = (16, 101) if tiny else (8192, 50257)
    for title, (rows, columns), names in (("cross_entropy", (ROWS, COLUMNS), DTYPES), ("cross_entropy of 50257 columns", vocabulary, ["bf16"])):
        labels = torch.randint(columns, (rows,), device=device)
        for name in names:
            x = randn(rows, columns, dtype=DTYPES[name]).requires_grad_()

            def work():
                x.grad = None
                loss(x, labels).backward()

            moved = 1e-9 * x.numel() * x.element_size()
            report(f"{title} forward+backward {name}", 3 * moved / seconds_of(20, work), "GB/s")


def convolutions():
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
    samples, channels, side = (2, 8, 8) if tiny else (64, 64, 32)
    for name in ("bf16", "f32"):
        x = randn(samples, channels, side, side, dtype=DTYPES[name]).requires_grad_()
        w = randn(channels, channels, 3, 3, dtype=DTYPES[name]).requires_grad_()
        dy = torch.randn_like(x)

        def work():
            x.grad = w.grad = None
            F.conv2d(x, w, padding=1).backward(dy)

        operations = 3 * 2.0 * x.numel() * channels * 9
        report(f"conv2d 3 x 3, {samples} x {channels} x {side} x {side} {name}", 1e-12 * operations / seconds_of(10, work), "TFLOP/s")


def optimizers():
    n = 1024 if tiny else 64 << 20
    for title, moved, kind, settings in (
            ("sgd f32", 20, torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}), ("adamw f32", 28, torch.optim.AdamW, {"lr": 1e-3})):
        weight = rand(n).requires_grad_()
        weight.grad = torch.rand_like(weight)
        copy = torch.empty_like(weight, dtype=torch.bfloat16)
        optimizer = kind([weight], fused=True, **settings)

        def with_copy():
            optimizer.step()
            copy.copy_(weight.detach())

        optimizer.step()  # the first makes the state
        report(title, 1e-9 * moved * n / seconds_of(20, optimizer.step), "GB/s")
        report(f"{title} with a copy in bf16", 1e-9 * (moved + 2) * n / seconds_of(20, with_copy), "GB/s")


def products():
    for name, dtype, tf32 in (("bf16", torch.bfloat16, False), ("f32", torch.float32, False), ("tf32", torch.float32, True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for n in (64, 32) if tiny else (8192, 4096):
            a, b = (randn(n, n, dtype=dtype) for _ in range(2))
            report(f"gemm {n} {name}", 2e-12 * n**3 / seconds_of(10, lambda: a @ b), "TFLOP/s")
    torch.backends.cuda.matmul.allow_tf32 = False


def mlp(layers, width):
    parts = []
    for i in range(layers):
        parts += [torch.nn.Linear(width, width)] + ([torch.nn.ReLU()] if i + 1 < layers else [])
    return torch.nn.Sequential(*parts).to(device)


def captured(step):
    """The step as a CUDA graph, after some that make state and gradients."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def step_of(model, optimizer, batch, width, bf16):
    x, target = randn(batch, width), randn(batch, width)
    loss_of = chosen(lambda x, target: F.mse_loss(model(x), target))

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = loss_of(x, target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return captured(step) if mode == "graph" and device == "cuda" else step


def large_mlp():
    width, layers = 64 if tiny else 4096, 4
    batch = 2 * width
    operations = 2.0 * batch * width * width * (3 * layers - 1)
    if mode != "graph":
        model = mlp(layers, width).to(torch.bfloat16)
        x, target = (randn(batch, width, dtype=torch.bfloat16) for _ in range(2))
        loss_of = chosen(lambda x, target: F.mse_loss(model(x), target))

        def work():
            loss_of(x, target).backward()
            model.zero_grad(set_to_none=True)

        report("mlp 4096 bf16 forward+backward", 1e-12 * operations / seconds_of(5, work), "TFLOP/s")
    model = mlp(layers, width)
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=mode == "graph" and device == "cuda")
    seconds = seconds_of(5, step_of(model, adamw, batch, width, True))
    report("mlp 4096 bf16 step", 1e3 * seconds, "ms")
    report("mlp 4096 bf16 step, its products", 1e-12 * operations / seconds, "TFLOP/s")


def small_mlp():
    model = mlp(4, 256)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = step_of(model, sgd, 16 if tiny else 256, 256, False)
    report("mlp 256 f32 step", 1e6 * seconds_of(200, step), "us")


def attended(qkv, heads):
    parts = qkv.unflatten(-1, (3, heads, -1)).transpose(1, 3)
    q, k, v = (parts[:, :, i] for i in range(3))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def linear(width_in, width_out):
    return (randn(width_out, width_in) * 0.02).requires_grad_(), torch.zeros(width_out, device=device).requires_grad_()


def norm(width):
    return torch.ones(width, device=device).requires_grad_(), torch.zeros(width, device=device).requires_grad_()


def gpt2_loss(model, heads, ids, labels):
    """model: the tables of tokens and places, the blocks (two norms, four products), the last norm."""
    (tokens, places), blocks, last = model
    width = tokens.shape[1]
    x = F.embedding(ids, tokens) + places
    for norm_1, qkv, out, norm_2, up, down in blocks:
        x = x + F.linear(attended(F.linear(F.layer_norm(x, (width,), *norm_1), *qkv), heads), *out)
        x = x + F.linear(F.gelu(F.linear(F.layer_norm(x, (width,), *norm_2), *up), approximate="tanh"), *down)
    logits = F.linear(F.layer_norm(x, (width,), *last), tokens)
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def transformers():
    """GPT-2 of 124 million parameters: its operations at their sizes, and one step, as its users train it."""
    batch, places, width, heads, layers, vocabulary = (2, 16, 64, 2, 2, 128) if tiny else (8, 1024, 768, 12, 12, 50304)
    bf16, count = torch.bfloat16, 50257 if not tiny else 100

    def timed(name, work, *operands, forward_alone=False):
        work = chosen(work)
        with torch.no_grad():
            dy = torch.randn_like(work())

        def passed():
            for operand in operands:
                operand.grad = None
            work().backward(dy)

        report(name + ", forward+backward", 1e3 * seconds_of(5, passed), "ms")
        with torch.no_grad():
            if forward_alone:
                report(name + ", forward", 1e3 * seconds_of(5, work), "ms")

    def part(*shape):
        return randn(*shape, dtype=bf16).requires_grad_()

    qkv = part(batch, places, 3 * width)
    timed("attention of gpt2 bf16", lambda: attended(qkv, heads), qkv, forward_alone=True)
    x, weight, bias = part(batch * places, width), part(width), part(width)
    timed("layer_norm of gpt2 bf16", lambda: F.layer_norm(x, (width,), weight, bias), x, weight, bias, forward_alone=True)
    rows, table = part(batch * places // 8, width), part(vocabulary, width)
    labels = torch.randint(count, (len(rows),), device=device)
    timed("head and loss of gpt2 bf16", lambda: F.cross_entropy(F.linear(rows, table), labels), rows, table)
    words, ids = randn(vocabulary, width).requires_grad_(), torch.randint(count, (8 * batch, places), device=device)
    timed("embedding of gpt2, 65536 tokens", lambda: F.embedding(ids, words), words)
    ids.view(-1)[::20] = 11
    timed("embedding of gpt2, 65536 tokens, 5 % of them one", lambda: F.embedding(ids, words), words)

    tables = [(randn(rows, width) * 0.02).requires_grad_() for rows in (vocabulary, places)]
    blocks = [(norm(width), linear(width, 3 * width), linear(width, width), norm(width), linear(width, 4 * width),
               linear(4 * width, width)) for _ in range(layers)]
    last = norm(width)
    parameters = [*tables, *last, *(tensor for block in blocks for part in block for tensor in part)]
    adamw = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, labels = (torch.randint(count, (batch, places), device=device) for _ in range(2))
    loss_of = chosen(gpt2_loss)

    def passed():
        with torch.autocast(device, bf16):
            loss = loss_of((tables, blocks, last), heads, ids, labels)
        loss.backward()

    def step():
        passed()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        adamw.step()
        adamw.zero_grad(set_to_none=True)

    passed()
    seconds = seconds_of(20, lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0))
    report("clipping of gpt2 124M f32", 1e-9 * sum(p.numel() * p.element_size() for p in parameters) / seconds, "GB/s")
    adamw.zero_grad(set_to_none=True)
    report("gpt2 124M bf16 step", 1e-3 * ids.numel() / seconds_of(2, step), "Ktoken/s")


torch.backends.cuda.matmul.allow_tf32 = False
PARTS = {"products": (products,), "mlps": (large_mlp, small_mlp), "bandwidths": (bandwidths,), "losses": (losses,),
         "convolutions": (convolutions,), "optimizers": (optimizers,), "transformers": (transformers,)}
OF_MODE = {"eager": tuple(PARTS), "compile": ("mlps", "bandwidths", "losses", "transformers"), "graph": ("mlps",)}
failed = 0
for part in OF_MODE[mode]:
    for work in PARTS[part] if options.only in (None, part) else ():
        try:
            work()
        except Exception as error:  # a compiler that is not there, say
            failed = 1
            print(json.dumps({"name": work.__name__, "error": f"{type(error).__name__}: {error}"}), flush=True)
if failed:
    sys.exit(1)
