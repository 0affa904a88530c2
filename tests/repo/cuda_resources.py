#!/usr/bin/env python3
"""What the CUDA kernels of a built library use of a GPU: registers, shared memory, stack. Prints a table and checks it.

    cuda_resources.py SOURCE_DIR LIBRARY CUOBJDUMP

- no kernel uses local memory, and none has a stack, where registers spill to; those that keep an array there, or call
  something that does, stand below with the bytes and the reason;
- two blocks of kBlock threads fit on a multiprocessor, whose 65536 registers they share;
- there are kernels. Only machine code counts; PTX is not compiled yet.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

REGISTERS = 65536
PRINTS = "what a refused index or label prints"
DIMENSIONS = "extents and strides, which a loop over the dimensions indexes"
STACK = {
    "broadcast_kernel": (104, DIMENSIONS),
    "cross_entropy_backward_kernel": (32, PRINTS),
    "cross_entropy_kernel": (32, PRINTS),
    "gather_kernel": (144, DIMENSIONS + "; " + PRINTS),
    "index_add_kernel": (32, PRINTS),
    "index_select_kernel": (32, PRINTS),
    "normal_kernel": (40, "sine and cosine of the CUDA library, for large arguments"),
    "scatter_add_kernel": (144, DIMENSIONS + "; " + PRINTS),
    "sum_any_kernel": (224, DIMENSIONS),
    "tree_sum_kernel": (112, "the partial sums of a tree over any number of ranks"),
}
USAGE = re.compile(r"^arch = (\w+)$|^ Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", re.M)


def demangled(names):
    if not shutil.which("c++filt"):
        sys.exit("there is no c++filt (Debian package binutils)")
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()


def short(name):
    """map_kernel<Tanh, float, float> without namespaces, result and arguments."""
    name = re.sub(r"\(anonymous namespace\)::|\bshardgrad::|\b(gpu|kernels|std)::|^void ", "", name)
    return name.split("(")[0]


def kernels(library, cuobjdump):
    """(architecture, name, registers, stack, shared, local) of each kernel."""
    run = subprocess.run([cuobjdump, "--dump-resource-usage", library], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{cuobjdump}: {run.stderr}")
    found, architecture = [], ""
    for arch, name, *numbers in USAGE.findall(run.stdout):
        architecture = arch or architecture
        if name:
            found.append((architecture, name, *map(int, numbers)))
    names = demangled([kernel[1] for kernel in found])
    return [(arch, short(name), *numbers) for (arch, _, *numbers), name in zip(found, names)]


def faults(found, most):
    for arch, name, registers, stack, _, local in found:
        if local:
            yield f"{name} ({arch}) uses {local} bytes of local memory"
        if registers > most:
            yield f"{name} ({arch}) needs {registers} registers of a thread, more than {most}"
        known = STACK.get(name.split("<")[0], (0, ""))[0]
        if stack > known:
            yield (f"{name} ({arch}) keeps {stack} bytes on its stack, more than {known}: avoid it, or give the reason "
                   f"in {Path(__file__).name}")
    if not found:
        yield "there is no kernel in it: built without CUDA, or for PTX only"
    for name in sorted(set(STACK) - {kernel[1].split("<")[0] for kernel in found}) if found else []:
        yield f"{name} has a reason for its stack, but there is no such kernel"


def main():
    source, library, cuobjdump = Path(sys.argv[1]), *sys.argv[2:4]
    if cuobjdump.endswith("NOTFOUND"):
        print("skipped: this CUDA toolkit has no cuobjdump (package cuda-cuobjdump; with pip nvidia-cuda-cuobjdump)")
        return 77
    block = int(re.search(r"int kBlock = (\d+);", (source / "kernels/cuda/launch.h").read_text()).group(1))
    most = REGISTERS // (2 * block)
    found = kernels(library, cuobjdump)
    with_stack = [kernel for kernel in found if kernel[3]]
    print(f"{len(found)} kernels for {', '.join(sorted({kernel[0] for kernel in found}))}; at most {most} registers allowed; "
          f"{len(with_stack)} with a stack of up to {max((kernel[3] for kernel in found), default=0)} bytes")
    print(f"{'registers':>9} {'shared':>7} {'stack':>6} {'local':>6}  the ten with most registers")
    for _, name, registers, stack, shared, local in sorted(found, key=lambda kernel: (-kernel[2], kernel[1]))[:10]:
        print(f"{registers:9} {shared:7} {stack:6} {local:6}  {name}")
    wrong = list(faults(found, most))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
