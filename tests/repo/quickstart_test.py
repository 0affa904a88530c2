#!/usr/bin/env python3
"""What scripts/quickstart starts, with 0, 1 and 3 GPUs and a build with and without CUDA; machine and program are pretended.

    quickstart_test.py SOURCE_DIR
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(sys.argv[1])
CUDA = {True: "  CUDA      13.0", False: "  CUDA      none"}
PICTURES, TEXT = "train configs/fashion_mnist.json", "train configs/gpt_kjv.json"


def started(gpus, built, fails="", words=()):
    """(exit code, the programs that were started)"""
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "a tree"
        programs = {
            "bin/cmake": "",
            "bin/find": f"seq {gpus}",
            "bin/bible": "",
            "scripts/corpus": 'echo text >"$3"',
            "build/bin/shardgrad": f'if [ "$1" = --version ]; then echo "{CUDA[built]}"; exit; fi\n'
                                   f'echo "$*" >>started\n[ "$1" != launch ] || mkdir -p runs/gpt_kjv-2\ncase "$*" in {fails or "nothing"}*) exit 3 ;; esac',
        }
        for path, text in programs.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(f"#!/bin/sh\n{text}\n")
            (tree / path).chmod(0o755)
        (tree / "build/build.ninja").touch()
        for script in ("quickstart", "common.sh"):
            shutil.copy(SOURCE / "scripts" / script, tree / "scripts")
        done = subprocess.run(["scripts/quickstart", "--no-install", *words, "--set", "epochs=1"], cwd=tree, text=True,
                              env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        log = tree / "started"
        return done.returncode, log.read_text().splitlines() if log.exists() else done.stdout


def main():
    options = "--set epochs=1"
    on_cpu = f"launch -n 2 {PICTURES} {options}"
    on_gpus = {n: f"launch -n {n} {PICTURES} --set device=cuda {options}" for n in (1, 3)}
    for gpus, built, fails, expected in (
            (0, False, "", (0, [on_cpu])),
            (0, True, "", (0, [on_cpu])),
            (1, False, "", (0, [on_cpu])),
            (1, True, "", (0, [on_gpus[1], on_cpu])),
            (3, True, "", (0, [on_gpus[3]])),
            (3, True, "launch", (3, [on_gpus[3]])),
            (0, False, "launch", (3, [on_cpu]))):
        found = started(gpus, built, fails)
        assert found == expected, f"{gpus} GPUs, {CUDA[built]}: {found} instead of {expected}"
    found = started(0, False, words=["--text"])
    learns = "tokenizer train --input build/text/kjv.txt --vocab-size 3072 --output build/text/kjv.json"
    says = "generate runs/gpt_kjv-2/ --prompt And it came to pass --tokens 120 --temperature 0.8"
    assert found == (0, [learns, f"launch -n 2 {TEXT} {options}", says]), f"--text: {found}"
    print("quickstart: a rank for each GPU; two on the CPU where there is at most one")


if __name__ == "__main__":
    main()
