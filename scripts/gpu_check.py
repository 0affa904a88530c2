"""The work of scripts/gpu-check:  gpu_check.py --build FOLDER --out JSON --seconds N [--from JSON] [--bundle FOLDER] [--only PART]…

Builds, or takes the bundle's programs, and runs the parts one after another, every check a process of its own, all within the
seconds given; what they do not reach is called so. Goes on where the JSON file of an earlier call on this tree and GPU ends.
Writes the JSON file after every result, and prints a table. Ends with 0 when everything passed, 1 when something failed, 4
when only the time was short.
"""
import argparse
import functools
import json
import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from gpu_build import EXPECTED, building, packed
from gpu_report import ABSENT, CUT_OFF, MODES, NOT_RUN, OURS, PASSED, REFUSED_HERE, Report
from gpu_run import Check, left, limit, run, told

ON_THE_GPU = "*cuda*:*OnDevices*:*.Devices*:*OnEveryDevice*:Linear.ReluAsPartOf*:Attention.*:CrossEntropy.*:Nccl.*:-*Slow*"
KERNELS = "-Cpu*:Refusals*"
OPERATIONS = "OpRegistry.DevicesAgreeWithTheCpu"
DEVICE = "cuda"
GPU_ONLY = {"SHARDGRAD_TEST_DEVICE": DEVICE}
SHARED = {"SHARDGRAD_GROUP": "nccl", "SHARDGRAD_NCCL_SHARE_GPU": "1", "SHARDGRAD_NCCL_SUMS": "tree"}
ACCURACY = 0.80  # of one epoch of the example, which gives 0.85 on the CPU
STEPS, TOLERANCE = 100, 1e-3  # whose losses differ from the CPU's by at most this share of them
# What is measured in PyTorch too, and as what; what it compiles takes long, and comes last.
BESIDE = {"products": ("eager",), "mlps": MODES, "transformers": ("eager", "compile"), "bandwidths": ("eager", "compile"),
          "losses": ("eager", "compile"), "convolutions": ("eager",), "optimizers": ("eager",)}


