#!/usr/bin/env python3
"""Checks docs/invariants.md, docs/fault_cases.md and docs/coming-from.md against the tests: `ctest -L I17` runs the suites of a row.

    invariants.py SOURCE_DIR

- every id from I01 to I50 and from B01 to B45 has one row;
- every test that a row names exists and begins with the row's id, perhaps among others;
- a row without a test gives a reason, and there is no test with its id;
- every fault case from 1 to 90 has one row, and the tests that the rows name exist;
- every option and program of FairScale's, Tango's and Lightning's guides has a row, and the tests that the rows name exist.
"""
import re
import sys
from pathlib import Path

IDS = [f"I{n:02}" for n in range(1, 51)] + [f"B{n:02}" for n in range(1, 46)]
CASES = list(range(1, 91))
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.M)
ROW = re.compile(r"^\| ([IB]\d\d) \| (.*?) \| (.*?) \|$", re.M)


def ids_of(test):
    """Those at the beginning of a test's name: I17_B03_…"""
    return re.match(r"(?:[IB]\d\d_)*", test).group().split("_")[:-1]


def tests_by_id(root):
    found = {}
    for path in (root / "tests").rglob("*.cpp"):
        for suite, name in TEST.findall(path.read_text()):
            for id in ids_of(name):
                found.setdefault(id, set()).add(f"{suite}.{name}")
    return found


def faults(table, tests):
    rows = ROW.findall(table)
    listed = [row[0] for row in rows]
    for id in IDS:
        if listed.count(id) != 1:
            yield f"{id} has {listed.count(id)} rows"
    for id, _, proof in rows:
        named = set(re.findall(r"`(\w+\.[IB]\d\d_\w+)`", proof))
        for name in sorted(named - tests.get(id, set())):
            yield f"{id}: {name} does not exist or lacks the id"
        if not named and id in tests:
            yield f"{id}: {', '.join(sorted(tests[id]))} not named"
        elif not named and len(proof) < 20:
            yield f"{id} has neither a test nor a reason"
    for id in sorted(tests.keys() - set(listed)):
        yield f"{id}: there is no such id, but {', '.join(sorted(tests[id]))}"


def names_of_tests(root):
    return {f"{suite}.{name}" for path in (root / "tests").rglob("*.cpp") for suite, name in TEST.findall(path.read_text())}


def case_faults(table, tests, repo_tests):
    rows = re.findall(r"^\| ([\d, ]+) \|(.*)\|$", table, re.M)
    listed = sorted(int(number) for numbers, _ in rows for number in numbers.split(","))
    if listed != CASES:
        yield f"fault cases listed: {listed}"
    for numbers, row in rows:
        proof = row.rsplit("|", 1)[1]
        if re.search(r"\bSEE\d+", proof) or ("`" not in proof and len(proof.split()) < 3):
            yield f"fault case {numbers}: neither a test nor a reason"
        for name in re.findall(r"`([\w.]+)`", proof):
            if name.startswith("repo."):
                if name.split(".")[-1] not in re.findall(r"\w+", re.sub(":", "_", repo_tests)):
                    yield f"fault case {numbers}: {name} does not exist"
            elif "." in name and name not in tests:
                yield f"fault case {numbers}: {name} does not exist"


# Options and programs of the guides that docs/coming-from.md is about.
GUIDES = """FairScaleTrainingEngine amp amp_use_bfloat16 max_grad_norm fsdp_config FSDPConfig.reshard_after_forward
    FSDPConfig.move_params_to_cpu FSDPConfig.move_grads_to_cpu FSDPConfig.mixed_precision FSDPConfig.as_kwargs() wrap(module)
    with_wrapped_modules activation_checkpointing Model.from_params simple_regression_model nn.DataParallel accelerator='dp'
    DDP(model) FSDP mp.spawn OSS ShardedDDP checkpoint_wrapper autocast ShardedGradScaler BoringModel DDPFullyShardedStrategy()
    configure_sharded_model self.trainer.model.parameters() cpu_offload precision=16""".split()


def guide_faults(page, tests):
    rows = [line for line in page.split("## PyTorch")[0].splitlines() if line.startswith("| ") and "| test |" not in line]
    named = {row: re.findall(r"`([A-Z]\w*\.\w+)`", row.rstrip("| ").rsplit(" | ", 1)[-1]) for row in rows}
    for row, names in named.items():
        for name in names:
            if name not in tests:
                yield f"coming-from.md: {name} does not exist"
        if not names:
            yield f"coming-from.md: no test in: {row}"
    for word in GUIDES:
        if not any(word in row for row in rows):
            yield f"coming-from.md: no row about {word}"


def main():
    root = Path(sys.argv[1])
    found = list(faults((root / "docs/invariants.md").read_text(), tests_by_id(root)))
    found += case_faults((root / "docs/fault_cases.md").read_text(), names_of_tests(root),
                         (root / "tests/repo/CMakeLists.txt").read_text())
    found += guide_faults((root / "docs/coming-from.md").read_text(), names_of_tests(root))
    print("\n".join(found) or "every invariant and every fault case has its test or its reason")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
