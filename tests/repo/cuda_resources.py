#!/usr/bin/env python3
"""What the CUDA kernels of a build use of a GPU: registers, shared memory, stack. Prints a table and checks it.

    cuda_resources.py SOURCE_DIR OBJECTS_DIR

OBJECTS_DIR holds what ptxas reported (cmake/keep_ptxas_report.sh) beside the object of each kernels/cuda/*.cu:
- no kernel's registers spill to memory, and none has a stack; those that keep an array there, or call something that
  does, stand below with the bytes and the reason;
- two blocks of kBlock threads fit on a multiprocessor, whose 65536 registers they share, or two of kTileThreads, for the
  kernels that take that many;
- every source has a report, and there are kernels. Only machine code counts; PTX is not compiled yet.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

REGISTERS = 65536
PRINTS = "what a refused index or label prints"
DIMENSIONS = "extents and strides, which a loop over the dimensions indexes"
LARGE_ANGLES = "sine and cosine of the CUDA library, for large arguments"
STACK = {  # a kernel, or what the kernel of a template does
    "attention_cached_kernel": (48, PRINTS),
    "attention_cached_tiles_kernel": (48, PRINTS),
    "attention_kernel": (48, PRINTS),
    "attention_queries_kernel": (48, PRINTS),
    "attention_tiles_kernel": (48, PRINTS),
    "attention_tiles_queries_kernel": (48, PRINTS),
    "broadcast_kernel": (104, DIMENSIONS),
    "cross_entropy_backward_kernel": (48, PRINTS),
    "cross_entropy_kernel": (48, PRINTS),
    "gather_kernel": (160, DIMENSIONS + "; " + PRINTS),
    "index_select_kernel": (48, PRINTS),
    "map_kernel<cos_op": (40, LARGE_ANGLES),
    "map_kernel<sin_op": (40, LARGE_ANGLES),
    "normal_kernel": (40, LARGE_ANGLES),
    "rope_kernel": (48, PRINTS),
    "scatter_add_kernel": (160, DIMENSIONS + "; " + PRINTS),
    "scatter_add_rows_kernel": (160, DIMENSIONS + "; " + PRINTS),
    "scatter_kernel": (160, DIMENSIONS + "; " + PRINTS),
    "scatter_rows_kernel": (48, PRINTS),
    "sort_entries_kernel": (48, PRINTS),
    "sum_any_kernel": (224, DIMENSIONS),
}
SMALL_BLOCKS = re.compile("_tiles_|^pipelined_matmul")  # of kTileThreads
ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\w+)'")
NUMBERS = {"registers": r"Used (\d+) registers", "shared": r"(\d+) bytes smem", "frame": r"(\d+) bytes stack frame",
           "cumulative": r"(\d+) bytes cumulative stack", "stores": r"(\d+) bytes spill stores", "loads": r"(\d+) bytes spill loads"}


def demangled(names):
    if not shutil.which("c++filt"):
        sys.exit("there is no c++filt (Debian package binutils)")
    return subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.splitlines()


def short(name):
    """map_kernel<Tanh, float, float> without namespaces, result and arguments."""
    name = re.sub(r"\(anonymous namespace\)::|\bshardgrad::|\b(gpu|kernels|std)::|^void ", "", name)
    return name.split("(")[0]


class Kernel(NamedTuple):
    source: str
    mangled: str
    arch: str
    registers: int
    stack: int
    shared: int
    spilled: int


def reports(source, objects):
    for each in sorted((source / "kernels/cuda").glob("*.cu")):
        report = objects / "kernels/cuda" / f"{each.name}.o.ptxas"
        if not report.exists():
            sys.exit(f"{report} is missing: build the target shardgrad_cuda")
        yield each.stem, report.read_text()


def reported(source, objects):
    """(kernel, what it is called in C++) for each."""
    found = []
    for stem, report in reports(source, objects):
        # The text up to the next kernel; of functions that it calls, too.
        _, *parts = ENTRY.split(report)
        for name, arch, text in zip(parts[::3], parts[1::3], parts[2::3]):
            of = {what: sum(map(int, re.findall(pattern, text))) for what, pattern in NUMBERS.items()}
            stack = max(of["frame"], of["cumulative"])
            found.append(Kernel(stem, name, arch, of["registers"], stack, of["shared"], of["stores"] + of["loads"]))
    return zip(found, map(short, demangled([kernel.mangled for kernel in found])))


def by_source(source, objects, arch):
    """The kernels for an architecture by the file they are of and their names."""
    return {(kernel.source, name): kernel for kernel, name in reported(source, objects) if kernel.arch == arch}


def kernels(source, objects):
    """(architecture, name, registers, stack, shared, spilled bytes) of each kernel."""
    return [(kernel.arch, name, *kernel[3:]) for kernel, name in reported(source, objects)]


def keys(name):
    """map_kernel<Tanh, float, float> is looked up as map_kernel, and as map_kernel<Tanh."""
    return name.split("<")[0], name.split(",")[0].rstrip(">")


def faults(found, most):
    for arch, name, registers, stack, _, spilled in found:
        base = name.split("<")[0]
        if spilled:
            yield f"{name} ({arch}) spills: {spilled} bytes are stored and loaded"
        allowed = most[SMALL_BLOCKS.search(base) is not None]
        if registers > allowed:
            yield f"{name} ({arch}) needs {registers} registers of a thread, more than {allowed}"
        known = max(STACK.get(key, (0, ""))[0] for key in keys(name))
        if stack > known:
            yield (f"{name} ({arch}) keeps {stack} bytes on its stack, more than {known}: avoid it, or give the reason "
                   f"in {Path(__file__).name}")
    if not found:
        yield "there is no kernel: built for PTX only"
    for name in sorted(set(STACK) - {key for kernel in found for key in keys(kernel[1])}) if found else []:
        yield f"{name} has a reason for its stack, but there is no such kernel"


def main():
    source, objects = Path(sys.argv[1]), Path(sys.argv[2])
    kernel_sources = source / "kernels/cuda"
    blocks = [int(re.search(rf"int {name} = (\d+);", (kernel_sources / file).read_text()).group(1))
              for name, file in (("kBlock", "launch.h"), ("kTileThreads", "tiles.h"))]
    most = [REGISTERS // (2 * block) for block in blocks]
    found = kernels(source, objects)
    with_stack = [kernel for kernel in found if kernel[3]]
    print(f"{len(found)} kernels for {', '.join(sorted({kernel[0] for kernel in found}))}; at most {most[0]} registers allowed, "
          f"{most[1]} where blocks are small; "
          f"{len(with_stack)} with a stack of up to {max((kernel[3] for kernel in found), default=0)} bytes")
    print(f"{'registers':>9} {'shared':>7} {'stack':>6} {'spilled':>7}  the ten with most registers")
    for _, name, registers, stack, shared, spilled in sorted(found, key=lambda kernel: (-kernel[2], kernel[1]))[:10]:
        print(f"{registers:9} {shared:7} {stack:6} {spilled:7}  {name}")
    wrong = list(faults(found, most))
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
