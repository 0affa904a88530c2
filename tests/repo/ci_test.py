#!/usr/bin/env python3
"""Checks that continuous integration runs what it claims.

    ci_test.py SOURCE_DIR

- .ci/run calls scripts/test and then scripts/test --sanitizers, and fails where one of them does;
- scripts/test leaves tests out by the labels slow and project only, its second half has the latter, and --all has both;
- what it runs has tests, or fails and says so; with --all what passed on a commit is not run again, and what failed is;
- its summary says of each test that was skipped why, whatever skipped it;
- every folder of tests is built with each sanitizer, at least by --all, or stands below with the reason;
- with --all AddressSanitizer sees the slow tests that were written for it.
"""
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SLOW_WITH_ASAN = {"lifetimes_test.cpp": "LifetimesSlow", "user_programs_test.cpp": "UserProgramsSlow"}  # of tests/fsdp
NOT_WITH_SANITIZERS = {
    "cuda": "needs a GPU or device sim",
    "sim": "takes the calls that the compiler makes for the thread sanitizer to itself",
    "mpi": "whole jobs",
}
NOT_WITH = {"asan": {}, "tsan": {"kernels": "their threads are OpenMP's, whose barriers gcc's TSan does not see", "train": "starts no threads but its loaders'",
                              "picture": "starts no threads"}}

# As in ctest's log: tests of a program, of one that was told to be brief, and of a script; and what is said of them.
LOG = """Output:
[ RUN      ] Meeting.OfThousands
/home/ada/shardgrad/tests/many_ranks_test.cpp:47: Skipped
needs 2300 descriptors, of 1024
[  SKIPPED ] Meeting.OfThousands (0 ms)
[==========] 2 tests from 1 test suite ran. (3 ms total)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Meeting.OfThousands
<end of output>
Output:
/home/ada/shardgrad/tests/convolution_test.cpp:165: Skipped
which takes minutes
[==========] 148 tests from 26 test suites ran. (8 ms total)
[  SKIPPED ] 1 test.
<end of output>
Output:
scripts/two-hosts: Skipped
needs root, to make network namespaces
<end of output>
"""
SAID = """  skipped: Meeting.OfThousands: needs 2300 descriptors, of 1024
  skipped: convolution_test.cpp:165: which takes minutes
  skipped: scripts/two-hosts: needs root, to make network namespaces
  150 tests of the test programs are in these entries
"""

# Three runs on one commit of a part that passes, one that fails and one without tests; and what is said of them.
RUNS = """say() { echo "$*"; }
stage() { shift 2; "$@" || exit 1; }
all=yes root=. suite=. at_once=1 runner=() commit=c0ffee passed=passed.txt
for run in 1 2 3; do
  failed=
  part "one that passes" in_stage it log true
  part "one that fails" in_stage it log false
  part "one without tests" run_tests empty
  echo "failed: $failed"
  [ $run = 1 ] || commit=dec0de
done
"""
ONCE = """running one that fails
running one without tests
No tests were found!!!
what the failed tests printed first:
failed: one that fails; one without tests
"""
PARTS = f"""running one that passes
{ONCE}one that passes: passed on this commit before, in 0 s (to run it again, remove passed.txt)
{ONCE}running one that passes
{ONCE}"""


def parts(script):
    """What the functions of scripts/test say where it runs those."""
    functions = re.findall(r"^(?:run_tests|part)\(\) \{$.*?^\}$|^in_stage\(\) \{[^\n]*$", script, re.M | re.S)
    inside = re.search(r"^inside='.*?'$", script, re.M | re.S)[0]
    with tempfile.TemporaryDirectory(prefix="ci test ") as folder:
        Path(folder, "empty").mkdir()
        Path(folder, "empty/CTestTestfile.cmake").touch()
        script = "\n".join(["set -euo pipefail", inside, *functions, RUNS])
        run = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
        return "".join(re.findall(r"^(?:running|one|No tests|what|failed).*\n", run.stdout, re.M)) + run.stderr


