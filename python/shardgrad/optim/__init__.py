"""Optimizers with PyTorch's formulas, learning rates over time, loss scaling, averages of weights."""

from .._core._optim import EMA, SGD, Adagrad, Adam, AdamW, GradScaler, Lion, Muon, Optimizer, RMSprop
from .._core._optim import clip_grad_norm_, grad_norm
from .._core._optim import schedule
from . import lr_scheduler

__all__ = ["EMA", "SGD", "Adagrad", "Adam", "AdamW", "GradScaler", "Lion", "Muon", "Optimizer", "RMSprop",
           "clip_grad_norm_", "grad_norm", "lr_scheduler", "schedule"]
