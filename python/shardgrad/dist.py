"""The ranks of a job. Start them with `shardgrad launch -n 4 python train.py` or mpirun; each is a process.

A rank that fails ends the job everywhere within seconds, with the first cause last on the screen.
"""

import atexit
import os
import sys
from typing import Optional

from ._core import RankFailedError, Tensor
from ._core import _dist as _core
from ._core._dist import ProcessGroup, Work, is_initialized, started_alone, stop_requested, world

__all__ = ["ProcessGroup", "Work", "all_gather", "all_reduce", "barrier", "broadcast", "finish", "get_rank",
           "get_world_size", "init", "is_initialized", "reduce_scatter", "started_alone", "stop_requested", "world"]


def init(seed: int = 0, threads: int = 0, device: str = "cpu", kind: str = "") -> ProcessGroup:
    """Joins the job that a launcher has started, or begins one of a single rank; returns the group of all ranks.

    Called before the first tensor, on every rank with the same arguments. `threads`: of each rank; 0: the machine's cores
    over its ranks. `kind`: how ranks send; "": the fastest that connects them.
    """
    if not _core._init(seed, threads, device, kind):
        sys.stderr.flush()
        os._exit(1)  # the sentence why has been printed; the ranks have not met
    return world()


def finish() -> int:
    """Leaves the job; done at the program's end by itself. Waits for the other ranks."""
    return _core._finish(None)


def get_rank() -> int:
    """This rank's number among all, from 0."""
    return world().rank


def get_world_size() -> int:
    """How many ranks there are."""
    return world().size


def all_reduce(tensor: Tensor, group: Optional[ProcessGroup] = None, async_op: bool = False) -> Optional[Work]:
    """tensor = the sum of all ranks' tensors."""
    return (group or world()).all_reduce(tensor, async_op)


def broadcast(tensor: Tensor, root: int = 0, group: Optional[ProcessGroup] = None,
              async_op: bool = False) -> Optional[Work]:
    """tensor = root's tensor."""
    return (group or world()).broadcast(tensor, root, async_op)


def all_gather(full: Tensor, shard: Tensor, group: Optional[ProcessGroup] = None,
               async_op: bool = False) -> Optional[Work]:
    """full = all ranks' shards in rank order."""
    return (group or world()).all_gather(full, shard, async_op)


def reduce_scatter(shard: Tensor, full: Tensor, group: Optional[ProcessGroup] = None,
                   async_op: bool = False) -> Optional[Work]:
    """shard = this rank's part of the sum of all ranks' full."""
    return (group or world()).reduce_scatter(shard, full, async_op)


def barrier(group: Optional[ProcessGroup] = None) -> None:
    """Returns when every rank has called it."""
    (group or world()).barrier()


# --- a program's end ---------------------------------------------------------------------------------------------------

_exit_code = None


def _fail(kind, value, traceback):
    """An exception that nobody caught ends the job: this rank's traceback, then the first cause, once, for all ranks."""
    global _exit_code
    if not _core._has_job():
        return _print_exception(kind, value, traceback)
    if not isinstance(value, RankFailedError):
        _print_exception(kind, value, traceback)  # not of those that end because another has failed
    sys.stdout.flush()
    sys.stderr.flush()
    _exit_code = _core._finish(value if value is not None else kind())


def _end():
    _core._exiting()
    if _exit_code is None:
        code = _core._finish(None)
    else:
        code = _exit_code
    if code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the interpreter's own code would be another one


_print_exception = sys.excepthook
sys.excepthook = _fail
atexit.register(_end)
os.register_at_fork(after_in_child=_core._forked)
