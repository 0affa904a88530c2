#!/usr/bin/env python3
"""In the sources of a top-level folder a name stands for one thing: whichever of them a build joins (cmake/unity.cmake), it compiles.

    joined_sources.py BUILD_FOLDER

Which they are depends on the folder's files, so one more, or a build without MPI, would join others. Here all are joined.
"""
import collections
import json
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def rooms_of(build):
    """What compiles each part of a folder that is in several, by its name."""
    rooms = collections.defaultdict(list)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if part := re.search(r"/unity/(\w+)_\d+\.cpp$", entry["file"]):
            rooms[part[1]].append(entry)
    return {name: entries for name, entries in rooms.items() if len(entries) > 1}


def compiles(name, entries, folder):
    joined = Path(folder, f"{name}.cpp")
    joined.write_text("".join(Path(entry["file"]).read_text() for entry in entries))
    words = shlex.split(entries[0]["command"])
    words = words[next(i for i, word in enumerate(words) if word.endswith("++")):]  # without a cache before it
    end = words.index("-o")
    run = subprocess.run([*words[:end], "-fsyntax-only", str(joined)], cwd=entries[0]["directory"], capture_output=True, text=True)
    if run.returncode:
        print(f"{name}: not all of its sources can be joined; give one of two things another name\n{run.stderr[:4000]}")
    return run.returncode == 0


def main(build):
    rooms = rooms_of(build)
    if not rooms:
        print("this build joins no sources; configure it with -DSHARDGRAD_UNITY=ON")
        return 77
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        good = list(pool.map(lambda room: compiles(*room, folder), rooms.items()))
    print(f"{len(good)} rooms, {good.count(False)} with a name of two meanings")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