def calls(root, codes):
    """(exit code of .ci/run, arguments of each call of scripts/test) where the calls end with these codes."""
    with tempfile.TemporaryDirectory(prefix="ci test ") as folder:
        for name in ".ci", "scripts":
            Path(folder, name).mkdir()
        shutil.copy(root / ".ci/run", Path(folder, ".ci/run"))
        stub, log = Path(folder, "scripts/test"), Path(folder, "log")
        cases = "".join(f"{number}) exit {code};; " for number, code in enumerate(codes, 1))
        stub.write_text(f'#!/bin/sh\necho "[$*]" >>"{log}"\ncase $(wc -l <"{log}") in {cases}esac\n')
        stub.chmod(0o755)
        code = subprocess.run([Path(folder, ".ci/run")]).returncode
        return code, log.read_text().split()


def faults(root):
    for codes, expected in {(0, 0): (0, ["[]", "[--sanitizers]"]), (1, 0): (1, ["[]"]), (0, 1): (1, ["[]", "[--sanitizers]"])}.items():
        found = calls(root, codes)
        if found != expected:
            yield f".ci/run, whose calls of scripts/test end with {codes}, gives {found} instead of {expected}"
    script = (root / "scripts/test").read_text()
    for call in ("run_tests build -LE 'slow|project'", 'run_tests build -L project -E "^($left_out)\\$"', "run_tests build -L project -LE slow",
                 'run_tests build -L slow -E "$hosts"', 'run_tests build -L slow -R "$hosts"'):
        if not re.search(f'^ +(no,no\\) )?part .* {re.escape(call)}( ;;)?$', script, re.M):
            yield f"scripts/test has no line {call}"
    said = parts(script)
    if said != PARTS:
        yield f"scripts/test says of parts:\n{said}instead of\n{PARTS}"
    inside = re.search(r"^inside='(.*?)'$", script, re.M | re.S)
    said = subprocess.run(["awk", inside[1]], input=LOG, capture_output=True, text=True).stdout
    if said != SAID:
        yield f"scripts/test says of skipped tests:\n{said}instead of\n{SAID}"
    folders = {path.parent.relative_to(root / "tests").parts[0] for path in (root / "tests").rglob("*_test.cpp")}
    for sanitizer, without in NOT_WITH.items():
        built = set(" ".join(re.findall(rf'^ *{sanitizer}_folders="(.*)"', script, re.M)).split()) - {"$asan_folders", "$tsan_folders"}
        excused = without.keys() | NOT_WITH_SANITIZERS.keys()
        for folder in sorted(folders - built - excused):
            yield f"tests/{folder} is not built with {sanitizer}: name it in scripts/test or, with the reason, here"
        for folder in sorted(built & excused | (built | excused) - folders):
            yield f"{folder} of {sanitizer} is excused though it is built, or has no tests"
    lifetimes = re.search(r"^lifetimes='(.*)'", script, re.M)
    entry = re.search(r'"\$all" = no \] \|\| add_entry asan\.lifetimes build/asan/bin/test_fsdp "\$lifetimes"', script)
    for name, suite in SLOW_WITH_ASAN.items():
        if not re.search(rf"TEST(_P)?\({suite},", (root / "tests/fsdp" / name).read_text()):
            yield f"tests/fsdp/{name} has no suite {suite}: name here what AddressSanitizer is to see"
        elif not entry or not lifetimes or not re.search(rf"(^|:)\*?{suite}\.\*(:|$)", lifetimes[1]):
            yield f"scripts/test --all does not run {suite} of tests/fsdp/{name} under AddressSanitizer (asan.lifetimes)"


def main():
    found = list(faults(Path(sys.argv[1]).resolve()))
    print("\n".join(found) or "continuous integration runs both halves, and every folder of tests has its sanitizers")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
