#!/usr/bin/env python3
"""What is refused before anything has begun, in one sentence that says what to do; and screens that only tell.

    program_refuses.py PROGRAM CASE
"""
import gzip
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

from needs import skip
from program import CONFIG, DATA, PROGRAM, ROOT_MAY, SMALL, call, check_run, copies, each_rank, expect, main, on_a_terminal


def refusals():
    Path("broken.json").write_text('{"batch": 64,\n "batch": 32}')
    labels = gzip.decompress((DATA / "t10k-labels-idx1-ubyte.gz").read_bytes())
    copies("truncated", "corrupt", "mismatched", "mislabelled")
    for folder, content in [
        ("truncated", gzip.compress(labels[:5000])),
        ("corrupt", b"\x1f\x8b" + bytes(5000)),
        ("mismatched", gzip.compress(labels[:4] + (9000).to_bytes(4) + labels[8:9008])),
        ("mislabelled", gzip.compress(labels[:13] + bytes([11]) + labels[14:])),
    ]:
        file = Path(folder, "data/t10k-labels-idx1-ubyte.gz")
        file.unlink()
        file.write_bytes(content)
    refused = [
        (["train", "gone.json"], f"the configuration: cannot read 'gone.json': No such file or directory in '{os.getcwd()}'"),
        (["train", "broken.json"], "broken.json:2: batch is given twice; first at broken.json:1"),
        (["train", CONFIG, "--set", "bach=3"], "unknown key 'bach'; did you mean 'batch'?"),
        (["train", CONFIG, "--set", "optimizer={\"name\": \"sgd\"}"], "'optimizer' is a group of keys; did you mean 'optimizer.name', in a file \"optimizer\": {\"name\": …}?"),
        (["train", CONFIG, "--set", "data.dir=/nowhere"], "cannot read '/nowhere/train-images-idx3-ubyte.gz'"),
        (["train", CONFIG, "--set", "model.layers=[3,10]"], "the model does not take the data's inputs, f32 [2, 784]"),
        *((["train", CONFIG, "--set", f"data.dir={folder}/data"], said) for folder, said in [
            ("truncated", "'truncated/data/t10k-labels-idx1-ubyte.gz' is truncated"),
            ("corrupt", "'corrupt/data/t10k-labels-idx1-ubyte.gz'"),
            ("mismatched", "holds 10000 pictures, but"),
            ("mislabelled", "label 5 is 11, expected 0 to 9"),
        ]),
    ]
    for words, said in refused:
        for front in [], ["launch", "-n", "2"], ["launch", "-n", "3", "--by", "local"]:
            run = call([PROGRAM, *front, *words])
            text = run.stdout + run.stderr
            expect(run.returncode == 2 and text.count(said) == 1 and said in text.splitlines()[-1], run)
            expect(not Path("runs").exists(), run)
    for words in ["bogus"], [], ["train"], ["launch", "-n", "0", "train", CONFIG], ["launch", "-n", "2"], ["--bogus"]:
        expect(call([PROGRAM, *words]).returncode == 2, call([PROGRAM, *words]))


