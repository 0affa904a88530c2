#!/usr/bin/env python3
"""Harms whole training jobs and checks that they end as promised, or go on unharmed.

    faults.py PROGRAM CASE LIBRARY    CASE is a function below, perhaps with how the ranks are started:
                                      a_rank_is_killed:bare; LIBRARY is made of harmed.cpp
"""
import ctypes
import gzip
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from program import CONFIG, MPIRUN, PROGRAM, call, copies, each_rank, expect, main

LIMIT = 12  # seconds from the fault to the end of everything
START = {
    "launch": [PROGRAM, "launch", "-n", "2"],
    "local": [PROGRAM, "launch", "-n", "2", "--by", "local"],
    "bare": [*MPIRUN, "-n", "2", PROGRAM],
}
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def train(*settings):
    words = ["train", CONFIG]
    for setting in ("model.layers=[784,64,10]", "log_interval=20", *settings):
        words += ["--set", setting]
    return words


ENDLESS = train("epochs=100000")
SHORT = train("epochs=4")
# The model and the samples of harmed.cpp, which throw and wait where a file of this name is made.
HARMED = ["train", "harmed.json", "--set", "log_interval=20"]


def harmed(*settings):
    """The words that train it, in the folder where its files are made."""
    Path("harmed.json").write_text(json.dumps({"libraries": [sys.argv[3]], "data": {"name": "harmed"},
                                               "model": {"name": "harmed"}, "batch": 512}))
    return HARMED + [word for setting in settings for word in ("--set", setting)]


class Job:
    """A running job. Its processes are known by a variable in their environment."""

    def __init__(self, words):
        self.words, self.lines = words, []
        self.token = f"FAULTS_JOB={os.getpid()}-{time.monotonic_ns()}"
        name, value = self.token.split("=")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, env=os.environ | ROOT_MAY | {name: value})
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.strip("\0\n"))  # mpirun of Open MPI 5 ends its texts with a zero byte

    def text(self):
        return "\n".join([f"$ {' '.join(self.words)}", *self.lines, f"[{self.process.poll()}]"])

    def wait_for(self, begin):
        until(lambda: any(line.startswith(begin) for line in self.lines), 60, lambda: f"no '{begin}' in {self.text()}")

    def pids(self):
        return processes_with(self.token)

    def rank(self, number):
        return rank_of(self.pids(), number)

    def ended_badly(self, causes, since, named_last=True):
        """The job ends in time, with one of these causes; nothing is left; and the next job starts at once."""
        left = max(0.1, since + LIMIT - time.monotonic())
        until(lambda: self.process.poll() is not None and not self.pids(), left,
              lambda: f"{list(self.pids())} live in {self.text()}")
        self.reader.join(30)
        assert self.process.returncode != 0, self.text()
        if causes:
            ours = [line for line in self.lines if line.startswith("shardgrad: ")]
            assert ours and any(cause in ours[-1] for cause in causes), f"expected {causes} last in {self.text()}"
            assert not named_last or self.lines[-1] == ours[-1], self.text()
        assert not any(os.path.exists(file) for file in self.files), (self.files, self.text())
        run = call([PROGRAM, "launch", "-n", "2", *train("epochs=1")])
        expect(run.returncode == 0, run)

    def started(self):
        """Waits for the first step, and notes which files the ranks share."""
        self.wait_for("step")
        self.files = shared_files(self.pids())
        return self

    def unharmed(self):
        self.process.wait(timeout=120)
        self.reader.join(30)
        assert self.process.returncode == 0 and self.lines[-1].startswith("done: "), self.text()
        return metrics(self.lines[-1])


def until(condition, seconds, message):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message()
        time.sleep(0.05)


