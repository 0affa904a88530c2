"""What samples are."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Generic, Optional, Sequence, TypeVar, Union

from ..._core import InputError, Tensor, _serial, initial_seed
from ._order import check_no_generator, shuffled

T = TypeVar("T", covariant=True)


class Dataset(Generic[T]):
    """Samples by their number. Derive from it and write __getitem__ and __len__."""

    def __getitem__(self, index: int) -> T:
        raise NotImplementedError("a Dataset needs a __getitem__(index)")

    def __len__(self) -> int:
        raise NotImplementedError("a Dataset needs a __len__()")

    def __iter__(self) -> Iterator[T]:
        return (self[index] for index in range(len(self)))

    def __add__(self, other: "Dataset[Any]") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T]):
    """Samples without numbers, which PyTorch has, and no loader here: to derive from it is refused."""

    def __init_subclass__(cls, **options: Any):
        raise InputError(f"IterableDataset: {cls.__name__} would have samples without numbers, which are not offered; write "
                         "a Dataset with __getitem__ and __len__, or walk over the samples without a DataLoader")


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is row i of each tensor."""

    def __init__(self, *tensors: Tensor):
        if len({len(tensor) for tensor in tensors}) != 1:
            raise InputError(f"TensorDataset: tensors of {[len(tensor) for tensor in tensors]} rows; give one number of rows")
        self.tensors = tensors

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return len(self.tensors[0])


class Subset(Dataset[T]):
    """The samples of a dataset with these numbers."""

    def __init__(self, dataset: Dataset[T], indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: int) -> T:
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset[Any]):
    """The samples of one dataset after those of another."""

    def __init__(self, datasets: Iterable[Dataset[Any]]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise InputError("ConcatDataset: there is no dataset")
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"ConcatDataset: there is no sample {index} of {len(self)}")
        which = bisect_right(self.cumulative_sizes, place)
        return self.datasets[which][place - (self.cumulative_sizes[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


def _sizes(count: int, lengths: Sequence[Union[int, float]]) -> list[int]:
    """Shares that sum to 1 as numbers of samples, of which the first ones have what is left over."""
    if abs(sum(lengths) - 1) > 1e-9:
        sizes = [int(length) for length in lengths]
    else:
        sizes = [int(count * share) for share in lengths]
        for i in range(count - sum(sizes)):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != count or min(sizes) < 0:
        raise InputError(f"random_split: parts of {list(lengths)} are not the {count} samples that there are")
    return sizes


def random_split(dataset: Dataset[T], lengths: Sequence[Union[int, float]], seed: Optional[int] = None, *,
                 generator: Any = None) -> list[Subset[T]]:
    """Parts with so many samples, or with such shares of them, drawn by the seed.

    Without one: by that of random numbers and by how many splits were made before this one since manual_seed. Every rank
    draws the same.
    """
    check_no_generator("random_split", generator)
    words = (initial_seed(), _serial("random_split")) if seed is None else (seed,)
    order = shuffled(len(dataset), "random_split", *words)
    parts, begin = [], 0
    for size in _sizes(len(dataset), lengths):
        parts.append(Subset(dataset, order[begin:begin + size]))
        begin += size
    return parts
