"""The work of scripts/gpu-check:  gpu_check.py --build FOLDER --out JSON --seconds N [--bundle FOLDER]

Builds, runs the test programs' cases that use the GPU, compute-sanitizer, a training run and the benchmarks, all within
the seconds given; what they do not reach is called so. Writes the JSON file after every result, and prints a table.
Ends with 0 when everything passed, 1 when something failed, 4 when only the time was short.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

ON_THE_GPU = "*cuda*:*OnDevices*:*.Devices*:*OnEveryDevice*:Linear.ReluAsPartOf*:Nccl.*:-*Slow*"
OPERATIONS = "OpRegistry.DevicesAgreeWithTheCpu"
EXPECTED = ("test_autograd", "test_cuda", "test_dist", "test_fsdp", "test_kernels")  # have tests for the GPU
TARGETS = ("shardgrad_program", "gpu_bench", "gpu_fsdp_bench", *EXPECTED)
# The guards of costs need valgrind, which no target of these uses.
OPTIONS = ("-DSHARDGRAD_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native", "-DSHARDGRAD_TUTORIALS=OFF", "-DSHARDGRAD_BENCH=ON",
           "-DSHARDGRAD_SIM=OFF", "-DSHARDGRAD_MPI=OFF", "-DVALGRIND=unused")
DEVICE = "cuda"
GPU_ONLY = {"SHARDGRAD_TEST_DEVICE": DEVICE}
SHARED = {"SHARDGRAD_GROUP": "nccl", "SHARDGRAD_NCCL_SHARE_GPU": "1", "SHARDGRAD_NCCL_SUMS": "tree"}
MODES = ("eager", "compile", "graph")  # of PyTorch, in bench/gpu_torch.py
ACCURACY = 0.80  # of one epoch of the example, which gives 0.85 on the CPU
STEPS, TOLERANCE = 100, 1e-3  # whose losses differ from the CPU's by at most this share of them
NO_TORCH = "PyTorch could not"
NOT_RUN, CUT_OFF = "not run for want of time", "cut off for want of time"
BEGIN = time.monotonic()
seconds_in_all = float("inf")


def left():
    return seconds_in_all - (time.monotonic() - BEGIN)


def run(command, seconds, environment=None):
    """(exit code or None when it ran out of time, output). Out of time, whatever the command has started ends too."""
    seconds = min(seconds, left())
    if seconds < 1:
        return None, ""
    try:
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, errors="replace", env={**os.environ, **(environment or {})},
                                 start_new_session=True)
    except OSError as error:
        return 127, str(error)
    try:
        output, _ = child.communicate(timeout=seconds)
        return child.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # its own session: not ours
    try:
        return None, child.communicate(timeout=5)[0]
    except subprocess.TimeoutExpired:  # who left the session holds the pipe
        return None, ""


def memory_used():
    """MiB of the first GPU, once two readings agree: the driver cleans up after the end of processes. None if unknown."""
    readings, end = [None], time.monotonic() + 10
    while len(readings) < 3 or (readings[-1] != readings[-2] and time.monotonic() < end):
        _, text = run(["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], 30)
        readings.append(int(text) if text.strip().isdigit() else None)
        time.sleep(0.5 if left() > 1 else 0)
    return readings[-1]


def outcome(title, code, output, begin):
    took = time.monotonic() - begin
    if code == 0:
        words = "passed"
    elif code is not None:
        words = f"FAILED ({code})"
    elif left() >= 1:
        words = "FAILED (ran out of its time)"
    else:
        words = CUT_OFF if took >= 1 else NOT_RUN
    return {"what": title, "result": words, "seconds": round(took, 1), "output": output[-4000:] if code != 0 else ""}


def absent(title):
    return {"what": title, "result": "not installed", "seconds": 0, "output": ""}


def compiled(build, bundle):
    """Configures and builds for the GPU of this machine. Nothing else makes sense where that failed."""
    where = [f"-DCMAKE_PREFIX_PATH={bundle}", f"-DCMAKE_BUILD_RPATH={bundle}/lib"] if bundle else []
    for title, command in (("configure", ["cmake", "-S", ".", "-B", build, "-G", "Ninja", *OPTIONS, *where]),
                           ("build", ["cmake", "--build", build, "-j", os.cpu_count(), "--target", *TARGETS])):
        begin = time.monotonic()
        code, output = run(command, left())
        (build / "log").mkdir(parents=True, exist_ok=True)
        (build / "log" / f"{title}.txt").write_text(output)
        yield outcome(title, code, output, begin)
        if code != 0:
            return


def cases(title, program, selection, seconds, settings=None):
    """Runs the program's tests that the filter selects; None where there are none."""
    environment = {**GPU_ONLY, **(settings or {})}
    begin = time.monotonic()
    code, listed = run([program, "--gtest_list_tests", f"--gtest_filter={selection}"], 60, environment)
    count = sum(line.startswith("  ") for line in listed.splitlines()) if code == 0 else 0
    if code != 0:
        return outcome(f"{program.name}: tests {title}", code, listed, begin)
    if count == 0:
        return None
    code, output = run([program, f"--gtest_filter={selection}", "--gtest_brief=1"], seconds, environment)
    return outcome(f"{program.name}: {count} tests {title}", code, output, begin)


