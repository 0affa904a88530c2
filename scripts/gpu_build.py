"""What scripts/gpu-check runs, and how it is built: on the GPU's machine, or before, on one without a GPU.

    gpu_build.py FOLDER ARCHITECTURE     builds for that architecture (90 is an H100's) and packs the programs into the bundle

Time on a machine with a GPU is dear, and nothing of it need go into compiling.
"""
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from gpu_run import Check, left, run, told
from gpu_tree import tree_hash

# What has tests for the GPU.
EXPECTED = ("test_autograd", "test_certify", "test_cuda", "test_dist", "test_fsdp", "test_kernels", "test_nn", "test_optim")
TARGETS = ("shardgrad_program", "gpu_bench", "gpu_fsdp_bench", *EXPECTED)
PROGRAMS = ("shardgrad", "dist_probe", "gpu_bench", "gpu_fsdp_bench", *EXPECTED)  # what building them leaves in bin/
# The guards of costs need valgrind, which no target of these uses.
OPTIONS = ("-DSHARDGRAD_CUDA=ON", "-DSHARDGRAD_TUTORIALS=OFF", "-DSHARDGRAD_BENCH=ON", "-DSHARDGRAD_SIM=OFF", "-DSHARDGRAD_MPI=OFF",
           "-DVALGRIND=unused")


def nccl_of_pytorch():
    """The folder with the NCCL that PyTorch brings along, for a machine that has no other."""
    code, text = run([sys.executable, "-c", "import nvidia.nccl as nccl; print(list(nccl.__path__)[0])"], 60)
    return {"NCCL_ROOT": text.strip()} if code == 0 and "NCCL_ROOT" not in os.environ else {}


def packed(bundle):
    """What is said of the programs of a bundle; {} where it has none."""
    said = bundle / "programs.json" if bundle else None
    return json.loads(said.read_text()) if said and said.is_file() else {}


def fits(said, capabilities):
    """Whether programs were made of this very tree for these GPUs; where there are some that were not, it says so."""
    if not said:
        return False
    here = tree_hash(Path(".")), sorted(set(capabilities))
    there = said["tree"], [said["architecture"]]
    if here != there:
        print(f"the bundle's programs are of tree {there[0]} for GPUs of {there[1]}, this is {here[0]} on {here[1]}: all is built here",
              flush=True)
    return here == there


def building(build, bundle, capabilities):
    """Configures and builds for the GPU of this machine, or takes what the bundle has. Nothing else makes sense where that
    failed."""
    def logged(title, command, environment):
        code, output = run(command, left(), environment)
        (build / "log").mkdir(parents=True, exist_ok=True)
        (build / "log" / f"{title}.txt").write_text(output)
        return code, output

    def unpacked():
        (build / "log").mkdir(parents=True, exist_ok=True)
        with tarfile.open(bundle / "programs.tar.xz") as archive:
            archive.extractall(build)
        toolkit = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve().parents[1]
        paths = [f"{toolkit}/lib64", *(f"{root}/lib" for root in nccl_of_pytorch().values())]
        os.environ["LD_LIBRARY_PATH"] = ":".join([*paths, *os.environ.get("LD_LIBRARY_PATH", "").split(":")]).rstrip(":")
        return run([build / "bin/shardgrad", "--version"], 60)

    if fits(packed(bundle), capabilities):
        yield Check("programs of the bundle", unpacked)
        return
    where = [f"-DCMAKE_PREFIX_PATH={bundle}", f"-DCMAKE_BUILD_RPATH={bundle}/lib"] if bundle else []
    options = [*OPTIONS, "-DCMAKE_CUDA_ARCHITECTURES=native", *where]
    yield Check("configure", lambda: logged("configure", ["cmake", "-S", ".", "-B", build, "-G", "Ninja", *options], nccl_of_pytorch()))
    yield Check("build", lambda: logged("build", ["cmake", "--build", build, "-j", os.cpu_count(), "--target", *TARGETS], {}))


def pack(bundle, architecture):
    build = Path("build/gpu")
    # What the other machine may lack is left out; paths lead from each program to its library, wherever both come to lie.
    options = [*OPTIONS, f"-DCMAKE_CUDA_ARCHITECTURES={architecture}", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON", "-DSHARDGRAD_UNITY=ON",
               "-DSHARDGRAD_ONEDNN=OFF", "-DSHARDGRAD_PCRE2=OFF"]
    for command in (["cmake", "-S", ".", "-B", build, "-G", "Ninja", *options], ["cmake", "--build", build, "--target", *TARGETS]):
        subprocess.run([str(word) for word in command], check=True)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(bundle / "programs.tar.xz", "w:xz") as archive:
        stripped = Path(folder) / "stripped"
        for path in [*(build / "bin" / name for name in PROGRAMS), build / "lib/libshardgrad.so.0"]:
            subprocess.run(["strip", "-o", stripped, path], check=True)
            archive.add(stripped, path.relative_to(build))
    said = {"architecture": architecture, "tree": tree_hash(Path(".")), "git": told(["git", "describe", "--always", "--dirty"])}
    (bundle / "programs.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    pack(Path(sys.argv[1]), sys.argv[2])
