#!/usr/bin/env python3
"""The check of launches must be able to fail: a kernel without one is found, with file and line."""
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).with_name("launched.py")
GOOD = "template <class T> __global__ void used_kernel(T*) {}\nvoid op() { launch<used_kernel<float>>(how, {1, 1}, y); }\n"
OTHER = "__global__ void given_kernel(int*) {}\nconst auto registered = add_kernel<run<given_kernel, 16>>(slot, all);\n"
IDLE = "\ntemplate <class T>\n__global__ void idle_kernel(T*) {}\n// launch<idle_kernel<float>>(how, {1, 1}, y);\n"


def run(root):
    return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)


with tempfile.TemporaryDirectory(prefix="launch check ") as folder:
    root = Path(folder)
    (root / "kernels/cuda").mkdir(parents=True)
    (root / "tutorials").mkdir()
    (root / "kernels/cuda/good.cu").write_text(GOOD)
    (root / "tutorials/other.cu").write_text(OTHER)
    if run(root).returncode != 0:
        sys.exit(f"kernels that are launched were refused: {run(root).stdout}")
    (root / "kernels/cuda/good.cu").write_text(GOOD + IDLE)
    (root / "tutorials/other.cu").write_text(OTHER + GOOD.split("\n")[0])  # launched elsewhere, but not this one
    found = run(root)
    expected = "kernels/cuda/good.cu:5: nothing launches idle_kernel\ntutorials/other.cu:3: nothing launches used_kernel\n"
    if found.returncode != 1 or found.stdout != expected:
        sys.exit(f"expected\n{expected}found\n{found.stdout}{found.stderr}")
