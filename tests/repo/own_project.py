#!/usr/bin/env python3
"""A project that `shardgrad new` writes, as its README says: installed, built, trained, killed and resumed:
the last step of newcomers_hour.py.

    own_project.py PROGRAM a_new_project:BUILD_DIR
"""
import json
import os
import re
import struct
from pathlib import Path

from faults import Job, until
from kills import kill
from program import call, expect

# Saved often, and long enough to be killed in between.
LONG = ["--set", "epochs=200", "--set", "save_every=100", "--set", "log_interval=1000000"]


def result(name):
    """Hash of everything that a run has trained, and its last scores."""
    run = Path("runs", name)
    about = json.loads((run / (run / "latest").read_text().strip() / "run.json").read_text())
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return about["step"], about["hash"], last["test_r2"], last["test_rmse"]


def the_commands_of_its_readme():
    """One by one, as typed in the project. The last one gives the result of the one before it."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", Path("README.md").read_text(), re.M | re.S)
    commands = [line for block in blocks for line in block.splitlines()]
    assert len(commands) == 5, commands
    found = []
    for command in commands:
        run = call(["sh", "-c", command])
        expect(run.returncode == 0, run)
        if " train " in command:
            found.append(re.search(r"^done: test_r2=(\d\.\d+) steps=(\d+)", run.stdout, re.M).groups())
    trained, resumed, of_the_library = found
    assert float(trained[0]) > 0.98 and trained == resumed == of_the_library, found
    assert result("own_model") == result("own_model-2"), "the library's run ends with other bits than the program's"


def it_has_every_command():
    """In 40 lines."""
    assert len(Path("main.cpp").read_text().splitlines()) <= 40, "main.cpp has grown"
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }".ljust(117) + "\n"
    Path("x.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + struct.pack("<8f", *range(8)))
    for words, said in [
            (["eval", "runs/own_model"], r"^eval: test_r2=0\.9"),
            (["plan", "config.json", "--ranks", "2", "--measure"], r"^as predicted$"),
            (["report", "runs/own_model"], r"^wrote runs/own_model/report.html$"),
            (["predict", "runs/own_model", "--input", "x.npy", "--output", "y.csv"], r"^predicted 2 rows "),
            (["hash", "runs/own_model"], r"^step \d+, hash \w+$")]:
        run = call(["build/own_model", *words])
        expect(run.returncode == 0 and re.search(said, run.stdout, re.M), run)
    assert len(Path("y.csv").read_text().splitlines()) in (2, 3), "with a header or without"
    of_the_library = call(["shardgrad", "eval", "runs/own_model-2"])
    expect(of_the_library.returncode == 0, of_the_library)


def a_kill_changes_nothing():
    def train(name):
        return ["build/own_model", "launch", "-n", "2", "train", "config.json", *LONG, "--set", f"name={name}", "--set", "resume=true"]
    expect((whole := call(train("whole"))).returncode == 0, whole)
    job = Job(train("parts"))
    until(lambda: Path("runs/parts/latest").exists(), 30, job.text)
    kill(job, list(job.pids()))
    assert result("parts")[0] < result("whole")[0], "it ended before it was killed"
    again = call(train("parts"))
    expect(again.returncode == 0 and "goes on after step" in again.stdout, again)
    assert result("parts") == result("whole"), again.all


def any_number_of_ranks_gives_the_same_scores():
    scores = {}
    for ranks in "1", "2", "4":
        run = call(["build/own_model", "launch", "-n", ranks, "--by", "local", "train", "config.json", "--set", f"name=on{ranks}"])
        expect(run.returncode == 0, run)
        scores[ranks] = re.search(r"^done: test_r2=(\S+) ", run.stdout, re.M)[1], f"{result('on' + ranks)[3]:.4f}"
    assert len(set(scores.values())) == 1, scores


def what_it_registers_is_known_to_it_alone():
    run = call(["build/own_model", "train", "--keys"])
    expect(run.returncode == 0 and "| `model.width` | `32` | an integer 1 or more | `net`: " in run.stdout, run)
    run = call(["build/own_model", "train", "config.json", "--set", "model.dropout=1"])
    expect(run.returncode == 2 and "model.dropout is 1, expected a finite number from 0 to below 1" in run.stderr, run)
    run = call(["shardgrad", "train", "config.json"])
    expect(run.returncode == 2 and "config.json:4: model.name is \"net\", expected one of cnn, gpt2, llama, mlp" in run.stderr, run)


def a_new_project(build):
    prefix = Path("prefix").resolve()
    expect((installed := call(["cmake", "--install", build, "--prefix", str(prefix)])).returncode == 0, installed)
    os.environ |= {"PATH": f"{prefix}/bin:{os.environ['PATH']}", "CMAKE_PREFIX_PATH": str(prefix), "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    expect((made := call(["shardgrad", "new", "own flats"])).returncode == 0, made)
    os.chdir("own flats")
    the_commands_of_its_readme()
    it_has_every_command()
    any_number_of_ranks_gives_the_same_scores()
    a_kill_changes_nothing()
    what_it_registers_is_known_to_it_alone()


if __name__ == "__main__":
    from program import main
    main(globals())
