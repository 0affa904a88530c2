"""The command `shardgrad`: launch, train, plan, doctor, …, the program of the library that lies in the package."""

import os
import sys
from pathlib import Path


def main():
    program = Path(__file__).resolve().parent / "bin" / "shardgrad"
    if not program.exists():
        sys.exit(f"shardgrad: {program} is missing; a package in a build folder uses the program in its bin/")
    os.execv(program, ["shardgrad", *sys.argv[1:]])