def tests(build):
    """Every test program: its cases that run on the devices of tests/devices.h, here the GPU alone."""
    for name in EXPECTED:
        yield (cases("on the GPU", build / "bin" / name, ON_THE_GPU, 180) or
               outcome(f"{name}: tests for the GPU are expected, and there are none", 1, "", time.monotonic()))
    # The kernels by themselves, but for those that end with a trap, which a process does not survive; and what multiplies
    # matrices once more without cuBLASLt, whose place the own product takes.
    own = {"SHARDGRAD_GEMM": "own"}
    for title, name, selection, settings in (
            ("of kernels against their references", "test_kernels", "-Cpu*:Refusals*", {}),
            ("of the own matrix product", "test_kernels", "Matmul.*", own),
            ("of every operation with the own matrix product", "test_autograd", OPERATIONS, own)):
        yield (cases(title, build / "bin" / name, selection, 120, settings) or
               outcome(f"{name}: tests {title} are expected, and there are none", 1, "", time.monotonic()))


def sanitizer(build):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.access(tool, os.X_OK):
        yield absent("compute-sanitizer")
        return
    for check in ("memcheck", "racecheck"):
        begin = time.monotonic()
        command = [tool, "--tool", check, "--error-exitcode", "9", build / "bin/test_autograd",
                   f"--gtest_filter={OPERATIONS}"]
        # Our own kernels: the library's would take the time, and are not ours to mend.
        code, output = run(command, 150, {**GPU_ONLY, "SHARDGRAD_CHECK": "1", "SHARDGRAD_GEMM": "own"})
        yield outcome(f"compute-sanitizer {check}", code, output, begin)


def has_nccl(build):
    code, text = run([build / "bin/shardgrad", "--version"], 60)
    return code is None or ", NCCL " in text  # without time to ask, what needs it is named as not run


def nccl(build):
    """Ranks that share this GPU under NCCL: every collective, bit for bit, and the end of a job whose rank is killed."""
    if not has_nccl(build):
        yield absent("NCCL")
        return
    settings = {**SHARED, "PROBE_DEVICE": DEVICE}
    for ranks in (2, 4):
        begin = time.monotonic()
        code, output = run([build / "bin/dist_probe", "--local", ranks, "suite"], 150, settings)
        yield outcome(f"NCCL, {ranks} ranks on one GPU: the suite of groups", code, output, begin)
    before, begin = memory_used(), time.monotonic()
    code, output = run([build / "bin/dist_probe", "--local", 2, "kill"], 30, settings)
    if code is not None:
        code = 0 if code == 4 and "rank 1 (pid " in output else code or 1
    yield outcome("NCCL: a killed rank ends the job by name within 30 s", code, output, begin)
    begin, after = time.monotonic(), memory_used()
    known = before is not None and after is not None
    code = None if code is None or left() < 1 else int(not known or after > before)
    yield outcome("NCCL: nothing of a killed job stays on the GPU", code,
                  f"{before} MiB were in use before it, {after} MiB are after it", begin)


