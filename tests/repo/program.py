#!/usr/bin/env python3
"""Runs the shardgrad program as a user would and checks what it says, writes and returns.

    program.py PROGRAM CASE        CASE is a function below, perhaps with a number of ranks: train:3
"""
import fcntl
import gzip
import itertools
import json
import os
import pty
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from needs import python_with, skip

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


def train(ranks):
    check_run(call([PROGRAM, "launch", "-n", ranks, "train", CONFIG, *SMALL]))


def the_example(ranks):
    """The README's job, whole."""
    run = call([PROGRAM, "launch", "-n", ranks, "train", CONFIG], timeout=280)
    done = DONE.fullmatch(run.stdout.splitlines()[-1])
    expect(run.returncode == 0 and done and float(done[1]) >= 0.89, run)
    last = json.loads(Path(done[3], "metrics.jsonl").read_text().splitlines()[-1])
    expect(last["test_count"] == 10000 and last["epoch"] <= 15, run)


def device_auto():
    """Without a GPU the CPU trains, and one line says so, whatever the number of ranks."""
    for ranks in "1", "2":
        run = call([PROGRAM, "launch", "-n", ranks, "train", CONFIG, *SMALL, "--set", "device=auto"])
        said = run.stderr.count("shardgrad: no CUDA device; training on the CPU\n")
        expect(run.returncode == 0 and said == (0 if Path("/dev/nvidia0").exists() else 1), run)


def device_cuda():
    """Without a GPU, asking for one is refused: one line, exit code 3."""
    if Path("/dev/nvidia0").exists():
        sys.exit(77)
    why = r"no CUDA device: no NVIDIA driver is loaded on this machine|device cuda is not part of this build.*"
    for ranks in "1", "2":
        run = call([PROGRAM, "launch", "-n", ranks, "train", CONFIG, *SMALL, "--set", "device=cuda"])
        expect(run.returncode == 3 and re.fullmatch(rf"shardgrad: (rank \d failed: )?({why})", run.stderr.splitlines()[-1]), run)


def threads_of_a_rank():
    """One OpenMP runtime: what the library's own loops and oneDNN's run on is one set of threads, as many as were asked for."""
    def most_threads(asked):
        words = [PROGRAM, "launch", "-n", "1", "--by", "local", "--threads", str(asked), "train", CONFIG, *SHORT,
                 "--set", "model.layers=[784,512,10]", "--set", "log_interval=20"]
        job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line in job.stdout:
            if line.startswith("step"):
                break
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        assert len(children) == 1, children
        count = len(os.listdir(f"/proc/{children[0]}/task"))
        job.stdout.read()
        assert job.wait() == 0
        return count

    one, three = most_threads(1), most_threads(3)
    assert three == one + 2, (one, three)