def words_that_are_none():
    """One sentence, with what is nearest; nothing is begun."""
    train = ["train", CONFIG]
    typed = [
        (["trian", CONFIG], "shardgrad: there is no command 'trian'; did you mean 'train'?"),
        ([CONFIG], "shardgrad: there is no command"),
        (["launch", "-n", "2", "trian", CONFIG], "there is no program 'trian'; did you mean 'train'?"),
        (["launch", "-n", "2", "--threds", "3", *train], "there is no option '--threds'; did you mean '--threads'?"),
        (["plan", CONFIG, "--rank", "2"], "shardgrad plan: there is no option '--rank'; did you mean '--ranks'?"),
        (["certify", "neg", "--devise", "cpu"], "there is no option '--devise'; did you mean '--device'?"),
        (["launch", "-n", "2", "--set", "batch=3", *train], "'--set' is an option of the command that is launched; it goes behind that: launch -n N train CONFIG --set …"),
        (["launch", "-n", "2"], "shardgrad launch: a command after launch -n N, e.g. train"),
        *(([*front, *train, *words], said) for front in ([], ["launch", "-n", "2"]) for words, said in [
            (["--strategy", "ddp"], "shardgrad train: there is no option '--strategy'; did you mean '--set strategy=…'?"),
            (["--learning-rate=0.1"], "did you mean '--set optimizer.lr=…'?"),
            (["--sett", "batch=3"], "did you mean '--set'?"),
            (["batch=3"], "'batch=3' is one word too many; did you mean '--set batch=3'?"),
            (["--colour", "red"], "shardgrad train: there is no option '--colour' (shardgrad train --help)"),
        ]),
        *(([*train, "--set", f"{key}=1"], f"unknown key '{key}'; did you mean '{meant}'?") for key, meant in [
            ("learning_rate", "optimizer.lr"), ("batch_size", "batch"), ("epoch", "epochs"), ("max_steps", "steps")]),
        *((["launch", "-n", "2", "--threads", threads, *train], "shardgrad launch: --threads: Value ")
          for threads in ("-3", "0", "1e9", "1000000000", "many", "")),
        *(([*train, "--set", f"{key}="], f"--set {key}=: {key} is \"\", expected") for key in ("runs", "name")),
    ]
    for words, said in typed:
        run = call([PROGRAM, *words])
        text = run.stderr.splitlines()
        expect(run.returncode == 2 and not run.stdout and len(text) == 1, run)
        expect(said in text[-1] and not os.listdir(), run)


def keys_about_a_word():
    """Fit the terminal, all of them or those about a word; whoever reads all of them without one gets the table of docs/config.md."""
    run = call([PROGRAM, "train", "--keys", "schedule"], {"COLUMNS": "60"})
    lines = run.stdout.splitlines()
    keys = [line.split(" = ")[0] for line in lines if not line.startswith(" ")]
    expect(run.returncode == 0 and max(map(len, lines)) < 60 and 'schedule.name = "constant"' in lines, run)
    expect("optimizer.lr" in keys and "batch" not in keys, run)  # its meaning names the schedule
    none = call([PROGRAM, "train", "--keys", "shedule"])
    expect(none.returncode == 2 and "no key has 'shedule' in its name or meaning" in none.stderr, none)
    table = call([PROGRAM, "train", "--keys"])
    expect(table.stdout.startswith("| key | default | may be | meaning |\n"), table)
    lines = on_a_terminal([PROGRAM, "train", "--keys"], 50).decode().splitlines()
    shown, meanings = [line.split(" = ")[0] for line in lines if not line.startswith(" ")], [line for line in lines if line.startswith(" ")]
    assert shown == re.findall(r"^\| `(\S+)` \|", table.stdout.split("\n\n")[0], re.M), lines
    assert 40 < max(map(len, meanings)) < 50, lines


def environment_variables_of_no_meaning():
    for variable, value, said in [("ISA", "avx3", "choose plain, avx2, avx512, or unset it"),
                                  ("GEMM", "onednn", "choose own, timed, or unset it"), ("TF32", "yes", "choose 0, 1, or unset it"),
                                  ("GROUP", "tcp", "choose single, shared_memory, two_level, mpi or nccl")]:
        name = f"SHARDGRAD_{variable}"
        for front in [], ["launch", "-n", "2"]:
            run = call([PROGRAM, *front, "train", CONFIG], {name: value})
            last = run.stderr.splitlines()[-1]
            expect(run.returncode == 2 and f"'{value}'" in last and said in last and not os.listdir(), run)
    expect(call([PROGRAM, "--help"], {"SHARDGRAD_ISA": "avx3"}).returncode == 0, call([PROGRAM, "--help"]))
    check_run(call([PROGRAM, "train", CONFIG, *SMALL], {"SHARDGRAD_ISA": "plain", "SHARDGRAD_GEMM": "", "SHARDGRAD_TF32": "0"}))


def help_of_launch():
    said = call([PROGRAM, "launch", "--help"]).stdout
    assert "After its options comes what the ranks run: launch -n 2 train configs/fashion_mnist.json" in said, said


