"""Samples, and batches of them: datasets, samplers, and a loader, with PyTorch's names."""

from ._datasets import Dataset, Subset, TensorDataset, random_split
from ._loader import DataLoader, default_collate
from ._samplers import DistributedSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "Dataset", "DistributedSampler", "RandomSampler", "Sampler", "SequentialSampler", "Subset",
           "TensorDataset", "default_collate", "random_split"]
