#!/usr/bin/env python3
"""Writes the handwritten digits as CSV, trains scikit-learn's MLP on the split of train/data/split.h, prints its scores.

    bench/sklearn_mlp.py [--csv build/digits.csv] [--seed 1] [--test-share 0.2] [--runs 5]

The pictures are the test part of UCI's Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, 1998; CC BY
4.0), as scikit-learn bundles it.
"""
import argparse
import csv
import statistics
import warnings

import numpy
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--csv", default="build/digits.csv")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--test-share", type=float, default=0.2)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    inputs, labels = load_digits(return_X_y=True)
    write_csv(options.csv, inputs, labels)
    tested = numpy.array([is_test_row(options.seed, row, options.test_share) for row in range(len(labels))])
    scaler = StandardScaler().fit(inputs[~tested])
    train, test = scaler.transform(inputs[~tested]), scaler.transform(inputs[tested])
    print(f"{options.csv}: {len(train)} training rows, {len(test)} test rows")
    warnings.simplefilter("ignore", ConvergenceWarning)  # the number of epochs is meant
    scores = []
    for run in range(options.runs):
        model = MLPClassifier(random_state=run, **MODEL).fit(train, labels[~tested])
        scores.append(model.score(test, labels[tested]))
    print(f"scikit-learn 64-128-10, Adam, batch {MODEL['batch_size']}, {MODEL['max_iter']} epochs: "
          f"median test accuracy {statistics.median(scores):.4f}")
    print("  every run:", " ".join(f"{score:.4f}" for score in scores))


if __name__ == "__main__":
    main()
