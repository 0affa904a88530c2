#!/usr/bin/env python3
"""Compares the cost of the work in work.cpp with ceilings.txt; fails when anything costs more.

    check.py PROGRAM            compare
    check.py PROGRAM --renew    write ceilings.txt anew; look at the difference before committing it

Instructions are counted by valgrind, with AVX2 kernels and our own matrix product, so that the numbers do not
depend on the machine. A ceiling is 1.15 times what was measured when the table was written, and half an allocation more.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

TABLE = pathlib.Path(__file__).with_name("ceilings.txt")
COLUMNS = ["instructions", "heap_allocations", "heap_bytes", "tensor_allocations", "tensor_bytes"]
# Another thread takes part, and how often it is woken differs from run to run.
NOT_COUNTED = {(work, "instructions") for work in ("all_gather", "reduce_scatter", "all_reduce")}
HEAD = """# What one operation (of training_step: one kernel of a step) costs; check.py allows 1.15 times as
# much, of allocations half a one more. Renew it when a change is worth its price, or to keep a gain:
#     tests/guards/check.py build/bin/guards_work --renew
"""


def measure(program):
    """{(work, "plain" or "spoilt"): [cost per operation, one per column]}"""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--zero-before=measured",
                   "--dump-after=measured", program]
        environment = dict(os.environ, SHARDGRAD_ISA="avx2", SHARDGRAD_GEMM="own", OMP_NUM_THREADS="1")
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        costs = {}
        for number, line in enumerate(done.stdout.splitlines(), 1):
            work, kind, operations, *counts = line.split()
            dump = pathlib.Path(f"{folder}/out.{number}").read_text()
            instructions = next(l for l in dump.splitlines() if l.startswith("summary:")).split()[1]
            costs[work, kind] = [int(count) / int(operations) for count in [instructions, *counts]]
        return costs


def renew(costs):
    rows = [["work", *COLUMNS]]
    for (work, kind), cost in costs.items():
        if kind == "plain":
            rows.append([work, f"{cost[0]:.0f}", *(f"{value:.2f}" for value in cost[1:])])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) if i else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths)))
             for row in rows]
    TABLE.write_text(HEAD + "\n".join(lines) + "\n")


def read_table():
    rows = [line.split() for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return {row[0]: [float(cell) for cell in row[1:]] for row in rows[1:]}


def ceiling(column, value):
    return value + 0.5 if column.endswith("allocations") else value * 1.15 + 1


def faults(costs):
    table, found = read_table(), []
    if {work for work, kind in costs} != set(table):
        found.append(f"{TABLE.name} lists {sorted(table)}, measured were {sorted({work for work, kind in costs})}")
    for (work, kind), cost in costs.items():
        for column, value, today in zip(COLUMNS, cost, table.get(work, [])):
            if (work, column) in NOT_COUNTED:
                continue
            limit = ceiling(column, today)
            spoilt = kind == "spoilt" and column in ("instructions", "heap_allocations")
            if kind == "plain" and value > limit:
                found.append(f"{work}: {value:.2f} {column} per operation; the table says {today:g}, the limit is {limit:.2f}")
            if spoilt and value <= limit:
                found.append(f"{work}: the guard does not notice an extra allocation and 500 instructions: {value:.2f} {column} "
                             f"per operation are within the limit of {limit:.2f}; renew the table")
    return found


def main():
    costs = measure(sys.argv[1])
    if "--renew" in sys.argv[2:]:
        renew(costs)
    found = faults(costs)
    print("\n".join(found) if found else f"every cost is within {TABLE.name}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
