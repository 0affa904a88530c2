"""Compiles the programs of scripts/learn against the library that the quickstart, or any other build, has left."""
import hashlib
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class NotBuilt(Exception):
    """A program did not compile, or there is nothing to link it with; the message says what the compiler said."""


class Build:
    """What the quickstart, or any other build, has left: a library to link with and a compiler that made it."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        cache = self.folder / "CMakeCache.txt"
        self.library = self.folder / "lib" / "libshardgrad.so"
        if not cache.exists() or not self.library.exists():
            raise NotBuilt(f"{folder} has no build of the library; run scripts/quickstart first, or name another one with --build")
        text = cache.read_text()
        self.cxx = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", text, re.M)[1]
        self.locks, self.locks_lock = {}, threading.Lock()
        ccache = re.search(r"^CCACHE:\w+=(.+)$", text, re.M)
        self.launcher = [ccache[1]] if ccache and not ccache[1].endswith("NOTFOUND") else []

    def compile(self, source, yours, program, strict):
        """Makes `program` of `source` and `yours`: a text that `source` includes, or kernels. `strict`: with warnings as errors."""
        warnings = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"] if strict else []
        compiler = [*self.launcher, self.cxx, "-std=c++20", *warnings, f"-I{self.folder / 'include'}"]
        made, libraries = program.with_suffix(".o"), ["-lshardgrad", f"-Wl,-rpath,{self.library.parent}"]
        parts = [source, *(ROOT / "tutorials").rglob("*.h"), *(ROOT / "tutorials").glob("*/solution.cpp")]
        if yours.suffix == ".cu":
            host = source.with_suffix(".o") if self.folder in source.parents else self.folder / "learn" / source.parent.name / "main.o"
            self.make(host, parts, strict, [[*compiler, "-c", source, "-o", host]])
            compiler += ["-fsanitize=thread", "-g", "-O1", "-Wno-unknown-pragmas", *self.understood("-ftrivial-auto-var-init=pattern"),
                         *self.checks(),
                         f"-I{ROOT / 'kernels/sim/include'}", "-x", "c++"]  # as cmake/shardgrad-kernels.cmake
            compiled, objects, libraries = [*compiler, "-c", yours, "-o", made], [host, made], ["-lshardgrad_sim", *libraries]
        else:
            compiled, objects = [*compiler, f'-DYOURS="{yours}"', "-c", source, "-o", made], [made]
        self.make(program, [*parts, yours], strict, [compiled, [self.cxx, *objects, "-o", program, f"-L{self.library.parent}", *libraries]])

    def lock(self, name):
        """One at a time makes what has this name."""
        with self.locks_lock:
            return self.locks.setdefault(name, threading.Lock())

    def make(self, made, parts, strict, commands):
        """Runs commands, unless `made` was made of the same texts already, as strictly."""
        with self.lock(made):
            self.make_alone(made, parts, strict, commands)

    def make_alone(self, made, parts, strict, commands):
        made_of = hashlib.sha256(repr([self.cxx, self.library.stat().st_mtime_ns]).encode())
        for part in sorted(parts):
            made_of.update(repr((str(part.resolve()), part.read_bytes())).encode())
        stamp, strictly = made.with_suffix(made.suffix + ".made_of"), made_of.hexdigest() + " strictly"
        if made.exists() and stamp.exists() and stamp.read_text() in ([strictly] if strict else [strictly, made_of.hexdigest()]):
            return
        made.parent.mkdir(parents=True, exist_ok=True)
        stamp.unlink(missing_ok=True)
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise NotBuilt(done.stderr[:4000])
        stamp.write_text(strictly if strict else made_of.hexdigest())

    def checks(self):
        version = subprocess.run([self.cxx, "--version"], capture_output=True, text=True).stdout
        if "Free Software Foundation" in version:
            return ["-gno-statement-frontiers", "-fsanitize=bounds,alignment"]
        return ["-fsanitize=array-bounds"] if "clang" in version else []

    def understood(self, option):
        asked = [self.cxx, option, "-fsyntax-only", "-x", "c++", "/dev/null"]
        return [option] if subprocess.run(asked, capture_output=True).returncode == 0 else []

    def make_simulator(self):
        """What rungs with kernels run on, and the quickstart has not built: by CMake, unless it is there and up to date."""
        with self.lock("simulator"):
            self.make_simulator_alone()

    def make_simulator_alone(self):
        kernels = self.folder / "lib" / "libshardgrad_sim_kernels.so"
        if kernels.exists() and kernels.stat().st_mtime >= self.library.stat().st_mtime:
            return
        print("building the simulator's kernels, which takes some minutes once", flush=True)
        done = subprocess.run(["cmake", "--build", self.folder, "--target", "shardgrad_sim_kernels"], capture_output=True, text=True)
        if done.returncode:
            raise NotBuilt(f"the simulator, which the build has if it was configured with -DSHARDGRAD_SIM=ON, cannot be built:\n{done.stdout[-4000:]}{done.stderr}")


def jobs_here():
    """How many compilers at once this machine has room for: as scripts/quickstart and scripts/test count."""
    said = subprocess.run(["bash", "-c", ". scripts/common.sh && jobs_here"], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(said.stdout)


def build_all(build, rungs, jobs):
    """All programs of these rungs, so many at once. Of one that does not compile its rung tells when it is checked."""
    def made(make):
        try:
            make()
        except NotBuilt:
            pass

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(made, [partial(rung.program, build, strict=True) for rung in rungs]))  # whose objects others link
        list(pool.map(made, [make for rung in rungs for make in rung.further_programs(build)]))
