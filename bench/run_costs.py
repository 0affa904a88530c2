#!/usr/bin/env python3
"""What saving and recording cost a run of the shipped configuration, each as a ratio of steps of one run.

    bench/run_costs.py [--program build/bin/run_costs] [--ranks 2] [--times 5]

The fifty steps after each checkpoint against the next fifty, without one; 100 steps that are traced against the 200 around them, and the
gathering and writing of their trace, once in a run, against the whole run. Medians over all checkpoints and all runs. Exits 1 where an aim is
missed: a checkpoint every ten minutes, the default, below 1 %; one beside training every 100 steps below 5 %; recording, and the trace of
a run, below 2 %. Nothing else should run on the machine.
"""
import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EVERY = 100
TRACED = 201, 300
SHORT = 4  # as many runs of three epochs are traced for each of the whole ones


def seconds_of_steps(options, name, folder, *settings):
    """[n]: of step n + 2, from the end of the step before it."""
    usual = ["eval_every=1000000", "log_interval=1000000", f"name={name}", f"runs={folder}"]
    words = [options.program, "launch", "-n", str(options.ranks), "train", str(ROOT / "configs/fashion_mnist.json")]
    words += [word for setting in (*usual, *settings) for word in ("--set", setting)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}")
    return list(map(float, Path(folder, name, "steps.txt").read_text().split()))


def of_checkpoints(seconds):
    """For each checkpoint, what the steps after it took more than those before the next one, and what all of them took."""
    half = EVERY // 2
    for step in range(EVERY, len(seconds) - EVERY, EVERY):
        after, later = (sum(seconds[at - 1:at - 1 + half]) for at in (step, step + half))
        yield after - later, after + later


def of_trace(seconds):
    """What a traced step took more than those around do, and what the step after them did, before whose end the trace is gathered and
    written: in steps."""
    first, after = TRACED[0] - 2, TRACED[1] - 1
    around = statistics.median(seconds[first - 100:first] + seconds[after + 1:after + 101])
    return statistics.median(seconds[first:after]) / around - 1, seconds[after] / around - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build/bin/run_costs"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--times", type=int, default=5, help="runs of each kind, 2 or more (default 5)")
    options = parser.parse_args()
    if options.times < 2:
        parser.error("--times is how many runs are compared, 2 or more")
    beside, at_once, traced = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.times):
            bare = ["trace_steps=[0,0]", "save_minutes=0", f"save_every={EVERY}"]
            whole = seconds_of_steps(options, f"beside{number}", folder, *bare, "save_beside=true")
            beside += of_checkpoints(whole)
            at_once += of_checkpoints(seconds_of_steps(options, f"at-once{number}", folder, *bare))
            for short in range(SHORT):
                short_run = f"traced{number}-{short}", folder, f"trace_steps={list(TRACED)}", "save_minutes=0", "epochs=3"
                traced.append(of_trace(seconds_of_steps(options, *short_run)))
    told = [("a checkpoint beside training every 100 steps", [100 * more / all_ for more, all_ in beside], 5),
            ("a checkpoint at once every 100 steps", [100 * more / all_ for more, all_ in at_once], None),
            ("a checkpoint at once every ten minutes", [100 * more / 600 for more, _ in at_once], 1),
            ("a step that is traced", [100 * more for more, _ in traced], 2),
            ("the trace of 100 steps, gathered and written", [100 * more / len(whole) for _, more in traced], 2)]
    missed = []
    for what, costs, aim in told:
        cost, quarters = statistics.median(costs), statistics.quantiles(costs, n=4)
        print(f"{what:46} {cost:+7.3f} %  (half of {len(costs)} between {quarters[0]:+.2f} and {quarters[2]:+.2f})" +
              (f", aim: below {aim} %" if aim else ""))
        if aim and cost >= aim:
            missed.append(what)
    if missed:
        sys.exit("missed: " + ", ".join(missed))


if __name__ == "__main__":
    main()
