"""Which samples come when."""

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from math import inf, log
from typing import Any, Generic, Optional, TypeVar

from ..._core import InputError, _seedings, _serial, initial_seed
from ..._core._dist import world
from ._order import check_no_generator, random_of, shuffled

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


class _Drawn(_Epochs):
    """What is drawn anew for each pass: from the seed of random numbers unless one is given.

    Without a seed of its own an order also follows from how many such samplers were made before this one since
    manual_seed; one that is older than the last manual_seed is none of those, and has orders of its own.
    """

    _kind: str

    def __init__(self, seed: Optional[int], generator: Any):
        check_no_generator(self._kind, generator)
        self.seed = seed
        self._made = (_seedings(), _serial(self._kind)) if seed is None else None

    def _next_words(self) -> tuple[object, ...]:
        """What this pass follows from; the next one has the next epoch."""
        self.epoch += 1
        if self._made is None:
            return self._kind, self.seed, self.epoch - 1
        seeding, number = self._made
        age = () if seeding == _seedings() else ("made after seeding", seeding)
        return self._kind, initial_seed(), *age, number, self.epoch - 1


def check_count(name: str, what: str, count: Any) -> None:
    if isinstance(count, bool) or not hasattr(count, "__index__") or count < 1:
        raise InputError(f"{name}: {what} {count!r} is no number of samples, an integer of at least 1")


def _check_truth(name: str, replacement: Any) -> None:
    if not isinstance(replacement, bool):
        raise InputError(f"{name}: replacement {replacement!r} is neither True nor False; a seed is given by name, seed=…")


class RandomSampler(_Drawn):
    """All samples in an order drawn anew for each pass, from the seed of random numbers unless one is given.

    num_samples of them, and where that is more than there are each once before one comes again; with replacement each is
    drawn from all. Passes count themselves as epochs; a run that goes on says by set_epoch which one is next. Without a
    seed of its own a sampler's order also follows from how many such samplers were made before it since manual_seed: ranks
    make theirs alike.
    """

    _kind = "RandomSampler"

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: Optional[int] = None,
                 generator: Any = None, *, seed: Optional[int] = None):
        super().__init__(seed, generator)
        _check_truth("RandomSampler", replacement)
        if num_samples is not None:
            check_count("RandomSampler", "num_samples", num_samples)
        if num_samples is not None and len(data_source) == 0:
            raise InputError(f"RandomSampler: num_samples {num_samples} of no samples")
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples

    @property
    def num_samples(self) -> int:
        """How many a pass has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        words, count, wanted = self._next_words(), len(self.data_source), self.num_samples
        if self.replacement:
            return iter(random_of(*words).choices(range(count), k=wanted))
        order = shuffled(count, *words)
        for again in range(1, -(-wanted // max(count, 1))):
            order += shuffled(count, *words, "again", again)
        return iter(order[:wanted])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(_Drawn):
    """These samples in an order drawn anew for each pass."""

    _kind = "SubsetRandomSampler"

    def __init__(self, indices: Sequence[int], generator: Any = None, *, seed: Optional[int] = None):
        super().__init__(seed, generator)
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        order = shuffled(len(self.indices), *self._next_words())
        return iter([self.indices[i] for i in order])

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(_Drawn):
    """num_samples numbers of samples, each with the probability of its weight; without replacement none comes twice."""

    _kind = "WeightedRandomSampler"

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: Any = None, *,
                 seed: Optional[int] = None):
        super().__init__(seed, generator)
        _check_truth("WeightedRandomSampler", replacement)
        check_count("WeightedRandomSampler", "num_samples", num_samples)
        self.weights = [float(weight) for weight in weights]
        self.num_samples, self.replacement = num_samples, replacement
        possible = sum(weight > 0 for weight in self.weights)
        if not all(0 <= weight < inf for weight in self.weights) or possible == 0:
            raise InputError("WeightedRandomSampler: weights are numbers of at least 0, and one of them is above it")
        if not replacement and num_samples > possible:
            raise InputError(f"WeightedRandomSampler: {num_samples} different samples of {possible} whose weight is above 0")

    def __iter__(self) -> Iterator[int]:
        random, count = random_of(*self._next_words()), len(self.weights)
        if self.replacement:
            return iter(random.choices(range(count), self.weights, k=self.num_samples))
        # The largest of keys u^(1 / w), as Efraimidis and Spirakis draw; here their logarithms.
        keys = [(log(1 - random.random()) / weight if weight > 0 else -inf, i) for i, weight in enumerate(self.weights)]
        return iter([i for _, i in sorted(keys, reverse=True)[:self.num_samples]])

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[Any]]):
    """A sampler's samples in lists of batch_size; drop_last leaves out a shorter last one."""

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool):
        check_count("BatchSampler", "batch_size", batch_size)
        self.sampler: Any = sampler
        self.batch_size, self.drop_last = batch_size, drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        rest = iter(self.sampler)
        while batch := list(islice(rest, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


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