def train(build, seconds, *settings, ranks=1, environment=None):
    """An epoch of the example: exit code, output, and the loss of every step."""
    command = [build / "bin/shardgrad", *(["launch", "-n", ranks] if ranks > 1 else []), "train",
               "configs/fashion_mnist.json"]
    data = os.environ.get("SHARDGRAD_GPU_CHECK_DATA")
    for setting in (f"device={DEVICE}", "epochs=1", "log_interval=1", f"runs={build / 'runs'}",
                    *([f"data.dir={data}"] if data else []), *settings):
        command += ["--set", setting]
    code, output = run(command, seconds, environment)
    if code != 0:
        return code, output, []
    folder = Path(re.search(r"^done: .* run=(.+)$", output, re.MULTILINE)[1])  # a new one for each run
    return code, output, [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def parity(build):
    """Every strategy with ranks that share this GPU under NCCL: the losses of an epoch, bit for bit."""
    if not has_nccl(build):
        return  # reported by nccl
    offload = ("strategy=zero3", "fsdp.move_params_to_cpu=true")
    ways = {2: [("strategy=ddp",), ("strategy=zero1",), ("strategy=zero2",), ("strategy=zero3",), offload],
            4: [("strategy=ddp",), ("strategy=zero3",), ("strategy=hybrid", "fsdp.shard_ranks=2")]}
    for ranks, settings in ways.items():
        begin = time.monotonic()
        expected, code, output = None, 0, ""
        for way in settings:
            code, output, losses = train(build, 60, "batch=2048", "name=parity", *way, ranks=ranks, environment=SHARED)
            if code != 0:
                break
            expected = expected or losses
            if losses != expected:
                code, output = 1, f"{' '.join(way)} gives other losses than ddp:\n{losses}\n{expected}"
                break
        yield outcome(f"NCCL, {ranks} ranks on one GPU: {len(settings)} strategies give the same losses", code, output, begin)


def training(build):
    begin = time.monotonic()
    code, output, losses = train(build, 120)
    found = re.search(r"test_accuracy[=: ]+([0-9.]+)", output)
    reached = float(found[1]) if found else 0.0
    trained = code == 0
    if trained and reached < ACCURACY:
        code, output = 1, f"test accuracy {reached} is below {ACCURACY}\n{output}"
    row = outcome("training on the GPU, one epoch", code, output, begin)
    row["last_line"] = output.strip().splitlines()[-1] if output.strip() else ""
    yield row
    begin = time.monotonic()
    if trained:
        code, output, expected = train(build, 120, "device=cpu")
    if trained and code == 0:
        pairs = list(zip(losses, expected))[:STEPS]
        output = f"{len(pairs)} losses, those of the GPU and of the CPU: {pairs}"
        close = all(None not in pair and abs(pair[0] - pair[1]) <= TOLERANCE * pair[1] for pair in pairs)
        code = int(len(pairs) < STEPS or not close)
    yield outcome(f"training on the GPU: the first {STEPS} losses are the CPU's within {TOLERANCE:.1%}", code, output, begin)


def sides(build):
    """(who, what to run, with which settings)"""
    bench = build / "bin/gpu_bench"
    yield "shardgrad", [bench, "--device", DEVICE], {}
    yield "shardgrad", [bench, "--device", DEVICE, "--only", "products"], {"SHARDGRAD_TF32": "1"}
    yield "shardgrad", [bench, "--device", DEVICE, "--only", "ladder"], {"SHARDGRAD_GEMM": "own"}
    yield "shardgrad", [build / "bin/gpu_fsdp_bench", "--device", DEVICE, "--trace", build / "log/step.trace.json"], {}
    for mode in MODES:
        yield mode, [sys.executable, "bench/gpu_torch.py", mode, "--device", DEVICE], {}


def benchmarks(build, found):
    """One JSON object per line, from our programs and from PyTorch, added to `found`."""
    code, _ = run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], 60)
    without_torch = code not in (0, None)
    for side, command, settings in sides(build):
        if side in MODES and without_torch:
            continue
        begin = time.monotonic()
        code, output = run(command, 120, settings)
        found += [{"side": side, **json.loads(line)} for line in output.splitlines() if re.fullmatch(r"\{.*\}", line)]
        words = [f"{name}={value}" for name, value in settings.items()] + [Path(word).name for word in map(str, command)]
        row = outcome(f"benchmarks: {' '.join(words)}", code, output, begin)
        if side in MODES and row["result"].startswith("FAILED"):  # a compiler that is not there, say: no fault of ours
            row["result"] = NO_TORCH
        yield row
    if without_torch:
        yield absent("PyTorch")


