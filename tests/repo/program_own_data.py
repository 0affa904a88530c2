#!/usr/bin/env python3
"""Training on data of one's own: a project's folder, tables, arrays, texts and their tokenizers, models of Hugging Face's.

    program_own_data.py PROGRAM CASE
"""
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
from pathlib import Path

from program import PROGRAM, ROOT, call, expect, main, npy


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
    run = call(["bash", "-c", f"ulimit -f 1; {shlex.join([PROGRAM, 'new', 'small'])}"])
    expect(run.returncode == 2 and "File too large" in run.stderr and os.listdir("small") == [], run)
    expect((run := call([PROGRAM, "new", "small"])).returncode == 0, run)


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


def refuses(config, settings):
    for setting, said in settings:
        for front in [], ["launch", "-n", "2"]:
            run = call([PROGRAM, *front, "train", config, "--set", setting])
            expect(run.returncode == 2 and said in run.stderr and not Path("runs").exists(), run)


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
    refuses("labels.json", [("model.layers=[3,16,3]", "the model gives numbers for 3 classes; the data has 2"),
                            ("model.layers=[3,16,1]", "the model gives numbers for 1 classes; the data has 2"),
                            ("micro_batches=400", "set micro_batches to 32 at most, or batch to 400 at least"),
                            ("grains=512", "set grains to 32 at most, or batch to 512 at least")])
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


def without_pcre2():
    """Where no tokenizer but that of bytes can be learned."""
    return "PCRE2     none" in call([PROGRAM, "--version"]).stdout


def tokenizers():
    """A tokenizer is learned from a text, and texts become the numbers of tokens and texts again."""
    text = ("".join(f"Chapter {i}: who learns, learns; who learned, knows. Grün, \U0001f600!\n" for i in range(200))).encode()
    Path("a.txt").write_bytes(text)
    tokenizer = [PROGRAM, "tokenizer"]
    kinds = ["bytes"]
    train = [*tokenizer, "train", "--input", "a.txt", "--vocab-size", "300", "--output", "t.json"]
    run = call(train)
    if without_pcre2():
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


def hugging_face_folders():
    """A folder of Hugging Face's in the place of a run is told apart, and an export that has no room leaves nothing."""
    shutil.copytree(ROOT / "tests/fixtures/hugging_face/gpt2", "model")
    for words in ["eval"], ["export", "--hf", "out"], ["hash"], ["report"], ["launch", "-n", "2", "eval"]:
        run = call([PROGRAM, *words, "model"])
        expect(run.returncode == 2 and run.stderr.count("\n") == 1, run)
        expect("'model' is a model of Hugging Face's, and no run; `shardgrad generate model --prompt …`" in run.stderr and "model.from=model" in run.stderr, run)
    Path("ids.bin").write_bytes(bytes(i * i % 23 if i % 2 == 0 else 0 for i in range(800)))
    Path("a.json").write_text(json.dumps({"data": {"name": "tokens", "train": "ids.bin", "length": 8}, "model": {"from": "model"},
                                          "task": {"name": "next_token"}, "batch": 4, "steps": 1, "name": "run"}))
    run = call([PROGRAM, "train", "a.json"])
    expect(run.returncode == 0, run)
    export = [PROGRAM, "export", "runs/run", "--hf", "out"]
    run = call(["bash", "-c", f"ulimit -f 1; {shlex.join(export)}"])
    expect(run.returncode == 2 and run.stderr == "shardgrad: cannot write 'out.tmp/model.safetensors': File too large\n", run)
    expect(not Path("out").exists() and not Path("out.tmp").exists(), run)
    for words, file in ([PROGRAM, "report", "runs/run"], "runs/run/report.html"), ([PROGRAM, "tokenizer", "train", "--input", "a.json", "--vocab-size", "300", "--output", "t.json"], "t.json"):
        if "tokenizer" in words and without_pcre2():
            continue
        run = call(["bash", "-c", f"ulimit -f 1; {shlex.join(words)}"])
        expect(run.returncode == 2 and run.stderr.startswith(f"shardgrad: cannot write '{file}.tmp': File too large") and not Path(file + ".tmp").exists(), run)
    run = call(export)
    expect(run.returncode == 0 and Path("out/model.safetensors").exists(), run)


def generated(*words):
    """What the program writes of a text, of any bytes."""
    run = subprocess.run([PROGRAM, "generate", *words], capture_output=True, timeout=120)
    assert run.returncode == 0 and b"first token after " in run.stderr, (words, run)
    return run.stdout


def pieces_of(*words):
    """The same piece by piece, as it was written: one packet of a socket for each write."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = subprocess.Popen([PROGRAM, "generate", *words], stdout=its.fileno(), stderr=subprocess.DEVNULL)
    its.close()
    pieces = list(iter(lambda: ours.recv(1 << 16), b""))
    assert program.wait(timeout=120) == 0, words
    return pieces


def texts():
    """A model says what it has learned by heart, from its run and from the folder that is made of that, as it comes; and each option
    of the draws does what it is for."""
    Path("a.txt").write_text("A text that is learned by heart.\n" * 40)
    Path("a.json").write_text(json.dumps({"data": {"name": "text", "path": "a.txt", "length": 48}, "task": {"name": "next_token"}, "name": "run",
                                          "model": {"name": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 256},
                                          "optimizer": {"name": "adamw", "lr": 0.01}, "batch": 4, "epochs": 40}))
    expect((run := call([PROGRAM, "train", "a.json"])).returncode == 0, run)
    expect((run := call([PROGRAM, "export", "runs/run", "--hf", "out"])).returncode == 0, run)
    forty = ["--tokens", "40", "--prompt", "A text"]
    learned = b"A text that is learned by heart.\nA text that i\n"
    drawn = {}
    for folder in "runs/run", "out":
        assert generated(folder, *forty, "--temperature", "0") == learned, folder
        assert generated(folder, "--tokens", "26", "--prompt", "A text", "--temperature", "0").count(b"\n") == 1, "as many tokens as it is told"
        draws = lambda *words: generated(folder, *forty, "--temperature", "8", *words)
        drawn[folder] = [draws("--seed", "1"), draws("--seed", "2"), draws("--seed", "1", "--top-k", "3")]
        assert draws("--seed", "1") == drawn[folder][0], "a seed's draws are its own"
        assert len({learned, *drawn[folder]}) == 4, drawn
        for option in ["--top-k", "1"], ["--top-p", "0.000001"]:
            assert draws("--seed", "5", *option) == learned, option
        for dtype in "bf16", "f16":
            assert generated(folder, *forty, "--temperature", "0", "--dtype", dtype) == learned, dtype
        pieces = pieces_of(folder, *forty, "--temperature", "0")
        assert b"".join(pieces) == learned and len(pieces) > 30, pieces
    assert drawn["runs/run"] == drawn["out"], drawn
    Path("prompts.txt").write_text("A text\nlearned\n")
    assert generated("runs/run", "--prompts", "prompts.txt", "--tokens", "10", "--temperature", "0") == b"A text that is l\n\nlearned by heart.\n"
    for words, said in [(["out"], "--prompt or --prompts"), (["out", *forty, "--dtype", "f64"], "--dtype"), (["out", "--tokens", "100", "--prompt", "A text"], "100 tokens after a prompt of 6")]:
        run = call([PROGRAM, "generate", *words])
        expect(run.returncode == 2 and said in run.stderr and not run.stdout, run)


if __name__ == "__main__":
    main(globals())
