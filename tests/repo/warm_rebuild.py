#!/usr/bin/env python3
"""Who changes one source of fsdp/ waits less than a minute until its tests run.

    warm_rebuild.py SOURCE_FOLDER BUILD_FOLDER

The largest source of fsdp/step/ is touched and test_fsdp built again, by the compiler and no cache of it. On one core, where
nothing was promised, it is skipped. Nothing else may run meanwhile: the library is linked anew.
"""
import os
import subprocess
import sys
import time
from pathlib import Path

from needs import skip

MOST = 60  # seconds
TEST = "Replicas.TheSameValuesOnEveryRankAreNotRefused"


def must(words):
    run = subprocess.run([str(word) for word in words], env={**os.environ, "CCACHE_DISABLE": "1"}, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{run.stdout[-4000:]}{run.stderr[-4000:]}")
    return run.stdout


def main(source, build):
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        skip("a warm rebuild", "there is one core; what is promised is of two")
    rebuild = ["cmake", "--build", build, "--parallel", cores, "--target", "test_fsdp"]
    must(rebuild)  # what was not built yet is not counted
    library = build / "lib/libshardgrad.so"
    before, touched = library.stat().st_mtime_ns, max((source / "fsdp/step").glob("*.cpp"), key=lambda path: path.stat().st_size)
    times, began = touched.stat(), time.monotonic()
    os.utime(touched)
    try:
        must(rebuild)
    finally:
        os.utime(touched, ns=(times.st_atime_ns, times.st_mtime_ns))
    built = time.monotonic() - began
    said = must([build / "bin/test_fsdp", f"--gtest_filter={TEST}"])
    took = time.monotonic() - began
    print(f"{touched.relative_to(source)} touched: test_fsdp built after {built:.1f} s, its test over after {took:.1f} s, on {cores} cores")
    if "[  PASSED  ] 1 test." not in said or library.stat().st_mtime_ns == before:
        sys.exit(f"nothing was built, or {TEST} did not run:\n{said[-2000:]}")
    return int(took > MOST)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
