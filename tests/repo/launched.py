#!/usr/bin/env python3
"""Every __global__ function is launched: the simulator's list of launches (tests/sim/launched.cpp) has only kernels that
some launch<> names, so a template that nobody launches would be in no list.

    launched.py ROOT        prints every kernel without a launch and exits 1, or prints one line and exits 0
"""
import re
import sys
from pathlib import Path

FOLDERS = ["kernels/cuda", "tutorials", "bench", "tests/repo/outside_project", "tests/sim"]
KERNEL = re.compile(r"__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)")
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def main():
    root = Path(sys.argv[1]).resolve()
    files = [p for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix in (".cu", ".h")]
    texts = {file: COMMENT.sub(lambda m: "\n" * m.group().count("\n"), file.read_text()) for file in files}
    kernels, idle = 0, []
    for file, text in texts.items():
        for match in KERNEL.finditer(text):
            kernels += 1
            # launch<kernel<T>>, or an argument of a function that launches what it is given: run<kernel, side>. Names
            # are a file's own, but for those of headers.
            where = text if file.suffix == ".cu" else "\n".join(texts.values())
            if not re.search(rf"\b\w+<\s*{match.group(1)}\s*[<,>]", where):
                line = text.count("\n", 0, match.start()) + 1
                idle.append(f"{file.relative_to(root)}:{line}: nothing launches {match.group(1)}")
    print("\n".join(idle or [f"{kernels} kernels in {len(files)} files, all launched"]))
    return 1 if idle or not kernels else 0


if __name__ == "__main__":
    sys.exit(main())
