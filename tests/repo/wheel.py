#!/usr/bin/env python3
"""Builds a wheel as a user would, installs it in an empty environment, and runs the tests of the Python package there.

    wheel.py SOURCE_DIR

The libraries inside need none of this machine's but those that every Debian has; OpenMP's and oneDNN's are among them, where this
machine has them: without, products would be slower and of one thread, and all tests pass. What needs the build folder, the C++ twin,
and what needs MPI, is left out.
"""
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

# Of the C library and the compiler, and zlib: on every Debian, as auditwheel's policy says, too.
OF_EVERY_SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|libz|ld-linux-x86-64)\.so\.\d+$")


def call(command, **options):
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert run.returncode == 0, f"{command} ends with {run.returncode}:\n{run.stdout[-3000:]}{run.stderr[-3000:]}"
    return run.stdout


def needed(folder):
    """What the libraries in the wheel need from outside of it."""
    files = [path for path in Path(folder).rglob("*") if ".so" in path.name or path.parent.name == "bin"]
    inside = {path.name for path in files}
    found = set()
    for path in files:
        found |= set(re.findall(r"NEEDED.*\[(.*)\]", call(["readelf", "-d", path])))
    return {name for name in found - inside if not OF_EVERY_SYSTEM.match(name)}


def has_header(name):
    return subprocess.run(["c++", "-x", "c++", "-fsyntax-only", "-include", name, "/dev/null"], capture_output=True).returncode == 0


def main():
    root = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="wheel test ") as folder:
        call([root / "scripts/wheel", "--no-install", folder])
        (wheel,) = Path(folder).glob("*.whl")
        assert "manylinux" in wheel.name, wheel.name
        zipfile.ZipFile(wheel).extractall(Path(folder, "inside"))
        assert not (outside := needed(Path(folder, "inside"))), f"{wheel.name} needs from outside: {sorted(outside)}"
        files = [path.name for path in Path(folder, "inside").rglob("*.so*")]
        for library, header in ("libgomp", "omp.h"), ("libdnnl", "oneapi/dnnl/dnnl.hpp"):  # auditwheel puts a hash behind: libgomp-24e2ab19.so.1.0.0
            assert not has_header(header) or any(re.match(rf"{library}[-.]", name) for name in files), f"{wheel.name} is without {library}: {files}"
        call(["python3", "-m", "venv", Path(folder, "venv")])
        python = Path(folder, "venv/bin/python")
        call([python, "-m", "pip", "install", "--quiet", "--no-index", wheel])
        assert "from nothing but Python" in call([python, "-c", "import shardgrad as sg; print('from nothing but Python', sg.ones(3).sum())"])
        call([python, "-m", "pip", "install", "--quiet", "pytest", "numpy"])
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "SHARDGRAD_PROGRAM": str(Path(folder, "venv/bin/shardgrad"))}
        tests = [path for path in sorted((root / "tests/python").glob("*_test.py")) if path.stem not in ("twin_test", "types_test")]
        said = call([python, "-m", "pytest", "-q", "-rs", "--no-header", "-p", "no:cacheprovider", "-k", "not mpirun", *tests], cwd=folder, env=environment)
        print("\n".join([*re.findall("^SKIPPED .*", said, re.M), said.splitlines()[-1]]))


if __name__ == "__main__":
    main()
