#!/usr/bin/env python3
"""Runs the batch files of scripts/slurm on a SLURM of one node, or of two. Exit code 77 where SLURM cannot run.

    slurm.py PROGRAM CASE      CASE is a function below, perhaps with a batch file: trains:mpirun
"""
import json
import re
import sys
import tempfile
import time
from pathlib import Path

from needs import skip
from program import DONE, ROOT_MAY, call, expect, main

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["configs/fashion_mnist.json", "--set", "model.layers=[784,16,10]", "--set", "schedule.warmup_steps=10", "--set",
         "log_interval=20", "--set"]


def on_slurm(words, nodes=1):
    run = call([str(ROOT / "scripts/slurm/here"), "--nodes", str(nodes), *map(str, words)], ROOT_MAY)
    why_not = re.search(r"scripts/slurm/here: (.*)", run.stderr)
    if run.returncode == 3 and why_not:
        skip("scripts/slurm/here", why_not[1])
    return run


def batch(kind, folder, settings):
    """The words that submit a batch file and wait for it; its output goes to folder/out."""
    return ["sbatch", "--wait", f"--output={folder}/out", "--chdir", tree(folder), ROOT / f"scripts/slurm/{kind}.sbatch",
            *settings, "--set", f"runs={folder}/runs"]


def tree(folder):
    """Where build/bin/shardgrad is the program under test, wherever it was built."""
    (folder / "build/bin").mkdir(parents=True, exist_ok=True)
    for link, target in (("build/bin/shardgrad", Path(sys.argv[1]).resolve()), ("configs", ROOT / "configs")):
        if not (folder / link).exists():
            (folder / link).symlink_to(target)
    return folder


def trains(kind):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = on_slurm(batch(kind, folder, [*SMALL, "epochs=1"]))
        out = (folder / "out").read_text() if (folder / "out").exists() else ""
        run.all += out
        expect(run.returncode == 0 and DONE.fullmatch(out.splitlines()[-1]), run)
        expect(re.search(r"ranks +4 ", out), run)


def trains_on_two_nodes(kind):
    """Connected in two levels, and ending with the bits of four ranks of one machine."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = batch(kind, folder, [*SMALL, "epochs=1"])
        run = on_slurm([words[0], "--nodes=2", "--ntasks-per-node=2", *words[1:]], nodes=2)
        out = (folder / "out").read_text() if (folder / "out").exists() else ""
        run.all += out
        expect(run.returncode == 0 and DONE.fullmatch(out.splitlines()[-1]), run)
        about = json.loads((folder / "runs/job-1/about.json").read_text())
        expect((about["transport"], about["host"], about["ranks"]) == ("two_level", "node1", 4), run)
        here = call([sys.argv[1], "launch", "-n", "4", "--by", "local", "--threads", "1", "train", str(ROOT / SMALL[0]), *SMALL[1:], "epochs=1",
                     "--set", f"runs={folder}/here"])
        hashes = [re.search(r"^saved step 235 in .*, hash (\w+)$", text, re.M) for text in (out, here.stdout)]
        expect(here.returncode == 0 and all(hashes) and hashes[0][1] == hashes[1][1], here)


def is_saved_when_time_is_nearly_up_and_goes_on(kind):
    """As SLURM's --signal does, at a moment of our choosing. The job is queued again, and ends as if it had not been."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = " ".join(f"'{word}'" for word in batch(kind, folder, [*SMALL, "epochs=4"]))
        signal = "scancel --signal=USR1 " + ("--batch " if kind == "mpirun" else "") + "--name=shardgrad"
        script = (f"{words} & job=$!; for i in $(seq 200); do grep -q 'step ' {folder}/out 2>/dev/null && break; "
                  f"sleep 0.2; done; {signal}; wait $job")
        begin = time.monotonic()
        run = on_slurm(["bash", "-c", script])
        out = (folder / "out").read_text() if (folder / "out").exists() else ""
        run.all += out
        stopped = re.search(r"stopped as asked after step (\d+) of 940", out)
        goes_on = re.search(r"goes on after step (\d+) of 940", out[stopped.end():] if stopped else "")
        expect(stopped and goes_on and stopped[1] == goes_on[1], run)
        done = DONE.fullmatch(out.splitlines()[-1])
        expect(run.returncode == 0 and done and done[2] == "940" and Path(done[3]).parent == folder / "runs", run)
        expect(time.monotonic() - begin < 200, run)  # sbatch --wait looks ever less often


def a_world_of_one_is_refused():
    script = f"'{sys.argv[1]}' train '{ROOT}/configs/fashion_mnist.json'"
    run = on_slurm(["salloc", "-Q", "-n", "4", "bash", "-c", script])
    expect(run.returncode == 2 and "mpirun -n 4 …, or: srun --mpi=pmix …" in run.stderr, run)
    run = on_slurm(["srun", "-Q", "-n", "2", "bash", "-c", script])
    expect(run.returncode == 2 and "start them with: srun --mpi=pmix …" in run.stderr, run)


if __name__ == "__main__":
    main(globals())
