#!/usr/bin/env python3
"""TensorBoard reads the events of a run that was killed and went on, and they are what metrics.jsonl says.

    tensorboard_events.py PROGRAM      skipped where no Python has tensorboard
"""
import json
import math
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from needs import python_with, skip

ROOT = Path(__file__).resolve().parents[2]
# Prints tag -> [[step, value], …] of a folder.
READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], {"scalars": 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def train(program, folder, *, killed):
    """The steps that were told of before it was killed."""
    words = [program, "train", str(ROOT / "configs/fashion_mnist.json"), "--set", "epochs=2", "--set", "log_steps=true",
             "--set", "tensorboard=true", "--set", "save_every=50", "--set", "resume=true", "--set", "model.layers=[784,16,10]", "--set", "schedule.warmup_steps=10"]
    job = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics, told = Path(folder, "runs/fashion_mnist/metrics.jsonl"), 0
    while killed and job.poll() is None and told < 70:
        time.sleep(0.01)
        told = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
    if killed:
        job.kill()
    output = job.communicate(timeout=120)[0]
    assert job.returncode == (-signal.SIGKILL if killed else 0), output
    return told


def main():
    program, python = os.path.abspath(sys.argv[1]), python_with(["tensorboard"])
    if not python:
        skip("TensorBoard", "no Python here has tensorboard; pip install it somewhere and set SHARDGRAD_TEST_PYTHON")
    with tempfile.TemporaryDirectory() as folder:
        told_before = train(program, folder, killed=True)
        train(program, folder, killed=False)
        run = Path(folder, "runs/fashion_mnist")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == list(range(1, 471)) and 50 < told_before < 470, told_before
        read = subprocess.run([python, "-c", READ, run], check=True, capture_output=True, text=True).stdout
        said = subprocess.run([python, "-m", "tensorboard.main", "--inspect", "--logdir", run], check=True, capture_output=True, text=True).stdout
    told = json.loads(read)
    expected = {tag: [[line["step"], struct.unpack("f", struct.pack("f", line[tag]))[0]] for line in lines if line[tag] is not None]
                for tag in ("loss", "lr", "samples_per_s", "grad_norm", "test_accuracy", "test_loss")}
    assert all(math.isfinite(value) for points in told.values() for _, value in points)
    assert told == expected, (told, expected)
    assert re.search(r"^scalars\n +first_step +1\n +last_step +470\n +max_step +470\n +min_step +1\n", said, re.M), said
    print(f"TensorBoard reads {sum(map(len, told.values()))} scalars of 470 steps, killed after {told_before}, as metrics.jsonl says them")


if __name__ == "__main__":
    main()
