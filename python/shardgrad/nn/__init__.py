"""Modules: the library's layers and losses, and Module to derive one's own from."""

from .._core._nn import *  # noqa: F403: layers and losses
from .._core._nn import Module, Parameter, init, recompute, recompute_by_name, recompute_by_type
from . import functional
from ._containers import ModuleDict, ModuleList, Sequential
from ._losses import BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, NLLLoss
