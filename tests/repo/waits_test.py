#!/usr/bin/env python3
"""The check of the list of waits must be able to fail: a line that is gone, a function that is gone, a row that is missing, a
wait that only rung 11 knows, one that only the sources have, an exception for none."""
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
left_out = ("WholeRounds::exchange", whole[-1][3])
waits.WAITS, waits.NOT_TRIED = [wait for wait in whole if wait[2:4] != left_out], {**waits.NOT_TRIED, ("Gone::gone", "wait();"): ""}
for expected in "WholeRounds::exchange waits in '", "NOT_TRIED has 'wait();' of Gone::gone, which is in no source":
    if not any(expected in fault for fault in waits.unknown_waits()):
        sys.exit(f"missed: {expected}")
waits.WAITS = whole
del waits.NOT_TRIED["Gone::gone", "wait();"]
source = """
static void early(Event& e) { e.wait(); }
struct Part {
  void late() {
    go();  // e.wait()
    options.after = ready;
  }
};
void Unit::wait() {
  group.all_reduce(sum, {{"", call}}).host_wait();
}
"""
if (found := list(waits.waits_in(source))) != [("early", "e.wait(); }"), ("Part", "options.after = ready;")]:
    sys.exit(f"the waits of a source are read wrongly: {found}")
if found := list(waits.faults()):
    sys.exit(f"the list as it is was refused: {found}")
