#!/usr/bin/env python3
"""Checks README.md and docs/*.md against the program they describe.

    docs.py SOURCE_DIR BUILD_DIR CXX

- every ```cpp block compiles and runs; a ```text block right after it stands in its output. A block without main() is
  the body of one, with a context. One whose first line is `// NAME train …` runs with these words; one that stands in the
  example outside the tree is run by the tests of that;
- a block with a name behind its kind, as ```json NAME, is a file that those after it may use;
- a ```sh or ```bash block runs, training for one epoch of a tenth of the data, or says, in it or in the paragraph right after it, that it is "not
  run by the tests" or "not yet run", or that it is "run by the test NAME" of ctest;
- a ```python block runs; where no Python has its modules the test is skipped, after all else; a ```cuda or ```cmake block stands in the example outside the tree;
- relative links lead somewhere; the tables of environment variables name those that the sources read, and those that
  scripts, benches and tests read besides, no more, no less;
- the table of configuration keys is that of `shardgrad train --keys`;
- what docs/from-pytorch.md names is declared somewhere, and its lines are those of tests/autograd/pytorch_lines_test.cpp.
"""
import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from needs import python_with, skip

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)
NAMED = re.compile(r"^```\w+ (\S+)\n(.*?)^```$", re.M | re.S)
WORDS = re.compile(r"// \S+ (train .*)\n")
# What the first and the second table of docs/environment.md are about.
PROGRAM_FOLDERS = ["core", "kernels", "dist", "autograd", "nn", "optim", "parallel", "fsdp", "certify", "picture", "train", "python"]
HELPER_FOLDERS = ["scripts", "bench", "tests", "tutorials"]
# Commands that a block may have to be run here, and the words of one that is not.
RUNNABLE = re.compile(r"export |(\w+=\S+ )*(mpirun .* )?build/bin/shardgrad ")
MARK = re.compile(r"not yet run|[Nn]ot run by the tests|[Rr]un by the test `?(?P<test>[\w.]+\w)")
# As root, and with more ranks than cores; for Open MPI 4 and 5.
MPIRUN_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
              "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def blocks(text):
    """(kind, body, body of the text block right after it or None, paragraph right after it)."""
    found = list(FENCE.finditer(text))
    for match, after in zip(found, found[1:] + [None]):
        follows = after and after.group(1) == "text" and not text[match.end():after.start()].strip()
        paragraph = text[match.end():].strip("\n").split("\n\n")[0]
        yield match.group(1), match.group(2), after.group(2) if follows else None, " ".join(paragraph.split())


def compile_blocks(bodies, build, cxx, work):
    """The program of all blocks without main(), compiled once, which runs the one whose number it is given; or the error."""
    parts = "".join(f"static void block_{i}() {{\nsg::Context context;\n#line 1 \"block\"\n{body}\n}}\n" for i, body in bodies.items())
    calls = "".join(f"if (number == {i}) block_{i}();\n" for i in bodies)
    return compile_program(f"#include <cstdio>\n#include <cstdlib>\n#include <iostream>\n#include <shardgrad/shardgrad.h>\n{parts}int main(int, char** words) {{\n"
                           f"int number = std::atoi(words[1]);\n{calls}}}\n", "blocks", build, cxx, work)


def compile_program(text, name, build, cxx, work):
    """(the program, nothing) or (nothing, what the compiler said)."""
    (work / f"{name}.cpp").write_text(text)
    lib = build / "lib"
    compiled = subprocess.run([cxx, "-std=c++20", f"-I{build / 'include'}", work / f"{name}.cpp", "-o", work / name, f"-L{lib}",
                               "-lshardgrad", f"-Wl,-rpath,{lib}"], capture_output=True, text=True)
    return (None, compiled.stderr[:3000]) if compiled.returncode else (work / name, None)


class Programs:
    """Runs ```cpp blocks. Those without main() are compiled together, and one by one where that fails: to tell which it is."""

    def __init__(self, files, build, cxx, work):
        self.tools = build, cxx, work
        bodies = [body for file in files for kind, body, *_ in blocks(file.read_text()) if kind == "cpp" and "int main(" not in body]
        self.numbers = {body: i for i, body in enumerate(bodies)}
        self.together, _ = compile_blocks({i: body for body, i in self.numbers.items()}, *self.tools)

    def fault(self, body, expected):
        """What is wrong with the block, or None."""
        number = self.numbers.get(body)
        if number is None:
            program, said = compile_program(body, "whole", *self.tools)
        elif self.together:
            program = self.together
        else:
            program, said = compile_blocks({number: body}, *self.tools)
        if not program:
            return "does not compile:\n" + said
        words = WORDS.match(body)
        words = words[1].split() if words else [] if number is None else [str(number)]
        run = subprocess.run([program, *words], cwd=self.tools[2], capture_output=True, text=True)
        if run.returncode:
            return f"ends with {run.returncode}:\n{run.stderr}"
        if expected and expected.strip() not in run.stdout:
            return f"prints\n{run.stdout}instead of\n{expected}"
        return None


