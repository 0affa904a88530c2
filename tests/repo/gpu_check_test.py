#!/usr/bin/env python3
"""scripts/gpu-check where there is no GPU: it says so in one sentence, and on a machine that is pretended it runs to its
end, in time, and writes what it found, whatever happens to the build, a test or the clock.

    gpu_check_test.py SOURCE_DIR quick|full

And a bundle is made, which is all that a build needs. `quick` is what takes no more than seconds.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from fnmatch import fnmatchcase
from pathlib import Path

SOURCE = Path(sys.argv[1])
sys.path.insert(0, str(SOURCE / "scripts"))
import gpu_build  # noqa: E402
import gpu_check  # noqa: E402
import gpu_report  # noqa: E402
import needs  # noqa: E402

# Stands for every program that gpu-check starts. PRETEND=ROLE:fails or ROLE:hangs harms one.
PRETENDED = r"""#!/bin/sh
role=$(basename "$0")
case "$role $1" in
  "cmake -S") role=configure ;;
  "cmake --build") role=build ;;
esac
case $PRETEND in
  $role:fails) echo "a planted fault"; exit 7 ;;
  "$role $*:fails") echo '{"name": "add", "error": "it is \"wrong\""}'; exit 1 ;;
  $role:hangs) sleep 600 ;;
esac
echo "$role $*" >>calls
case "$role $*" in
  "nvidia-smi -L") echo "GPU 0: pretended" ;;
  nvidia-smi*memory.used*) if [ -e killed ]; then echo 503; else echo 500; fi ;;
  nvidia-smi*) echo "pretended, 1.0, 1 MiB, 9.0" ;;
  build*)
    mkdir -p "$2/bin" "$2/lib"
    program=$0
    [ ! -e tiny ] || { program=$PWD/tiny; cp tiny "$2/lib/libshardgrad.so.0"; }
    while [ "$1" != --target ]; do shift; done
    for name in "$@" shardgrad dist_probe; do ln -sf "$program" "build/gpu/bin/$name"; done ;;
  test_*--gtest_list_tests*) printf 'Suite.\n  One\n  Two\n' ;;
  *--tiny) echo '{"name": "add", "value": 1, "unit": "GB/s"}' ;;
  "gpu_bench --device cuda --only bandwidths") printf '%s\n' \
    '{"name": "limit", "value": 2000, "unit": "GB/s"}' '{"name": "add", "value": 1500, "unit": "GB/s", "of": "limit"}' \
    '{"name": "step", "value": 4, "unit": "ms"}' '{"name": "cut of' ;;
  "gpu_bench --device cuda --only products") [ "$SHARDGRAD_TF32" != 1 ] ||
    echo "{\"name\": \"tf32 $SHARDGRAD_TF32\", \"value\": 3, \"unit\": \"TFLOP/s\", \"beside\": \"add\"}" ;;
  compute-sanitizer*) [ "$PRETEND" != sanitizer:refused ] || { echo "Error: Device not supported"; exit 1; } ;;
  "shardgrad --version") echo "shardgrad 0, CUDA 13.0, NCCL 2.28" ;;
  shardgrad*)
    loss=1
    case "$PRETEND $*" in losses:differ*device=cpu*) loss=1.002 ;; esac
    mkdir -p build/gpu/run
    for step in $(seq 150); do echo "{\"loss\": $loss}"; done >build/gpu/run/metrics.jsonl
    echo "done: test_accuracy=0.85 run=build/gpu/run" ;;
  "dist_probe --local 2 kill")
    [ "$PRETEND" != memory:stays ] || touch killed
    [ "$PRETEND" != kill:unnoticed ] || exit 0
    echo "rank 1 (pid 12) was killed"; exit 4 ;;
esac
exit 0
"""
PROGRAMS = ("nvidia-smi", "nvcc", "cmake", "ninja", "c++", "compute-sanitizer")
TORCH = """import os, sys
with open("calls", "a") as calls:
    print("gpu_torch.py", *sys.argv[1:], file=calls)
