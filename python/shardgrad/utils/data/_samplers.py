"""Which samples come when."""

from collections.abc import Iterator, Sized
from typing import Any, Generic, Optional, TypeVar

from ..._core import InputError, _serial, initial_seed
from ..._core._dist import world
from ._order import check_no_generator, shuffled

T = TypeVar("T", covariant=True)


class Sampler(Generic[T]):
    """What a dataset is asked for, such as numbers of samples, in some order: by __iter__ and __len__."""

    def __iter__(self) -> Iterator[T]:
        raise NotImplementedError("a Sampler needs an __iter__()")

    def __len__(self) -> int:
        raise NotImplementedError("a Sampler needs a __len__()")


class SequentialSampler(Sampler[int]):
    """The samples in their own order."""

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class _Epochs(Sampler[int]):
    """What has another order in each epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Which epoch the next pass is: its order follows from the seed and this number."""
        self.epoch = epoch


class RandomSampler(_Epochs):
    """All samples in an order drawn anew for each pass, from the seed of random numbers unless one is given.

    Passes count themselves as epochs; a run that goes on says by set_epoch which one is next. Without a seed of its own
    a sampler's order also follows from how many such samplers were made before it since manual_seed: ranks make theirs
    alike.
    """

    def __init__(self, data_source: Sized, seed: Optional[int] = None, *, generator: Any = None):
        check_no_generator("RandomSampler", generator)
        self.data_source, self.seed = data_source, seed
        self._serial = _serial("RandomSampler") if seed is None else None

    def __iter__(self) -> Iterator[int]:
        words = (initial_seed(), self._serial) if self.seed is None else (self.seed,)
        self.epoch += 1
        return iter(shuffled(len(self.data_source), "RandomSampler", *words, self.epoch - 1))

    def __len__(self) -> int:
        return len(self.data_source)


class DistributedSampler(_Epochs):
    """This rank's samples: every so-manyth of all, as many on each rank.

    What is left over is left out with drop_last; else the first samples come once more. Call set_epoch before each pass:
    an epoch's order follows from the seed and its number, the same on every rank.
    """

    def __init__(self, dataset: Sized, num_replicas: Optional[int] = None, rank: Optional[int] = None,
                 shuffle: bool = True, seed: int = 0, drop_last: bool = False):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.num_replicas = world().size if num_replicas is None else num_replicas
        self.rank = world().rank if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise InputError(f"DistributedSampler: there is no rank {self.rank} of {self.num_replicas}")
        count = len(dataset)
        self.num_samples = count // self.num_replicas if drop_last else -(-count // self.num_replicas)

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        order = shuffled(count, "DistributedSampler", self.seed, self.epoch) if self.shuffle else list(range(count))
        total = self.num_samples * self.num_replicas
        return iter([order[i % count] for i in range(self.rank, total, self.num_replicas)])

    def __len__(self) -> int:
        return self.num_samples
