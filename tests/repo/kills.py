#!/usr/bin/env python3
"""Kills training jobs at random moments, about half of them inside a save, and starts them again with the same line. Each
ends within seconds, the last checkpoint loads, and the run ends with the bits of one that nobody killed.

    kills.py PROGRAM CASE:LIBRARY      CASE: a_few or many; LIBRARY makes every fsync slow
"""
import json
import os
import random
import signal
import time
from pathlib import Path

from faults import LIMIT, START, Job, parent_of, state_of, until

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


def strike(pid):
    """Whether it lived: the end of another one may have taken it along."""
    try:
        lived = state_of(pid) not in "ZX"
        os.kill(pid, signal.SIGKILL)
        return lived
    except (ProcessLookupError, FileNotFoundError):
        return False


def kill(job, chosen):
    """Whether one of them lived. The whole job has ended then."""
    since = time.monotonic()
    struck = [strike(pid) for pid in chosen]
    if not any(struck):
        return False  # they ended by themselves, and the job, in its time, may do so too
    until(lambda: job.process.poll() is not None and not job.pids(), LIMIT,
          lambda: f"{time.monotonic() - since:.0f} s after the death of {chosen}, {list(job.pids())} live in {job.text()}")
    job.reader.join(30)
    return any(struck)


def unfinished(name):
    """Checkpoints that are being written, or that a killed save has left; the next job removes those."""
    return set(Path("runs", name).glob("step-*.tmp-*"))


def wait_for_a_save(job, name, before):
    end = time.monotonic() + 5
    while unfinished(name) <= before and job.process.poll() is None and time.monotonic() < end:
        time.sleep(0.002)


def result(name):
    run = Path("runs", name)
    about = json.loads((run / (run / "latest").read_text().strip() / "run.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == list(range(1, 181)), f"{name}: steps {steps}"
    return about["hash"], [(line["loss"], line["lr"], line["test_accuracy"]) for line in lines]


def survive(kills):
    """How many of so many kills were inside a save, and left it unfinished."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    random.seed(seed)
    kinds = random.sample(KINDS, len(KINDS))  # each in its turn
    expected, done, inside, number = None, 0, 0, 0
    while done < kills:
        name = f"run{number}"
        how, beside = random.choice(list(START)), random.choice(["true", "false"])
        number += 1
        while True:
            before = unfinished(name)
            job = Job(words(name, how, beside))
            if expected is None or done >= kills:
                job.process.wait(timeout=300)
            else:
                time.sleep(random.uniform(0.2, 3))
            if job.process.poll() is not None:
                break
            chosen = victims(job, kinds[done % len(kinds)])
            if chosen and random.random() < 0.5:
                wait_for_a_save(job, name, before)
                chosen = victims(job, kinds[done % len(kinds)])  # some may have ended meanwhile
            lived = kill(job, chosen or list(job.pids())[:1])
            done += bool(chosen and lived)
            inside += bool(chosen and lived and unfinished(name) - before)
        job.reader.join(30)
        assert job.process.returncode == 0, job.text()
        if expected is None:
            expected = result(name)
        assert result(name) == expected, f"{name} ended with other bits after {done} kills: {job.text()}"
    print(f"{done} kills, {inside} of them left an unfinished save, {number} runs")
    return inside


def a_few(library):
    os.environ["LD_PRELOAD"] = library
    survive(5)


def many(library):
    os.environ["LD_PRELOAD"] = library
    assert survive(50) > 0, "no kill was inside a save: nothing is tested"


if __name__ == "__main__":
    from program import main
    main(globals())
