#!/usr/bin/env python3
"""Runs the same training step here and in PyTorch, in alternation, and prints every ratio and their median.

    bench/compare_pytorch.py PROGRAM PYTHON [--pairs 15] [--threads 1] [--ranks 1] [--only TEXT] [--compile]

PROGRAM is the built training_step, PYTHON an interpreter that can import torch. A ratio above 1 means that PyTorch takes
longer. Losses or gradients of both sides are compared before anything is timed. With several ranks the cases are those
of data-parallel training: ours under mpirun, PyTorch's DDP and FSDP2 with gloo, `threads` each. With --compile PyTorch's side
is compiled (torch.compile), which no aim is for; where it cannot be, the row says "not here".
"""
import argparse
import os
import socket
import statistics
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {  # name: (arguments, steps per measurement, least ratio aimed at, whether results are compared)
    "MLP 784-1024-1024-1024-10, batch 256": ("mlp 256 784 1024 1024 1024 10", 8, 1.0, True),
    "MLP 64-64-64-64-1, batch 64": ("mlp 64 64 64 64 64 1", 1000, 2.5, True),
    "LeNet, batch 64": ("lenet 64", 20, 1.0, True),
    "block of ResNet-18, 32 x 64 x 32 x 32": ("residual 32 64 32", 2, 1.0, True),
    "block of ResNet-18, 32 x 128 x 16 x 16": ("residual 32 128 16", 2, 1.0, True),
    "block of ResNet-18, 32 x 256 x 8 x 8": ("residual 32 256 8", 2, 1.0, True),
    "block of ResNet-18, 32 x 512 x 4 x 4": ("residual 32 512 4", 2, 1.0, True),
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
ON_THREADS = {("GPT-2 of 3.3 M, 8 x 128", 2): 1.5}  # aims that are others on so many threads
OF_A_RANK = {  # the same of several ranks; a rank has this batch of its own
    "MLP 784-1024-1024-1024-10, batch 256": ("mlp 256 784 1024 1024 1024 10", 4, 1.0, True),
    "MLP 64-64-64-64-1, batch 64": ("mlp 64 64 64 64 64 1", 300, 1.0, True),
    "GPT-2 of 3.3 M, 4 x 128": ("gpt2 4 128 6 192 6 3072 0.0", 2, 1.0, True),
}


class Side:
    """What answers the driver's lines: one process, or several ranks, of which the first answers."""

    def __init__(self, *commands_and_places, threads):
        self.processes = []
        for command, place in commands_and_places:
            env = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), **place)
            out = subprocess.DEVNULL if self.processes else subprocess.PIPE
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, text=True, env=env))

    def ask(self, line):
        for process in self.processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        answer = self.processes[0].stdout.readline()
        assert answer, f"'{line}' got no answer"
        return None if answer == "not here\n" else [float(word) for word in answer.split()]

    def end(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            assert process.wait() == 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def sides(options, strategy, what):
    """Ours and PyTorch's, each ready to be asked."""
    words = [str(options.threads), strategy, *what.split()]
    compiled = ["--compile"] if options.compile else []
    ours, torch = [options.program, *words], [options.python, os.path.join(HERE, "torch_step.py"), *compiled, *words]
    if strategy == "alone":
        return Side((ours, {}), threads=options.threads), Side((torch, {}), threads=options.threads)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    job = ["mpirun", "-n", str(options.ranks), "--oversubscribe", "--bind-to", "none", *ours]
    place = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    ranks = [(torch, dict(place, RANK=str(rank))) for rank in range(options.ranks)]
    return Side((job, root), threads=options.threads), Side(*ranks, threads=options.threads)


def ratios_of(options, name, strategy, what, steps, comparable):
    """PyTorch's time over ours for each pair; none where PyTorch cannot run it."""
    ours, torch = sides(options, strategy, what)
    results = ours.ask("check"), torch.ask("check")
    ratios = []
    if results[1]:
        for a, b in zip(*results) if comparable else ():  # masks of dropout differ
            assert abs(a - b) <= 1e-4 * abs(b), f"{name}: the results differ: {results}"
        for side in (ours, torch):
            side.ask(f"run {steps}")
        for pair in range(options.pairs):
            first, second = (ours, torch) if pair % 2 == 0 else (torch, ours)
            times = {first: first.ask(f"run {steps}")[0], second: second.ask(f"run {steps}")[0]}
            ratios.append(times[torch] / times[ours])
    for side in (ours, torch):
        side.end()
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("python")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--compile", action="store_true", help="PyTorch's side by torch.compile")
    options = parser.parse_args()
    cases = [(name, "alone", *case) for name, case in CASES.items()]
    if options.ranks > 1:
        cases = [(f"{name}, {strategy} on {options.ranks} ranks", strategy, *case)
                 for name, case in OF_A_RANK.items() for strategy in ("ddp", "zero3")]
    missed = 0
    for name, strategy, what, steps, aim, comparable in cases:
        if options.only not in name:
            continue
        ratios = ratios_of(options, name, strategy, what, steps, comparable)
        row = f"{name}, {options.threads} thread(s): PyTorch{' compiled' if options.compile else ''} / shardgrad"
        if not ratios:
            print(f"{row}: not here")
            continue
        aim = ON_THREADS.get((name, options.threads), aim)
        median = statistics.median(ratios)
        missed += median < aim and not options.compile
        print(f"{row} = {median:.2f}" + ("" if options.compile else f" (aim {aim})"))
        print("  every ratio:", " ".join(f"{r:.2f}" for r in ratios))
    return missed


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)
