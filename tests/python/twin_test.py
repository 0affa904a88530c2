"""One training script in Python and in C++ (twin.cpp): the same bits, under every strategy, on 1, 2 and 4 ranks."""

import os
import subprocess

import pytest
import shardgrad as sg

TRAIN = """
    import shardgrad as sg
    from shardgrad import nn, optim

    F = nn.functional
    world = sg.dist.init()

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.up = nn.Linear(width, 2 * width)
            self.down = nn.Linear(2 * width, width)
            self.drop = nn.Dropout(0.2)

        def forward(self, x):
            return x + self.drop(self.down(F.gelu(self.up(x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 8)
            self.blocks = nn.ModuleList(Block(8) for _ in range(3))
            self.norm = nn.LayerNorm(8)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            x = self.first(x)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    def train(model, sharded, optimizer, batch=16):
        part = batch // world.size
        mine = slice(world.rank * part, (world.rank + 1) * part)
        for step in range(5):
            sg.set_progress(step, world.rank * part)
            x, labels = sg.randn(batch, 6, name="x"), sg.randint(0, 3, (batch,), name="y")
            loss = F.cross_entropy(model(x[mine]), labels[mine], count=batch)
            loss.backward()
            sharded.clip_grad_norm_(0.5)
            optimizer.step()
            optimizer.zero_grad()

    for strategy in sg.fsdp.strategies():
        sg.manual_seed(7)
        model = Net()
        more = dict(shard_ranks=max(1, world.size // 2)) if strategy == "hybrid" else {}
        sharded = sg.fully_shard(model, strategy=strategy, **more)
        optimizer = optim.AdamW(model.parameters(), lr=1e-2, rules={"*.bias": {"weight_decay": 0}})
        train(model, sharded, optimizer)
        state, moments = sharded.full_state_dict(), sharded.full_optim_state_dict(optimizer)
        if world.rank == 0:
            sg.save({**state, **moments}, f"python-{strategy}.safetensors")
"""


@pytest.mark.parametrize("n", [1, 2, 4])
def test_python_and_cpp_train_the_same_bits(ranks, tmp_path, n):
    ranks(n, TRAIN)
    program = [os.environ["SHARDGRAD_PROGRAM"], "launch", "-n", str(n), "--by", "local"]
    twin = subprocess.run([*program, os.environ["SHARDGRAD_TWIN"], str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert twin.returncode == 0, twin.stderr
    first = None
    for strategy in sg.fsdp.strategies():
        python, cpp = (sg.load(str(tmp_path / f"{side}-{strategy}.safetensors")) for side in ("python", "cpp"))
        assert python.keys() == cpp.keys() and len(python) == 3 * 18 + 2 * 18  # weights and moments, steps and rates
        for name in python:
            assert python[name].tolist() == cpp[name].tolist(), f"{strategy}: {name}"
        values = {name: tensor.tolist() for name, tensor in python.items()}
        first = first or values
        assert values == first, f"{strategy} has other bits than ddp"
