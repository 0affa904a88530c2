#!/usr/bin/env python3
"""Checks README.md and docs/*.md against the program they describe.

    docs.py SOURCE_DIR BUILD_DIR CXX

- every ```cpp block compiles and runs; a ```text block right after it stands in its output. A block without main() is
  the body of one, with a context;
- every line of a ```sh block that starts with build/bin/shardgrad runs and exits 0; training runs for one epoch;
- relative links lead somewhere; the tables of environment variables name those that the sources read, and those that
  scripts, benches and tests read besides, no more, no less;
- the table of configuration keys is that of `shardgrad train --keys`.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
HEADERS = ["autograd/ops.h", "core/context.h", "dist/virtual_ranks.h", "fsdp/clip.h", "fsdp/fully_shard.h", "nn/nn.h", "optim/adam.h",
           "optim/sgd.h", "train/data/data_loader.h"]
# What the first and the second table of docs/environment.md are about.
PROGRAM_FOLDERS = ["core", "kernels", "dist", "autograd", "nn", "optim", "fsdp", "train"]
HELPER_FOLDERS = ["scripts", "bench", "tests", "tutorials"]


def blocks(text):
    """(kind, body, body of the text block right after it or None)."""
    found = list(FENCE.finditer(text))
    for match, after in zip(found, found[1:] + [None]):
        follows = after and after.group(1) == "text" and not text[match.end():after.start()].strip()
        yield match.group(1), match.group(2), after.group(2) if follows else None


def program_of(body):
    if "int main(" in body:
        return body
    includes = "".join(f"#include <shardgrad/{header}>\n" for header in HEADERS)
    return f"#include <cstdio>\n#include <iostream>\n{includes}int main() {{\nsg::Context context;\n{body}\n}}\n"


def run_cpp(body, expected, build, cxx, work):
    source = work / "block.cpp"
    source.write_text(program_of(body))
    lib = build / "lib"
    compiled = subprocess.run([cxx, "-std=c++20", f"-I{build / 'include'}", source, "-o", work / "block", f"-L{lib}",
                               "-lshardgrad", f"-Wl,-rpath,{lib}"], capture_output=True, text=True)
    if compiled.returncode:
        return "does not compile:\n" + compiled.stderr[:3000]
    run = subprocess.run([work / "block"], capture_output=True, text=True)
    if run.returncode:
        return f"ends with {run.returncode}:\n{run.stderr}"
    if expected and expected.strip() not in run.stdout:
        return f"prints\n{run.stdout}instead of\n{expected}"
    return None


def run_sh(line, build, work):
    words = shlex.split(line, comments=True)
    words[0] = str(build / "bin/shardgrad")
    if "train" in words and "--keys" not in words:
        words += ["--set", "epochs=1", "--set", f"runs={work}"]
    run = subprocess.run(words, capture_output=True, text=True, timeout=250)
    return f"ends with {run.returncode}:\n{run.stdout[-1500:]}{run.stderr[-1500:]}" if run.returncode else None


def check_blocks(file, build, cxx, work):
    for kind, body, expected in blocks(file.read_text()):
        if kind == "cpp":
            fault = run_cpp(body, expected, build, cxx, work)
            if fault:
                yield f"this block {fault}\n{body}"
        for line in body.splitlines() if kind == "sh" else []:
            if line.startswith("build/bin/shardgrad "):
                fault = run_sh(line, build, work)
                if fault:
                    yield f"`{line}` {fault}"


def check_links(file):
    for target in re.findall(r"\]\(([^)#\s]+)", FENCE.sub("", file.read_text())):
        if "://" not in target and not (file.parent / target).exists():
            yield f"link to {target}: no such file"


def variables_in(root, folders):
    """Environment variables that files in these folders name, in a string of C++ or Python or behind a shell's $."""
    found = set()
    for path in (path for folder in folders for path in (root / folder).rglob("*")):
        if path.is_file() and path.suffix in (".h", ".cpp", ".cu", ".py", ".sh", ".sbatch", ""):
            found |= set(re.findall(r'(?:"(?=\w+")|\$\{?)(SHARDGRAD_[A-Z0-9_]+)', path.read_text()))
    return found


def check_environment(root):
    tables = re.findall(r"(?:^\|.*\n)+", (root / "docs/environment.md").read_text(), re.M)
    program, helpers = (set(re.findall(r"^\| `(SHARDGRAD_[A-Z0-9_]+)`", table, re.M)) for table in tables[:2])
    read = variables_in(root, PROGRAM_FOLDERS)
    for table, told, used in ("first", program, read), ("second", helpers, variables_in(root, HELPER_FOLDERS) - read):
        for name in sorted(told ^ used):
            yield f"{name} is {'read but not in' if name in used else 'never read but in'} the {table} table"


def check_keys(root, build):
    keys = subprocess.run([build / "bin/shardgrad", "train", "--keys"], capture_output=True, text=True).stdout
    if not keys or keys.strip() not in (root / "docs/config.md").read_text():
        yield f"the table of keys is not that of `shardgrad train --keys`:\n{keys}"


def main():
    root, build, cxx = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    os.chdir(root)
    found = []
    with tempfile.TemporaryDirectory(prefix="docs test ") as folder:
        for file in [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted(root.glob("tutorials/*.md"))]:
            faults = [*check_links(file), *check_blocks(file, build, cxx, Path(folder))]
            found += [f"{file.relative_to(root)}: {fault}" for fault in faults]
    found += [f"docs/environment.md: {fault}" for fault in check_environment(root)]
    found += [f"docs/config.md: {fault}" for fault in check_keys(root, build)]
    print("\n\n".join(found) or "README and docs say what is so")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
