"""What a test needs and a machine may not have."""
import os
import subprocess
import sys
from pathlib import Path


def skip(what, reason):
    """Ends the test. scripts/test says the reason, which it finds behind these words."""
    print(f"{what}: Skipped\n{reason}")
    sys.exit(77)


def python_with(modules, build):
    """A Python that can import these, or None: the one that scripts/test makes in the build folder has NumPy and safetensors."""
    for python in os.environ.get("SHARDGRAD_TEST_PYTHON"), Path(build, "python/bin/python"), sys.executable:
        if python and Path(python).exists() and subprocess.run([python, "-c", f"import {', '.join(modules)}"], capture_output=True).returncode == 0:
            return python
    return None
