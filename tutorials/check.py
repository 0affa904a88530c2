#!/usr/bin/env python3
"""Checks a tutorial's README: every ```cpp block stands in main.cpp or kernels.cu, every ```text block in the program's
output.

    check.py FOLDER PROGRAM
"""
import re
import subprocess
import sys
from pathlib import Path


def stripped(text):
    return "\n".join(line.strip() for line in text.strip().splitlines())


def main():
    folder, program = Path(sys.argv[1]), sys.argv[2]
    run = subprocess.run([program], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{program} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    sources = [path.read_text() for path in (folder / "main.cpp", folder / "kernels.cu") if path.exists()]
    wholes = {"cpp": stripped("\n".join(sources)), "text": stripped(run.stdout)}
    blocks = re.findall(r"^```(cpp|text)\n(.*?)^```$", (folder / "README.md").read_text(), re.M | re.S)
    missing = [(kind, block) for kind, block in blocks if stripped(block) not in wholes[kind]]
    for kind, block in missing:
        where = "the program's text" if kind == "cpp" else "the program's output"
        print(f"{folder.name}/README.md quotes what is not in {where}:\n{block}")
    if missing:
        sys.exit(f"the output is:\n{run.stdout}")
    if not any(kind == "text" for kind, _ in blocks):
        sys.exit(f"{folder.name}/README.md quotes no output")


if __name__ == "__main__":
    main()
