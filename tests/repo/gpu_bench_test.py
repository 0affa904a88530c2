#!/usr/bin/env python3
"""The benchmarks of a GPU run, small, where there is none: their results are right, and PyTorch's side has their names.

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
OURS_ALONE = {"copy by the driver f32", "copy by the driver bf16", "driver allocations after the second step", *LADDER}
LIMITS = {f"cuBLASLt's best {kind}" for kind in ("bf16", "f32", "tf32")}  # where there is cuBLASLt


def rows(*command):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr or done.returncode}"
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


class Pretended(MagicMock):
    """A PyTorch that computes nothing: it shows that the script runs to its end, and what it reports."""
    element_size = numel = lambda self: 2


def of_torch(script, mode):
    sys.modules.update({"torch": Pretended(), "torch.nn": Pretended(), "torch.nn.functional": Pretended()})
    sys.argv = [str(script), mode, "--tiny"]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(script))
    return {row["name"]: row for row in map(json.loads, printed.getvalue().splitlines())}


def main():
    source, bench, fsdp_bench, *devices = sys.argv[1:]
    torch = {mode: of_torch(Path(source) / "bench/gpu_torch.py", mode) for mode in ("eager", "compile", "graph")}
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