if os.environ["PRETEND"] == "torch:fails" and sys.argv[1] == "compile":
    sys.exit("no compiler")
value = {"eager": 1000, "compile": 2000, "graph": 5}[sys.argv[1]]
for name, unit in ("add", "GB/s"), ("step", "ms"):
    print('{"name": "%s", "value": %s, "unit": "%s"}' % (name, value, unit))
"""
TABLE = r"""
benchmark +value unit +of the measured limit +times as fast as PyTorch *
tf32 1 +3\.0 TFLOP/s +eager 0\.00  graph 0\.60  compile 0\.00 *
limit +2000\.0 GB/s *
add +1500\.0 GB/s +75 % of limit +eager 1\.50  graph 300\.00  compile 0\.75 *
step +4\.0 ms +eager 250\.00  graph 1\.25  compile 500\.00 *
"""
# What is worth most comes first: the machine may be taken away.
ORDER = ["gpu_bench --device cuda --tiny", "gpu_fsdp_bench --device cuda --tiny", "test_kernels", "shardgrad train", "dist_probe",
         "gpu_bench --device cuda --only products", "gpu_torch.py eager --device cuda --only products",
         "gpu_bench --device cuda --only mlps", "gpu_torch.py graph --device cuda --only mlps",
         "gpu_bench --device cuda --only transformers", "gpu_bench --device cuda --only bandwidths",
         "gpu_bench --device cuda --only losses",
         "gpu_bench --device cuda --only convolutions", "gpu_torch.py eager --device cuda --only convolutions",
         "gpu_bench --device cuda --only optimizers", "gpu_torch.py eager --device cuda --only optimizers",
         "gpu_fsdp_bench --device cuda --trace",
         "gpu_bench --device cuda --only ladder", "gpu_torch.py compile"]
# What may run beside each other is begun before the first training.
BEFORE_TRAINING = ["test_autograd", "test_nn", "compute-sanitizer --tool memcheck", "compute-sanitizer --tool racecheck"]


class Machine:
    """A tree with the scripts, and programs that pretend."""

    def __init__(self, folder):
        self.tree = Path(folder)
        (self.tree / "scripts").mkdir(parents=True)
        for name in ("common.sh", "gpu-check", "gpu_build.py", "gpu_check.py", "gpu_report.py", "gpu_run.py", "gpu_tree.py"):
            shutil.copy(SOURCE / "scripts" / name, self.tree / "scripts")
        self.bin = self.tree / "pretended"
        for name in PROGRAMS:
            self.write(self.bin / name, PRETENDED).chmod(0o755)
        self.write(self.tree / "bench/gpu_torch.py", TORCH)
        self.write(self.tree / "pretended/torch.py", "class cuda:\n    is_available = staticmethod(lambda: True)\n")

    def write(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def calls(self):
        """What was started since the last question."""
        path = self.tree / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def run(self, *command, pretend=""):
        """(exit code, what was printed, the JSON file or None)."""
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "PRETEND": pretend,
                       "PYTHONPATH": str(self.bin), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=self.tree, env=environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=100)
        written = self.tree / "build/gpu/gpu-check.json"
        return done.returncode, done.stdout, json.loads(written.read_text()) if written.exists() else None

    def measure(self, seconds, pretend):
        (self.tree / "build/gpu/gpu-check.json").unlink(missing_ok=True)
        return self.run(sys.executable, "scripts/gpu_check.py", "--build", "build/gpu", "--out",
                        "build/gpu/gpu-check.json", "--seconds", str(seconds), pretend=pretend)


def expect(true, *words):
    assert true, "\n".join(str(word) for word in words)


def results(report):
    return {row["what"]: row["result"] for row in report["checks"]}


def without_a_gpu(machine):
    code, text, report = machine.run("scripts/gpu-check", pretend="nvidia-smi:fails")
    expect((code, text, report) == (3, "scripts/gpu-check: no CUDA device on this machine\n", None), code, text)
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        done = subprocess.run([SOURCE / "scripts/gpu-check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect((done.returncode, done.stdout) == (3, text), done.returncode, done.stdout)


def wrong_options(machine):
    for words in (["--minutes"], ["--minutes", "0"], ["--minutes", "soon"], ["--colour", "red"], ["--from", "nowhere"],
                  ["--only", "everything"]):
        code, text, _ = machine.run("scripts/gpu-check", *words)
        expect(code == 2 and text.count("\n") == 1 and words[0] in text, words, code, text)
    expect(text.endswith(f"parts: {' '.join(gpu_check.PARTS)}\n"), text)


def all_well(machine):
    code, text, report = machine.run("scripts/gpu-check")
    expect(code == 0 and set(results(report).values()) == {"passed"}, text)
    for what in ("configure", "build", *(f"{name}: tests on the GPU" for name in gpu_check.EXPECTED),
                 "benchmarks: SHARDGRAD_GEMM=own gpu_bench --device cuda --only ladder", "compute-sanitizer racecheck",
                 "NCCL, 4 ranks on one GPU: the suite of groups"):
        expect(what in results(report), f"there is no '{what}' in", *results(report))
    expect(report["gpus"] == ["pretended, 1.0, 1 MiB, 9.0"] and "NCCL" in report["version"], report)
    expect(re.search(TABLE, text), "there is no table like", TABLE, "in", text)
    calls, place = machine.calls(), 0
    for wanted in ORDER:
        later = [i for i, call in enumerate(calls) if call.startswith(wanted) and i >= place]
        expect(later, f"'{wanted}' does not come after {calls[:place]}; after it come {calls[place:]}")
        place = later[0]
    first = next(i for i, call in enumerate(calls) if call.startswith("shardgrad train"))
    for wanted in BEFORE_TRAINING:
        expect(any(call.startswith(wanted) for call in calls[:first]), f"'{wanted}' is not among {calls[:first]}")


def packed_by_gpu_bundle(machine):
    """The folder with the programs that `gpu-bundle --for 90` packs, which are a tiny one that does as PRETENDED, and their tree."""
    pretended = json.dumps(f'. "{machine.bin}/cmake"')
    source = machine.write(machine.tree / "tiny.cpp", f"""#include <unistd.h>
