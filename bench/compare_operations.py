#!/usr/bin/env python3
"""Operations by themselves, here and in PyTorch, by turns: what takes longer than `--worse` times PyTorch's time.

    bench/compare_operations.py PYTHON TORCH_PYTHON [--pairs 7] [--threads 1] [--only TEXT] [--worse 1.5] [--all]

PYTHON can import shardgrad, TORCH_PYTHON torch. Results and gradients are compared before anything is timed. Prints medians
of our time over PyTorch's, of forward and of forward and backward, those above `--worse` or all; ends with 1 if there are any.
"""
import argparse
import os
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ABOUT = 0.02  # seconds of a measurement
TOLERANCE = {"prod()": 0.05}  # a million factors: PyTorch multiplies in f32, this library in f64


class Side:
    def __init__(self, python, library, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        self.process = subprocess.Popen([python, os.path.join(HERE, "operations.py"), library, str(threads)], text=True, env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, *words):
        self.process.stdin.write("\t".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        assert answer, f"{words} got no answer"
        return answer

    def numbers(self, *words):
        return [float(word) for word in self.ask(*words).split()]

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def ratios(ours, torch, name, pairs):
    """Medians of our time over PyTorch's: of forward, and of forward and backward."""
    for a, b in zip(ours.numbers("check", name), torch.numbers("check", name), strict=True):
        assert abs(a - b) <= TOLERANCE.get(name, 1e-4) * abs(b), f"{name}: the results differ: {a} and {b}"
    count = max(1, int(ABOUT / max(torch.numbers("run", name, 1)[1], 1e-6)))
    found = []
    for turn in range(pairs):
        times = {side: side.numbers("run", name, count) for side in ((ours, torch) if turn % 2 else (torch, ours))}
        found.append([a / b for a, b in zip(times[ours], times[torch])])
    return [statistics.median(column) for column in zip(*found)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("torch_python")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--worse", type=float, default=1.5)
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    ours = Side(options.python, "shardgrad", options.threads)
    torch = Side(options.torch_python, "torch", options.threads)
    names = [name for name in ours.ask("names").split("\t") if options.only in name]
    slow = 0
    for name in names:
        forward, both = ratios(ours, torch, name, options.pairs)
        worse = max(forward, both) > options.worse
        slow += worse
        if worse or options.all:
            print(f"{name:28} forward {forward:5.2f}   with backward {both:5.2f}", flush=True)
    print(f"{slow} of {len(names)} operations take more than {options.worse} times PyTorch's time")
    ours.end()
    torch.end()
    return slow


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
