"""How tests run the shardgrad program, as a user would, and look at what it says, writes and returns.

Their cases are functions of program_trains.py, program_stops.py, program_plans.py, program_refuses.py and program_own_data.py,
perhaps with a number of ranks:

    program_trains.py PROGRAM train:3
"""
import fcntl
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1]
DATA = Path("/usr/share/datasets/fashion-mnist")
CONFIG = str(ROOT / "configs/fashion_mnist.json")
SHORT = ["--set", "epochs=1", "--set", "schedule.warmup_steps=10"]
SMALL = [*SHORT, "--set", "model.layers=[784,16,10]"]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
DONE = re.compile(r"done: test_accuracy=(0\.\d{4}) steps=(\d+) seconds=[\d.]+ run=(.+)")
KEYS = ["step", "epoch", "samples", "loss", "test_accuracy", "test_loss", "test_count", "lr", "grad_norm", "seconds", "samples_per_s", "gflops_per_s", "peak_bytes"]


def call(words, environment=None, timeout=120):
    run = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env=os.environ | (environment or {}))
    run.stderr = run.stderr.replace("\0", "")  # mpirun of Open MPI 5 ends its texts with a zero byte
    run.all = f"$ {' '.join(words)}\n{run.stdout}{run.stderr}[{run.returncode}]"
    return run


def on_a_terminal(words, columns, kind="xterm"):
    """What a program writes to a terminal so wide."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
        os.execve(words[0], words, os.environ | {"TERM": kind})
    text = b""
    try:
        while chunk := os.read(terminal, 4096):
            text += chunk
    except OSError:
        pass  # the other end is closed
    assert os.waitpid(pid, 0)[1] == 0, text.decode()
    return text


def each_rank(*words_of_ranks):
    """mpirun with other words for each rank. Not by mpirun's own `:`, at which that of Open MPI 5.0.7 crashes."""
    ranks = "".join(f"{rank}) exec {shlex.join(words)};; " for rank, words in enumerate(words_of_ranks))
    return [*MPIRUN, "-n", str(len(words_of_ranks)), "sh", "-c", f"case $OMPI_COMM_WORLD_RANK in {ranks}esac"]


def copies(*folders):
    """Folders with a folder `data` each, whose files may be replaced."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
        Path(folder, "data").mkdir(parents=True)
        for file in DATA.iterdir():
            Path(folder, "data", file.name).symlink_to(file)


def expect(condition, run):
    if not condition:
        raise AssertionError(run.all)


def check_run(run):
    """A training run that went well: exit code, last line, and files."""
    expect(run.returncode == 0, run)
    done = DONE.fullmatch(run.stdout.splitlines()[-1])
    expect(done and float(done[1]) > 0.75, run)
    expect("\r" not in run.stdout and "\033" not in run.stdout, run)
    folder = Path(done[3])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    expect(all(list(line) == KEYS for line in lines) and lines[-1]["step"] == int(done[2]) == 235, run)
    expect(lines[-1]["test_count"] == 10000 and f"{lines[-1]['test_accuracy']:.4f}" == done[1], run)
    expect(json.loads((folder / "config.json").read_text())["batch"] == 256, run)
    expect(json.loads((folder / "ledger.json").read_text())["peak"] > 0, run)
    return lines[-1]


def npy(path, kind, shape, body):
    """A file as numpy.save writes it."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    Path(path).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body)


def main(cases):
    case, _, ranks = sys.argv[2].partition(":")
    with tempfile.TemporaryDirectory(prefix="program test ") as folder:
        os.chdir(folder)
        try:
            cases[case](*([ranks] if ranks else []))
        except AssertionError as failure:
            sys.exit(f"{case}: {failure}")
