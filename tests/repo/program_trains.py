#!/usr/bin/env python3
"""Runs that go well: the example, on any number of ranks, however they are started; and what they leave.

    program_trains.py PROGRAM CASE
"""
import gzip
import json
import math
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from needs import python_with, skip
from program import CONFIG, DATA, DONE, PROGRAM, ROOT, ROOT_MAY, SHORT, SMALL, call, check_run, expect, main, npy


def train(ranks):
    check_run(call([PROGRAM, "launch", "-n", ranks, "train", CONFIG, *SMALL]))


def the_example(ranks):
    """The README's job, whole."""
    run = call([PROGRAM, "launch", "-n", ranks, "train", CONFIG], timeout=280)
    done = DONE.fullmatch(run.stdout.splitlines()[-1])
    expect(run.returncode == 0 and done and float(done[1]) >= 0.89, run)
    last = json.loads(Path(done[3], "metrics.jsonl").read_text().splitlines()[-1])
    expect(last["test_count"] == 10000 and last["epoch"] <= 15, run)


CNN = ["train", str(ROOT / "configs/fashion_mnist_cnn.json")]


def hash_of(run):
    """What a run has trained, as it says when it saves."""
    expect(run.returncode == 0, run)
    return re.findall(r"^saved step \d+ in [\d.]+ s, hash (\w+)$", run.stdout, re.M)[-1]


def the_convolutional_net(strategy):
    """Under zero3 it reaches what its users expect of it; under the others an epoch has the bits of zero3's."""
    start = [PROGRAM, "launch", "-n", "2", *CNN]
    if strategy == "zero3":
        run = call(start, timeout=2400)
        done = DONE.fullmatch(run.stdout.splitlines()[-1])
        return expect(run.returncode == 0 and done and float(done[1]) >= 0.92, run)
    more = ["--set", "fsdp.shard_ranks=1"] if strategy == "hybrid" else []
    hashes = [hash_of(call([*start, *SHORT, "--set", f"strategy={name}", *words], timeout=900))
              for name, words in (("zero3", []), (strategy, more))]
    assert hashes[0] == hashes[1], f"{strategy} ends with other bits than zero3: {hashes}"


def checkpoints_by_name():
    """The best one and any other is used by its name, and the step that is used is said; a page takes no file's place."""
    check_run(call([PROGRAM, "train", CONFIG, *SMALL, "--set", "name=small", "--set", "keep_best=true", "--set", "save_every=100"]))
    best = Path("runs/small/best").read_text().strip()
    for name, step in (("", 235), ("/best", int(best.split("-")[1])), ("/step-200", 200), ("/step-200/", 200)):
        run = call([PROGRAM, "eval", f"runs/small{name}"])
        expect(run.returncode == 0 and f" step={step} run=runs/small" in run.stdout, run)
        expect(call([PROGRAM, "hash", f"runs/small{name}"]).stdout.startswith(f"step {step}, "), run)
    run = call([PROGRAM, "eval", "runs/small/step-7"])
    expect(run.returncode == 2 and "'runs/small' has no checkpoint 'step-7'; it has step-235, step-200" in run.stderr, run)
    before = Path("runs/small/config.json").read_text()
    run = call([PROGRAM, "report", "runs/small", "--output", "runs/small/config.json"])
    expect(run.returncode == 2 and "whose files are its own" in run.stderr and Path("runs/small/config.json").read_text() == before, run)
    run = call([PROGRAM, "hash", "runs/small/model.safetensors"])
    expect(run.returncode == 2 and run.stderr.endswith("'runs/small/model.safetensors' is no folder of a run\n"), run)
    assert not json.loads(Path("runs/small/config.json").read_text()).get("resume"), "who trains by it makes another run"
    Path("runs/small/report.html.tmp").mkdir()
    run = call([PROGRAM, "report", "runs/small"])
    expect(run.returncode == 2 and run.stderr.endswith("; --output FILE writes it elsewhere\n"), run)