def speeds(rows):
    """The table's lines: each of our benchmarks, its share of what limits it, and how many times as fast as PyTorch."""
    ours = [row for row in rows if row["side"] == "shardgrad"]
    limits = {row["name"]: row["value"] for row in ours}
    torch = {(row["side"], row["name"]): row["value"] for row in rows if row["side"] in MODES}
    for row in ours:
        value, limit = row["value"], limits.get(row.get("of"))
        share = f"{100 * value / limit:5.0f} % of {row['of']}" if limit else ""
        beside = []
        for mode in MODES:
            other = torch.get((mode, row.get("beside", row["name"])))
            if other and value:
                beside.append(f"{mode} {other / value if row['unit'] in ('us', 'ms') else value / other:.2f}")
        yield row["name"], f"{value:9.1f} {row['unit']:8}", share, "  ".join(beside)


def table(report):
    width = max([len(row["what"]) for row in report["checks"]] + [30])
    for row in report["checks"]:
        print(f"{row['what']:{width}}  {row['result']:16} {row['seconds']:7.1f} s")
        if row["output"]:
            print("    " + "\n    ".join(row["output"].strip().splitlines()[-15:]))
    lines = [("benchmark", "    value unit", "of the measured limit", "times as fast as PyTorch"), *speeds(report["benchmarks"])]
    width, *others = (max(map(len, column)) for column in zip(*lines))
    for name, *columns in lines:
        print(f"{name:{width}}", *(f"{text:{size}}" for text, size in zip(columns, others)), sep="  ")


def told(command):
    code, output = run(command, 30)
    return output.strip() if code == 0 else "unknown"


def main():
    global seconds_in_all
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--bundle", type=Path)
    options = parser.parse_args()
    build, bundle, seconds_in_all = options.build, options.bundle, options.seconds
    if bundle:
        os.environ["SHARDGRAD_GPU_CHECK_DATA"] = str(bundle / "data")
    fields = "name,driver_version,memory.total,compute_cap"
    report = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "command": "scripts/gpu-check",
              "gpus": told(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]).splitlines(),
              "git": told(["git", "describe", "--always", "--dirty"]), "checks": [], "benchmarks": []}

    def add(row):  # writes after every result: whatever happens next, it is kept
        report["checks"].append(row)
        print(f"{row['what']}: {row['result']}", flush=True)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        half_written = options.out.with_name(options.out.name + ".new")
        half_written.write_text(json.dumps(report, indent=1) + "\n")
        half_written.replace(options.out)

    for row in compiled(build, bundle):
        add(row)
    if row["result"] == "passed":
        report["version"] = told([build / "bin/shardgrad", "--version"])
        for part in (benchmarks(build, report["benchmarks"]), tests(build), training(build), nccl(build), parity(build),
                     sanitizer(build)):
            begin = time.monotonic()
            try:
                for row in part:
                    add(row)
            except Exception:  # the other parts are worth their results
                add(outcome(f"{part.__name__}: scripts/gpu_check.py itself", 1, traceback.format_exc(), begin))
    print(", ".join(report["gpus"]))
    table(report)
    results = {row["result"] for row in report["checks"]} - {"passed", "not installed", NO_TORCH}
    return 1 if results - {NOT_RUN, CUT_OFF} else 4 if results else 0


if __name__ == "__main__":
    sys.exit(main())
