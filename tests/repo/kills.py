#!/usr/bin/env python3
"""Kills training jobs at random moments, most of them inside a save, and starts them again with the same line. Each ends
within seconds, the last checkpoint loads, and the run ends with the bits of one that nobody killed.

    kills.py PROGRAM CASE:LIBRARY      CASE: a_few or many; LIBRARY makes every fsync slow
"""
import json
import os
import random
import signal
import time
from pathlib import Path

from faults import LIMIT, START, Job, parent_of, until

SETTINGS = ["model.layers=[784,32,10]", "batch=1000", "save_every=3", "epochs=3", "log_interval=1", "resume=true",
            "schedule.warmup_steps=20"]


def settings(name):
    return [word for setting in (*SETTINGS, f"name={name}") for word in ("--set", setting)]


def words(name, how, beside):
    line = [*START[how], "train", str(Path(__file__).resolve().parents[2] / "configs/fashion_mnist.json"), *settings(name)]
    return [*line, "--set", f"save_beside={beside}"]


KINDS = ["rank 0", "rank 1", "all ranks", "their parent", "the launcher", "any process"]


def victims(job, kind):
    """None where the ranks have not begun yet."""
    try:
        ranks = [job.rank(0), job.rank(1)]
    except StopIteration:
        return None
    return {"rank 0": ranks[:1], "rank 1": ranks[1:], "all ranks": ranks, "their parent": [parent_of(ranks[0])],
            "the launcher": [job.process.pid], "any process": [random.choice(list(job.pids()))]}[kind]


def kill(job, chosen):
    since = time.monotonic()
    for pid in chosen:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # the end of another one took it along
    until(lambda: job.process.poll() is not None and not job.pids(), LIMIT,
          lambda: f"{time.monotonic() - since:.0f} s after the death of {chosen}, {list(job.pids())} live in {job.text()}")
    job.reader.join(30)


def result(name):
    run = Path("runs", name)
    about = json.loads((run / (run / "latest").read_text().strip() / "run.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == list(range(1, 181)), f"{name}: steps {steps}"
    return about["hash"], [(line["loss"], line["lr"], line["test_accuracy"]) for line in lines]


def survive(kills):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    random.seed(seed)
    kinds = random.sample(KINDS, len(KINDS))  # each in its turn
    expected, done, number = None, 0, 0
    while done < kills:
        name = f"run{number}"
        how, beside = random.choice(list(START)), random.choice(["true", "false"])
        number += 1
        while True:
            job = Job(words(name, how, beside))
            if expected is not None and done < kills:
                time.sleep(random.uniform(0.2, 3))
            else:
                job.process.wait(timeout=300)
            if job.process.poll() is not None:
                break
            chosen = victims(job, kinds[done % len(kinds)])
            kill(job, chosen or list(job.pids())[:1])
            done += chosen is not None
        job.reader.join(30)
        assert job.process.returncode == 0, job.text()
        if expected is None:
            expected = result(name)
        assert result(name) == expected, f"{name} ended with other bits after {done} kills: {job.text()}"
    print(f"{done} kills, {number} runs")


def a_few(library):
    os.environ["LD_PRELOAD"] = library
    survive(5)


def many(library):
    os.environ["LD_PRELOAD"] = library
    survive(50)


if __name__ == "__main__":
    from program import main
    main(globals())
