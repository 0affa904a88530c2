#!/usr/bin/env python3
"""The check of broken lines must be able to fail: each planted one is found, with file and line."""
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).with_name("broken_lines.py")
LONG = "words that fill a line, " * 4 + "and then"
PLANTED = {
    "nn/a.h": ("  // --- state\n  // " + "-" * 60 + "\n", "nn/a.h:2: dashes alone"),
    "parallel/b.h": (f"//     rank 0 {LONG}\n//     likewise\n", "parallel/b.h:2: a word left over"),
    "dist/e.h": (f"//   RANK   {LONG}\n//   what else\n//          has it\n", "dist/e.h:2: words left over"),
    "train/c.h": ('f("one "\n  "for "\n  "all");\n', "train/c.h:2: a word left over"),
    "autograd/d.h": ("template <class F>\nrequires std::is_invocable_v < std::decay_t<F>\n", "autograd/d.h:2: a template's"),
}
CLEAN = f"// --- state {'-' * 80}\n//   - {LONG}\n//     word\n//     rank 0\n//     likewise\n// {LONG}\n// two words\n" + 'f("one",\n  "for");\n'


def run(root):
    return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)


with tempfile.TemporaryDirectory(prefix="broken lines ") as folder:
    root = Path(folder)
    for name, (text, _) in PLANTED.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    result = run(root)
    missed = [expected for _, expected in PLANTED.values() if expected not in result.stdout]
    if result.returncode != 1 or missed or len(result.stdout.splitlines()) != len(PLANTED):
        sys.exit(f"missed: {missed}\n{result.stdout}{result.stderr}")
    for name in PLANTED:
        (root / name).write_text(CLEAN)
    if run(root).returncode != 0:
        sys.exit(f"a clean tree was refused: {run(root).stdout}")
