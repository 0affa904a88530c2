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

HEAD = """
Fatbin ptx code:
================
arch = sm_90
compressed

Fatbin elf code:
================
arch = sm_90
code version = [1,8]

Resource usage:
 Common:
  GLOBAL:0
"""
RIGHT = {name: (32, known, 0, 0) for name, (known, _) in STACK.items()} | {"plain_kernel": (128, 0, 4096, 0)}
PLANTED = {
    "local_kernel": ((32, 0, 0, 8), "local_kernel (sm_90) uses 8 bytes of local memory"),
    "greedy_kernel": ((129, 0, 0, 0), "greedy_kernel (sm_90) needs 129 registers of a thread, more than 128"),
    "spilling_kernel": ((32, 16, 0, 0), "spilling_kernel (sm_90) keeps 16 bytes on its stack, more than 0"),
    "normal_kernel": ((32, 48, 0, 0), "normal_kernel (sm_90) keeps 48 bytes on its stack, more than 40"),
}


def mangled(name):
    """void shardgrad::gpu::(anonymous namespace)::NAME<float>(float*), as nvcc writes it."""
    return f"_ZN9shardgrad3gpu12_GLOBAL__N_1{len(name)}{name}IfEEvPT_"


def check(kernels, source, folder):
    text = HEAD + "".join(f" Function {mangled(name)}:\n  REG:{r} STACK:{s} SHARED:{m} LOCAL:{l} CONSTANT[0]:728\n"
                          for name, (r, s, m, l) in kernels.items())
    tool = Path(folder) / "cuobjdump"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    tool.chmod(0o755)
    run = subprocess.run([sys.executable, CHECK, source, "library.so", tool], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def main():
    source = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="resources check ") as folder:
        code, said = check(RIGHT, source, folder)
        expected = [f"{len(RIGHT)} kernels for sm_90", r"128    4096      0      0  plain_kernel(<float>)?$"]
        if code != 0 or not all(re.search(each, said, re.M) for each in expected):
            sys.exit(f"kernels without a fault were refused, or the table is wrong:\n{said}")
        for name, (numbers, message) in PLANTED.items():
            code, said = check(RIGHT | {name: numbers}, source, folder)
            if code != 1 or message.replace("_kernel (", "_kernel<float> (") not in said:
                sys.exit(f"missed: {message}\n{said}")
        missing = dict(list(RIGHT.items())[1:])
        for kernels, message in [({}, "there is no kernel in it"), (missing, "there is no such kernel")]:
            code, said = check(kernels, source, folder)
            if code != 1 or message not in said:
                sys.exit(f"missed: {message}\n{said}")


main()