def memory_used():
    """MiB of the first GPU, once two readings agree: the driver cleans up after the end of processes. None if unknown."""
    readings, end = [None], time.monotonic() + 10
    while len(readings) < 3 or (readings[-1] != readings[-2] and time.monotonic() < end):
        _, text = run(["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], 30)
        readings.append(int(text) if text.strip().isdigit() else None)
        time.sleep(0.5 if left() > 1 else 0)
    return readings[-1]


def cases(program, selection, seconds, settings, chosen=lambda listed: None):
    """Runs the program's tests that the filter selects, or those of them that `chosen` picks from their list."""
    environment = {**GPU_ONLY, **settings}
    code, listed = run([program, "--gtest_list_tests", f"--gtest_filter={selection}"], 60, environment)
    if code != 0:
        return code, listed
    if not any(line.startswith("  ") for line in listed.splitlines()):
        return 1, f"{program.name} has no tests that '{selection}' selects, and some are expected"
    return run([program, f"--gtest_filter={chosen(listed) or selection}", "--gtest_brief=1"], seconds, environment)


def first_of_each_suite(listed):
    first, suite = {}, ""
    for line in listed.splitlines():
        if line.startswith("  "):
            first.setdefault(suite, suite + line.split()[0])
        elif line.strip():
            suite = line.split()[0]
    return ":".join(first.values())


def smoke(build):
    """In seconds: does anything work? Every benchmark, small, whose results and training steps are the CPU's; a test of each
    kind of kernel."""
    for name in ("gpu_bench", "gpu_fsdp_bench"):
        yield Check(f"smoke: {name}, small", functools.partial(run, [build / "bin" / name, "--device", DEVICE, "--tiny"], 60))
    yield Check("smoke: one test of every suite of kernels",
                lambda: cases(build / "bin/test_kernels", KERNELS, 60, {}, first_of_each_suite))


def tests(build):
    """Every test program: its cases that run on the devices of tests/devices.h, here the GPU alone."""
    # The kernels by themselves, but for those that end with a trap, which a process does not survive; and what multiplies
    # matrices once more without cuBLASLt, whose place the own product takes.
    own = {"SHARDGRAD_GEMM": "own"}
    for title, name, selection, seconds, settings in (
            *(("tests on the GPU", name, ON_THE_GPU, 180, {}) for name in EXPECTED),
            ("tests of kernels against their references", "test_kernels", KERNELS, 120, {}),
            ("tests of the own matrix product", "test_kernels", "Matmul.*", 120, own),
            ("tests of every operation with the own matrix product", "test_certify", OPERATIONS, 120, own)):
        yield Check(f"{name}: {title}", functools.partial(cases, build / "bin" / name, selection, seconds, settings))


def sanitizers(build):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    command = ["--error-exitcode", "9", build / "bin/test_certify", f"--gtest_filter={OPERATIONS}"]

    def sanitized(check):
        if not os.access(tool, os.X_OK):
            return ABSENT, ""
        # Our own kernels: the library's would take the time, and are not ours to mend.
        code, output = run([tool, "--tool", check, *command], 150, {**GPU_ONLY, "SHARDGRAD_CHECK": "1", "SHARDGRAD_GEMM": "own"})
        refused = code not in (0, None) and "Device not supported" in output  # by some virtual machines
        return (REFUSED_HERE if refused else code), output

    for check in ("memcheck", "racecheck"):
        yield Check(f"compute-sanitizer {check}", functools.partial(sanitized, check))


def has_nccl(build):
    code, text = run([build / "bin/shardgrad", "--version"], 60)
    return code is None or ", NCCL " in text  # without time to ask, what needs it is named as not run


def nccl(build):
    """Ranks that share this GPU under NCCL: every collective, bit for bit; the end of a job whose rank is killed; and the
    losses of every strategy."""
    if not has_nccl(build):
        yield Check("NCCL", lambda: (ABSENT, ""))
        return
    settings = {**SHARED, "PROBE_DEVICE": DEVICE}
    probe = build / "bin/dist_probe"
    for ranks in (2, 4):
        yield Check(f"NCCL, {ranks} ranks on one GPU: the suite of groups",
                    functools.partial(run, [probe, "--local", ranks, "suite"], 150, settings))

    @functools.cache
    def killed():
        before = memory_used()
        return before, run([probe, "--local", 2, "kill"], 30, settings), memory_used()

    def by_name():
        code, output = killed()[1]
        if code is not None:  # a job that ends well has not noticed
            code = 0 if code == 4 and "rank 1 (pid " in output else code or 1
        return code, output

    def nothing_stays():
        before, (code, _), after = killed()
        known = before is not None and after is not None
        words = f"{before} MiB were in use before it, {after} MiB are after it"
        return None if code is None or left() < 1 else int(not known or after > before), words

    yield Check("NCCL: a killed rank ends the job by name within 30 s", by_name)
    yield Check("NCCL: nothing of a killed job stays on the GPU", nothing_stays)
    yield from strategies(build)


def train(build, seconds, *settings, ranks=1, environment=None, device=DEVICE):
    """An epoch of the example: exit code, output, and the loss of every step."""
    command = [build / "bin/shardgrad", *(["launch", "-n", ranks] if ranks > 1 else []), "train",
               "configs/fashion_mnist.json"]
    data = os.environ.get("SHARDGRAD_GPU_CHECK_DATA")
    for setting in (f"device={device}", "epochs=1", "log_interval=1", f"runs={build / 'runs'}",
                    *([f"data.dir={data}"] if data else []), *settings):
        command += ["--set", setting]
    code, output = run(command, seconds, environment)
    if code != 0:
        return code, output, []
    folder = Path(re.search(r"^done: .* run=(.+)$", output, re.MULTILINE)[1])  # a new one for each run
    return code, output, [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def strategies(build):
    offload = ("strategy=zero3", "fsdp.move_params_to_cpu=true")
    ways = {2: [("strategy=ddp",), ("strategy=zero1",), ("strategy=zero2",), ("strategy=zero3",), offload],
            4: [("strategy=ddp",), ("strategy=zero3",), ("strategy=hybrid", "fsdp.shard_ranks=2")]}

    def alike(ranks, settings):
        expected = None
        for way in settings:
            code, output, losses = train(build, 60, "batch=2048", "schedule.warmup_steps=10", "name=parity", *way, ranks=ranks,
                                         environment=SHARED)
            if code != 0:
                return code, output
            expected = expected or losses
            if losses != expected:
                return 1, f"{' '.join(way)} gives other losses than ddp:\n{losses}\n{expected}"
        return 0, ""

    for ranks, settings in ways.items():
        yield Check(f"NCCL, {ranks} ranks on one GPU: {len(settings)} strategies give the same losses",
                    functools.partial(alike, ranks, settings))


def parity(build):
    """An epoch of the example: its accuracy, and its losses beside the CPU's."""
    here = functools.cache(lambda: train(build, 120))

    def accurate():
        code, output, _ = here()
        found = re.search(r"test_accuracy[=: ]+([0-9.]+)", output)
        if code == 0 and (not found or float(found[1]) < ACCURACY):
            return 1, f"test accuracy is below {ACCURACY}\n{output}"
        return code, output

    def close():
        code, output, losses = here()
        if code == 0:
            code, output, expected = train(build, 120, device="cpu")
        if code != 0:
            return code, output
        pairs = list(zip(losses, expected))[:STEPS]
        alike = all(None not in pair and abs(pair[0] - pair[1]) <= TOLERANCE * pair[1] for pair in pairs)
        return int(len(pairs) < STEPS or not alike), f"{len(pairs)} losses, those of the GPU and of the CPU: {pairs}"

    yield Check("training on the GPU, one epoch", accurate)
    yield Check(f"training on the GPU: the first {STEPS} losses are the CPU's within {TOLERANCE:.1%}", close)


def measured(side, command, settings=None):
    words = [f"{name}={value}" for name, value in (settings or {}).items()] + [Path(word).name for word in map(str, command)]
    return Check(f"benchmarks: {' '.join(words)}", functools.partial(run, command, 120, settings), side)


@functools.cache
def has_torch():
    return run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], 60)[0] in (0, None)


def in_pytorch(mode, part):
    check = measured(mode, [sys.executable, "bench/gpu_torch.py", mode, "--device", DEVICE, "--only", part])
    work = check.work
    check.work = lambda: work() if has_torch() else (ABSENT, "")
    return check


def benchmark(part, build):
    command = [build / "bin/gpu_bench", "--device", DEVICE, "--only", part]
    yield measured(OURS, command, {"SHARDGRAD_GEMM": "own"} if part == "ladder" else None)
    if part == "products":
        yield measured(OURS, command, {"SHARDGRAD_TF32": "1"})
    for mode in BESIDE.get(part, ()):
        if mode != "compile":
            yield in_pytorch(mode, part)


def sharding(build):
    yield measured(OURS, [build / "bin/gpu_fsdp_bench", "--device", DEVICE, "--trace", build / "log/step.trace.json"])


def compiled(build):
    """By torch.compile, whose compiler takes long."""
    for part, modes in BESIDE.items():
        if "compile" in modes:
            yield in_pytorch("compile", part)


# In the order of what is worth most on a machine that may be taken away: whether it is right, in little time, then how fast.
PARTS = {"smoke": smoke, "tests": tests, "sanitizers": sanitizers, "parity": parity, "nccl": nccl,
         **{part: functools.partial(benchmark, part) for part in BESIDE}, "sharding": sharding,
         "ladder": functools.partial(benchmark, "ladder"), "compiled": compiled}
SIDE_BY_SIDE = ("tests", "sanitizers")  # they measure nothing, and wait for the host most of their time


def parsed():
    parser = argparse.ArgumentParser()
    for name in ("--build", "--out"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--from", type=Path, dest="earlier")
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--only", action="append", choices=PARTS, default=[])
    return parser.parse_args()


def in_turn(checks, report, asked):
    """First what no call has reached, then what failed in an earlier one; what passed is done, unless it is asked for."""
    if asked:
        return checks
    known = {check.title: report.result(check.title) for check in checks}
    fresh = [check for check in checks if known[check.title] in (NOT_RUN, CUT_OFF)]
    return fresh + [check for check in checks if known[check.title] not in (NOT_RUN, CUT_OFF, PASSED)]


def batches(checks, alone):
    """Neighbours that may run at once are one batch; each other check is one of its own."""
    batch = []
    for check in checks:
        if batch and (check in alone or batch[-1] in alone):
            yield batch
            batch = []
        batch.append(check)
    if batch:
        yield batch


def main():
    options = parsed()
    build, bundle = options.build, options.bundle
    limit(options.seconds)
    if bundle:
        os.environ["SHARDGRAD_GPU_CHECK_DATA"] = str(bundle / "data")
    fields = "name,driver_version,memory.total,compute_cap"
    gpus = told(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]).splitlines()
    git = packed(bundle).get("git") or told(["git", "describe", "--always", "--dirty"])
    report = Report(options.out, options.earlier or options.out, gpus, git)

    def carry_out(checks):
        with ThreadPoolExecutor(max_workers=max(1, min(len(checks), os.cpu_count() // 2))) as pool:
            for future in as_completed([pool.submit(lambda check: (check, *check.carry_out()), check) for check in checks]):
                check, row, output = future.result()
                report.add(row, check.side, output)
        return all(report.result(check.title) == PASSED for check in checks)

    capabilities = [gpu.rsplit(", ", 1)[-1].replace(".", "") for gpu in gpus]
    built = all(carry_out([check]) for check in building(build, bundle, capabilities))
    if built:
        report.found["version"] = told([build / "bin/shardgrad", "--version"])
        parts = {part: list(PARTS[part](build)) for part in PARTS if not options.only or part in options.only}
        alone = [check for part, checks in parts.items() if part not in SIDE_BY_SIDE for check in checks]
        for batch in batches(in_turn(sum(parts.values(), []), report, options.only), alone):
            carry_out(batch)
    report.table()
    return report.code() if built else report.code() or 4


if __name__ == "__main__":
    sys.exit(main())