def quick_configs(root, folder):
    """The configurations, for one epoch of the first tenth of the data."""
    for path in sorted((root / "configs").glob("*.json")):
        config = json.loads(path.read_text())
        if "dir" not in config["data"]:  # the documentation trains on no text that would have to be made first
            continue
        whole, part = Path(config["data"]["dir"]), folder / "data"
        part.mkdir(parents=True, exist_ok=True)
        for file in whole.glob("*.gz"):
            content = gzip.decompress(file.read_bytes())
            head = 4 + 4 * content[3]  # a magic number that ends with the number of extents, and the extents
            count = int.from_bytes(content[4:8], "big")
            body = content[head:head + (len(content) - head) // count * (count // 10)]
            (part / file.name).write_bytes(gzip.compress(content[:4] + (count // 10).to_bytes(4, "big") + content[8:head] + body, 1))
        config |= {"epochs": 1, "schedule": config["schedule"] | {"warmup_steps": 10}}
        config["data"]["dir"] = str(part)
        (folder / path.name).write_text(json.dumps(config))


def run_shell(body, work):
    """The block as typed in the root of the tree, with the quick configurations."""
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        body = body.replace("29511", str(unused.getsockname()[1]))
    script = f"set -ex\n{body}\nfor job in $(jobs -p); do wait $job; done"
    environment = os.environ | (MPIRUN_MAY if "mpirun" in body else {})
    run = subprocess.run(["bash", "-c", script], cwd=work, capture_output=True, text=True, timeout=250, env=environment)
    return f"ends with {run.returncode}:\n{run.stdout[-1500:]}{run.stderr[-1500:]}" if run.returncode else None


def run_python(body, work, left_out):
    """On the model that the README's first line trains. What a comment behind `print` says is printed. `left_out` gets the modules of one that
    no Python here can run."""
    modules = re.findall(r"^(?:from|import) ([^#\n]*?)(?: as .*| import .*)?$", body, re.M)
    python = python_with(modules)
    if not python:
        return left_out.append(", ".join(modules))
    body = re.sub(r"step-\d+", (work / "runs/fashion_mnist/latest").read_text().strip(), body)
    run = subprocess.run([python, "-c", body], cwd=work, capture_output=True, text=True)
    told = all(said in run.stdout for said in re.findall(r"^print.*# (.*)", body, re.M))
    return None if run.returncode == 0 and told else f"ends with {run.returncode}:\n{run.stdout}{run.stderr}"


def check_shell(body, after, work, tests):
    """`after` is the paragraph that follows the block."""
    mark = MARK.search(body) or MARK.search(after)
    if mark:
        test = mark["test"]
        return f"is run by {test}, which ctest does not have" if test and tests and test not in tests else None
    commands = [line for line in body.splitlines() if line.strip() and not line.startswith("#")]
    if any("mpirun" in line for line in commands) and not tests:
        return None  # a build without MPI
    strange = [line for line in commands if not RUNNABLE.match(line)]
    return f"is not run by the tests and does not say so: {strange[0]}" if strange else run_shell(body, work)


def check_quote(body, root):
    """Each piece, between blank lines, stands in a file of the example outside the tree; all in one, in this order."""
    def plain(text):
        return "\n".join(line.strip() for line in text.strip().splitlines())
    pieces = [plain(piece) for piece in re.split(r"\n(?:\s*(?:// …)?\n)+", body)]
    for path in filter(Path.is_file, (root / "tests/repo/outside_project").rglob("*")):
        text, place = plain(path.read_text()), 0
        for piece in pieces:
            place = text.find(piece, place) if place >= 0 else place
        if place >= 0:
            return None
    return "is not what stands in a file of tests/repo/outside_project"


def check_blocks(file, root, programs, work, tests, left_out):
    text = file.read_text()
    for name, body in NAMED.findall(text):
        (work / name).write_text(body)
    for kind, body, expected, after in blocks(text):
        if kind == "cpp" and "int main(" in body and not check_quote(body, root):
            fault = None
        elif kind == "cpp" and "#include <shardgrad/" not in body:
            fault = "does not say what it includes"
        elif kind == "cpp":
            fault = programs.fault(body, expected)
        elif kind in ("sh", "bash"):
            fault = check_shell(body, after, work, tests)
        elif kind == "python":
            fault = run_python(body, work, left_out)
        elif kind in ("cuda", "cmake"):
            fault = check_quote(body, root)
        else:
            fault = None if kind in ("text", "mermaid", "json") else "has no kind that says how to test it"
        if fault:
            yield f"this block {fault}\n{body}"
    for line in re.findall(r"^ {4}(?:build/bin|shardgrad |scripts/|mpirun ).*", FENCE.sub("", text), re.M):
        yield f"these commands are not in a block that could be tested:\n{line}"


def check_links(file):
    for target in re.findall(r"(?<!\[)\]\(([^)#\s]+)", FENCE.sub("", file.read_text())):  # not a lambda's [](auto x)
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


def check_names(root):
    """What docs/from-pytorch.md calls nn::…, fsdp::… stands in a header of that namespace."""
    headers = {space: " ".join(path.read_text() for path in (root / folder).rglob("*.h"))
               for space, folder in [*((name, name) for name in ("nn", "optim", "fsdp", "dist", "train")), ("data", "train/data")]}
    for space, name in sorted(set(re.findall(r"\b(nn|optim|fsdp|dist|train|data)::(\w+)", (root / "docs/from-pytorch.md").read_text()))):
        if not re.search(rf"\b{name}\b", headers[space]):
            yield f"{space}::{name} stands in no header of that namespace"


def check_lines(root):
    """Each LINE of the test is a row of the table, both sides of it."""
    line = re.compile(r'^  LINE\(("(?:[^"\\]|\\.)*"),\s(.*?),\s+"(?:[^"\\]|\\.)*"\);$', re.M | re.S)
    text = (root / "docs/from-pytorch.md").read_text().replace("\\|", "|")
    lines = line.findall((root / "tests/autograd/pytorch_lines_test.cpp").read_text())
    if len(lines) < 60:
        yield f"only {len(lines)} lines are tested"
    for pytorch, ours in lines:
        ours = " ".join(ours.split())
        rows = [f"| `{json.loads(pytorch)}` | `{each}` |" for each in (ours, ours[1:-1])]  # the macro needs it in brackets
        if not any(row in text for row in rows):
            yield f"the table lacks the row {rows[0]}"


def tests_of(build, work):
    """Names of the tests of the repository; none in a build without MPI, which has not all of them."""
    version = subprocess.run([build / "bin/shardgrad", "--version"], capture_output=True, text=True).stdout
    (work / "CTestTestfile.cmake").write_text(f'subdirs("{build}")\n')  # ctest writes its log there, not over the build's
    listed = subprocess.run(["ctest", "--test-dir", work, "-N", "-R", "^repo"], capture_output=True, text=True).stdout
    return set() if re.search(r"MPI +none", version) else set(re.findall(r"Test +#\d+: (\S+)", listed))


def main():
    root, build, cxx = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
    found, left_out = [], []
    with tempfile.TemporaryDirectory(prefix="docs test ") as folder:
        work = Path(folder)
        tests = tests_of(build, work)
        (work / "build").symlink_to(build)
        quick_configs(root, work / "configs")
        files = [root / "README.md", *sorted((root / "docs").glob("*.md")), *sorted(root.glob("tutorials/*.md"))]
        programs = Programs(files, build, cxx, work)
        for file in files:
            faults = [*check_links(file), *check_blocks(file, root, programs, work, tests, left_out)]
            found += [f"{file.relative_to(root)}: {fault}" for fault in faults]
    found += [f"docs/environment.md: {fault}" for fault in check_environment(root)]
    found += [f"docs/config.md: {fault}" for fault in check_keys(root, build)]
    found += [f"docs/from-pytorch.md: {fault}" for check in (check_names, check_lines) for fault in check(root)]
    if left_out and not found:
        skip("Python in README and docs", f"all else is so, but {len(left_out)} blocks need what no Python here has: {'; '.join(sorted(set(left_out)))}")
    print("\n\n".join(found) or "README and docs say what is so")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
