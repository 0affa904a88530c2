"""Tensors, reverse-mode autograd and ZeRO-3 sharded training, from C++ and CUDA.

    import shardgrad as sg
    from shardgrad import nn, optim

    world = sg.dist.init()                       # under `shardgrad launch -n 4 python train.py`, or alone
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    sg.fully_shard(model, strategy="zero3")
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    loss = nn.functional.cross_entropy(model(x), labels, count=batch)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

Names and arguments are PyTorch's where it has them; docs/python.md says what differs.
"""

from math import inf, nan, pi

from . import _core, _scopes
from ._absent import answer_for
from ._core import *  # noqa: F403: operations, dtypes, errors
from ._core import Ledger, Record, Recorder, Tensor, load_checkpoint, save_checkpoint, set_progress
from ._core import __version__, parallel
from ._files import load, save
from ._function import Function, checkpoint
from ._grad import grad
from ._device import device
from ._scopes import autocast, detect_anomaly, enable_grad, inference_mode, no_grad, set_grad_enabled
from . import autograd, cuda, dist, fsdp, nn, optim, utils
from .fsdp import fully_shard

# Other names of dtypes; a truth is a uint8.
float, double, half, long, int = float32, float64, float16, int64, int32  # noqa: A001, F405


def is_tensor(x: object) -> bool:
    """Whether it is a tensor."""
    return isinstance(x, Tensor)


ledger = Ledger()
recorder = Recorder()

for _room in (__name__, autograd.__name__, nn.__name__, nn.functional.__name__, nn.utils.__name__, nn.utils.rnn.__name__, optim.__name__,
              optim.lr_scheduler.__name__, utils.__name__, cuda.__name__):
    answer_for(_room)

del _core, _room, _scopes, answer_for
