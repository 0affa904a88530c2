"""What the tests of the Python package share. PYTHONPATH has the package; SHARDGRAD_PROGRAM names the program."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest


class Ended:
    """A job that has ended: its exit code, and what it printed."""

    def __init__(self, process, seconds):
        self.code, self.out, self.err, self.seconds = process.returncode, process.stdout, process.stderr, seconds

    def __repr__(self):
        return f"code {self.code}\n{self.out}\n{self.err}"


def as_in_a_terminal():
    """A shell that runs something in the background lets it ignore Ctrl-C, and all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def ranks(tmp_path):
    """ranks(n, source, *arguments): runs a program's text on n ranks."""

    def run(n, source, *arguments, expect=0, by="local", timeout=120):
        import time

        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        begin = time.monotonic()
        command = [os.environ["SHARDGRAD_PROGRAM"], "launch", "-n", str(n), "--by", by, sys.executable, str(path)]
        process = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=timeout, cwd=tmp_path,
                                 preexec_fn=as_in_a_terminal)
        ended = Ended(process, time.monotonic() - begin)
        assert expect is None or ended.code == expect, ended
        return ended

    return run


@pytest.fixture
def alone(tmp_path):
    """alone(source): runs a program's text as a process that no launcher has started."""

    def run(source, expect=0):
        process = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True, timeout=120,
                                 cwd=tmp_path, preexec_fn=as_in_a_terminal)
        assert process.returncode == expect, f"code {process.returncode}\n{process.stdout}\n{process.stderr}"
        return process

    return run
