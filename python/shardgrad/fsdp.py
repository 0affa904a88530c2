"""Sharded training: every ZeRO stage by one engine, with the same bits (docs/zero.md)."""

from contextlib import contextmanager
from typing import Iterator

from ._core import _fsdp as _core
from ._core._fsdp import (PairwiseSum, Plan, Sharded, WrapPolicy, convert_sync_batchnorm, fully_shard, mean_buffers, plan,
                         strategies, wrap_by_name, wrap_by_size, wrap_by_type)

__all__ = ["PairwiseSum", "Plan", "Sharded", "WrapPolicy", "convert_sync_batchnorm", "fully_shard", "mean_buffers",
           "no_sync", "plan", "strategies", "summon_full_params", "wrap_by_name", "wrap_by_size", "wrap_by_type"]


@contextmanager
def no_sync(sharded: Sharded) -> Iterator[None]:
    """Backward passes inside add up gradients on each rank and send nothing; the first one after it reduces the sum."""
    scope = _core._no_sync(sharded)
    try:
        yield
    finally:
        scope.close()


@contextmanager
def summon_full_params(sharded: Sharded, write_back: bool = False) -> Iterator[None]:
    """Inside, the parameters are copies of the whole ones, to be read or edited; with write_back edits are kept.

    A collective. After an exception edits are dropped.
    """
    scope = _core._summon(sharded, write_back)
    try:
        yield
    except BaseException:
        scope.close(True)
        raise
    scope.close(False)