def plan(ranks):
    """The table is printed, and what was predicted is what is measured."""
    for strategy in ["ddp", "zero1", "zero2", "zero3"]:
        run = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", ranks, "--set", f"strategy={strategy}", "--measure"])
        expect(run.returncode == 0 and run.stdout.endswith("as predicted\n") and "NOT" not in run.stdout, run)
        # Where parameters stay in memory the layers are one bucket, and its size is no reason to warn.
        warned = "warning: unit 'layer0' holds 99 %" in run.stdout
        expect(run.stdout.count("layer0") >= 2 and warned == (strategy in ("zero2", "zero3")), run)
    words = [PROGRAM, "plan", CONFIG, *SMALL, "--ranks", "3", "--compare", "--memory", "0.01", "--tflops", "0.1"]
    table = call(words)
    rows = [line.split() for line in table.stdout.splitlines()]
    expect(table.returncode == 0 and [row[0] for row in rows[2:16]] == "1 2 3 4 8 16 32 64 128 256 512 1024 2048 4096".split(), table)
    expect(rows[1] == ["ranks", "ddp", "zero1", "zero2", "zero3"] and "ddp yes (0.0), " in table.stdout, table)
    expect("\nsending: not counted; say --bandwidth\n" in table.stdout, table)
    # 10 MFLOP and 1 MB in a second: with few ranks computing takes longer, with many ranks sending.
    rates = ["--tflops", "0.00001", "--bandwidth", "0.001"]
    timed = call([PROGRAM, "plan", CONFIG, "--compare", *rates])
    longer = set()
    for row in timed.stdout.splitlines()[2:15]:
        count = int(row.split()[0])
        computing = -(-256 // count) * (4 * 784 * 512 + 6 * 512 * 256 + 6 * 256 * 10) / 1e7
        cells = re.findall(r"[\d.]+ / ([\d.]+) / ([\d.]+)", row)  # GB that are sent, and seconds
        for sent, seconds in cells:
            sending = float(sent) / 0.001
            assert len(cells) == 4 and abs(float(seconds) - max(computing, sending)) < 0.6, row
            longer.add(computing > sending)
    assert longer == {False, True}, timed
    once = call([PROGRAM, "plan", CONFIG, "--ranks", "2", *rates, "--latency", "100000"])
    said = {key: float(value) for key, value in re.findall(r"^(computing|sending|a step) takes at least ([\d.]+) s$", once.stdout, re.M)}
    gathers, reductions, mebibytes = map(float, re.search(r"^all .*$", once.stdout, re.M)[0].split()[-3:])
    assert abs(said["computing"] - 128 * 2407424 / 1e7) < 1e-3 and said["a step"] == max(said["computing"], said["sending"]), once
    assert abs(said["sending"] - mebibytes * 2**20 / 1e6 - 0.1 * (gathers + reductions)) < 0.006, once
    here = call([PROGRAM, "plan", CONFIG])
    expect(re.search(r"^computing: at \S+ [GT]FLOP/s, as fast as a product of f32 on this machine's cpu; --tflops says another$", here.stdout, re.M), here)
    alone = call([PROGRAM, "plan", CONFIG, *SMALL, "--ranks", ranks])
    expect(alone.returncode == 0 and "layer0" in alone.stdout and "measured" not in alone.stdout, alone)
    refused = call([PROGRAM, "plan", CONFIG, "--ranks", ranks, "--set", "strategy=hybrid"])
    expect(refused.returncode == 2 and "shard_ranks" in refused.stderr, refused)


def without_mpi(ranks):
    check_run(call([PROGRAM, "launch", "-n", ranks, "--by", "local", "train", CONFIG, *SMALL]))


def small_stacks():
    """Threads have stacks of their own size: the same bits whatever `ulimit -s` says."""
    def digest(stack):
        words = [PROGRAM, "launch", "-n", "2", "--by", "local", "train", CONFIG, *SMALL]
        check_run(call(["sh", "-c", f"ulimit -s {stack}; exec {shlex.join(words)}"]))
        saved = Path("runs/fashion_mnist/step-235/model.safetensors").read_bytes()
        shutil.rmtree("runs")
        return saved

    assert digest(8192) == digest(160)


def bare_mpirun(ranks):
    check_run(call(["mpirun", "--oversubscribe", "-n", ranks, PROGRAM, "train", CONFIG, *SMALL], ROOT_MAY))


def the_saved_configuration_repeats_the_run():
    first = check_run(call([PROGRAM, "train", CONFIG, *SMALL]))
    again = check_run(call([PROGRAM, "train", "runs/fashion_mnist/config.json"]))
    assert first["loss"] == again["loss"] and first["test_accuracy"] == again["test_accuracy"], (first, again)


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
        (["train", "gone.json"], "the configuration: cannot read 'gone.json': No such file"),
        (["train", "broken.json"], "broken.json:2: batch is given twice; first at broken.json:1"),
        (["train", CONFIG, "--set", "bach=3"], "unknown key 'bach'; did you mean 'batch'?"),
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
        (["launch", "-n", "2"], "shardgrad launch: a command after launch -n N, e.g. train"),
        *(([*front, *train, *words], said) for front in ([], ["launch", "-n", "2"]) for words, said in [
            (["--strategy", "ddp"], "shardgrad train: there is no option '--strategy'; did you mean '--set strategy=…'?"),
            (["--learning-rate=0.1"], "did you mean '--set optimizer.lr=…'?"),
            (["--sett", "batch=3"], "did you mean '--set'?"),
            (["batch=3"], "'batch=3' is one word too many; did you mean '--set batch=3'?"),
            (["--colour", "red"], "shardgrad train: there is no option '--colour' (shardgrad train --help)"),
        ]),
        *(([*train, "--set", f"{key}=1"], f"unknown key '{key}'; did you mean '{meant}'?") for key, meant in [
            ("learning_rate", "optimizer.lr"), ("batch_size", "batch"), ("epoch", "epochs")]),
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
    """Fit the terminal; whoever reads all of them without one gets the table of docs/config.md."""
    run = call([PROGRAM, "train", "--keys", "schedule"], {"COLUMNS": "60"})
    lines = run.stdout.splitlines()
    keys = [line.split(" = ")[0] for line in lines if not line.startswith(" ")]
    expect(run.returncode == 0 and max(map(len, lines)) < 60 and 'schedule.name = "constant"' in lines, run)
    expect("optimizer.lr" in keys and "batch" not in keys, run)  # its meaning names the schedule
    none = call([PROGRAM, "train", "--keys", "shedule"])
    expect(none.returncode == 2 and "no key has 'shedule' in its name or meaning" in none.stderr, none)
    expect(call([PROGRAM, "train", "--keys"]).stdout.startswith("| key | default | may be | meaning |\n"), none)


def environment_variables_of_no_meaning():
    for variable, value, said in [("ISA", "avx3", "choose plain, avx2, avx512, or unset it"),
                                  ("GEMM", "onednn", "choose own, or unset it"), ("TF32", "yes", "choose 0, 1, or unset it"),
                                  ("GROUP", "tcp", "choose single, shared_memory, two_level, mpi or nccl")]:
        name = f"SHARDGRAD_{variable}"
        for front in [], ["launch", "-n", "2"]:
            run = call([PROGRAM, *front, "train", CONFIG], {name: value})
            last = run.stderr.splitlines()[-1]
            expect(run.returncode == 2 and f"'{value}'" in last and said in last and not os.listdir(), run)
    expect(call([PROGRAM, "--help"], {"SHARDGRAD_ISA": "avx3"}).returncode == 0, call([PROGRAM, "--help"]))
    check_run(call([PROGRAM, "train", CONFIG, *SMALL], {"SHARDGRAD_ISA": "plain", "SHARDGRAD_GEMM": "", "SHARDGRAD_TF32": "0"}))


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


def the_saved_model_opens_in_python():
    """As the format says, which safetensors.numpy.load_file reads."""
    check_run(call([PROGRAM, "train", CONFIG, *SMALL]))
    data = Path("runs/fashion_mnist/step-235/model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    assert {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"} == {
        "layer0.weight": [16, 784], "layer0.bias": [16], "layer1.weight": [10, 16], "layer1.bias": [10]}, header
    assert len(data) == 8 + length + 4 * (16 * 784 + 16 + 10 * 16 + 10)


# In PyTorch: the file's tensors into a model of its names, which takes no other, and what that says of the first test pictures.
IN_TORCH = """
import gzip, json, sys
from collections import OrderedDict
import torch
data = open(sys.argv[1], "rb").read()
length = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + length])
about = header.pop("__metadata__")
tensors = {name: torch.frombuffer(bytearray(data[8 + length + e["data_offsets"][0]:8 + length + e["data_offsets"][1]]), dtype={"F32": torch.float32}[e["dtype"]]).reshape(e["shape"]) for name, e in header.items()}
widths = json.loads(about["model"])["layers"]
layers = OrderedDict()
for i, (a, b) in enumerate(zip(widths, widths[1:])):
    layers[f"layer{i}"] = torch.nn.Linear(a, b)
    layers[f"activation{i}"] = torch.nn.ReLU()
layers.popitem()
model = torch.nn.Sequential(layers)
model.load_state_dict(tensors, strict=True)
inputs = json.loads(about["inputs"])
pictures = torch.frombuffer(bytearray(gzip.open(sys.argv[2]).read()[16:16 + 784 * 100]), dtype=torch.uint8).reshape(100, 784)
x = ((pictures.double() - inputs["mean"][0]) / inputs["scale"][0]).float()
print(json.dumps(torch.softmax(model(x), 1).tolist()))
"""


def the_saved_model_opens_in_pytorch():
    """With strict=True, and says there what it says here."""
    python = python_with(["torch"])
    if not python:
        skip("the model in PyTorch", "no Python here has torch; bench/compare_pytorch installs it")
    pictures = DATA / "t10k-images-idx3-ubyte.gz"
    npy("pictures.npy", "|u1", (100, 784), gzip.open(pictures).read()[16:16 + 784 * 100])
    for strategy, ranks in ("zero3", "2"), ("ddp", "1"):
        run = call([PROGRAM, "launch", "-n", ranks, "--by", "local", "train", CONFIG, *SHORT, "--set", "model.layers=[784,64,32,10]", "--set", f"strategy={strategy}", "--set", f"name={strategy}"])
        expect(run.returncode == 0, run)
        expect((said := call([PROGRAM, "predict", f"runs/{strategy}", "--input", "pictures.npy", "--output", "ours.csv"])).returncode == 0, said)
        ours = [[float(cell) for cell in line.split(",")[1:]] for line in Path("ours.csv").read_text().splitlines()[1:]]
        theirs = call([python, "-c", IN_TORCH, f"runs/{strategy}/model.safetensors", str(pictures)])
        expect(theirs.returncode == 0, theirs)
        off = max(abs(a - b) for mine, other in zip(ours, json.loads(theirs.stdout), strict=True) for a, b in zip(mine, other, strict=True))
        assert off < 1e-5, f"{strategy}: PyTorch's outputs are {off} away"


def what_is_predicted_is_measured(config):
    """Of a configuration that is shipped, in whole runs: each strategy's peak of each owner and what it sends, to the byte."""
    shipped = {key: value for key, value in json.loads((ROOT / "configs" / config).read_text()).items() if key != "epochs"}
    if shipped["data"]["name"] == "text":  # any will do
        Path("text.txt").write_text("In the beginning was the Word. " * 400)
        shipped["data"] |= {"path": "text.txt", "tokenizer": "bytes"}
    Path("shipped.json").write_text(json.dumps(shipped | {"steps": 3, "schedule": {}}))
    for strategy, ranks in itertools.product(("ddp", "zero1", "zero2", "zero3", "hybrid"), ("2", "4")):
        words = [PROGRAM, "launch", "-n", ranks, "--by", "local", "train", "shipped.json", "--set", f"strategy={strategy}"]
        run = call([*words, "--set", f"name={strategy}{ranks}", *(["--set", "fsdp.shard_ranks=2"] if strategy == "hybrid" else [])])
        expect(run.returncode == 0, run)
        about, ledger = (json.loads(Path(f"runs/{strategy}{ranks}", name).read_text()) for name in ("about.json", "ledger.json"))
        expect(about["end"]["step_bytes"] == about["plan"]["bytes_sent"] > 0, run)
        planned, measured = about["plan"]["peaks"], {owner: bytes["peak"] for owner, bytes in ledger["categories"].items()}
        for part in planned, measured:  # a step's batch; what a plan does not know
            for owner in "data", "workspace", "other":
                part.pop(owner, None)
        assert planned == measured and len(planned) >= 4, f"{strategy} on {ranks}: planned {planned}, measured {measured}"


def a_terminal_is_updated_in_place():
    def on_a_terminal(kind, columns, *front):
        pid, terminal = pty.fork()
        if pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
            os.execve(PROGRAM, [PROGRAM, *front, "train", CONFIG, *SMALL], os.environ | {"TERM": kind})
        text = b""
        try:
            while chunk := os.read(terminal, 4096):
                text += chunk
        except OSError:
            pass  # the other end is closed
        assert os.waitpid(pid, 0)[1] == 0, text.decode()
        return text
    for columns in 80, 60, 30:
        text = on_a_terminal("xterm", columns).decode()
        steps = re.findall(r"(?<=\r\033\[K)step[^\r]*", text)
        assert steps and all("loss" in line and len(line) < columns for line in steps), text
    text = on_a_terminal("dumb", 60)
    assert b"\033" not in text and b"step" in text, text.decode()
    for by in "mpi", "local":  # mpirun gives ranks terminals of their own, which say nothing of this one
        run = call([PROGRAM, "launch", "-n", "2", "--by", by, "train", CONFIG, *SMALL])
        if run.returncode == 3:  # no MPI
            continue
        check_run(run)
        text = on_a_terminal("xterm", 50, "launch", "-n", "2", "--by", by).decode()
        steps = re.findall(r"(?<=\r\033\[K)step[^\r]*", text)
        assert steps and all("loss" in line and len(line) < 50 for line in steps), text


def without_proc():
    """Ranks find each other through /proc: without it launch says so."""
    hide = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
        sys.exit(77)  # needs root
    run = call([*hide, PROGRAM, "launch", "-n", "2", "train", CONFIG, *SMALL])
    expect(run.returncode == 3 and "mount -t proc proc /proc" in run.stderr.splitlines()[-1], run)


def new_project_folders():
    """A new project goes where nothing is; what is there stays. Building and training it: own_project.py."""
    Path("there").mkdir()
    Path("file").write_text("mine")
    Path("full").mkdir()
    Path("full/main.cpp").write_text("mine")
    for folder in "there", "new", "new/below it/":
        run = call([PROGRAM, "new", folder])
        expect(run.returncode == 0 and run.stdout.startswith("wrote README.md, CMakeLists.txt, main.cpp, config.json, data.csv to"), run)
        for file in (ROOT / "tests/repo/outside_project/own_model").iterdir():
            expect(Path(folder, file.name).read_bytes() == file.read_bytes(), run)
    for folder, said in [
        ("full", "new: the folder 'full' is not empty; name one that is, or that does not exist"),
        ("there", "new: the folder 'there' is not empty"),
        ("file", "new: cannot make the folder 'file': Not a directory"),
        ("file/below", "new: cannot make the folder 'file/below': Not a directory"),
        ("/proc/nowhere", "new: cannot make the folder '/proc/nowhere': "),
        ("a" * 300, "File name too long"),
        ("", "new: cannot make the folder '': "),
    ]:
        run = call([PROGRAM, "new", folder])
        expect(run.returncode == 2 and said in run.stderr and not run.stdout and run.stderr.count("\n") == 1, run)
    expect(Path("file").read_text() == Path("full/main.cpp").read_text() == "mine" and os.listdir("full") == ["main.cpp"], run)
    expect((run := call([PROGRAM, "new"])).returncode == 2 and "shardgrad new: folder is required" in run.stderr, run)


def trains_alike(config, score):
    """The same scores on any number of ranks."""
    scores = set()
    for ranks in "1", "2", "4":
        run = call([PROGRAM, "launch", "-n", ranks, "--by", "local", "train", config])
        done = re.fullmatch(rf"done: test_{score}=(\d\.\d{{4}}) steps=\d+ seconds=\S+ run=.+", run.stdout.splitlines()[-1])
        expect(run.returncode == 0 and done, run)
        scores.add(done[1])
    assert len(scores) == 1, scores
    return float(scores.pop())


def own_tables():
    """A table in CSV, as numbers and as labels; and tables that are refused where they are wrong."""
    expect((run := call([PROGRAM, "new", "flats"])).returncode == 0, run)
    lines = Path("flats/data.csv").read_text().splitlines()
    config = {"data": {"name": "csv", "path": "flats/data.csv", "target": "price", "standardise_target": True},
              "model": {"layers": [4, 16, 1]}, "task": {"name": "regression"}, "batch": 32, "epochs": 20,
              "optimizer": {"name": "adam", "lr": 0.01}}
    Path("csv.json").write_text(json.dumps(config))
    assert trains_alike("csv.json", "r2") > 0.9
    run = call([PROGRAM, "plan", "csv.json", "--ranks", "2", "--measure"])
    expect(run.returncode == 0 and run.stdout.endswith("as predicted\n"), run)
    dear = [line.rsplit(",", 1) for line in lines[1:]]
    Path("labels.csv").write_text("\n".join([lines[0], *(f"{cells},{'dear' if int(price) > 250 else 'cheap'}" for cells, price in dear)]))
    config |= {"data": {"name": "csv", "path": "labels.csv", "target": "price", "kind": "classes", "drop": ["age"]},
               "model": {"layers": [3, 16, 2]}, "task": {"name": "classification"}}
    Path("labels.json").write_text(json.dumps(config))
    assert trains_alike("labels.json", "accuracy") > 0.9
    shutil.rmtree("runs")
    Path("text.csv").write_text("\n".join([*lines[:7], "50,two,10,3.5,200", *lines[7:]]))
    refuses("csv.json", [
        ("data.target=prize", "'flats/data.csv' has no column 'prize' (the target); did you mean 'price'?"),
        ("data.target=", "data csv needs data.target"),
        ("data.path=text.csv", "'text.csv', line 8"),
        ("data.path=gone.csv", "cannot read 'gone.csv': No such file"),
        ("data.delimiter=;", "'flats/data.csv' has no column 'price' (the target)"),
        ("model.layers=[3,1]", "the model does not take the data's inputs, f32 [2, 4]"),
        ("task.name=classification", "task classification needs one label for each sample"),
    ])


def refuses(config, settings):
    for setting, said in settings:
        for front in [], ["launch", "-n", "2"]:
            run = call([PROGRAM, *front, "train", config, "--set", setting])
            expect(run.returncode == 2 and said in run.stderr and not Path("runs").exists(), run)


def npy(path, kind, shape, body):
    """A file as numpy.save writes it."""
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    Path(path).write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + body)


