#!/usr/bin/env python3
"""What the ledger says a strategy saves, the operating system sees too.

    resident_set.py PROGRAM

Trains the same model of 13 million parameters under ddp and zero3 on two ranks. The difference between their peaks in
the ledger must be the difference between the processes' resident sets, within 10 %. Shared memory is counted once
(proportional set size), as the ledger does.
"""
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = sys.argv[1]
RANKS = 2


def write_data(folder):
    """Fashion-MNIST's files with few samples."""
    for split, count in ("train", 640), ("t10k", 64):
        pictures = struct.pack(">IIII", 0x803, count, 28, 28) + bytes(i * 7 % 256 for i in range(count * 784))
        labels = struct.pack(">II", 0x801, count) + bytes(i % 10 for i in range(count))
        (folder / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(pictures, 1))
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels, 1))


def proportional_set(pid):
    """Bytes; a page that k processes share counts 1/k in each."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ProcessLookupError):
        pass
    return 0


def ranks_of(token):
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [b"train"] and token.encode() in words:
                yield entry.name


def peaks(strategy):
    """Peak bytes of all ranks: by the ledger, and as the operating system saw them."""
    name = f"resident_set_{strategy}_{os.getpid()}"
    settings = {"name": name, "data": {"name": "fashion_mnist", "dir": os.getcwd()}, "batch": 32, "epochs": 1,
                "model": {"layers": [784] + [1536] * 6 + [10]}, "strategy": strategy, "log_interval": 20, "optimizer": {"name": "adamw"}}
    Path(f"{name}.json").write_text(json.dumps(settings))
    job = subprocess.Popen([PROGRAM, "launch", "-n", str(RANKS), "train", f"{name}.json"],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    seen = 0
    while job.poll() is None:
        seen = max(seen, sum(proportional_set(pid) for pid in ranks_of(f"{name}.json")))
        time.sleep(0.02)
    output = job.stdout.read()
    assert job.returncode == 0, output
    ledger = json.loads(Path(f"runs/{name}/ledger.json").read_text())
    return RANKS * ledger["peak"], seen


def main():
    with tempfile.TemporaryDirectory(prefix="resident set ") as folder:
        os.chdir(folder)
        write_data(Path(folder))
        ddp_ledger, ddp_seen = peaks("ddp")
        zero3_ledger, zero3_seen = peaks("zero3")
    booked, seen = ddp_ledger - zero3_ledger, ddp_seen - zero3_seen
    print(f"ddp {ddp_ledger:,} booked, {ddp_seen:,} seen; zero3 {zero3_ledger:,} booked, {zero3_seen:,} seen")
    print(f"saved: {booked:,} booked, {seen:,} seen: {seen / booked:.3f}")
    if not (booked > 50e6 and abs(seen - booked) <= 0.1 * booked):
        sys.exit("the ledger and the operating system disagree by more than 10 %")


if __name__ == "__main__":
    main()
