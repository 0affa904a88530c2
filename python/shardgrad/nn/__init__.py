"""Modules: the library's layers and losses, and Module to derive one's own from."""

from .._core._nn import *  # noqa: F403: layers and losses
from .._core._nn import Module, Parameter, init, recompute, recompute_by_name, recompute_by_type
from . import functional, utils
from ._activations import GLU, SELU, Hardswish, LogSigmoid, Mish, PReLU, ReLU6
from ._containers import ModuleDict, ModuleList, Sequential
from ._losses import BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, NLLLoss
from ._windows import AdaptiveAvgPool1d, AvgPool1d, Dropout2d, MaxPool1d
