#!/usr/bin/env python3
"""The layer check must be able to fail: each planted violation is found, with file and line."""
import subprocess
import sys
import tempfile
from pathlib import Path

CHECK = Path(__file__).with_name("layers.py")
PLANTED = {
    "core/a.h": ("#include <vector>\n#include <shardgrad/nn/b.h>\n", "core/a.h:2: <shardgrad/nn/b.h>"),
    "nn/b.h": ("#include <shardgrad/fsdp/c.h>\n", "nn/b.h:1: <shardgrad/fsdp/c.h>"),
    "fsdp/c.h": ("#include <mpi.h>\n", "fsdp/c.h:1: <mpi.h>"),
    "fsdp/step/j.h": ("#include <shardgrad/fsdp/c.h>\n", "fsdp/step/j.h:1: <shardgrad/fsdp/c.h>: fsdp/step/ may include only setup, offload, step of"),
    "fsdp/k.h": ("#include <shardgrad/fsdp/step/j.h>\n#include <shardgrad/fsdp/state/l.h>\n",
                 "fsdp/k.h:2: <shardgrad/fsdp/state/l.h>: fsdp/ may include only setup, offload, step, what lies in it of"),
    "fsdp/state/l.h": ("#include <shardgrad/fsdp/c.h>\n", ""),
    "fsdp/new/m.h": ("#include <shardgrad/fsdp/step/j.h>\n", "fsdp/new/m.h:1: <shardgrad/fsdp/step/j.h>: fsdp/new/m.h lies in no room of fsdp/"),
    "dist/os/d.cpp": ('#include "e.h"\n', 'dist/os/d.cpp:1: "e.h"'),
    "dist/watch/h.h": ("#include <vector>\n", ""),
    "dist/os/i.h": ("#include <shardgrad/dist/watch/h.h>\n", "dist/os/i.h:1: <shardgrad/dist/watch/h.h>: dist/os/ may include only os of"),
    "dist/watch/control_page.h": ("#include <vector>\n", ""),
    "dist/watch/control.h": ("#include <shardgrad/dist/watch/control_page.h>\n", ""),
    "dist/group/r.h": ("#include <shardgrad/dist/watch/control_page.h>\n", "dist/group/r.h:1: <dist/watch/control_page.h>: brings"),
    "dist/transports/s.h": ("#include <shardgrad/dist/watch/control.h>\n", ""),
    "train/t.h": ("#include <vector>\n#include <shardgrad/dist/transports/s.h>\n", "train/t.h:2: <dist/transports/s.h>: brings the control page's"),
    "train/u.cpp": ("#include <shardgrad/dist/watch/control_page.h>\n", ""),
    "shardgrad.h": ("#include <shardgrad/dist/transports/s.h>\n", "shardgrad.h:1: <dist/transports/s.h>: brings"),
    "optim/f.cpp": ("// exit(1)\nvoid f() { std::exit(1); }\n", "optim/f.cpp:2: a library never ends"),
    "train/n.cpp": ("// std::thread\nstd::thread watch([] {});\n", "train/n.cpp:2: core/thread.h has the library's threads"),
    "fsdp/o.cpp": ("// kMeta\nauto host = x.to(kCpu);\nbool b = x.device() == kCpu;\n", "fsdp/o.cpp:3: core/device.h says what a device is like"),
    "fsdp/setup/p.h": ("bool gpu = device.kind == DeviceKind::cuda;\n", "fsdp/setup/p.h:1: core/device.h says"),
    "train/q.cpp": ("bool gpu = device.kind == DeviceKind::cuda;\n", ""),
    "kernels/cuda/v.cu": ("// atomicAdd(\natomicMin(&first, i);\natomicAdd(&sum, x);\n", "kernels/cuda/v.cu:3: atomics add in an order"),
    "kernels/sim/w.h": ("float atomicAdd(float* to, float x);\n", ""),
    "train/g.cpp": ("#include <shardgrad/core/gone.h>\n", "train/g.cpp:1: <shardgrad/core/gone.h>: no such file"),
}


def run(root):
    return subprocess.run([sys.executable, CHECK, root], capture_output=True, text=True)


with tempfile.TemporaryDirectory(prefix="layer check ") as folder:
    root = Path(folder)
    for name, (text, _) in PLANTED.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    result = run(root)
    missed = [expected for _, expected in PLANTED.values() if expected not in result.stdout]
    if result.returncode != 1 or missed or len(result.stdout.splitlines()) != sum(bool(expected) for _, expected in PLANTED.values()) + 1:
        sys.exit(f"missed: {missed}\n{result.stdout}{result.stderr}")
    for name in PLANTED:
        (root / name).write_text("#include <vector>\n")
    if run(root).returncode != 0:
        sys.exit("a clean tree was refused")