int main(int count, char** words) {{
  const char* all[64] = {{"/bin/sh", "-c", {pretended}}};
  for (int i = 0; i < count && i < 60; ++i) all[3 + i] = words[i];
  return execv("/bin/sh", const_cast<char**>(all));
}}
""")
    subprocess.run(["c++", "-g", source, "-o", machine.tree / "tiny"], check=True)
    bundle = machine.tree / "build/bundle"
    bundle.mkdir(parents=True)
    code, text, _ = machine.run(sys.executable, "scripts/gpu_build.py", "build/bundle", "90")
    expect(code == 0, text)
    calls = machine.calls()
    expect(any("-DCMAKE_CUDA_ARCHITECTURES=90" in call for call in calls) and any(call.startswith("build ") for call in calls), calls)
    with tarfile.open(bundle / "programs.tar.xz") as archive:
        sizes = {member.name: member.size for member in archive}
    expect(sizes.keys() == {"lib/libshardgrad.so.0", *(f"bin/{name}" for name in gpu_build.PROGRAMS)}, sizes)
    expect(max(sizes.values()) < (machine.tree / "tiny").stat().st_size, "not stripped:", sizes)
    tree = machine.run(sys.executable, "-c", "import sys; sys.path.insert(0, 'scripts'); from pathlib import Path; "
                       "import gpu_tree; print(gpu_tree.tree_hash(Path('.')))")[1].strip()
    said = json.loads((bundle / "programs.json").read_text())
    expect((said["tree"], said["architecture"]) == (tree, "90"), said, tree)
    return bundle, tree


def programs_of_the_bundle_are_taken_where_they_fit(machine):
    """Nothing is built for the tree and the GPU that they are of, and everything for another."""
    bundle, tree = packed_by_gpu_bundle(machine)
    (machine.tree / "linked").symlink_to(machine.tree)  # is no part of it
    for said, built in (({"tree": tree, "architecture": "90"}, False), ({"tree": tree, "architecture": "80"}, True),
                        ({"tree": "another", "architecture": "90"}, True)):
        machine.write(bundle / "programs.json", json.dumps({"git": "a commit", **said}))
        shutil.rmtree(machine.tree / "build/gpu", ignore_errors=True)
        machine.calls()
        code, text, report = machine.run("scripts/gpu-check", "--bundle", "build/bundle", "--only", "smoke")
        calls = machine.calls()
        expect(code == 0 and ("build" in results(report)) == built, text)
        expect(built or results(report)["programs of the bundle"] == "passed", text)
        expect(("the bundle's programs are of tree" in text) == built, text)
        expect(any(call.startswith("build ") for call in calls) == built and report["git"] == "a commit", calls)
        expect("gpu_bench --device cuda --tiny" in calls, calls)


def a_second_call_goes_on(machine):
    """What passed is done, unless it is asked for; first comes what was not reached, last what failed."""
    bench = "gpu_bench --device cuda --only bandwidths"
    code, text, report = machine.run("scripts/gpu-check", pretend=f"{bench}:fails")
    failed = [what for what, result in results(report).items() if result != "passed"]
    expect(code == 1 and failed == [f"benchmarks: {bench}"] and re.search(r"^add +FAILED *$", text, re.M), failed, text)
    expect([row for row in report["benchmarks"] if row.get("error") == 'it is "wrong"'], report["benchmarks"])
    report["checks"] = [row for row in report["checks"] if "racecheck" not in row["what"]]  # as if time had ended before it
    elsewhere = machine.write(machine.tree / "build/elsewhere.json", json.dumps(report))
    machine.write(machine.tree / "build/gpu/gpu-check.json", "{}")
    machine.calls()
    code, text, report = machine.run("scripts/gpu-check", "--from", "build/elsewhere.json")
    begun = [call for call in machine.calls() if not call.startswith(("nvidia-smi", "cmake", "configure", "build", "shardgrad --v"))]
    expect(code == 0 and len(begun) == 2 and "--tool racecheck" in begun[0] and begun[1] == bench, begun, text)
    expect("goes on from build/elsewhere.json" in text and re.search(TABLE.split("limit +2000")[1], text), text)
    code, text, report = machine.run("scripts/gpu-check", "--only", "losses")
    begun = [call for call in machine.calls() if call.startswith("gpu_bench")]
    expect(code == 0 and begun == ["gpu_bench --device cuda --only losses"] and len(report["checks"]) > 20, begun, text)


def what_is_of_another_tree_or_gpu_is_not_gone_on_from(machine):
    """A file is gone on from where tree and GPU are the same, and not where either changed, or the file is damaged."""
    def checks(gpu, text=None):
        script = "from pathlib import Path; import sys; sys.path.insert(0, 'scripts'); from gpu_report import Report\n" \
                 f"earlier = Path('build/earlier.json'); print(len(Report(earlier, earlier, [{gpu!r}], '').found['checks']))\n" \
                 f"Report(earlier, Path('none'), ['GPU 0'], '').add({{'what': 'a', 'result': 'passed'}}, '', '')"
        if text is not None:
            machine.write(machine.tree / "build/earlier.json", text)
        return machine.run(sys.executable, "-c", script)[1].splitlines()[-2]

    for gpu, changed, text, expected in (("GPU 0", None, None, "0"), ("GPU 0", None, None, "1"), ("GPU 1", None, None, "0"),
                                         ("GPU 0", "scripts/new", None, "0"), ("GPU 0", "build/new", None, "1"),
                                         ("GPU 0", None, "{}", "0"), ("GPU 0", None, "half a fi", "0"), ("GPU 0", None, "[]", "0")):
        if changed:
            machine.write(machine.tree / changed, "")
        found = checks(gpu, text)
        expect(found == expected, gpu, changed, text, found)


def what_is_known_is_not_forgotten(machine):
    """A result stays where a later call does not reach its check, and one that passed where it is cut off."""
    late, cut, failed = gpu_report.NOT_RUN, gpu_report.CUT_OFF, "FAILED (7)"
    for before, now, known in (("passed", late, "passed"), ("passed", cut, "passed"), (failed, late, failed), (cut, late, cut),
                               (failed, cut, cut), (late, cut, cut), ("passed", failed, failed), (failed, "passed", "passed")):
        report = gpu_report.Report(machine.tree / "report.json", machine.tree / "none", [], "")
        for result in (before, now):
            report.add({"what": "a", "result": result}, "", "")
        expect(report.result("a") == known, before, now, report.result("a"))


def what_fails_is_named(machine):
    code, text, report = machine.run("scripts/gpu-check", pretend="sanitizer:refused")
    expect(code == 0 and results(report)["compute-sanitizer memcheck"] == gpu_report.REFUSED_HERE, code, text)
    (machine.tree / "build/gpu/gpu-check.json").unlink()
    for pretend, what in (("configure:fails", "configure"), ("build:fails", "build")):
        code, text, report = machine.run("scripts/gpu-check", pretend=pretend)
        expect(code == 1 and "a planted fault" in text, text)
        expect(list(results(report).items())[-1] == (what, "FAILED (7)"), results(report))
        (machine.tree / "build/gpu/gpu-check.json").unlink()
    code, text, report = machine.run("scripts/gpu-check", pretend="compute-sanitizer:fails")
    failed = [what for what, result in results(report).items() if result != "passed"]
    expect(code == 1 and failed == ["compute-sanitizer memcheck", "compute-sanitizer racecheck"], code, failed)
    for pretend, what, result in (
            ("test_fsdp:fails", "test_fsdp: tests on the GPU", "FAILED (7)"),
            ("losses:differ", "training on the GPU: the first 100 losses are the CPU's within 0.1%", "FAILED (1)"),
            ("kill:unnoticed", "NCCL: a killed rank ends the job by name within 30 s", "FAILED (1)"),
            ("memory:stays", "NCCL: nothing of a killed job stays on the GPU", "FAILED (1)")):
        (machine.tree / "build/gpu/gpu-check.json").unlink()
        code, text, report = machine.run("scripts/gpu-check", pretend=pretend)
        expect(code == 1 and results(report)[what] == result, text)


def pytorch_that_fails_is_not_our_failure(machine):
    code, text, report = machine.run("scripts/gpu-check", pretend="torch:fails")
    rows, python = results(report), Path(sys.executable).name
    row = f"benchmarks: {python} gpu_torch.py compile --device cuda --only mlps"
    expect(code == 0 and rows[row] == gpu_report.NO_TORCH, code, text)
    expect("no compiler" in text and re.search(r"^add .* eager 1.50  graph 300.00 *$", text, re.MULTILINE), text)


def what_time_does_not_reach_is_no_failure(machine):
    for role in ("configure", "build"):
        begin = time.monotonic()
        code, text, report = machine.measure(3, pretend=f"{role}:hangs")
        expect(time.monotonic() - begin < 15, f"{role}: 3 seconds became {time.monotonic() - begin}")
        expect(code == 4 and list(results(report).items())[-1] == (role, gpu_report.CUT_OFF), code, text)
    code, text, report = machine.measure(12, pretend="test_dist:hangs")
    found = results(report)
    expect(code == 4 and found["test_dist: tests on the GPU"] == gpu_report.CUT_OFF, code, text)
    for what in ("compute-sanitizer memcheck", "NCCL, 2 ranks on one GPU: the suite of groups",
                 "NCCL: nothing of a killed job stays on the GPU",
                 "training on the GPU, one epoch"):
        expect(found[what] == gpu_report.NOT_RUN, what, found)


def every_test_for_a_gpu_is_run():
    """A test that asks which devices there are is chosen by the filter, and its program is built."""
    filters = gpu_check.ON_THE_GPU.split(":")
    named_by_device = ("tests/cuda/gpu_test.cpp", "tests/dist/group/groups_test.cpp", "tests/optim/stochastic_rounding_test.cpp")  # each device is a case, named after it
    asks = re.compile(r"\b(kernel_devices|cuda_device_count)\(\)")
    test = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\) \{\n(.*?)^\}", re.M | re.S)
    found = 0
    for path in sorted((SOURCE / "tests").rglob("*_test.cpp")):
        folder, file = path.relative_to(SOURCE / "tests").parts[0], str(path.relative_to(SOURCE))
        text = path.read_text()
        expect("test_device.h" not in text or folder == "kernels", f"{file}: only test_kernels is run as a whole")
        if folder.startswith("fake_") or not asks.search(text):
            continue
        expect(f"test_{folder}" in gpu_check.EXPECTED, f"{file} has tests for a GPU, and gpu-check builds no test_{folder}")
        chosen = [f"{suite}.{name}" for suite, name, body in test.findall(text) if asks.search(body)]
        expect(chosen or file in named_by_device, f"{file} asks for devices outside its tests: are they named after them?")
        found += len(chosen)
        for name in chosen:
            expect(any(fnmatchcase(name, each) for each in filters), f"{file}: gpu-check's filter does not choose {name}")
    expect(found >= 8, f"only {found} tests for a GPU were found")


def the_bundle_is_all_that_a_build_needs(folder):
    """Here as on a machine that has compilers and CUDA, and no other library: what lies under /usr is not looked at. Why there is
    no bundle, where there is none."""
    done = subprocess.run([SOURCE / "scripts/gpu-bundle", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == 3:
        return done.stdout.strip()
    expect(done.returncode == 0, done.stdout)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
    expect(30 < size <= 60, f"the bundle has {size} MiB")
    build = folder.parent / "build"
    done = subprocess.run(["cmake", "-S", SOURCE, "-B", build, "-G", "Ninja", *gpu_build.OPTIONS, "-DSHARDGRAD_CUDA=OFF",
                           f"-DCMAKE_PREFIX_PATH={folder}", "-DCMAKE_IGNORE_PREFIX_PATH=/usr;/", "-DPYTHON3=python3"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    cache = (build / "CMakeCache.txt").read_text()
    expect(done.returncode == 0, done.stdout)
    for name in ("GTEST_LIBRARY", "ZLIB_LIBRARY_RELEASE", "nlohmann_json_DIR", "CLI11_INCLUDE_DIR"):
        expect(re.search(rf"^{name}:\w+={folder}/", cache, re.MULTILINE), f"{name} is not the bundle's")
    expect((folder / "data/train-images-idx3-ubyte.gz").exists(), "the bundle has no data set")
    return ""


every_test_for_a_gpu_is_run()
cases = [without_a_gpu, wrong_options, all_well, programs_of_the_bundle_are_taken_where_they_fit, a_second_call_goes_on,
         what_is_of_another_tree_or_gpu_is_not_gone_on_from, what_is_known_is_not_forgotten]
no_bundle = ""
if sys.argv[2] == "full":
    cases += [what_fails_is_named, pytorch_that_fails_is_not_our_failure, what_time_does_not_reach_is_no_failure]
    with tempfile.TemporaryDirectory() as folder:
        no_bundle = the_bundle_is_all_that_a_build_needs(Path(folder) / "bundle")
for case in cases:
    with tempfile.TemporaryDirectory() as folder:
        case(Machine(Path(folder) / "a tree"))
print("gpu-check: one sentence without a GPU, and a whole report of a pretended one")
if no_bundle:
    needs.skip("a build from the bundle alone", no_bundle)
