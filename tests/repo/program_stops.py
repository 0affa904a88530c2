#!/usr/bin/env python3
"""Runs that are asked to end, and go on; and what a terminal shows meanwhile.

    program_stops.py PROGRAM CASE
"""
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

from program import CONFIG, DATA, PROGRAM, ROOT_MAY, SHORT, SMALL, call, check_run, expect, main, on_a_terminal


def a_signal_saves_the_run_which_goes_on_with_the_same_bits(how):
    job = ["train", CONFIG, *SHORT, "--set", "model.layers=[784,512,512,10]"]  # long enough for the signal to come
    whole = check_run(call([PROGRAM, "launch", "-n", "2", *job]))
    words = [*job, "--set", "log_interval=20", "--set", "name=parts", "--set", "resume=true"]
    words = {"launch": [PROGRAM, "launch", "-n", "2", *words], "mpirun": ["mpirun", "-n", "2", PROGRAM, *words]}[how]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | ROOT_MAY)
    for line in job.stdout:
        if line.startswith("step"):
            break
    job.send_signal(signal.SIGUSR1 if how == "mpirun" else signal.SIGINT)
    begin = time.monotonic()
    rest = job.stdout.read()
    assert job.wait(timeout=30) == 75 and "stopped as asked after step" in rest, (job.returncode, rest)
    assert time.monotonic() - begin < 12, "it took too long"
    line = re.search(r"^go on with: (… )?(.*)$", rest, re.M)
    assert line and bool(line[1]) == (how == "mpirun") and shlex.split(line[2]) == words[0 if how == "launch" else 3:], rest
    run = call(words, ROOT_MAY)
    expect("goes on after step" in run.stdout, run)
    assert check_run(run)["test_accuracy"] == whole["test_accuracy"]
    for name in "model.safetensors", "optimizer.safetensors":
        first, second = (Path(f"runs/{folder}/step-235/{name}").read_bytes() for folder in ("fashion_mnist", "parts"))
        expect(first == second, run)


