#!/usr/bin/env python3
"""How near `shardgrad plan --time` is to steps that are measured: shipped configurations, every strategy, 1 and 2 ranks of this machine.

    bench/compare_plan_time.py [--program build/bin/shardgrad] [--rounds 3] [--ranks 1 2] [--json FILE]

A round times and predicts by turns. Measured is the median over the lines of a run (`seconds` of metrics.jsonl), without the first;
ranks have a core each. Nothing else should run on the machine.
"""
import argparse
import json
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STRATEGIES = ["ddp", "zero1", "zero2", "zero3"]
# A configuration: (batch, steps of a line, lines), so that a run takes some seconds.
CONFIGS = {"fashion_mnist": (256, 100, 8), "fashion_mnist_cnn": (64, 10, 6), "gpt_kjv": (8, 4, 6)}


def predicted(options, name):
    """{(strategy, ranks): seconds}."""
    words = [options.program, "plan", f"configs/{name}.json", "--time", "--threads", "1", "--per-machine", str(max(options.ranks)),
             "--set", f"batch={CONFIGS[name][0]}"]
    text = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    found = {}
    for line in text.splitlines()[2:]:
        if row := re.match(r"(\d+) +\d", line):
            for strategy, step in zip(STRATEGIES, re.findall(r"([\d.]+) / [\d.]+ / \d+ %", line)):
                found[strategy, int(row[1])] = float(step) / 1e3
    return found


def measured(options, name, strategy, ranks):
    batch, each, lines = CONFIGS[name]
    with tempfile.TemporaryDirectory() as folder:
        settings = {"batch": batch, "strategy": strategy, "log_interval": each, "steps": each * lines, "eval_every": each * lines,
                    "schedule.warmup_steps": 0, "save_minutes": 0, "trace_steps": "[0,0]", "sanity_steps": 0, "runs": folder, "name": "run"}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        front = ["env", "OMP_NUM_THREADS=1", options.program, "launch", "-n", str(ranks), "--by", "local", "train", f"configs/{name}.json"]
        subprocess.run([*front, *words], check=True, capture_output=True, text=True, cwd=ROOT)
        rows = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    return statistics.median(row["seconds"] for row in rows[1:]) / each


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build/bin/shardgrad"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--configs", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--json", type=Path, help="write all numbers there, too")
    options = parser.parse_args()
    ratios, all_ = [], []
    for name in options.configs:
        said, taken = {}, {}
        for _ in range(options.rounds):
            for key, seconds in predicted(options, name).items():
                said.setdefault(key, []).append(seconds)
            for ranks in options.ranks:
                for strategy in STRATEGIES:
                    taken.setdefault((strategy, ranks), []).append(measured(options, name, strategy, ranks))
        for (strategy, ranks), seconds in taken.items():
            mine, here = statistics.median(said[strategy, ranks]), statistics.median(seconds)
            ratios.append(mine / here)
            all_.append({"config": name, "strategy": strategy, "ranks": ranks, "predicted": said[strategy, ranks], "measured": seconds})
            print(f"{name:18} {strategy:6} {ranks} ranks: predicted {1e3 * mine:8.2f} ms, measured {1e3 * here:8.2f} ms, ratio {mine / here:.3f}")
    errors = sorted(abs(ratio - 1) for ratio in ratios)
    print(f"error: median {100 * statistics.median(errors):.1f} %, largest {100 * errors[-1]:.1f} % of {len(errors)}")
    if options.json:
        options.json.write_text(json.dumps(all_, indent=1) + "\n")


if __name__ == "__main__":
    main()
