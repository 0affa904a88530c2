"""The measuring part of scripts/gpu-check:  gpu_check.py BUILD OUT_JSON SECONDS_LEFT SECONDS_BUILT

Runs the test programs' cases that name the GPU, compute-sanitizer, a training run and bench/gpu_bench; prints a table.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

BEGIN = time.monotonic()
ON_THE_GPU = "*cuda*:*OnDevices*:*.Devices*"
OPERATIONS = "OpRegistry.DevicesAgreeWithTheCpu"
GPU_ONLY = {"SHARDGRAD_TEST_DEVICE": "cuda"}
EXPECTED = ("test_autograd", "test_cuda", "test_dist", "test_fsdp")  # programs that must have tests for the GPU
DEVICE = "cuda"
SHARED = {"SHARDGRAD_GROUP": "nccl", "SHARDGRAD_NCCL_SHARE_GPU": "1", "SHARDGRAD_NCCL_SUMS": "tree"}
ACCURACY = 0.80  # of one epoch of the example, which gives 0.85 on the CPU


def run(command, seconds, environment=None):
    """(exit code or None when it ran out of time, output). Out of time, whatever the command has started ends too."""
    try:
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, errors="replace", env={**os.environ, **(environment or {})},
                                 start_new_session=True)
    except OSError as error:
        return 127, str(error)
    try:
        output, _ = child.communicate(timeout=max(1, seconds))
        return child.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)  # its own session: not ours
        return None, child.communicate()[0]


def gpu():
    fields = "name,driver_version,memory.total,compute_cap"
    _, text = run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], 30)
    return [line.strip() for line in text.splitlines() if line.strip()]


def outcome(title, code, output, seconds):
    words = "passed" if code == 0 else "ran out of time" if code is None else f"FAILED ({code})"
    return {"what": title, "result": words, "seconds": round(seconds, 1), "output": output[-4000:] if code else ""}


def cases(title, program, selection, seconds, settings=None):
    """Runs the program's tests that the filter selects; None where there are none."""
    environment = {**GPU_ONLY, **(settings or {})}
    code, listed = run([program, "--gtest_list_tests", f"--gtest_filter={selection}"], 60, environment)
    count = sum(line.startswith("  ") for line in listed.splitlines()) if code == 0 else 0
    if code != 0:
        return outcome(f"{program.name}: its list of tests", code, listed, 0)
    if count == 0:
        return None
    begin = time.monotonic()
    code, output = run([program, f"--gtest_filter={selection}", "--gtest_brief=1"], seconds, environment)
    return outcome(f"{program.name}: {count} tests {title}", code, output, time.monotonic() - begin)


def tests(build, left):
    """Every test program: its cases that run on the devices of tests/devices.h, here the GPU alone."""
    programs = {program.name for program in (build / "bin").glob("test_*") if os.access(program, os.X_OK)}
    for name in sorted((programs | set(EXPECTED)) - {"test_mpi", "test_fake_cuda"}):
        ran = cases("on the GPU", build / "bin" / name, ON_THE_GPU, min(left(), 180))
        if ran or name in EXPECTED:
            yield ran or outcome(f"{name}: tests for the GPU are expected, and there are none", 1, "", 0)
    # The kernels by themselves, but for those that end with a trap, which a process does not survive; and what multiplies
    # matrices once more without cuBLASLt, whose place the own product takes.
    own = {"SHARDGRAD_GEMM": "own"}
    for title, name, selection, settings in (
            ("of kernels against their references", "test_kernels", "-Cpu*:Refusals*", {}),
            ("of the own matrix product", "test_kernels", "Matmul.*", own),
            ("of every operation with the own matrix product", "test_autograd", OPERATIONS, own)):
        yield (cases(title, build / "bin" / name, selection, min(left(), 120), settings) or
               outcome(f"{name}: tests {title} are expected, and there are none", 1, "", 0))


def sanitizer(build, left):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    program = build / "bin/test_autograd"
    if not os.access(tool, os.X_OK):
        yield {"what": "compute-sanitizer", "result": "not installed", "seconds": 0, "output": ""}
        return
    for check in ("memcheck", "racecheck"):
        begin = time.monotonic()
        command = [tool, "--tool", check, "--error-exitcode", "9", program, f"--gtest_filter={OPERATIONS}"]
        # Our own kernels: the library's would take the time, and are not ours to mend.
        code, output = run(command, min(left(), 150), {**GPU_ONLY, "SHARDGRAD_CHECK": "1", "SHARDGRAD_GEMM": "own"})
        yield outcome(f"compute-sanitizer {check}", code, output, time.monotonic() - begin)


def has_nccl(build):
    return ", NCCL " in run([build / "bin/shardgrad", "--version"], 60)[1]


