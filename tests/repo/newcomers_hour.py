#!/usr/bin/env python3
"""A newcomer's first hour: the commands of README and docs, as they stand there, one after the other. Each must do what is said
of it. Only the example's configuration is made shorter, and scripts/quickstart finds everything built.

    newcomers_hour.py PROGRAM the_hour:BUILD_DIR

Prints how long each step took. Where no Python has NumPy and safetensors it ends as skipped, after all other steps.
"""
import array
import csv
import gzip
import json
import re
import statistics
import time
from pathlib import Path

import docs
import own_project
from faults import Job, until
from kills import kill
from needs import python_with, skip
from program import DATA, ROOT, call, expect, npy
from run_page import Parsed

IN_PYTHON = ["numpy", "safetensors"]


def blocks(file, kind, words):
    """What stands in the blocks of this kind, in this file of the documentation, that have these words."""
    return [body for found, body, *_ in docs.blocks((ROOT / file).read_text()) if found == kind and words in body]


def only(found, what):
    assert len(found) == 1, f"{what}: {len(found)} times in the documentation"
    return found[0]


def commands(file, words):
    """Of the one block that has these words."""
    return [line for line in only(blocks(file, "sh", words), words).splitlines() if line and not line.startswith("#")]


def command(file, words):
    """The one line of all blocks that has these words."""
    return only([line.partition(" #")[0].strip() for body in blocks(file, "sh", words) for line in body.splitlines() if words in line], words)


def typed(line, environment=None):
    run = call(["bash", "-c", line], environment)
    expect(run.returncode == 0, run)
    return run


def done(run):
    """Score, steps and folder of a training run."""
    found = re.search(r"^done: test_\w+=(\S+) steps=(\d+) .*run=(.*)$", run.stdout, re.M)
    expect(found, run)
    return found[1], int(found[2]), found[3]


def table(output):
    """Names in the table at the end of a training run."""
    return [line[:26].strip() for line in re.split(r"^step .*\n", output, flags=re.M)[-1].splitlines() if line.startswith("  ")]


def prepare(build):
    """The folder that a clone is, after it was built; without GPUs, on which scripts/quickstart would train first."""
    for name, place in ("build", build), ("scripts", ROOT / "scripts"):
        Path(name).symlink_to(place)
    config = json.loads((ROOT / "configs/fashion_mnist.json").read_text()) | {"epochs": 3, "save_every": 50}
    Path("configs").mkdir()
    Path("configs/fashion_mnist.json").write_text(json.dumps(config))
    Path("bin").mkdir()
    for name in "cmake", "find":
        Path("bin", name).write_text("#!/bin/sh\n")
        Path("bin", name).chmod(0o755)


def quickstart():
    run = typed(f'PATH="$PWD/bin:$PATH"; {command("README.md", "scripts/quickstart  ")} --no-install')
    accuracy, steps, folder = done(run)
    expect(float(accuracy) > 0.85 and steps == 705 and folder == "runs/fashion_mnist", run)
    shown = only(blocks("README.md", "text", "one step, predicted:"), "what you will see")
    for line in [*shown.split("…\n")[0].splitlines(), *re.findall(r".* predicted .*", shown)]:
        assert f"\n{line}\n" in run.stdout, f"README shows '{line}', and not so {run.all}"
    assert table(run.stdout) == table(shown), f"README shows another table, {table(shown)}, than {run.all}"
    return accuracy


def other_width():
    """Four ranks and another layer."""
    run = typed(command("README.md", "launch -n 4 train"))
    accuracy, _, folder = done(run)
    expect(float(accuracy) > 0.8 and "\nbatch 512 = 4 ranks · 128; " in run.stdout, run)
    held = typed(f"build/bin/shardgrad inspect {folder}/model.safetensors")
    expect("layer0.weight  f32 [128, 784]\n" in held.stdout and "\n4 tensors, 101770 elements" in held.stdout, held)


def killed():
    job = Job(["bash", "-c", command("docs/checkpoints.md", "name=long")])
    until(lambda: Path("runs/long/latest").exists(), 60, job.text)
    kill(job, list(job.pids()))
    saved = typed("build/bin/shardgrad hash runs/long")
    step = int(re.match(r"step (\d+), hash \w{16}\n", saved.stdout)[1])
    assert 50 <= step < 705 and step % 50 == 0, f"it ended before it was killed, or saved elsewhere: {saved.all}"
    return step


def resumed(step, accuracy):
    """The same line goes on, and ends as the quickstart did, which nobody killed."""
    run = typed(command("docs/checkpoints.md", "name=long"))
    expect(f"goes on after step {step}" in run.stdout and done(run) == (accuracy, 705, "runs/long"), run)
    line = command("README.md", "shardgrad hash")
    whole, parts = typed(line), typed(line.replace("runs/fashion_mnist", "runs/long"))
    expect(whole.stdout.startswith("step 705, hash ") and parts.stdout == whole.stdout, parts)


def reported(accuracy):
    typed(command("README.md", "shardgrad report"))
    page = Path("runs/fashion_mnist/report.html").read_text()
    tile = f'<data value="{float(accuracy)}">{accuracy}</data></b><span>test accuracy after step 705<'
    assert Parsed(page).pictures and page.count(tile) == 1, f"not once on the page: {tile}"


def evaluated(accuracy):
    run = typed(command("README.md", "shardgrad eval"))
    expect(run.stdout.startswith(f"eval: test_accuracy={accuracy} "), run)


