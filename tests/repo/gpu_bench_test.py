#!/usr/bin/env python3
"""The benchmarks of a GPU run, small, where there is none: their results are right, PyTorch's side has their names, and
what fails takes nothing else along.

    gpu_bench_test.py SOURCE_DIR GPU_BENCH GPU_FSDP_BENCH DEVICE…
"""
import contextlib
import io
import json
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import MagicMock

LADDER = [f"own matmul 64 f32, {rung}" for rung in ("naive", "tiled", "4 x 4 per thread", "the library's")]
LADDER += [f"own matmul 64 bf16, {rung}" for rung in ("tensor cores", "the library's")]
OURS_ALONE = {"copy by the driver f32", "copy by the driver bf16", "driver allocations after the second step",
              "mlp 256 f32 step, until the host has queued it", "mlp 256 f32 step, its batch from the loader",
              "mlp 256 f32 step, graph", *LADDER}
LIMITS = {f"cuBLASLt's best {kind}" for kind in ("bf16", "f32", "tf32")}  # where there is cuBLASLt


def rows(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr or done.returncode}"
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


class Pretended(MagicMock):
    """A PyTorch that computes nothing: it shows that the script runs to its end, and what it reports."""
    element_size = numel = lambda self: 2


def of_torch(script, mode, *words, fault=None):
    """(its rows by name, its exit code, its names); with a fault, layer_norm ends with it."""
    torch = Pretended()
    torch.nn.functional.layer_norm.side_effect = fault
    sys.modules.update({"torch": torch, "torch.nn": torch.nn, "torch.nn.functional": torch.nn.functional})
    sys.argv = [str(script), mode, "--tiny", *words]
    printed, code, names = io.StringIO(), 0, {}
    with contextlib.redirect_stdout(printed):
        try:
            names = runpy.run_path(str(script))
        except SystemExit as end:
            code = end.code
    return {row["name"]: row for row in map(json.loads, printed.getvalue().splitlines())}, code, names


def what_fails_is_a_row(script, bench):
    """Tensors of device meta have no values, so no result can be compared there."""
    for part, expected in (("products", 4), ("losses", 3), ("convolutions", 2), ("optimizers", 4)):
        done = subprocess.run([bench, "--device", "meta", "--tiny", "--only", part], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 1 and len([row for row in found if "on meta" in row["error"]]) == expected, (done, found)
    done = subprocess.run([bench, "--tiny", "--device", "cpu", "--only", "nothing"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "products, mlps, bandwidths, losses, convolutions, optimizers, ladder, transformers" in done.stderr, done

    found, code, _ = of_torch(script, "eager", fault=RuntimeError("planted"))
    assert code == 1 and "RuntimeError: planted" in found["bandwidths"]["error"], found
    assert "sgd f32" in found, "what comes after it is lost"


def the_parts_are_those_of_gpu_check(source, script):
    sys.path.insert(0, str(Path(source) / "scripts"))
    import gpu_check
    of_mode = of_torch(script, "eager")[2]["OF_MODE"]
    assert {part: {mode for mode in of_mode if part in of_mode[mode]} for part in of_mode["eager"]} == {
        part: set(modes) for part, modes in gpu_check.BESIDE.items()}, of_mode
    one = of_torch(script, "eager", "--only", "optimizers")[0]
    assert len(one) == 4 and all("adamw" in name or "sgd" in name for name in one), one


def main():
    source, bench, fsdp_bench, *devices = sys.argv[1:]
    script = Path(source) / "bench/gpu_torch.py"
    torch = {mode: of_torch(script, mode)[0] for mode in ("eager", "compile", "graph")}
    what_fails_is_a_row(script, bench)
    the_parts_are_those_of_gpu_check(source, script)
    for device in devices:
        ours = rows(bench, "--device", device, "--tiny")
        with tempfile.TemporaryDirectory() as folder:
            sharded = rows(fsdp_bench, "--device", device, "--tiny", "--trace", f"{folder}/trace.json")
            assert json.loads(Path(f"{folder}/trace.json").read_text()), "the trace is empty"
        every = {**ours, **sharded}
        for row in every.values():
            assert row["value"] > 0 or row["unit"] in ("%", "calls"), row
            assert row.get("of", "") in {*every, *LIMITS, ""}, f"{row} is held against nothing"
            assert row.get("beside", row["name"]) in torch["eager"] or "beside" not in row, f"{row}: PyTorch has none"
        ladder = [name for name in ours if name.startswith("own matmul")]
        assert ladder == (LADDER if device == "sim" else []), f"{device}: {ladder}"
        alone = set(ours) - set(torch["eager"])
        assert alone == OURS_ALONE & set(ours), f"PyTorch's side lacks {alone - OURS_ALONE}"
        for mode, names in torch.items():
            extra = {name for name in names if "tf32" not in name} - set(ours)
            assert names and not extra, f"PyTorch {mode}: we have no {extra or 'rows'}"
    assert len(torch["compile"]) >= 10 and len(torch["graph"]) >= 2, torch
    print(f"{len(torch['eager'])} of our benchmarks have PyTorch's beside them")


if __name__ == "__main__":
    main()
