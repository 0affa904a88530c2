"""What a test needs and a machine may not have."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def skip(what, reason):
    """Ends the test. scripts/test says the reason, as the last line."""
    print(f"{what}: Skipped\n{reason}")
    sys.exit(77)


def python_with(modules):
    """A Python that can import these, or None: the one that scripts/test makes has NumPy and safetensors, and with --all tokenizers; that of bench/compare_pytorch PyTorch."""
    for_torch = os.environ.get("SHARDGRAD_TORCH_PYTHON"), str(Path(os.environ.get("SHARDGRAD_TORCH_VENV", "~/.cache/shardgrad-torch")).expanduser() / "bin/python")
    for python in os.environ.get("SHARDGRAD_TEST_PYTHON"), ROOT / "build/python/bin/python", sys.executable, *for_torch:
        if python and shutil.which(python) and subprocess.run([python, "-c", f"import {', '.join(modules)}"], capture_output=True).returncode == 0:
            return python
    return None
