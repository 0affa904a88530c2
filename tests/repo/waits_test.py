#!/usr/bin/env python3
"""The check of the list of waits must be able to fail: a line that is gone, a function that is gone, a row that is missing, a
wait that only rung 11 knows."""
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

loader = SourceFileLoader("delete_waits", str(Path(__file__).resolve().parents[2] / "scripts/delete-waits"))
waits = module_from_spec(spec_from_loader(loader.name, loader))
loader.exec_module(waits)

file, why, function, line, instead = waits.WAITS[0]
for planted, expected in [((file, why, function, "gone();", ""), f"{file}: {function} holds no 'gone();'"),
                          ((file, why, "Gone::gone", line, ""), f"{file}: Gone::gone holds no '{line}'"),
                          ((file, why, function, "void", ""), "docs/waits.md has no row")]:
    rest = waits.WAITS[1:]
    waits.WAITS = [planted, *rest]
    found = list(waits.faults())
    if not any(expected in fault for fault in found) or not any("the list of scripts/delete-waits has no" in f for f in found):
        sys.exit(f"missed: {expected}: {found}")
    waits.WAITS = [(file, why, function, line, instead), *rest]
whole, waits.WAITS = waits.WAITS, [wait for wait in waits.WAITS if "gather_.wait" not in wait[3]]
if not any(waits.LAB in fault for fault in waits.faults()):
    sys.exit(f"missed: {waits.LAB} has a wait that is not in the list")
waits.WAITS = whole
if found := list(waits.faults()):
    sys.exit(f"the list as it is was refused: {found}")
