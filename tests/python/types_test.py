"""The type stubs: a program of a user's passes mypy, and its mistakes do not."""

import os
import subprocess
import sys
import textwrap

PROGRAM = """
    import copy

    import shardgrad as sg
    from shardgrad import nn, optim

    F = nn.functional
    world = sg.dist.init(seed=1)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(4, 8)

        def forward(self, x: sg.Tensor) -> sg.Tensor:
            return F.relu(self.up(x))

    model = Net()
    teacher: Net = copy.deepcopy(model)
    scale: sg.Tensor = nn.Parameter(sg.ones(2)) * 2
    sharded = sg.fully_shard(model, strategy="zero3", wrap=sg.fsdp.wrap_by_type([nn.Linear]))
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    y: sg.Tensor = model(sg.ones(2, 4)) + 1
    z: sg.Tensor = 2 * y[0, 1:] - y.sum(1)[0]
    y += z.sum()
    loss = F.mse_loss(y, sg.zeros(2, 8), count=16.)
    loss.backward()
    rows: int = y.shape[0]
    rank: int = world.rank
    total: float = float(loss)
    with sg.no_grad():
        y += 1
    if y.dtype == sg.float32 and y.all():
        optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    first: sg.Tensor = next(model.parameters())
    count: int = sum(p.numel() for p in model.parameters())
    layers: list[nn.Module] = list(model.modules())
    missing, unexpected = model.load_state_dict(model.state_dict(), strict=False)
    names: list[str] = missing + unexpected
    place: str = y.to(sg.device("cpu"), non_blocking=True).device.type
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=10)
    scheduler.step()
    data = sg.utils.data.TensorDataset(sg.ones(8, 4), sg.zeros(8))
    for batch in sg.utils.data.DataLoader(data, batch_size=4, shuffle=True):
        rate: float = scheduler.get_last_lr()[0]
    with sg.autocast("cpu", sg.bfloat16), sg.inference_mode():
        padded: sg.Tensor = F.pad(sg.diag(sg.ones(3)), (1, 1))
    counts: sg.Tensor = y.clamp_(0, 1).pow_(2).type(sg.int64).flatten().bincount(minlength=3)
    counts //= 2
    rows_of: sg.Tensor = sg.where(counts > 0)[0]
    attended: sg.Tensor = F.scaled_dot_product_attention(y, y, y, is_causal=True)
    short: sg.Tensor = nn.Sequential(nn.MaxPool1d(2), nn.PReLU())(F.glu(y[None]))
    out, (h, c) = nn.LSTM(4, 8)(sg.ones(5, 2, 4))
    last: sg.Tensor = out + h + c
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    later = optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    kept: dict[str, sg.Tensor] = sg.load("state", map_location="cpu")
    version: str = sg.__version__
    (slope,) = sg.autograd.grad(loss, y)
    pooled: sg.Tensor = F.avg_pool2d(sg.einsum("ij,kj->ik", y, y)[None, None], (2, 1), ceil_mode=True)
"""


def mypy(tmp_path, source):
    path = tmp_path / "user.py"
    path.write_text(textwrap.dedent(source))
    environment = os.environ | {"MYPYPATH": os.environ["PYTHONPATH"]}
    run = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), str(path)], capture_output=True,
                         text=True, env=environment, cwd=tmp_path)
    return run.stdout


def test_a_users_program_passes(tmp_path):
    assert "Success" in (said := mypy(tmp_path, PROGRAM)), said


def test_mistakes_are_found(tmp_path):
    said = mypy(tmp_path, PROGRAM + """
    sg.zeros(2, 3).reshap(6)
    optimizer.step("now")
    text: str = world.rank
    nn.Linear(4)
    sg.vmap
    """)
    assert said.count("error:") == 5, said
