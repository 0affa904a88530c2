#!/usr/bin/env python3
"""Every C++ file of the library is compiled with what a correct program needs of its compiler.

    compile_options.py ROOT BUILD_DIR
"""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from layers import ORDER

# A small stack of a thread ends in a fault and not in other memory.
NEEDED = ["-fstack-clash-protection"]


def main():
    root, build = (Path(word).resolve() for word in sys.argv[1:3])
    places = [root / layer for layer in ORDER] + [build / "unity"]
    found = []
    commands = json.loads((build / "compile_commands.json").read_text())
    ours = [one for one in commands if one["file"].endswith(".cpp") and any(Path(one["file"]).is_relative_to(place) for place in places)]
    for one in ours:
        found += [f"{one['file']}: compiled without {option}" for option in NEEDED if option not in one["command"].split()]
    print("\n".join(found) if found else f"{len(ours)} files are compiled with {' '.join(NEEDED)}")
    return 1 if found or not ours else 0


if __name__ == "__main__":
    sys.exit(main())
