#!/usr/bin/env python3
"""Runs the same training step here and in PyTorch, in alternation, and prints every ratio and their median.

    bench/compare_pytorch.py PROGRAM PYTHON [--pairs 15] [--threads 1] [--only TEXT]

PROGRAM is the built training_step, PYTHON an interpreter that can import torch. A ratio above 1 means that PyTorch takes
longer. Losses or gradients of both sides are compared before anything is timed.
"""
import argparse
import os
import statistics
import subprocess

CASES = {  # name: (arguments, steps per measurement, least ratio aimed at, whether results are compared)
    "MLP 784-1024-1024-1024-10, batch 256": ("mlp 256 784 1024 1024 1024 10", 8, 1.0, True),
    "MLP 64-64-64-64-1, batch 64": ("mlp 64 64 64 64 64 1", 1000, 2.5, True),
    "attention, T 128, 8 x 6 heads of 32": ("attention 8 128 6 6 32 0.0", 60, 1.5, True),
    "attention, T 256, 8 x 6 heads of 64": ("attention 8 256 6 6 64 0.0", 10, 1.5, True),
    "attention, T 256, 12 heads of 64": ("attention 1 256 12 12 64 0.0", 50, 1.5, True),
    "attention, T 1024, 12 heads of 64": ("attention 1 1024 12 12 64 0.0", 4, 1.2, True),
    "attention, T 1024, 12 heads that share 4 of 64": ("attention 1 1024 12 4 64 0.0", 4, 1.2, True),
    "attention, T 256, 8 x 6 heads of 64, dropout": ("attention 8 256 6 6 64 0.1", 4, 2.5, False),
    "GPT-2 of 3.3 M, 8 x 128": ("gpt2 8 128 6 192 6 3072 0.0", 2, 1.4, True),
    "GPT-2 of 10.8 M, 8 x 256": ("gpt2 8 256 6 384 6 256 0.0", 1, 1.25, True),
    "GPT-2 of 10.8 M, 8 x 256, dropout": ("gpt2 8 256 6 384 6 256 0.1", 1, 1.35, False),
    "GPT-2 of 124 M, 1 x 256": ("gpt2 1 256 12 768 12 50304 0.0", 1, 1.2, True),
}


class Side:
    def __init__(self, command, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("python")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this")
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))
    missed = 0
    for name, (what, steps, aim, comparable) in CASES.items():
        if options.only not in name:
            continue
        arguments = [str(options.threads), *what.split()]
        ours = Side([options.program, *arguments], options.threads)
        torch = Side([options.python, os.path.join(here, "torch_step.py"), *arguments], options.threads)
        results = ours.ask("check"), torch.ask("check")
        for a, b in zip(*results) if comparable else ():  # masks of dropout differ
            assert abs(a - b) <= 1e-4 * abs(b), f"{name}: the results differ: {results}"
        for side in (ours, torch):
            side.ask(f"run {steps}")
        ratios = []
        for pair in range(options.pairs):
            first, second = (ours, torch) if pair % 2 == 0 else (torch, ours)
            times = {first: first.ask(f"run {steps}")[0], second: second.ask(f"run {steps}")[0]}
            ratios.append(times[torch] / times[ours])
        median = statistics.median(ratios)
        missed += median < aim
        print(f"{name}, {options.threads} thread(s): PyTorch / shardgrad = {median:.2f} (aim {aim})")
        print("  every ratio:", " ".join(f"{r:.2f}" for r in ratios))
        for side in (ours, torch):
            side.process.stdin.close()
            side.process.wait()
    return missed


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
