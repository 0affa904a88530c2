#!/usr/bin/env python3
"""What saving and recording cost a run of the shipped configuration: whole runs by turns, the median of their ratios.

    bench/run_costs.py [--program build/bin/shardgrad] [--rounds 7] [--ranks 2]

A round is one run of each kind, in an order that changes, and its ratios are of runs that stood next to each other. Nothing else
should run on the machine. Aims: a checkpoint every ten minutes below 1 %, one beside training every 100 steps below 5 %, what is
recorded below 2 %.
"""
import argparse
import json
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BARE = ["trace_steps=[0,0]", "save_minutes=0"]
KINDS = {
    "bare": BARE,
    "recorded": ["save_minutes=0"],  # the two steps that every run traces
    "every step told": ["save_minutes=0", "log_steps=true", "tensorboard=true"],
    "saved beside": [*BARE, "save_every=100", "save_beside=true"],
    "saved at once": [*BARE, "save_every=100"],
}


def run(options, kind, number, folder):
    """Seconds of training, evaluation and saving; and of each checkpoint."""
    settings = [word for setting in (*KINDS[kind], f"name={kind} {number}", f"runs={folder}") for word in ("--set", setting)]
    words = [options.program, "launch", "-n", str(options.ranks), "train", str(ROOT / "configs/fashion_mnist.json"), *settings]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seconds = json.loads(Path(folder, f"{kind} {number}", "about.json").read_text())["end"]["seconds"]
    return seconds, [float(found) for found in re.findall(r"^saved step \d+ in ([\d.]+) s", done.stdout, re.M)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build/bin/shardgrad"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    taken, saves = {kind: [] for kind in KINDS}, []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = list(KINDS) if number % 2 == 0 else list(reversed(KINDS))
            for kind in order:
                seconds, saved = run(options, kind, number, folder)
                taken[kind].append(seconds)
                saves += saved if kind == "saved at once" else []
    print(f"seconds of a bare run: {statistics.median(taken['bare']):.2f} (" + " ".join(f"{s:.2f}" for s in taken["bare"]) + ")")
    for kind in list(KINDS)[1:]:
        ratios = [mine / bare - 1 for mine, bare in zip(taken[kind], taken["bare"])]
        print(f"{kind:16} {100 * statistics.median(ratios):+6.2f} %  (" + " ".join(f"{100 * r:+.2f}" for r in ratios) + ")")
    print(f"a checkpoint     {statistics.median(saves):6.2f} s, of ten minutes {100 * statistics.median(saves) / 600:.3f} %")


if __name__ == "__main__":
    main()