def own_arrays():
    """Two arrays of NumPy: points in a square, and on which side of a circle they are."""
    points = [(i % 20 / 10 - 0.95, i // 20 / 10 - 0.95) for i in range(400)]
    npy("x.npy", "<f4", (400, 2), struct.pack("<800f", *(number for point in points for number in point)))
    npy("y.npy", "<i8", (400,), struct.pack("<400q", *(int(x * x + y * y < 0.6) for x, y in points)))
    config = {"data": {"name": "npy", "inputs": "x.npy", "targets": "y.npy"}, "model": {"layers": [2, 32, 2]}, "batch": 32,
              "epochs": 30, "optimizer": {"name": "adam", "lr": 0.01}}
    Path("npy.json").write_text(json.dumps(config))
    assert trains_alike("npy.json", "accuracy") > 0.9
    shutil.rmtree("runs")
    npy("short.npy", "<i8", (399,), bytes(8 * 399))
    refuses("npy.json", [("data.targets=short.npy", "short.npy"), ("data.targets=", "data.targets"), ("data.inputs=npy.json", "npy.json")])


def tokenizers():
    """A tokenizer is learned from a text, and texts become the numbers of tokens and texts again."""
    text = ("".join(f"Chapter {i}: who learns, learns; who learned, knows. Grün, \U0001f600!\n" for i in range(200))).encode()
    Path("a.txt").write_bytes(text)
    tokenizer = [PROGRAM, "tokenizer"]
    kinds = ["bytes"]
    train = [*tokenizer, "train", "--input", "a.txt", "--vocab-size", "300", "--output", "t.json"]
    run = call(train)
    if "PCRE2     none" in call([PROGRAM, "--version"]).stdout:
        expect(run.returncode == 3 and "install libpcre2-dev" in run.stderr and not Path("t.json").exists(), run)
    else:
        expect(run.returncode == 0 and run.stdout.startswith("wrote 300 tokens (256 bytes, 43 learned from "), run)
        kinds.append("t.json")
        block = next(block for block in re.findall(r"```sh\n(.*?)```", (ROOT / "docs/text.md").read_text(), re.S) if "tokenizer train" in block)
        for name in "README.md", "CHANGELOG.md":
            shutil.copy(ROOT / name, name)
        run = call(["bash", "-ec", block.replace("build/bin/shardgrad", shlex.quote(PROGRAM))])
        expect(run.returncode == 0 and Path("again.md").read_bytes() == Path("README.md").read_bytes(), run)
    for kind in kinds:
        ids = call([*tokenizer, "encode", kind, "--input", "a.txt"])
        numbers = list(map(int, ids.stdout.split()))
        expect(ids.returncode == 0 and (kind != "bytes" or numbers == list(text)) and len(numbers) <= len(text), ids)
        for name in "ids.txt", "ids.bin", "ids.npy":
            expect((run := call([*tokenizer, "encode", kind, "--input", "a.txt", "--output", name])).returncode == 0, run)
            expect((run := call([*tokenizer, "decode", kind, "--input", name, "--output", "b.txt"])).returncode == 0, run)
            expect(Path("b.txt").read_bytes() == text, run)
        assert Path("ids.bin").read_bytes() == struct.pack(f"<{len(numbers)}H", *numbers)
        piped = subprocess.run([*tokenizer, "encode", kind], input=text, capture_output=True)
        back = subprocess.run([*tokenizer, "decode", kind], input=piped.stdout, capture_output=True)
        assert piped.stdout.decode() == ids.stdout and back.stdout == text, back
    Path("empty.txt").write_text("")
    Path("words.txt").write_text("1 2 three")
    for words, said in [(["encode", "gone.json"], "cannot read 'gone.json': No such file"), (["encode", "a.txt"], "it is no tokenizer.json"),
                        (["encode", "bytes", "--input", "."], "it is a folder"), (["decode", "bytes", "--input", "words.txt"], "'three' is no number of a token"),
                        (["decode", "bytes", "--input", "a.txt"], "'Chapter' is no number of a token"), (["encode", "bytes", "--output", "gone/x"], "cannot write 'gone/x'"),
                        (["encode"], "tokenizer is required (shardgrad tokenizer encode --help)"), (["train", "--inptu", "x"], "(shardgrad tokenizer train --help)"), ([], "shardgrad tokenizer: "),
                        *([(["train", "--input", "empty.txt", *train[5:]], "'empty.txt' is empty")] if len(kinds) == 2 else [])]:
        run = subprocess.run([*tokenizer, *words], input="", capture_output=True, text=True)
        assert run.returncode == 2 and said in run.stderr and run.stderr.count("\n") == 1, (words, run)
    Path("text.json").write_text(json.dumps({"data": {"name": "text", "path": "a.txt", "length": 16}, "task": {"name": "next_token"}}))
    Path("three.txt").write_text("abc")
    refuses("text.json", [("data.path=gone.txt", "cannot read 'gone.txt': No such file"), ("data.path=.", "it is a folder; name the file"),
                          ("data.path=[]", "data text needs data.path"), ("data.path=empty.txt", "'empty.txt' is empty; it must hold a text"),
                          ("data.path=three.txt", "'three.txt' has 3 tokens; 2 samples of length 16"), ("data.test=three.txt", "'three.txt' has 3 tokens; 1 sample"),
                          ("data.tokenizer=a.txt", "cannot read 'a.txt' as a tokenizer: it is no tokenizer.json"), ("data.tokenizer=", "data.tokenizer")])
    run = subprocess.run([*tokenizer, "decode", "bytes"], input="256", capture_output=True, text=True)
    assert run.returncode == 2 and "token 256 is not in the vocabulary of 'bytes'" in run.stderr, run


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


def main(cases):
    case, _, ranks = sys.argv[2].partition(":")
    with tempfile.TemporaryDirectory(prefix="program test ") as folder:
        os.chdir(folder)
        try:
            cases[case](*([ranks] if ranks else []))
        except AssertionError as failure:
            sys.exit(f"{case}: {failure}")


if __name__ == "__main__":
    main(globals())