def processes_with(token):
    """pid -> environment, of the processes that have this variable."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if token in environment:
            found[int(pid)] = dict(entry.split("=", 1) for entry in environment if "=" in entry)
    return found


def rank_of(pids, number):
    return next(pid for pid, environment in pids.items()
                if str(number) in (environment.get("OMPI_COMM_WORLD_RANK"), environment.get("SHARDGRAD_RANK")))


def shared_files(pids):
    files = set()
    for pid in pids:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            path = line[73:]
            if path.startswith("/dev/shm/") and not path.endswith("(deleted)"):
                files.add(path)
    return files


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def recorded(done):
    lines = Path(done.partition("run=")[2], "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def metrics(done):
    """What a run recorded, without times."""
    return [{key: value for key, value in line.items() if key not in ("samples_per_s", "gflops_per_s", "seconds", "peak_bytes")}
            for line in recorded(done)]


def same_as_undisturbed(got, how, words=SHORT):
    expected = Job([*START[how], *words]).unharmed()
    assert len(got) > 40 and got == expected, (got, expected)


def refused(cause, words):
    job = Job(words)
    job.files = ()
    job.process.wait(timeout=LIMIT)
    job.ended_badly([cause], time.monotonic(), named_last=False)
    assert job.process.returncode == 2, job.text()
    assert not any(line.startswith("step") for line in job.lines), job.text()
    assert not Path("refused").exists(), job.text()


# What ends the job.


def a_rank_is_killed(how):
    job = Job([*START[how], *ENDLESS]).started()
    pid, since = job.rank(1), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    job.ended_badly([f"rank 1 (pid {pid}) died: killed by signal 9"], since, how != "bare")


def a_rank_is_stopped_for_ever(how):
    job = Job([*START[how], *ENDLESS]).started()
    pid, since = job.rank(1), time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    cause = f"rank 1 (pid {pid}) has stopped: no heartbeat for 8 s (stopped by a signal)"
    job.ended_badly([cause], since, how != "bare")


def a_rank_throws(how):
    """Its model does, in forward."""
    job = Job([*START[how], *harmed("epochs=100000")]).started()
    since = time.monotonic()
    Path("throw.1").touch()
    job.ended_badly(["rank 1 failed: this model throws"], since, how != "bare")


def a_rank_is_told_to_end(how):
    job = Job([*START[how], *ENDLESS]).started()
    pid, since = job.rank(1), time.monotonic()
    os.kill(pid, signal.SIGTERM)
    if how == "bare":  # as mpirun itself would tell it: all save and end
        job.ended_badly([], since)
        assert "stopped as asked after step" in job.text(), job.text()
    else:
        job.ended_badly([f"rank 1 (pid {pid}) was told to end (SIGTERM)"], since, True)


def mpirun_is_killed(how):
    job = Job([*START[how], *ENDLESS]).started()
    mpirun, since = parent_of(job.rank(0)), time.monotonic()
    os.kill(mpirun, signal.SIGKILL)
    said = ["mpirun killed by signal 9", f"the launcher (pid {mpirun}) died"]  # by the launcher, or by a rank
    job.ended_badly(said if how == "launch" else [], since)


def mpirun_hangs_while_a_rank_dies(how):
    job = Job([*START[how], *ENDLESS]).started()
    pid, mpirun, since = job.rank(1), parent_of(job.rank(0)), time.monotonic()
    os.kill(mpirun, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    if how == "bare":  # nobody is there to end mpirun itself, but no rank may stay
        until(lambda: not any("OMPI_COMM_WORLD_RANK" in environment for environment in job.pids().values()), LIMIT,
              lambda: f"{list(job.pids())} live in {job.text()}")
        os.kill(mpirun, signal.SIGKILL)
        return
    job.ended_badly([f"rank 1 (pid {pid}) died: killed by signal 9"], since)


def the_launcher_is_killed(how):
    job = Job([*START[how], *ENDLESS]).started()
    since = time.monotonic()
    job.process.kill()
    job.ended_badly([], since)


def interrupted_twice_while_a_rank_hangs(how):
    job = Job([*START[how], *ENDLESS]).started()
    os.kill(job.rank(1), signal.SIGSTOP)
    job.process.send_signal(signal.SIGINT)
    time.sleep(1)
    since = time.monotonic()
    job.process.send_signal(signal.SIGINT)
    job.ended_badly([], since)


def the_data_stall_for_longer_than_the_limit():
    job = Job([*START["bare"], *harmed("epochs=100000", "stall_limit=5")]).started()
    Path("stall.1").touch()
    job.ended_badly(["stall_limit is reached; ranks have waited for 5 s: rank 0 in all_gather"], time.monotonic(),
                    named_last=False)


# What is refused before the first step.


def other_configurations():
    common = ["epochs=1", "runs=refused"]
    mine = [PROGRAM, *train(*common)]
    for others, cause in [
        ([PROGRAM, *train(*common, "optimizer.lr=0.002")], "the configuration of rank 1 differs from that of rank 0"),
        ([PROGRAM, *train(*common, "strategy=ddp")], "the configuration of rank 1 differs from that of rank 0"),
        ([PROGRAM, *train(*common, "bach=3")], "unknown key 'bach'; did you mean 'batch'?"),
        ([*mine, "--group", "mpi"], "rank 0 asks for a group of kind '' and rank 1 for 'mpi'"),
    ]:
        refused(cause, each_rank(mine, others))


def other_data_files():
    words = [PROGRAM, *train("epochs=1", "data.dir=data", f"runs={Path.cwd()}/refused")]

    def another_last_byte(text):
        return gzip.compress(text[:-1] + bytes([text[-1] ^ 1]), 1)

    for file, change, cause in [
        ("train-labels-idx1-ubyte.gz", another_last_byte, "the training data of rank 1 differs"),
        ("t10k-images-idx3-ubyte.gz", another_last_byte, "the test data of rank 1 differs"),
        ("train-images-idx3-ubyte.gz", lambda text: gzip.compress(text[:1000]), "rank 1 failed: '{}' is truncated"),
        ("t10k-labels-idx1-ubyte.gz", None, "rank 1 failed: cannot read '{}'"),
    ]:
        copies("mine", "theirs")
        changed = Path("theirs/data", file)
        text = gzip.decompress(changed.read_bytes())
        changed.unlink()
        if change:
            changed.write_bytes(change(text))
        cause = cause.format(f"data/{file}")
        refused(cause, each_rank(["env", "--chdir=mine", *words], ["env", "--chdir=theirs", *words]))


# What does no harm.


def a_rank_is_stopped_for_3_seconds(how):
    job = Job([*START[how], *SHORT]).started()
    os.kill(job.rank(1), signal.SIGSTOP)
    time.sleep(3)
    os.kill(job.rank(1), signal.SIGCONT)
    same_as_undisturbed(job.unharmed(), how)


def the_data_stall():
    """Those of one rank are 30 s late."""
    words = harmed("epochs=60")
    job = Job([*START["bare"], *words]).started()
    Path("stall.1").touch()
    time.sleep(30)
    Path("stall.1").unlink()
    got = job.unharmed()
    warnings = [line for line in job.lines if line.startswith("shardgrad: ")]
    assert len(warnings) == 1 and "ranks have waited for 10 s: rank 0 in all_gather" in warnings[0], job.text()
    assert "rank 1 computing" in warnings[0], job.text()
    same_as_undisturbed(got, "bare", words)


def a_rank_is_debugged_for_a_minute(how):
    job = Job([*START[how], *SHORT]).started()
    pid, libc = job.rank(1), ctypes.CDLL(None, use_errno=True)
    attach, detach, every_thread = 16, 17, 0x40000000
    threads = set()
    while new := {int(thread) for thread in os.listdir(f"/proc/{pid}/task")} - threads:
        for thread in new:
            assert libc.ptrace(attach, thread, None, None) == 0, os.strerror(ctypes.get_errno())
            os.waitpid(thread, every_thread)
        threads |= new
    assert all(state_of(f"{pid}/task/{thread}") == "t" for thread in threads), threads
    time.sleep(60)
    assert all(state_of(f"{pid}/task/{thread}") == "t" for thread in threads), threads
    for thread in threads:
        assert libc.ptrace(detach, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    got = job.unharmed()
    assert any(f"rank 1 (pid {pid}) is under a debugger" in line for line in job.lines), job.text()
    same_as_undisturbed(got, how)


def ctrl_z_and_fg(how):
    """In a shell on a terminal, with more than the heartbeat's limit between the two."""
    token = f"FAULTS_JOB={os.getpid()}"
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(ROOT_MAY | {"PS1": "", "FAULTS_JOB": str(os.getppid())})
        os.execvp("bash", ["bash", "--norc", "-i"])
    text = b""

    def read():
        nonlocal text
        try:
            while chunk := os.read(terminal, 4096):
                text += chunk
        except OSError:
            pass  # the other end is closed

    threading.Thread(target=read, daemon=True).start()
    begin = time.monotonic()
    os.write(terminal, shlex.join([*START[how], *SHORT]).encode() + b"\n")
    until(lambda: re.search(rb"step +\d+ +epoch", text), 60, lambda: text.decode())
    os.write(terminal, b"\x1a")
    time.sleep(1)
    job = {p: e for p, e in processes_with(token).items() if p != pid}
    ranks = [rank_of(job, 0), rank_of(job, 1)]
    assert all(state_of(rank) == "T" for rank in ranks), [state_of(rank) for rank in ranks]
    time.sleep(10)
    if how == "bare":  # Open MPI 4.1 stops the ranks only and stays in the foreground, where it reads what is typed
        os.kill(parent_of(ranks[0]), signal.SIGCONT)
        until(lambda: b"\ndone: " in text, 60, lambda: text.decode())
        time.sleep(3)
        os.write(terminal, b"echo ended=$?\n")
    else:
        os.write(terminal, b"fg; echo ended=$?\n")
    until(lambda: b"ended=0" in text, 60, lambda: text.decode())
    elapsed = time.monotonic() - begin
    os.write(terminal, b"exit\n")
    os.waitpid(pid, 0)
    done = next(line for line in text.decode().replace("\033[K", "").splitlines() if line.startswith("done: "))
    same_as_undisturbed(metrics(done.strip()), how)
    lines = recorded(done.strip())
    assert all(line["seconds"] > 0 for line in lines), lines
    samples = [0, *(line["samples"] for line in lines)]
    training = sum((b - a) / line["samples_per_s"] for a, b, line in zip(samples, samples[1:], lines))
    assert training < elapsed - 9, f"rates say that {training} of {elapsed} s were training, but for 10 s it stood still"


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


if __name__ == "__main__":
    main(globals())
