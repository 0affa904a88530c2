#!/usr/bin/env python3
"""GPUs older than the kernels can use: AUTO builds for the CPU and says why in one line, ON and CHECK refuse in one sentence.
A toolkit that is too old: AUTO and CHECK say so and go on, ON refuses. NCCL is found as a package, as PyTorch's wheel has it and in
the wheel itself, and an old one is not used.

    cuda_architectures_test.py SOURCE_DIR

cmake/find_cuda.cmake is run by itself, with a pretended nvcc and nvidia-smi; what is new enough goes on to the search for
the real compiler, which a script cannot do, and fails there.
"""
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = "shardgrad: CUDA FALSE: GPUs of compute capability 8.0 or newer are needed, not "


def configure(folder, mode, capabilities, architectures, toolkit="13.0"):
    for name, text in (("nvcc", f"echo release {toolkit}"), ("nvidia-smi", f"printf '{capabilities}'")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    chosen = [f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"] if architectures else []
    done = subprocess.run(["cmake", f"-DSHARDGRAD_CUDA={mode}", "-Dgpus=/dev/nvidia0", f"-DNVCC={folder}/nvcc",
                           f"-DNVIDIA_SMI={folder}/nvidia-smi", *chosen, "-P", Path(sys.argv[1]) / "cmake/find_cuda.cmake"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, " ".join(done.stdout.split())


def find_nccl(folder, mode, version, library, where):
    """cmake/find_nccl.cmake where a pretended NCCL lies in a folder, which these variables lead to: (exit code, what it said)."""
    for name in ("include", "lib"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    if version:
        text = "".join(f"#define NCCL_{part} {number}\n" for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")))
        (folder / "include/nccl.h").write_text(text)
        (folder / "lib" / library).write_text("")
    script = folder / "find.cmake"
    script.write_text(f'include("{Path(sys.argv[1]) / "cmake/find_nccl.cmake"}")\nmessage(STATUS "found ${{found_nccl}} ${{NCCL_LIBRARY}}")\n')
    done = subprocess.run([shutil.which("cmake"), f"-DSHARDGRAD_NCCL={mode}", "-DCMAKE_FIND_LIBRARY_PREFIXES=lib",
                           "-DCMAKE_FIND_LIBRARY_SUFFIXES=.so", "-P", script], env={**os.environ, **where}, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, " ".join(done.stdout.split())


def in_a_wheel(folder):
    """That of the Python on PATH, on a machine with no other."""
    wheel, path = folder / "site/nvidia/nccl", folder / "bin"
    path.mkdir(parents=True)
    (path / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (path / "python3").chmod(0o755)
    where = {"NCCL_ROOT": "", "PATH": str(path), "PYTHONPATH": str(folder / "site")}
    code, text = find_nccl(wheel, "ON", "2.28.9", "libnccl.so.2", where)
    assert code == 0 and text.endswith(f"shardgrad: NCCL 2.28.9 -- found TRUE {wheel}/lib/libnccl.so.2"), text
    (wheel / "lib/libnccl.so.2").unlink()
    code, text = find_nccl(wheel, "AUTO", "", "", where)
    assert code == 0 and "NCCL FALSE (no nccl.h or no libnccl)" in text, text


def nccl(folder):
    for number, library in enumerate(("libnccl.so", "libnccl.so.2")):
        place = folder / f"new{number}"
        code, text = find_nccl(place, "ON", "2.28.9", library, {"NCCL_ROOT": str(place)})
        assert code == 0 and text.endswith(f"shardgrad: NCCL 2.28.9 -- found TRUE {place}/lib/{library}"), text
    where = {"NCCL_ROOT": str(folder / "old")}
    old = "'2.25.1', and 2.26 or newer is needed"
    code, text = find_nccl(folder / "old", "AUTO", "2.25.1", "libnccl.so", where)
    assert code == 0 and f"NCCL FALSE (that of {folder}/old/include is {old}): GPUs send by way of host memory" in text, text
    code, text = find_nccl(folder / "old", "ON", "2.25.1", "libnccl.so", where)
    assert code != 0 and old in text and "-DSHARDGRAD_NCCL=OFF" in text, text


def main():
    with tempfile.TemporaryDirectory() as folder:
        for mode, capabilities, architectures, old in (
                ("AUTO", r"7.5\n", "", "7.5"), ("AUTO", r"9.0\n6.1\n", "", "6.1"), ("AUTO", "", "70-real;90", "70-real"),
                ("ON", r"7.5\n", "", "7.5"), ("ON", r"9.0\n", "75", "75"), ("CHECK", r"9.0\n", "90;75-virtual", "75-virtual"),
                ("ON", "", "all-major", "all-major"),
                ("ON", r"8.0\n9.0\n12.0\n", "", ""), ("AUTO", r"8.6\n", "", ""), ("CHECK", "", "80-real;90;100a", "")):
            code, text = configure(Path(folder), mode, capabilities, architectures)
            case = f"{mode} with GPUs '{capabilities}', architectures '{architectures}': {code}: {text}"
            if not old:
                assert "needed, not" not in text and "enable_language" in text, case
            elif mode == "AUTO":
                assert (code, text) == (0, f"-- {WORDS}{old}"), case
            else:
                assert code != 0 and text.split(" Call Stack")[0].endswith(WORDS + old), case
        for mode, toolkit, good in (("AUTO", "11.8", False), ("CHECK", "11.8", False), ("ON", "11.8", False), ("ON", "", False),
                                    ("ON", "12.0", True)):
            code, text = configure(Path(folder), mode, r"9.0\n", "", toolkit)
            says = f"is of toolkit '{toolkit}', but 12.0 or newer is needed; put a newer one first on PATH, or configure with" in text
            assert says != good and (good or (code == 0) == (mode != "ON")), f"{mode}, toolkit {toolkit}: {code}: {text}"
    with tempfile.TemporaryDirectory() as folder:
        nccl(Path(folder))
        in_a_wheel(Path(folder) / "of python")
    print("Toolkits and GPUs that are too old are told apart in AUTO, ON and CHECK")


if __name__ == "__main__":
    main()
