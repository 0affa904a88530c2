"""What scripts/gpu_check.py has found: one JSON file, written after every result, and one table."""
import json
import time
from pathlib import Path

from gpu_tree import tree_hash

OURS, MODES = "shardgrad", ("eager", "graph", "compile")  # PyTorch's, in bench/gpu_torch.py
PASSED, NOT_RUN, CUT_OFF = "passed", "not run for want of time", "cut off for want of time"
ABSENT, REFUSED_HERE, NO_TORCH = "not installed", "not possible on this machine", "PyTorch could not"
NO_FAULT_OF_OURS = {PASSED, ABSENT, REFUSED_HERE, NO_TORCH}


class Report:
    """The checks and benchmarks of this tree on these GPUs. Those that an earlier file has of them are kept."""

    def __init__(self, path, earlier, gpus, git):
        self.path = path
        self.found = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "command": "scripts/gpu-check", "gpus": gpus,
                      "git": git, "tree": tree_hash(Path(".")), "checks": [], "benchmarks": []}
        if earlier.exists():
            self.go_on_from(earlier)

    def go_on_from(self, earlier):
        try:
            before = json.loads(earlier.read_text())
            alike = all(before[name] == self.found[name] for name in ("gpus", "tree"))
            checks, benchmarks = before["checks"], before["benchmarks"]
        except (ValueError, KeyError, TypeError):
            return print(f"{earlier} is no file of gpu-check: everything is checked", flush=True)
        if not alike:
            return print(f"{earlier} is of another tree or another GPU: everything is checked", flush=True)
        self.found.update(checks=checks, benchmarks=benchmarks)
        passed = sum(row["result"] == PASSED for row in checks)
        print(f"goes on from {earlier}, where {passed} checks passed; what failed there is tried again in the end", flush=True)

    def result(self, title):
        return next((row["result"] for row in self.found["checks"] if row["what"] == title), NOT_RUN)

    def add(self, row, side, output):
        """A check in the place of its earlier result, and what it has measured."""
        checks, title = self.found["checks"], row["what"]
        known = self.result(title)
        if (row["result"] == NOT_RUN and known != NOT_RUN) or (row["result"] == CUT_OFF and known == PASSED):
            return  # what is known of it is more
        places = [i for i, known in enumerate(checks) if known["what"] == title]
        if places:
            checks[places[0]] = row
        else:
            checks.append(row)
        if side:
            kept = [known for known in self.found["benchmarks"] if known["check"] != title]
            self.found["benchmarks"] = kept + [{"side": side, "check": title, **measured} for measured in objects(output)]
        print(f"{title}: {row['result']}", flush=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half_written = self.path.with_name(self.path.name + ".new")
        half_written.write_text(json.dumps(self.found, indent=1) + "\n")
        half_written.replace(self.path)

    def code(self):
        results = {row["result"] for row in self.found["checks"]} - NO_FAULT_OF_OURS
        return 1 if results - {NOT_RUN, CUT_OFF} else 4 if results else 0

    def table(self):
        checks = self.found["checks"]
        print(", ".join(self.found["gpus"]))
        width = max([len(row["what"]) for row in checks] + [30])
        for row in checks:
            print(f"{row['what']:{width}}  {row['result']:16} {row['seconds']:7.1f} s")
            if row["output"]:
                print("    " + "\n    ".join(row["output"].strip().splitlines()[-15:]))
        lines = [("benchmark", "    value unit", "of the measured limit", "times as fast as PyTorch"),
                 *speeds(self.found["benchmarks"])]
        width, *others = (max(map(len, column)) for column in zip(*lines))
        for name, *columns in lines:
            print(f"{name:{width}}", *(f"{text:{size}}" for text, size in zip(columns, others)), sep="  ")


def objects(output):
    """The lines that are one JSON object; a program that is ended leaves half a line."""
    for line in output.splitlines():
        try:
            read = json.loads(line)
        except ValueError:
            continue
        if isinstance(read, dict) and "name" in read:
            yield read


def ratio(value, other, unit):
    """How many times as fast a value is as another."""
    return other / value if unit in ("us", "ms") else value / other


def speeds(rows):
    """The table's lines: each of our benchmarks, its share of what limits it, and how many times as fast as PyTorch."""
    ours = [row for row in rows if row["side"] == OURS]
    limits = {row["name"]: row["value"] for row in ours if "value" in row}
    torch = {(row["side"], row["name"]): row["value"] for row in rows if row["side"] in MODES and "value" in row}
    for row in ours:
        if "value" not in row:
            yield row["name"], "   FAILED", "", ""
            continue
        value, limit = row["value"], limits.get(row.get("of"))
        share = f"{100 * value / limit:5.0f} % of {row['of']}" if limit else ""
        beside = []
        for mode in MODES:
            other = torch.get((mode, row.get("beside", row["name"])))
            if other and value:
                beside.append(f"{mode} {ratio(value, other, row['unit']):.2f}")
        yield row["name"], f"{value:9.1f} {row['unit']:8}", share, "  ".join(beside)
