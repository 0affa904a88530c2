#!/usr/bin/env python3
"""Checks the layer table: what each folder may include, and which outside headers and calls live where.

    layers.py ROOT        prints every violation and exits 1, or prints one line and exits 0
"""
import re
import sys
from pathlib import Path

ORDER = {
    "core": [],
    "kernels": ["core"],
    "dist": ["core", "kernels"],
    "autograd": ["core", "kernels"],
    "nn": ["core", "kernels", "autograd"],
    "optim": ["core", "kernels", "autograd"],
    "parallel": ["core", "kernels", "dist", "autograd"],
    "fsdp": ["core", "kernels", "dist", "autograd", "nn", "optim", "parallel"],
    "certify": ["core", "kernels", "autograd"],
    "picture": ["core"],
    "train": ["core", "kernels", "dist", "autograd", "nn", "optim", "parallel", "fsdp", "certify", "picture"],
    "python": ["core", "kernels", "dist", "autograd", "nn", "optim", "parallel", "fsdp", "train"],
}
# Rooms within a room: each may include those before it; "" are the files that lie in the room itself.
WITHIN = {
    "dist": ["os", "bootstrap", "watch", "transports", "group", "launch"],
    "fsdp": ["setup", "offload", "step", "", "state"],
}
# Outside headers that only some places may see: a device difference or a file format has one home.
HOMES = {
    r"(omp|immintrin|x86intrin|arm_neon|cpuid)\.h": ["kernels/cpu/"],
    r"oneapi/|dnnl": ["kernels/cpu/"],
    r"mpi\.h": ["dist/bootstrap/mpi_", "dist/transports/mpi/"],
    r"cuda|cublas|nvtx3/|mma\.h": ["core/cuda/", "kernels/cuda/", "dist/transports/nccl/"],
    r"nccl\.h": ["dist/transports/nccl/"],
    r"zlib\.h": ["train/"],
    r"pcre2\.h": ["train/text/"],
    r"nlohmann/": ["train/"],
    r"CLI/": ["train/"],
    r"nanobind/": ["python/"],
    r"gtest/|gmock/|benchmark/": [],
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
# Stacks of the library's threads are large whatever the limit (core/thread.h).
BARE_THREAD = re.compile(r"\bstd::j?thread\b")
MAY_MAKE_THREADS = ["core/thread."]
ENDS_PROCESS = re.compile(r"(?<![\w.>:])(?<!void )(?:std::|::)?(?:exit|_exit|_Exit|quick_exit|abort|terminate)\s*\(")
# A device branch: `fsdp/` asks what a device is like. kCpu is where states are copied to.
WHICH_DEVICE = re.compile(r"\b(?:kMeta|kCuda|kSim|kAcc|DeviceKind)\b|[=!]=\s*kCpu\b|\bkCpu\s*[=!]=")
# The least and the largest of integers are the same in any order; sums of floats are not (docs/kernel-contract.md).
ATOMIC_SUM = re.compile(r"\batomic(?!Min\b|Max\b)[A-Z]\w*|\bcuda::(?:std::)?atomic")
SIMULATES_ATOMICS = ["kernels/sim/"]
# Where ranks write what they do. Those who keep and watch it know its layout; others ask Control, in a .cpp.
CONTROL_PAGE = "dist/watch/control_page.h"
# A forked child that could not become its program or runs no other (dist/os/children.h), one that watches over a file
# (dist/os/file_guard.h, dist/os/launcher.h), and the guard of a program's top level (dist/launch/job.h).
MAY_END_PROCESS = ["dist/os/children.cpp", "dist/os/file_guard.cpp", "dist/os/launcher.cpp", "dist/launch/job.cpp"]


def code_only(text):
    """The text without comments and strings, line numbers kept."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda m: "\n" * m.group().count("\n"), text, flags=re.S)


def inner_room(file):
    """The room within a room that a file lies in; "" for the room itself."""
    return file.parts[1] if len(file.parts) > 2 else ""


def include_fault(root, file, quote, header):
    folder = file.parts[0]
    if quote == '"':
        return f'"{header}": write <shardgrad/{file.parent.as_posix()}/{header}>'
    if header.startswith("shardgrad/"):
        target = header.removeprefix("shardgrad/")
        if not (root / target).is_file():
            return f"<{header}>: no such file"
        layer = target.split("/")[0]
        if layer != folder and layer not in ORDER[folder]:
            return f"<{header}>: {folder}/ may include only {', '.join(ORDER[folder]) or 'the standard library'}"
        if layer != folder or folder not in WITHIN:
            return None
        rooms, room, inner = WITHIN[folder], inner_room(file), inner_room(Path(target))
        for path, its in ((file, room), (Path(target), inner)):
            if its not in rooms:
                return f"<{header}>: {path.as_posix()} lies in no room of {folder}/: {', '.join(rooms)}"
        if rooms.index(inner) > rooms.index(room):
            known = ", ".join(r or "what lies in it" for r in rooms[:rooms.index(room) + 1])
            return f"<{header}>: {(Path(folder) / room).as_posix()}/ may include only {known} of {folder}/"
        return None
    for pattern, homes in HOMES.items():
        if re.match(pattern, header) and not any(file.as_posix().startswith(home) for home in homes):
            return f"<{header}>: belongs in {' or '.join(homes) or 'tests and bench'} only"
    return None


def that_bring_the_control_page(root):
    """Headers that include the control page's layout, or others that do."""
    headers = [path for layer in ORDER for path in (root / layer).rglob("*.h")]
    brought = {path.relative_to(root).as_posix(): {h.removeprefix("shardgrad/") for _, h in INCLUDE.findall(path.read_text())}
               for path in headers}
    found, new = set(), {CONTROL_PAGE}
    while new:
        found |= new
        new = {header for header, includes in brought.items() if includes & new} - found
    return found


def control_page_faults(root, file, bring):
    name, text = file.as_posix(), (root / file).read_text()
    if not name.endswith(".h") or name.startswith("dist/watch/"):
        return
    for match in INCLUDE.finditer(text):
        header = match.group(2).removeprefix("shardgrad/")
        if header == CONTROL_PAGE or (header in bring and not name.startswith("dist/")):
            line = text.count("\n", 0, match.start()) + 1
            yield line, f"<{header}>: brings the control page's layout into view; include it in a .cpp"


def faults(root, file):
    text = (root / file).read_text()
    for match in INCLUDE.finditer(text):
        fault = include_fault(root, file, *match.groups())
        if fault:
            yield text.count("\n", 0, match.start()) + 1, fault
    anywhere_else = [room + "/" for room in ORDER if room != "fsdp"]
    for pattern, homes, fault in ((ENDS_PROCESS, MAY_END_PROCESS, "a library never ends the process: throw an Error"),
                                  (BARE_THREAD, MAY_MAKE_THREADS, "core/thread.h has the library's threads"),
                                  (ATOMIC_SUM, SIMULATES_ATOMICS, "atomics add in an order that nobody knows: give each sum one order"),
                                  (WHICH_DEVICE, anywhere_else, "core/device.h says what a device is like")):
        if any(file.as_posix().startswith(home) for home in homes):
            continue
        for number, line in enumerate(code_only(text).split("\n"), 1):
            if pattern.search(line):
                yield number, fault


def main():
    root = Path(sys.argv[1]).resolve()
    found = (p for layer in ORDER for p in sorted((root / layer).rglob("*")) if p.suffix in (".h", ".cpp", ".cu"))
    files = [p.relative_to(root) for p in found]
    found = [f"{file}:{line}: {fault}" for file in files for line, fault in faults(root, file)]
    bring, all_of_it = that_bring_the_control_page(root), Path("shardgrad.h")
    for file in [*files, *([all_of_it] if (root / all_of_it).is_file() else [])]:
        found += [f"{file}:{line}: {fault}" for line, fault in control_page_faults(root, file, bring)]
    for fault in found:
        print(fault)
    if found or not files:
        print(f"{len(found)} violations of the layer table in {len(files)} files")
        return 1
    print(f"{len(files)} files keep the layer table")
    return 0


if __name__ == "__main__":
    sys.exit(main())