def test_files():
    """Pictures and labels, a byte for each pixel and label."""
    return [gzip.decompress((DATA / f"t10k-{name}-ubyte.gz").read_bytes())[head:] for name, head in (("images-idx3", 16), ("labels-idx1", 8))]


def predicted(accuracy):
    pictures, labels = test_files()
    npy("pictures.npy", "|u1", (len(labels), 784), pictures)
    run = typed(command("README.md", "shardgrad predict"))
    with open("classes.csv", newline="") as file:
        header, *rows = csv.reader(file)
    expect(header == ["class", *(f"p{i}" for i in range(10))] and len(rows) == len(labels), run)
    right = sum(int(row[0]) == label for row, label in zip(rows, labels))
    assert f"{right / len(labels):.4f}" == accuracy, f"classes.csv is right for {right} of {len(labels)}, the run said {accuracy}"


def predicted_prices():
    """In the units of the table, of whose rows most were trained on."""
    with open("my_model/data.csv", newline="") as file:
        flats = [[float(cell) for cell in row] for row in list(csv.reader(file))[1:]]
    npy("flats.npy", "<f8", (len(flats), 4), array.array("d", [cell for flat in flats for cell in flat[:4]]).tobytes())
    run = typed(command("docs/own-data.md", "--input flats.npy"))
    said, prices = [float(line) for line in Path("prices.csv").read_text().splitlines()[1:]], [flat[4] for flat in flats]
    expect(len(said) == len(prices), run)
    off = statistics.mean((a - b) ** 2 for a, b in zip(said, prices)) / statistics.pvariance(prices)
    assert off < 0.1, f"predicted prices are off: a mean square of {off} variances; {said[:3]} instead of {prices[:3]}"


def in_python():
    """The lines that open the model, and those that make the arrays which the steps before had made. False: nothing here can run them."""
    if not python_with(IN_PYTHON):
        return False
    for file, words in ("docs/checkpoints.md", "safe_open"), ("README.md", "pictures.npy"), ("docs/own-data.md", "flats.npy"):
        made = Path(words).read_bytes() if words.endswith(".npy") else b""
        fault = docs.run_python(only(blocks(file, "python", words), words), Path.cwd(), left_out := [])
        assert fault is None and not left_out, f"{file}: the lines with {words}: {fault}"
        assert not made or content(Path(words).read_bytes()) == content(made), f"{file}: {words} is not what the table or the pictures are"
    return True


def content(npy_file):
    """Behind the header."""
    return npy_file[10 + int.from_bytes(npy_file[8:10], "little"):]


def own_table():
    """The project's, as the documentation trains it, and one of our own with other columns and a text."""
    file = "docs/own-data.md"
    for name, body in docs.NAMED.findall((ROOT / file).read_text()):
        Path(name).write_text(body)
    runs = {line: typed(line) for line in commands(file, "train csv.json\n")}
    scores = [done(run)[0] for line, run in runs.items() if " train " in line]
    assert len(scores) == 3 and scores[0] == scores[1] and min(map(float, scores)) > 0.9, scores
    predicted_prices()
    rows = ((i % 7, i * 5 % 11, ("red", "blue")[i % 2]) for i in range(400))
    Path("mine.csv").write_text("hours,people,colour,cost\n" + "".join(f"{h},{p},{c},{3 * h + p * p}\n" for h, p, c in rows))
    line = f"{command(file, 'launch -n 2 train csv.json')} --set data.path=mine.csv --set data.target=cost --set model.layers=[2,32,1]"
    refused = call(["bash", "-c", line])
    expect(refused.returncode == 2 and re.search(r"'mine.csv', line 2.*colour.*red", refused.stderr), refused)
    run = typed(f"{line} --set 'data.drop=[\"colour\"]'")
    expect(float(done(run)[0]) > 0.9, run)


def own_model(build):
    """What the documentation says is what the README of the project says, whose commands are run."""
    for words in "build/own_model", "libown_model.so":
        mine, theirs = commands("docs/own-data.md", words), (ROOT / "tests/repo/outside_project/own_model/README.md").read_text()
        assert "\n".join(line for line in mine if line != "cd my_model") in theirs, f"not in the project's README: {mine}"
    own_project.a_new_project(build)


def the_hour(build):
    times, begin = [], time.monotonic()

    def step(name, what, *given):
        since = time.monotonic()
        try:
            found = what(*given)
        except AssertionError as failure:
            raise AssertionError(f"{name}: {failure}") from None
        times.append(f"{name:14} {time.monotonic() - since:5.1f} s{'  left out' if found is False else ''}")
        return found
    prepare(build)
    accuracy = step("quickstart", quickstart)
    step("other width", other_width)
    stopped = step("kill", killed)
    step("resume", resumed, stopped, accuracy)
    step("report", reported, accuracy)
    step("eval", evaluated, accuracy)
    step("predict", predicted, accuracy)
    step("own table", own_table)
    python = step("Python", in_python)
    step("own model", own_model, build)
    print("\n".join([*times, f"{'all':14} {time.monotonic() - begin:5.1f} s"]))
    if not python:
        skip("a newcomer's lines in Python", f"no Python here has {' and '.join(IN_PYTHON)}; all other steps of the hour do what is said of them")


if __name__ == "__main__":
    from program import main
    main(globals())
