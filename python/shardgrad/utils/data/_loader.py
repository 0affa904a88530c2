"""Batches of samples."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, Optional

from ..._core import InputError, Tensor, stack, tensor
from ._datasets import Dataset
from ._order import check_no_generator
from ._samplers import BatchSampler, RandomSampler, SequentialSampler, check_count


def _transposed(samples: list) -> list:
    if len({len(sample) for sample in samples}) > 1:
        raise InputError("default_collate: each element in list of batch should be of equal size, but one has "
                         f"{len(samples[0])} parts, others {sorted({len(sample) for sample in samples})}")
    return [default_collate(list(parts)) for parts in zip(*samples)]


def default_collate(samples: list) -> Any:
    """A batch of samples: tensors, arrays and numbers become tensors with one dimension more, tuples and lists of them a
    list of batches, dicts a dict of them; words stay a list. Python's floats are float32.
    """
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(samples)
    if hasattr(first, "__dlpack__") or hasattr(first, "__array_interface__"):
        return stack([tensor(sample) for sample in samples])
    if isinstance(first, (bool, int, float)):
        return tensor(samples)
    if isinstance(first, (str, bytes)):
        return samples
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*_transposed(samples))
    if isinstance(first, (tuple, list)):
        return _transposed(samples)
    raise InputError(f"default_collate: a sample has {first!r}, of type {type(first).__name__}, of which no batch is made; "
                     "give a collate_fn")


class DataLoader:
    """Batches of a dataset's samples, as collate_fn makes them of a list of samples; made when they are asked for.

    Shuffled, each pass has an order of its own, which follows from the seed of random numbers and is the same on every
    rank. A sampler says instead which samples come: DistributedSampler those of this rank. A batch_sampler gives lists of
    samples, each of which is a batch. There are no workers, and no memory is pinned: what PyTorch has for them is taken,
    and means nothing.
    """

    def __init__(self, dataset: Dataset[Any], batch_size: int = 1, shuffle: Optional[bool] = False,
                 sampler: Optional[Iterable[Any]] = None, batch_sampler: Optional[Iterable[Any]] = None, num_workers: int = 0,
                 collate_fn: Optional[Callable[[list], Any]] = None, pin_memory: bool = False, drop_last: bool = False,
                 timeout: float = 0, worker_init_fn: Optional[Callable[[int], None]] = None, multiprocessing_context: Any = None, *,
                 persistent_workers: bool = False, prefetch_factor: Optional[int] = None, generator: Any = None,
                 pin_memory_device: str = ""):
        check_no_generator("DataLoader", generator)
        if batch_size is None:
            raise InputError("DataLoader: batch_size=None, samples without batches, is not offered; walk over the dataset")
        check_count("DataLoader", "batch_size", batch_size)
        if sampler is not None and shuffle:
            raise InputError("DataLoader: a sampler has an order of its own; shuffle=False")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise InputError("DataLoader: a batch_sampler says all of batch_size, shuffle, sampler and drop_last; leave these "
                             "out")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size if batch_sampler is None else None, drop_last
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        if sampler is None and batch_sampler is None:
            sampler = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        self.sampler: Any = getattr(batch_sampler, "sampler", None) if sampler is None else sampler
        self.batch_sampler: Any = batch_sampler
        if batch_sampler is None:
            self.batch_sampler = BatchSampler(self.sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batch_sampler:
            yield self.collate_fn([self.dataset[index] for index in batch])

    def __len__(self) -> int:
        return len(self.batch_sampler)