def without_mpi(ranks):
    check_run(call([PROGRAM, "launch", "-n", ranks, "--by", "local", "train", CONFIG, *SMALL]))


def bare_mpirun(ranks):
    check_run(call(["mpirun", "--oversubscribe", "-n", ranks, PROGRAM, "train", CONFIG, *SMALL], ROOT_MAY))


def small_stacks():
    """Threads have stacks of their own size: the same bits whatever `ulimit -s` says."""
    def digest(stack):
        words = [PROGRAM, "launch", "-n", "2", "--by", "local", "train", CONFIG, *SMALL]
        check_run(call(["sh", "-c", f"ulimit -s {stack}; exec {shlex.join(words)}"]))
        saved = Path("runs/fashion_mnist/step-235/model.safetensors").read_bytes()
        shutil.rmtree("runs")
        return saved

    assert digest(8192) == digest(160)


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


def device_auto():
    """Without a GPU the CPU trains, and one line says so, whatever the number of ranks."""
    for ranks in "1", "2":
        run = call([PROGRAM, "launch", "-n", ranks, "train", CONFIG, *SMALL, "--set", "device=auto"])
        said = run.stderr.count("shardgrad: no CUDA device; training on the CPU\n")
        expect(run.returncode == 0 and said == (0 if Path("/dev/nvidia0").exists() else 1), run)


def device_cuda():
    """Without a GPU, asking for one is refused: one line, exit code 3."""
    if Path("/dev/nvidia0").exists():
        skip("device=cuda without a GPU", "there is a GPU here")
    why = r"no CUDA device: no NVIDIA driver is loaded on this machine|device cuda is not part of this build.*"
    for ranks in "1", "2":
        run = call([PROGRAM, "launch", "-n", ranks, "train", CONFIG, *SMALL, "--set", "device=cuda"])
        expect(run.returncode == 3 and re.fullmatch(rf"shardgrad: (rank \d failed: )?({why})", run.stderr.splitlines()[-1]), run)


def the_saved_configuration_repeats_the_run():
    first = check_run(call([PROGRAM, "train", CONFIG, *SMALL]))
    again = check_run(call([PROGRAM, "train", "runs/fashion_mnist/config.json"]))
    assert first["loss"] == again["loss"] and first["test_accuracy"] == again["test_accuracy"], (first, again)


# In PyTorch: the file's tensors into a model of its names, which takes no other, and what that says of the first test pictures.
IN_TORCH = """
import gzip, json, sys
from collections import OrderedDict
import torch
from torch import nn
data = open(sys.argv[1], "rb").read()
length = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + length])
about = header.pop("__metadata__")
tensors = {name: torch.frombuffer(bytearray(data[8 + length + e["data_offsets"][0]:8 + length + e["data_offsets"][1]]), dtype={"F32": torch.float32}[e["dtype"]]).reshape(e["shape"]) for name, e in header.items()}

def mlp(layers, **others):
    for i, (a, b) in enumerate(zip(layers, layers[1:])):
        yield f"layer{i}", nn.Linear(a, b)
        if i + 2 < len(layers):
            yield f"activation{i}", nn.ReLU()

def cnn(image, channels, kernel, hidden, classes, **others):
    before, height, width = image
    yield "picture", nn.Unflatten(1, tuple(image))
    for i, after in enumerate(channels):
        yield f"conv{i}", nn.Conv2d(before, after, kernel, padding=kernel // 2)
        yield f"relu{i}", nn.ReLU()
        yield f"pool{i}", nn.MaxPool2d(2)
        before, height, width = after, height // 2, width // 2
    yield "flat", nn.Flatten()
    yield "hidden", nn.Linear(before * height * width, hidden)
    yield "relu", nn.ReLU()
    yield "out", nn.Linear(hidden, classes)

def normed(**others):
    return [("picture", nn.Unflatten(1, (1, 28, 28))), ("conv", nn.Conv2d(1, 4, 3, padding=1)), ("norm", nn.BatchNorm2d(4)), ("relu", nn.ReLU()),
            ("pool", nn.MaxPool2d(2)), ("flat", nn.Flatten()), ("hidden", nn.Linear(784, 16)), ("hidden_norm", nn.BatchNorm1d(16)),
            ("hidden_relu", nn.ReLU()), ("out", nn.Linear(16, 10))]

options = json.loads(about["model"])
model = nn.Sequential(OrderedDict({"mlp": mlp, "cnn": cnn, "normed": normed}[options.pop("name")](**options)))
model.load_state_dict(tensors, strict=True)
model.eval()
inputs = json.loads(about["inputs"])
pictures = torch.frombuffer(bytearray(gzip.open(sys.argv[2]).read()[16:16 + 784 * 100]), dtype=torch.uint8).reshape(100, 784)
x = ((pictures.double() - inputs["mean"][0]) / inputs["scale"][0]).float()
print(json.dumps(torch.log_softmax(model(x).double(), 1).tolist()))
"""