def standard_output_that_cannot_be_written():
    """The work is done, and its loss is an error of one line; what is written elsewhere goes nowhere else."""
    train = ["train", CONFIG, *SMALL]
    for words in (["--help"], ["--version"], ["train", "--keys"], ["plan", CONFIG], train, ["launch", "-n", "2", *train],
                  ["launch", "-n", "2", "--by", "local", *train]):
        for output in ">/dev/full", ">&-":
            run = call(["sh", "-c", f"exec {shlex.join([PROGRAM, *words])} {output}"])
            lines = [line for line in run.stderr.splitlines() if not line.startswith("mpirun ")]
            expect(run.returncode == 2 and len(lines) == 1 and "standard output could not be written" in lines[0], run)
    for folder in Path("runs").iterdir():
        expect((folder / "latest").read_text() == "step-235\n", run)
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            json.loads(line)


def ranks_that_do_not_see_the_folder():
    for name in "here", "there":
        Path(name).mkdir()
    words = [PROGRAM, "train", CONFIG, *SMALL]
    run = call(each_rank(["env", "--chdir=here", *words], ["env", "--chdir=there", *words]), ROOT_MAY)
    expect(run.returncode == 2 and "rank 1 does not see the run's folder 'runs/fashion_mnist'" in run.stderr, run)
    expect("\nstep " not in run.stdout, run)


def a_launcher_whose_ranks_do_not_find_each_other():
    run = call([PROGRAM, "train", CONFIG], {"PMI_SIZE": "4", "PMI_RANK": "0"})
    expect(run.returncode in (2, 3) and "shardgrad launch -n 4" in run.stderr, run)


def without_proc():
    """Ranks find each other through /proc: without it launch says so."""
    hide = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
        skip("ranks without /proc", "needs root, to hide /proc")
    run = call([*hide, PROGRAM, "launch", "-n", "2", "train", CONFIG, *SMALL])
    expect(run.returncode == 3 and "mount -t proc proc /proc" in run.stderr.splitlines()[-1], run)


def version():
    run = call([PROGRAM, "--version"])
    expect(run.returncode == 0 and all(f"\n  {word} " in run.stdout for word in ("compiler", "MPI", "oneDNN", "PCRE2", "CPU", "CUDA     ")), run)


def doctor():
    """A screen that fits; code 1 where there is a problem, with what to do, and 0 elsewhere. Nothing hangs it."""
    def check(run, columns, problem=None):
        lines = run.stdout.splitlines()
        problems = [line for line in lines if line.startswith("problem  ")]
        expect(max(map(len, lines)) <= columns and run.returncode == (1 if problems else 0) and not run.stderr, run)
        expect(run.stdout.startswith("shardgrad ") and "nothing here prevents training" in run.stdout or problems, run)
        expect(problem is None or any(problem in line for line in problems), run)
        return " ".join(run.stdout.split())

    has_mpi = "no MPI" not in check(call([PROGRAM, "doctor"], {"COLUMNS": "80"}), 80)
    check(call([PROGRAM, "doctor", "-n", "64"], {"COLUMNS": "60"}), 60)
    few_files = call(["sh", "-c", 'ulimit -n 20; exec "$0" doctor', PROGRAM])
    expect("→ ulimit -n 1024" in check(few_files, 80, "limits"), few_files)
    check(call([PROGRAM, "doctor"], {"SHARDGRAD_ISA": "avx3"}), 80, "SHARDGRAD_ISA is 'avx3'")
    check(call([PROGRAM, "doctor"], {"RANK": "0"}), 80, "RANK is set, but not WORLD_SIZE")
    if not has_mpi:
        return
    check(call([PROGRAM, "doctor"], {"TMPDIR": "/proc"}), 80, "nothing can be made in /proc")
    Path("bin").mkdir()
    check(call([PROGRAM, "doctor"], {"PATH": os.path.abspath("bin")}), 80, "mpirun is not in PATH")
    Path("bin/mpirun").write_text("#!/bin/sh\n/bin/sleep 1000 & /bin/sleep 1000\n")
    Path("bin/mpirun").chmod(0o755)
    check(call([PROGRAM, "doctor"], {"PATH": os.path.abspath("bin")}, timeout=60), 80, "did not answer within 5 s")


if __name__ == "__main__":
    main(globals())
