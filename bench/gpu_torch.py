"""The work of bench/gpu_bench.cpp in PyTorch (eager), one JSON object per line."""
import json
import statistics
import time

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def seconds_of(times, work):
    rounds = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(times):
            work()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - begin) / times)
    return statistics.median(rounds[1:])


def report(name, value, unit):
    print(json.dumps({"name": name, "value": value, "unit": unit}), flush=True)


def bandwidths():
    n, columns = 64 << 20, 4096
    for name, dtype in DTYPES.items():
        a, b = (torch.rand(n, device="cuda").to(dtype) for _ in range(2))
        c = torch.empty_like(a)
        moved = 1e-9 * n * a.element_size()
        report(f"copy {name}", 2 * moved / seconds_of(20, lambda: c.copy_(a)), "GB/s")
        report(f"add {name}", 3 * moved / seconds_of(20, lambda: a + b), "GB/s")
        x = a.view(-1, columns)
        weight, bias = torch.ones(columns, device="cuda", dtype=dtype), torch.zeros(columns, device="cuda", dtype=dtype)
        norm = torch.nn.functional.layer_norm
        report(f"layer_norm {name}", 2 * moved / seconds_of(20, lambda: norm(x, (columns,), weight, bias)), "GB/s")
        report(f"softmax {name}", 2 * moved / seconds_of(20, lambda: torch.softmax(x, -1)), "GB/s")


def optimizer():
    weight = torch.rand(64 << 20, device="cuda", requires_grad=True)
    weight.grad = torch.rand_like(weight)
    adamw = torch.optim.AdamW([weight], lr=1e-3, fused=True)
    report("adamw f32", 7e-9 * weight.numel() * 4 / seconds_of(20, adamw.step), "GB/s")


def products():
    for n, name in [(8192, "bf16"), (4096, "bf16"), (4096, "f32")]:
        a, b = (torch.randn(n, n, device="cuda").to(DTYPES[name]) for _ in range(2))
        report(f"gemm {n} {name}", 2e-12 * n**3 / seconds_of(10, lambda: a @ b), "TFLOP/s")


def mlp(layers, width, dtype):
    parts = []
    for i in range(layers):
        parts += [torch.nn.Linear(width, width)] + ([torch.nn.ReLU()] if i + 1 < layers else [])
    return torch.nn.Sequential(*parts).to("cuda", dtype)


def large_mlp():
    width, batch, layers = 4096, 8192, 4
    model = mlp(layers, width, torch.bfloat16)
    x, target = (torch.randn(batch, width, device="cuda").bfloat16() for _ in range(2))

    def work():
        torch.nn.functional.mse_loss(model(x), target).backward()
        model.zero_grad(set_to_none=True)

    operations = 2.0 * batch * width * width * (3 * layers - 1)
    report("mlp 4096 bf16 forward+backward", 1e-12 * operations / seconds_of(5, work), "TFLOP/s")


def small_mlp():
    width, batch = 256, 256
    model = mlp(4, width, torch.float32)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, target = (torch.randn(batch, width, device="cuda") for _ in range(2))

    def step():
        torch.nn.functional.mse_loss(model(x), target).backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)

    report("mlp 256 f32 step", 1e6 * seconds_of(200, step), "us")


torch.backends.cuda.matmul.allow_tf32 = False
for part in (bandwidths, optimizer, products, large_mlp, small_mlp):
    part()
