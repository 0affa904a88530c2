#!/usr/bin/env python3
"""Generates text with GPT-2 124M (numbers of a formula) here and in PyTorch, in alternation, and prints the median ratio.

    bench/compare_generation.py PROGRAM PYTHON [--pairs 9] [--threads 2] [--tokens 64] [--prompt 64]

PROGRAM is the built `generation`, PYTHON an interpreter that can import torch. A ratio above 1 means that PyTorch takes
longer. Both keep keys and values in a cache that is made once. The greedy tokens of both are compared before anything is
timed; in 16 bits they may part where two tokens are nearly as likely. Last comes how long the model takes to load from a
Hugging Face folder in f32 that the system has read before.
"""
import argparse
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [  # our dtype, PyTorch's, rows, least ratio aimed at: with 16 bits 2, whichever is the faster there
    ("f32", "f32", 1, 1.35),
    ("bf16", "f32", 1, 2.0),
    ("bf16", "bf16", 1, 2.0),
    ("f16", "f32", 1, 2.0),
    ("f32", "f32", 4, 1.0),
]

MOST_OF_A_LOAD = 0.6  # seconds


class Side:
    def __init__(self, command, options, rows, dtype):
        threads = str(options.threads)
        env = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
        arguments = [threads, str(rows), str(options.prompt), dtype]
        self.process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=env)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def compare(options, ours_dtype, torch_dtype, rows, aim):
    ours = Side([options.program], options, rows, ours_dtype)
    torch = Side([options.python, os.path.join(HERE, "torch_generation.py")], options, rows, torch_dtype)
    tokens = ours.ask("check 16"), torch.ask("check 16")
    same = next((i for i, pair in enumerate(zip(*tokens)) if pair[0] != pair[1]), 16)
    assert same == 16 or ours_dtype != "f32" or torch_dtype != "f32", f"the tokens differ: {tokens}"
    times = {ours: [], torch: []}
    for pair in range(options.pairs):
        for side in (ours, torch) if pair % 2 == 0 else (torch, ours):
            times[side].append(side.ask(f"run {options.tokens}"))
    ours.end(), torch.end()
    median = statistics.median
    ratios = [[t[part] / o[part] for o, t in zip(times[ours], times[torch])] for part in (0, 1)]
    speed = {side: (options.tokens - 1) * rows / median(t[1] for t in times[side]) for side in times}
    print(f"{rows} row(s), here {ours_dtype}, PyTorch {torch_dtype}, {options.threads} thread(s): "
          f"PyTorch / shardgrad = {median(ratios[1]):.2f} (aim {aim}); {speed[ours]:.1f} and {speed[torch]:.1f} tokens/s; "
          f"prompt of {options.prompt}: {median(ratios[0]):.2f}; {same} of 16 tokens alike")
    print("  every ratio:", " ".join(f"{r:.2f}" for r in ratios[1]), flush=True)
    return median(ratios[1]) < aim


def time_loads(options):
    with tempfile.TemporaryDirectory(prefix="compare_generation ") as folder:
        command = [options.program, "load", str(options.threads), os.path.join(folder, "model")]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    times = [float(word) for word in answer.split()][1:]  # the first finds nothing warm
    median = statistics.median(times)
    print(f"a Hugging Face folder of 124 M, {options.threads} thread(s): loaded in {median:.2f} s (aim: at most {MOST_OF_A_LOAD})")
    print("  every time:", " ".join(f"{t:.2f}" for t in times), flush=True)
    return median > MOST_OF_A_LOAD


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("python")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64)
    options = parser.parse_args()
    return sum(compare(options, *case) for case in CASES) + time_loads(options)


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
