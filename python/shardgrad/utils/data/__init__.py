"""Samples, and batches of them: datasets, samplers, and a loader, with PyTorch's names."""

from ._datasets import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split
from ._loader import DataLoader, default_collate
from ._samplers import (BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
                        WeightedRandomSampler)

__all__ = ["BatchSampler", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset",
           "RandomSampler", "Sampler", "SequentialSampler", "Subset", "SubsetRandomSampler", "TensorDataset",
           "WeightedRandomSampler", "default_collate", "random_split"]