def a_signal_saves_a_run_that_nobody_has_launched():
    """A closed terminal, `docker stop`; `timeout` sends two of a kind at once. Where hangups are ignored, they are."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started this test may ignore it
    words = [PROGRAM, "train", CONFIG, "--set", "epochs=99", "--set", "model.layers=[784,16,10]", "--set", "log_interval=20"]
    for number, name in (signal.SIGTERM, "term"), (signal.SIGHUP, "hup"), (signal.SIGINT, "int"), (signal.SIGUSR1, "usr1"):
        job = subprocess.Popen([*words, "--set", f"name={name}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in job.stdout:
            if line.startswith("step"):
                break
        job.send_signal(number)
        if number == signal.SIGTERM:
            job.send_signal(number)
        rest = job.stdout.read()
        assert job.wait(timeout=30) == 75 and "stopped as asked after step" in rest and Path(f"runs/{name}/latest").exists(), (name, rest)
    job = subprocess.Popen(["nohup", *words, "--set", "name=nohup"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in job.stdout:
        if line.startswith("step"):
            break
    job.send_signal(signal.SIGHUP)
    assert any(line.startswith("step") for line in job.stdout), "it goes on under nohup"
    job.send_signal(signal.SIGTERM)
    rest = job.stdout.read()
    assert job.wait(timeout=30) == 75, rest


def a_second_job_of_that_name_leaves_the_first_alone():
    """Two terminals with one command line, or a job that is queued again: the second is refused, and both are named."""
    words = [PROGRAM, "launch", "-n", "2", "--by", "local", "train", CONFIG, *SHORT, "--set", "model.layers=[784,512,512,10]"]
    words += ["--set", "save_every=40", "--set", "resume=true"]
    check_run(call([*words, "--set", "name=alone"]))
    first = subprocess.Popen([*words, "--set", "name=shared"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in first.stdout:
        if line.startswith("saved step"):
            break
    second = call([*words, "--set", "name=shared"])
    assert first.poll() is None, "the first job is to be there still"
    expect(second.returncode == 2 and re.search(r"is being written by another job: process \d+ .*; this one is process \d+", second.stderr), second)
    rest = first.stdout.read()
    assert first.wait(timeout=60) == 0, rest
    alone, shared = (Path(f"runs/{name}/step-235") for name in ("alone", "shared"))
    for name in "model.safetensors", "optimizer.safetensors":
        assert (alone / name).read_bytes() == (shared / name).read_bytes(), name
    steps = [json.loads(line)["step"] for line in Path("runs/shared/metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(set(steps)) and steps[-1] == 235, steps


def a_run_whose_numbers_are_none_ends_with_4():
    """The last line says where they came from; the last checkpoint is from before."""
    config = json.loads(Path(CONFIG).read_text()) | {"epochs": 1, "save_every": 1, "schedule": {}, "optimizer": {"name": "sgd", "lr": 1e30}}
    Path("steep.json").write_text(json.dumps(config))
    words = ["train", "steep.json", "--set", "model.layers=[784,16,10]"]
    for launcher in ["launch", "-n", "2"], ["launch", "-n", "2", "--by", "local"]:
        name = "by" + launcher[-1]
        run = call([PROGRAM, *launcher, *words, "--set", f"name={name}"])
        last = re.fullmatch(r".*step (\d+): the loss of rank .* is not finite; the first gradient that is not either is that of unit 'layer\d'.*", run.stderr.splitlines()[-1])
        expect(run.returncode == 4 and last and "done:" not in run.stdout, run)
        latest = Path("runs", name, "latest")
        assert not latest.exists() or int(latest.read_text().removeprefix("step-")) < int(last[1]), run.all


def descendants(pid):
    children = [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return children + [below for child in children for below in descendants(child)]


def two_signals_at_once_are_one_request():
    """`timeout` sends two of a kind, systemd one to each process of the job, or with SendSIGHUP two. A step and a save take longer."""
    words = ["train", CONFIG, "--set", "epochs=99", "--set", "model.layers=[784,1024,1024,10]", "--set", "log_interval=5", "--set", "resume=true"]
    launchers = {"alone": [], "local": ["launch", "-n", "2", "--by", "local"], "launch": ["launch", "-n", "2"]}
    for how, launcher in launchers.items():
        start = [PROGRAM, *launcher, *words, "--set", f"name={how}"]
        for ends in ("TERM", "INT", "all", "all, and HUP")[:2 if how == "launch" else 4]:  # mpirun would kill its ranks
            job = subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
            for line in job.stdout:
                if line.startswith("step"):
                    break
            if ends.startswith("all"):
                for pid in [job.pid, *descendants(job.pid)]:
                    os.kill(pid, signal.SIGTERM)
                    if ends != "all":
                        os.kill(pid, signal.SIGHUP)
            else:
                os.kill(job.pid, number := getattr(signal, f"SIG{ends}"))
                time.sleep(0.1)  # or the system would make one of the two
                os.kill(job.pid, number)
            rest = job.stdout.read()
            saved = "stopped as asked after step" in rest and Path(f"runs/{how}/latest").exists()
            assert saved and (job.wait(timeout=30) == 75 or ends.startswith("all")), (how, ends, job.returncode, rest)
        assert not json.loads(Path(f"runs/{how}/config.json").read_text())["resume"], "who trains by it makes another run"


def mpirun_that_is_told_to_end_has_the_run_saved():
    """It reads nothing more from them, tells them after a second, and kills them after another. So a rank that prints much (16 KB)
    in that time waits for a reader until it is killed: here it prints every 200 steps."""
    words = ["mpirun", "-n", "2", PROGRAM, "train", CONFIG, "--set", "epochs=99", "--set", "model.layers=[784,16,10]", "--set", "name=told"]
    for number in signal.SIGTERM, signal.SIGINT:
        job = subprocess.Popen([*words, "--set", "log_interval=200", "--set", "resume=true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env=os.environ | ROOT_MAY)
        for line in job.stdout:
            if line.startswith("step"):
                break
        job.send_signal(number)
        rest = job.stdout.read()
        assert job.wait(timeout=30) != 0 and "stopped as asked after step" in rest and Path("runs/told/latest").exists(), rest


def what_has_nothing_to_save_ends_at_once():
    check_run(call([PROGRAM, "train", CONFIG, *SMALL, "--set", "name=used"]))
    files = [file for kind in ("images-idx3", "labels-idx1") for file in DATA.glob(f"t10k-{kind}*")]
    folder = Path("many")  # the test pictures a hundred times
    folder.mkdir()
    for file in DATA.iterdir():
        if file not in files:
            (folder / file.name).symlink_to(file)
    for file in files:
        content = gzip.decompress(file.read_bytes())
        head = 16 if "images" in file.name else 8
        count = int.from_bytes(content[4:8], "big")
        (folder / file.name).write_bytes(gzip.compress(content[:4] + (100 * count).to_bytes(4, "big") + content[8:head] + 100 * content[head:], 1))
    words = ["eval", "runs/used", "--set", f"data.dir={folder}", "--set", "batch=16"]
    for launcher in [], ["launch", "-n", "2", "--by", "local"]:
        for number in signal.SIGINT, signal.SIGTERM:
            job = subprocess.Popen([PROGRAM, *launcher, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            time.sleep(1.5)
            begin = time.monotonic()
            job.send_signal(number)
            rest = job.communicate(timeout=60)[0]
            assert job.returncode != 0 and time.monotonic() - begin < 4, (launcher, number, job.returncode, time.monotonic() - begin, rest)


def a_pipe_that_nobody_reads_is_no_reason_to_end():
    for launcher in [], ["launch", "-n", "2", "--by", "local"]:
        name = f"pipe{len(launcher)}"
        words = [PROGRAM, *launcher, "train", CONFIG, *SMALL, "--set", "log_interval=1", "--set", f"name={name}"]
        run = call(["bash", "-c", f"{shlex.join(words)} | head -1; exit ${{PIPESTATUS[0]}}"])
        expect(run.returncode == 2 and "standard output" in run.stderr and Path(f"runs/{name}/latest").exists(), run)


def the_line_to_go_on_is_said():
    """Ready to be typed, also where the run's name was taken, or has a space."""
    for name, folder in ("it's mine", "it's mine"), ("it's mine", "it's mine-2"):
        words = [PROGRAM, "launch", "-n", "2", "--by", "local", "train", CONFIG, *SMALL, "--set", "epochs=99", "--set", f"name={name}"]
        words.remove("epochs=1"), words.remove("--set")
        job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in job.stdout:
            if line.startswith("step"):
                break
        job.send_signal(signal.SIGINT)
        rest = job.stdout.read()
        assert job.wait(timeout=30) == 75 and f"saved in runs/{folder}\ngo on with: " in rest, rest
    line = rest.splitlines()[-1].removeprefix("go on with: ")
    assert " --set 'name=it'\\''s mine-2' --set resume=true" in line and line.count("name=") == 1, line
    shorter = call(["bash", "-c", f"{line} --set early_stop=1"])
    expect("goes on after step" in shorter.stdout and "/it's mine-2" in shorter.stdout, shorter)


def check_progress(steps, columns, text):
    """Each fits; the last has a loss, and one that comes before the first loss was asked for has none."""
    assert steps and "loss" in steps[-1] and all(len(line) < columns for line in steps), text


def a_terminal_is_updated_in_place():
    train = ["train", CONFIG, *SMALL]
    for columns in 80, 60, 30:
        text = on_a_terminal([PROGRAM, *train], columns).decode()
        steps = re.findall(r"(?<=\r\033\[K)step[^\r]*", text)
        check_progress(steps, columns, text)
    text = on_a_terminal([PROGRAM, *train], 60, "dumb")
    assert b"\033" not in text and b"step" in text, text.decode()
    for by in "mpi", "local":  # mpirun gives ranks terminals of their own, which say nothing of this one
        launched = [PROGRAM, "launch", "-n", "2", "--by", by, *train]
        run = call(launched)
        if run.returncode == 3:  # no MPI
            continue
        check_run(run)
        text = on_a_terminal(launched, 50).decode()
        steps = re.findall(r"(?<=\r\033\[K)step[^\r]*", text)
        check_progress(steps, 50, text)


if __name__ == "__main__":
    main(globals())