def nccl(build, left):
    """Ranks that share this GPU under NCCL: every collective, bit for bit, and the end of a job whose rank is killed."""
    if not has_nccl(build):
        yield {"what": "NCCL", "result": "not installed", "seconds": 0, "output": ""}
        return
    settings = {**SHARED, "PROBE_DEVICE": DEVICE}
    for ranks in (2, 4):
        begin = time.monotonic()
        code, output = run([build / "bin/dist_probe", "--local", ranks, "suite"], min(left(), 150), settings)
        yield outcome(f"NCCL, {ranks} ranks on one GPU: the suite of groups", code, output, time.monotonic() - begin)
    begin = time.monotonic()
    code, output = run([build / "bin/dist_probe", "--local", 2, "kill"], min(left(), 30), settings)
    named = code == 4 and "rank 1 (pid " in output
    yield outcome("NCCL: a killed rank ends the job by name within 30 s", 0 if named else code or 1, output,
                  time.monotonic() - begin)


def train(build, seconds, *settings, ranks=1, environment=None):
    """An epoch of the example."""
    command = [build / "bin/shardgrad", *(["launch", "-n", ranks] if ranks > 1 else []), "train",
               "configs/fashion_mnist.json"]
    data = os.environ.get("SHARDGRAD_GPU_CHECK_DATA")
    for setting in (f"device={DEVICE}", "epochs=1", f"runs={build / 'runs'}", *([f"data.dir={data}"] if data else []),
                    *settings):
        command += ["--set", setting]
    return run(command, seconds, environment)


def parity(build, left):
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
            code, output = train(build, min(left(), 60), "batch=2048", "log_interval=1", "name=parity", *way, ranks=ranks,
                                 environment=SHARED)
            if code != 0:
                break
            folder = Path(re.search(r"^done: .* run=(.+)$", output, re.MULTILINE)[1])  # a new one for each run
            losses = [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
            expected = expected or losses
            if losses != expected:
                code, output = 1, f"{' '.join(way)} gives other losses than ddp:\n{losses}\n{expected}"
                break
        yield outcome(f"NCCL, {ranks} ranks on one GPU: {len(settings)} strategies give the same losses", code, output,
                      time.monotonic() - begin)


def training(build, left):
    begin = time.monotonic()
    code, output = train(build, min(left(), 120))
    found = re.search(r"test_accuracy[=: ]+([0-9.]+)", output)
    reached = float(found[1]) if found else 0.0
    if code == 0 and reached < ACCURACY:
        code, output = 1, f"test accuracy {reached} is below {ACCURACY}\n{output}"
    row = outcome("training on the GPU, one epoch", code, output, time.monotonic() - begin)
    row["last_line"] = output.strip().splitlines()[-1] if output.strip() else ""
    yield row


def benchmarks(build, left):
    """One JSON object per line, from our program and from PyTorch."""
    sides = [("shardgrad", [build / "bin/gpu_bench"]),
             ("shardgrad", [build / "bin/gpu_fsdp_bench", "--trace", build / "log/step.trace.json"])]
    if run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], 60)[0] == 0:
        sides.append(("torch", [sys.executable, "bench/gpu_torch.py"]))
    rows = []
    for side, command in sides:
        begin = time.monotonic()
        code, output = run(command, min(left(), 120))
        if code != 0:
            yield outcome(f"benchmarks of {side}: {command[0]}", code, output, time.monotonic() - begin), rows
        for line in output.splitlines():
            if line.startswith("{"):
                rows.append({"side": side, **json.loads(line)})
    yield None, rows


def table(report):
    width = max([len(row["what"]) for row in report["checks"]] + [30])
    for row in report["checks"]:
        print(f"{row['what']:{width}}  {row['result']:16} {row['seconds']:7.1f} s")
        if row["output"]:
            print("    " + "\n    ".join(row["output"].strip().splitlines()[-15:]))
    torch = {row["name"]: row for row in report["benchmarks"] if row["side"] == "torch"}
    for row in report["benchmarks"]:
        if row["side"] != "shardgrad":
            continue
        beside = torch.get(row["name"])
        other = f"   PyTorch {beside['value']:9.1f}   ratio {row['value'] / beside['value']:.2f}" if beside else ""
        print(f"{row['name']:{width}}  {row['value']:9.1f} {row['unit']:8}{other}")


def main():
    build, out, seconds, built = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])

    def left():
        return seconds - (time.monotonic() - BEGIN)

    code, git = run(["git", "describe", "--always", "--dirty"], 20)
    git = git.strip() if code == 0 else "unknown"
    version = run([build / "bin/shardgrad", "--version"], 60)[1]
    report = {"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "gpus": gpu(), "git": git, "version": version,
              "command": "scripts/gpu-check", "seconds_built": built, "checks": [], "benchmarks": []}

    def keep():  # after every result: the time may be cut off
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=1) + "\n")

    for row, found in benchmarks(build, left):
        if row:
            report["checks"].append(row)
        report["benchmarks"] = found
        keep()
    for part in (tests, training, nccl, parity, sanitizer):
        for row in part(build, left):
            report["checks"].append(row)
            print(f"{row['what']}: {row['result']}", flush=True)
            keep()
    print(", ".join(report["gpus"]))
    table(report)
    good = ("passed", "not installed")
    return 0 if all(row["result"] in good for row in report["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
