#!/usr/bin/env python3
"""Writes the ctest entries of one test program, each with what it needs and proves as labels.

    list_suites.py PROGRAM FOLDER OUTPUT

A suite's fast tests are one entry, FOLDER.SUITE, run by one process: a process for each of three thousand tests took longer
to start than most of them run. Tests on devices sim and cuda stand apart, as FOLDER.SUITE.sim and .gpu, and each slow test is
an entry of its own. Labels:
  fast, slow  slow: those whose suite's name ends in Slow
  project     those of the fast that say the same on every machine, with a pretended CUDA or NCCL, of the simulator itself, or long (PROJECT)
  mpi         jobs under mpirun
  sim         device sim: all tests of its folder, and those whose parameter is this device
  gpu         device cuda, likewise: there are such where a GPU was seen when the tests were built
  I17, B03 …  the rows of docs/invariants.md that a test proves
"""
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

PROJECT = {"OpRegistrySizes"}  # suites
LONGEST = 100_000  # characters of a filter that names its tests; the system takes 131,071


def tests_of(program):
    """[(suite, test, what its parameter is)], as --gtest_list_tests prints them."""
    listed = subprocess.run([program, "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
    if listed.returncode != 0:
        sys.exit(f"{program} --gtest_list_tests ended with {listed.returncode}: {listed.stderr.strip()}")
    found, suite = [], None
    for line in listed.stdout.splitlines():
        name, _, value = line.partition("#")
        if line.startswith("  "):
            found.append((suite, name.strip(), value.partition("=")[2].strip()))
        elif re.fullmatch(r"\S+\.\s*", name):
            suite = name.strip().rstrip(".")
    return found


def device_of(test, value):
    """What a test needs because of its parameter: sim, gpu, or nothing."""
    found = re.search(r"[/_](sim|cuda)(_|\W|$)", f"{test}/{value}")
    return {"sim": "sim", "cuda": "gpu"}[found[1]] if found else ""


def labels_of(folder, suite, tests, device, is_slow):
    labels = ["slow" if is_slow else "project" if folder == "sim" or folder.startswith("fake_") or suite in PROJECT else "fast"]
    if folder == "dist" and re.match(r"(.*/)?(Mpi|BareMpirun|JobOnSeveralMachines)", suite):
        labels.append("mpi")
    if folder == "sim":
        device = "sim"
    ids = {id for test in tests for id in re.match(r"(?:[IB]\d\d_)*", test).group().split("_") if id}
    return labels + [device] * bool(device) + sorted(ids)


def entries_of(folder, tests):
    """[(name, gtest's filter, labels, how many tests)]"""
    groups = {}
    for suite, test, value in tests:
        is_slow, device = bool(re.search(r"Slow[./]", f"{suite}.{test}")), device_of(test, value)
        name = f"{folder}.{suite}" + (f".{test}" if is_slow else f".{device}" if device else "")
        groups.setdefault((name, suite, device, is_slow), []).append(test)
    count = Counter(suite for suite, _, _ in tests)
    for (name, suite, device, is_slow), members in groups.items():
        whole = len(members) == count[suite]
        chosen = f"{suite}.*" if whole else ":".join(f"{suite}.{test}" for test in members)
        if len(chosen) > LONGEST:
            sys.exit(f"{name} has too many tests for one command")
        yield name, chosen, labels_of(folder, suite, members, device, is_slow), len(members)


def main():
    program, folder, output = sys.argv[1:]
    lines = []
    for name, chosen, labels, number in entries_of(folder, tests_of(program)):
        # What takes long begins first: many tests, and those on all devices.
        cost = number * (10 if re.search(r"On(Every)?Device", chosen) else 1)
        timeout = 1200 if "slow" in labels else 600
        # An entry of several tests that skips one has not been skipped; scripts/test reads the log for such.
        skip = ' SKIP_REGULAR_EXPRESSION "  SKIPPED "' if "slow" in labels else ""
        lines.append(f'add_test([==[{name}]==] [==[{program}]==] "--gtest_filter={chosen}")\n'
                     f'set_tests_properties([==[{name}]==] PROPERTIES LABELS "{";".join(labels)}" TIMEOUT {timeout}{skip} COST {cost})\n')
    Path(output).write_text("".join(lines))


main()