def the_saved_model_opens_in_python():
    """As the format says, which safetensors.numpy.load_file reads."""
    check_run(call([PROGRAM, "train", CONFIG, *SMALL]))
    data = Path("runs/fashion_mnist/step-235/model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    assert {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"} == {
        "layer0.weight": [16, 784], "layer0.bias": [16], "layer1.weight": [10, 16], "layer1.bias": [10]}, header
    assert len(data) == 8 + length + 4 * (16 * 784 + 16 + 10 * 16 + 10)


def expect_the_same_in_pytorch(python, name, ranks, *words):
    """With strict=True, and says there what it says here."""
    pictures = DATA / "t10k-images-idx3-ubyte.gz"
    npy("pictures.npy", "|u1", (100, 784), gzip.open(pictures).read()[16:16 + 784 * 100])
    run = call([PROGRAM, "launch", "-n", ranks, "--by", "local", "train", *words, "--set", f"name={name}"], timeout=280)
    expect(run.returncode == 0, run)
    expect((said := call([PROGRAM, "predict", f"runs/{name}", "--input", "pictures.npy", "--output", "ours.csv"])).returncode == 0, said)
    ours = [[float(cell) for cell in line.split(",")[1:]] for line in Path("ours.csv").read_text().splitlines()[1:]]
    theirs = call([python, "-c", IN_TORCH, f"runs/{name}/model.safetensors", str(pictures)])
    expect(theirs.returncode == 0, theirs)
    # Logarithms of probabilities are logits less a number: what is wrong in a class of small probability shows, too.
    off = max(abs(math.log(a) - b) for mine, other in zip(ours, json.loads(theirs.stdout), strict=True) for a, b in zip(mine, other, strict=True))
    assert off < 1e-5, f"{name}: PyTorch's outputs are {off} away"


def the_saved_model_opens_in_pytorch(library):
    """Linear layers under every strategy, the shipped convolutional net, and running statistics, of which PyTorch has one more: how many batches
    they are of. A state without that is one of PyTorch's own first format, which strict=True takes."""
    python = python_with(["torch"])
    if not python:
        skip("the model in PyTorch", "no Python here has torch; bench/compare_pytorch installs it")
    for strategy, ranks in ("zero3", "2"), ("zero2", "2"), ("zero1", "3"), ("ddp", "1"):
        expect_the_same_in_pytorch(python, strategy, ranks, CONFIG, *SHORT, "--set", "model.layers=[784,64,32,10]", "--set", f"strategy={strategy}")
    shipped = json.loads(Path(CNN[1]).read_text())
    del shipped["epochs"]
    shipped |= {"steps": 60, "schedule": {}}  # fewer than it needs, and enough to have learnt something
    Path("cnn.json").write_text(json.dumps(shipped))
    Path("normed.json").write_text(json.dumps(shipped | {"libraries": [library], "model": {"name": "normed"}}))
    for name in "cnn", "normed":
        expect_the_same_in_pytorch(python, name, "2", f"{name}.json")


if __name__ == "__main__":
    main(globals())
