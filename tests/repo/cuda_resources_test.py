#!/usr/bin/env python3
"""The check of the CUDA kernels' resources must be able to fail: each planted fault is found, and named.

    cuda_resources_test.py SOURCE_DIR
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).with_name("cuda_resources.py")
sys.path.insert(0, str(CHECK.parent))
from cuda_resources import STACK  # noqa: E402

KERNEL = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
ptxas info    : Used {registers} registers, used 0 barriers{cumulative}{shared}
ptxas info    : Compile time = 12.3 ms
"""
RIGHT = {name: (32, known, 0, 0) for name, (known, _) in STACK.items()}
RIGHT |= {"plain_kernel": (128, 0, 4096, 0), "pipelined_matmul_kernel": (255, 0, 0, 0)}
PLANTED = {
    "spilling_kernel": ((32, 0, 0, 8), "spilling_kernel (sm_90) spills: 8 bytes are stored and loaded"),
    "greedy_kernel": ((129, 0, 0, 0), "greedy_kernel (sm_90) needs 129 registers of a thread, more than 128"),
    "pipelined_matmul_kernel": ((257, 0, 0, 0), "pipelined_matmul_kernel (sm_90) needs 257 registers of a thread, more than 256"),
    "stacked_kernel": ((32, 16, 0, 0), "stacked_kernel (sm_90) keeps 16 bytes on its stack, more than 0"),
    "map_kernel<exp_op": ((32, 40, 0, 0), "map_kernel<exp_op, float> (sm_90) keeps 40 bytes on its stack, more than 0"),
    "normal_kernel": ((32, 48, 0, 0), "normal_kernel (sm_90) keeps 48 bytes on its stack, more than 40"),
}


def mangled(name):
    """void shardgrad::gpu::(anonymous namespace)::NAME<float>(float*), as nvcc writes it; of map_kernel<cos_op, with what it does."""
    name, *does = name.split("<")
    arguments = "".join(f"{len(each)}{each}" for each in does)
    return f"_ZN9shardgrad3gpu12_GLOBAL__N_1{len(name)}{name}I{arguments}fEEvPT_"


def check(kernels, source, folder):
    text = "ptxas info    : 24 bytes gmem\n" + "".join(
        KERNEL.format(name=mangled(name), registers=registers, stack=stack, spilled=spilled,
                      cumulative=f", {stack} bytes cumulative stack size" if stack else "",
                      shared=f", {shared} bytes smem" if shared else "")
        for name, (registers, stack, shared, spilled) in kernels.items())
    return run(source, folder, text)


def run(source, folder, text):
    """The check of a build in which one source has this report, or none, and those of the others are empty."""
    reports = Path(folder) / "kernels/cuda"
    reports.mkdir(parents=True, exist_ok=True)
    for each in (Path(source) / "kernels/cuda").glob("*.cu"):
        (reports / f"{each.name}.o.ptxas").write_text("")
    if text is None:
        (reports / "move.cu.o.ptxas").unlink()
    else:
        (reports / "move.cu.o.ptxas").write_text(text)
    done = subprocess.run([sys.executable, CHECK, source, folder], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    source = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="resources check ") as folder:
        code, said = check(RIGHT, source, folder)
        expected = [f"{len(RIGHT)} kernels for sm_90", r"128    4096      0       0  plain_kernel(<float>)?$"]
        if code != 0 or not all(re.search(each, said, re.M) for each in expected):
            sys.exit(f"kernels without a fault were refused, or the table is wrong:\n{said}")
        for name, (numbers, message) in PLANTED.items():
            code, said = check(RIGHT | {name: numbers}, source, folder)
            if code != 1 or message.replace("_kernel (", "_kernel<float> (") not in said:
                sys.exit(f"missed: {message}\n{said}")
        missing = dict(list(RIGHT.items())[1:])
        for kernels, message in [({}, "there is no kernel"), (missing, "there is no such kernel")]:
            code, said = check(kernels, source, folder)
            if code != 1 or message not in said:
                sys.exit(f"missed: {message}\n{said}")
        code, said = run(source, folder, None)
        if code != 1 or "move.cu.o.ptxas is missing: build" not in said:
            sys.exit(f"missed: a source without a report\n{said}")


main()
