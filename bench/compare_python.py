#!/usr/bin/env python3
"""What Python costs: the same training step in C++, in Python by the package shardgrad, and in PyTorch, by turns.

    bench/compare_python.py PROGRAM PYTHON TORCH_PYTHON [--rounds 15] [--threads 1]

PROGRAM is the built training_step, PYTHON an interpreter that can import shardgrad, TORCH_PYTHON one that can import torch.
The losses of all three are compared before anything is timed. Ends with 1 where an aim is missed.
"""
import argparse
import os
import statistics

from compare_pytorch import HERE, Side

CASES = {  # name: (arguments, steps per measurement, most of C++'s time that is aimed at, most of PyTorch's)
    "MLP 64-64-64-64-1, batch 64": ("alone mlp 64 64 64 64 64 1", 1000, None, 0.5),
    "MLP 784-1024-1024-1024-10, batch 256": ("alone mlp 256 784 1024 1024 1024 10", 8, 1.03, None),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("python")
    parser.add_argument("torch_python")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    missed = 0
    for name, (what, steps, of_cpp, of_torch) in CASES.items():
        words = [str(options.threads), *what.split()]
        sides = {"C++": [options.program, *words],
                 "Python": [options.python, os.path.join(HERE, "python_step.py"), *words],
                 "PyTorch": [options.torch_python, os.path.join(HERE, "torch_step.py"), *words]}
        sides = {side: Side((command, {}), threads=options.threads) for side, command in sides.items()}
        results = {side: process.ask("check") for side, process in sides.items()}
        for other, most in (("C++", 1e-5), ("PyTorch", 1e-4)):  # C++ says six digits
            for a, b in zip(results["Python"], results[other]):
                assert abs(a - b) <= most * abs(b), f"{name}: the results differ: {results}"
        times = {side: [] for side in sides}
        for turn in range(options.rounds + 1):
            for side in list(sides) if turn % 2 else reversed(sides):
                times[side].append(sides[side].ask(f"run {steps}")[0])
        for other, aim in (("C++", of_cpp), ("PyTorch", of_torch)):
            ratios = [a / b for a, b in zip(times["Python"][1:], times[other][1:])]
            median = statistics.median(ratios)
            missed += aim is not None and median > aim
            print(f"{name}, {options.threads} thread(s): Python / {other} = {median:.3f}" + (f" (aim {aim})" if aim else ""))
            print("  every ratio:", " ".join(f"{r:.3f}" for r in ratios))
        for process in sides.values():
            process.end()
    return missed


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
