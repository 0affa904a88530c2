#!/usr/bin/env python3
"""Writes the handwritten digits as CSV, trains scikit-learn's MLP and `shardgrad train bench/digits.json` on the same rows.

    bench/sklearn_mlp.py [--program build/bin/shardgrad] [--csv build/digits.csv] [--seeds 40]

Each seed draws the rows of the test (train/data/split.h) and both models' beginnings. Exits 1 where the mean of our scores is
more than one row of the test below the mean of scikit-learn's. Without the program only scikit-learn is trained.
The pictures are the test part of UCI's Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, 1998; CC BY
4.0), as scikit-learn bundles it.
"""
import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

ROOT = Path(__file__).resolve().parents[1]
MODEL = dict(hidden_layer_sizes=(128,), solver="adam", learning_rate_init=0.001, batch_size=32, alpha=0, max_iter=30,
             n_iter_no_change=30)


def stream_of(name):
    """FNV-1a, as core/rng.h."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = (number ^ byte) * 0x100000001B3 % 2**64
    return number


def philox(seed, stream, index):
    """Philox4x32-10, as core/rng.h."""
    c0, c1, c2, c3 = index % 2**32, index >> 32, stream % 2**32, stream >> 32
    k0, k1 = seed % 2**32, seed >> 32
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = b >> 32 ^ c1 ^ k0, b % 2**32, a >> 32 ^ c3 ^ k1, a % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def is_test_row(seed, row, share):
    """As train/data/split.h."""
    return (philox(seed, stream_of("test rows"), row)[0] >> 8) * 2.0**-24 < share


def write_csv(path, inputs, labels):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([f"pixel{i}" for i in range(inputs.shape[1])] + ["digit"])
        writer.writerows([f"{x:g}" for x in row] + [label] for row, label in zip(inputs, labels))


def theirs(inputs, labels, tested, seed):
    scaler = StandardScaler().fit(inputs[~tested])
    train, test = scaler.transform(inputs[~tested]), scaler.transform(inputs[tested])
    return MLPClassifier(random_state=seed, **MODEL).fit(train, labels[~tested]).score(test, labels[tested])


def ours(program, table, seed, folder):
    settings = [f"seed={seed}", f"name={seed}", f"runs={folder}", f"data.path={table}"]
    words = [program, "train", str(ROOT / "bench/digits.json"), *(word for each in settings for word in ("--set", each))]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return json.loads(Path(folder, str(seed), "metrics.jsonl").read_text().splitlines()[-1])["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--program", default=str(ROOT / "build/bin/shardgrad"))
    parser.add_argument("--csv", default=str(ROOT / "build/digits.csv"))
    parser.add_argument("--seeds", type=int, default=40)
    options = parser.parse_args()
    inputs, labels = load_digits(return_X_y=True)
    write_csv(options.csv, inputs, labels)
    print(f"{options.csv}: {len(labels)} rows, written")
    warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is meant
    there = Path(options.program).exists()
    print("seed  test rows  scikit-learn" + ("  shardgrad" if there else f"  (no {options.program}: scikit-learn alone)"))
    scores = {"scikit-learn": [], "shardgrad": []}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, options.seeds + 1):
            tested = numpy.array([is_test_row(seed, row, 0.2) for row in range(len(labels))])
            rows.append(int(tested.sum()))
            scores["scikit-learn"].append(theirs(inputs, labels, tested, seed))
            if there:
                scores["shardgrad"].append(ours(options.program, options.csv, seed, folder))
            print(f"{seed:4} {rows[-1]:10} " + "".join(f"{all_[-1]:{len(name) + 1}.4f} " for name, all_ in scores.items() if all_))
    means = {name: statistics.mean(all_) for name, all_ in scores.items() if all_}
    print("mean            " + "".join(f"{mean:{len(name) + 1}.4f} " for name, mean in means.items()))
    if there and means["shardgrad"] < means["scikit-learn"] - 1 / statistics.mean(rows):
        sys.exit("more than one row of the test below scikit-learn's mean")


if __name__ == "__main__":
    main()
