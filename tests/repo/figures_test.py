#!/usr/bin/env python3
"""The check of sizes must be able to fail: a room, a file or a function over its budget, a budget that docs/decisions.md says
otherwise."""
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

sys.dont_write_bytecode = True
loader = SourceFileLoader("figures", str(Path(__file__).resolve().parents[2] / "scripts/figures"))
figures = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(figures)

figures.ROOMS = ["parallel", "tests"]
room = sum(map(figures.code_lines, figures.sources("parallel")))
file = max(path.read_text().count("\n") for path in figures.sources("parallel"))
function = max(length for path in figures.sources("parallel") for length, _ in figures.functions(path))


def faults(room, file, function):
    budgets = {"rooms": {"parallel": room}, "file": file, "function": function, "longer files": {}, "longer functions": {}}
    return list(figures.over_budget({}, budgets))


for found, expected in [(faults(room, file, function), []), (faults(room - 1, file, function), ["parallel/ has "]),
                        (faults(room, file - 1, function), [f"has {file} lines"]),
                        (faults(room, file, function - 1), [f"has {function} lines"])]:
    if bool(found) != bool(expected) or any(not any(part in fault for fault in found) for part in expected):
        sys.exit(f"expected {expected}, found {found}")
said = "`fsdp/` and `fsdp/step/` may have 1,500 lines\n  of code, and `core/` may have\n  900 lines of code."
for rooms, expected in [({"fsdp/step": 1500, "core": 900}, 0), ({"fsdp/step": 1505, "core": 900}, 1), ({"fsdp/step": 1500}, 1)]:
    if len(found := list(figures.said_otherwise(said, {"rooms": rooms}))) != expected:
        sys.exit(f"with budgets {rooms}: {found}")
