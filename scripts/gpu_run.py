"""How scripts/gpu_check.py runs what it checks: every check a process of its own, all of them within a time."""
import os
import signal
import subprocess
import time
import traceback
from dataclasses import dataclass
from typing import Callable

from gpu_report import CUT_OFF, MODES, NOT_RUN, NO_TORCH, PASSED

end = float("inf")


def limit(seconds):
    global end
    end = time.monotonic() + seconds


def left():
    return end - time.monotonic()


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


def told(command):
    code, output = run(command, 30)
    return output.strip() if code == 0 else "unknown"


@dataclass
class Check:
    """One row. `work` gives an exit code (None: out of time; or, in words, why there is none) and the output."""
    title: str
    work: Callable
    side: str = ""  # whose speed it measures: the output has one JSON object per benchmark

    def carry_out(self):
        """(the row, the whole output)"""
        begin = time.monotonic()
        try:
            code, output = self.work() if left() >= 1 else (None, "")
        except Exception:  # the other checks are worth their results
            code, output = 1, traceback.format_exc()
        took = time.monotonic() - begin
        if isinstance(code, str):
            words = code
        elif code is not None:
            words = f"FAILED ({code})" if code else PASSED
        elif left() >= 1:
            words = "FAILED (ran out of its time)"
        else:
            words = CUT_OFF if took >= 1 else NOT_RUN
        if self.side in MODES and words.startswith("FAILED"):  # a compiler that is not there, say: no fault of ours
            words = NO_TORCH
        lines = output.strip().splitlines()
        return {"what": self.title, "result": words, "seconds": round(took, 1), "last_line": lines[-1] if lines else "",
                "output": output[-4000:] if words != PASSED else ""}, output
