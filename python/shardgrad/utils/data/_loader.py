"""Batches of samples."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, Optional

from ..._core import InputError, Tensor, stack, tensor
from ._datasets import Dataset
from ._samplers import RandomSampler, SequentialSampler


def default_collate(samples: list) -> Any:
    """A batch of samples: tensors, arrays and numbers become tensors with one dimension more, tuples and dicts of them
    tuples and dicts of batches, anything else a list.
    """
    first = samples[0]
    if isinstance(first, Tensor):
        return stack(samples)
    if isinstance(first, (bool, int, float)):
        return tensor(samples)
    if hasattr(first, "__array_interface__"):
        return stack([tensor(sample) for sample in samples])
    if isinstance(first, Mapping):
        return {key: default_collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*map(default_collate, map(list, zip(*samples))))
    if isinstance(first, (tuple, list)):
        return tuple(map(default_collate, map(list, zip(*samples))))
    return samples


class DataLoader:
    """Batches of a dataset's samples, as collate_fn makes them of a list of samples; made when they are asked for.

    Shuffled, each pass has an order of its own, which follows from the seed of random numbers and is the same on every
    rank. A sampler says instead which samples come: DistributedSampler those of this rank.
    """

    def __init__(self, dataset: Dataset[Any], batch_size: int = 1, shuffle: bool = False,
                 sampler: Optional[Iterable[int]] = None, drop_last: bool = False,
                 collate_fn: Callable[[list], Any] = default_collate):
        if batch_size < 1:
            raise InputError(f"DataLoader: batches of {batch_size} samples are not possible")
        if sampler is not None and shuffle:
            raise InputError("DataLoader: a sampler has an order of its own; shuffle=False")
        self.dataset, self.batch_size, self.drop_last, self.collate_fn = dataset, batch_size, drop_last, collate_fn
        order = RandomSampler(dataset) if shuffle else SequentialSampler(dataset)
        self.sampler: Any = order if sampler is None else sampler

    def __iter__(self) -> Iterator[Any]:
        batch: list = []
        for index in self.sampler:
            batch.append(self.dataset[index])
            if len(batch) == self.batch_size:
                yield self.collate_fn(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)
