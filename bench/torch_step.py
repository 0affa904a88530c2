"""The PyTorch side of bench/training_step.cpp: the same arguments and protocol, and before them perhaps --compile: models by
torch.compile. Where that fails, the answer is "not here".

Its strategies are ddp (DistributedDataParallel) and zero3 (fully_shard of FSDP2, a unit per block), both with gloo. Each rank
is a process with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and reads the same lines; rank 0 answers.
"""
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F

COMPILES = sys.argv[1] == "--compile"
compiled = torch.compile if COMPILES else lambda model: model
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def own_rows(whole):
    rows = len(whole) // WORLD
    return whole[RANK * rows : (RANK + 1) * rows].clone()


def shard(model, units):
    if strategy == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    if strategy == "zero3":
        from torch.distributed.fsdp import fully_shard

        for unit in units:
            fully_shard(unit)
        fully_shard(model)
    return model


def wave(shape, step, scale):
    values = torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * step) * scale
    return values.float().reshape(shape)


def noise(shape, scale):
    values = torch.sin(torch.arange(math.prod(shape), dtype=torch.float64) * 12.9898) * 43758.5453
    return ((values - values.floor() - 0.5) * 2 * scale).float().reshape(shape)


def mlp(batch, *sizes):
    layers = []
    for i in range(len(sizes) - 1):
        layers.append(torch.nn.Linear(sizes[i], sizes[i + 1]))
        if i + 2 < len(sizes):
            layers.append(torch.nn.ReLU())
    model = torch.nn.Sequential(*layers)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(wave(p.shape, 0.7, p.shape[-1] ** -0.5))
    model = shard(model, [layer for layer in model if isinstance(layer, torch.nn.Linear)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model = compiled(model)
    x, target = own_rows(wave((batch * WORLD, sizes[0]), 0.3, 1)), own_rows(wave((batch * WORLD, sizes[-1]), 0.11, 1))
    criterion = torch.nn.MSELoss()

    def step():
        loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def of_pictures(model, shape):
    """Forward and backward; what is compared is the gradient of the pictures."""
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.copy_(noise(p.shape, p[0].numel() ** -0.5))
        for layer in model.modules():
            if getattr(layer, "bias", None) is not None:
                layer.bias.zero_()
    x = noise(shape, 1).requires_grad_()
    model = compiled(model)
    dy = wave(model(x).shape, 0.3, 1)

    def step():
        x.grad = None
        model.zero_grad()
        model(x).backward(dy)
        return x.grad

    return step


def lenet(batch):
    nn = torch.nn
    layers = [nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
              nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return of_pictures(nn.Sequential(*layers), (batch, 3, 32, 32))


class Residual(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.conv2 = (torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = torch.nn.BatchNorm2d(channels), torch.nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + x)


def residual(batch, channels, side):
    return of_pictures(Residual(channels), (batch, channels, side, side))


def scaled_dot_product(qkv, heads, kv_heads, dropout):
    """Of rows with the queries, keys and values of all heads, as one product makes them."""
    batch, length, row = qkv.shape
    depth = row // (heads + 2 * kv_heads)
    parts = qkv.split([heads * depth, kv_heads * depth, kv_heads * depth], 2)
    q, k, v = (part.view(batch, length, -1, depth).transpose(1, 2) for part in parts)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=heads != kv_heads)
    return y.transpose(1, 2).reshape(batch, length, heads * depth)


def attention(batch, length, heads, kv_heads, depth, dropout):
    qkv = wave((batch, length, (heads + 2 * kv_heads) * depth), 0.7, 1).requires_grad_()
    dy = wave((batch, length, heads * depth), 0.3, 1)
    attend = compiled(scaled_dot_product)

    def step():
        qkv.grad = None
        attend(qkv, heads, kv_heads, dropout).backward(dy)
        return qkv.grad

    return step


class Block(torch.nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.c_attn, self.c_proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.c_fc, self.mlp_proj = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        y = scaled_dot_product(self.c_attn(self.ln_1(x)), self.heads, self.heads, self.dropout)
        x = x + F.dropout(self.c_proj(y), self.dropout)
        y = F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")
        return x + F.dropout(self.mlp_proj(y), self.dropout)


class Gpt2(torch.nn.Module):
    def __init__(self, layers, width, heads, vocabulary, length, dropout):
        super().__init__()
        self.dropout = dropout
        self.wte, self.wpe = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        self.h = torch.nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.ln_f = torch.nn.LayerNorm(width)

    def forward(self, ids, targets):
        x = F.dropout(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])), self.dropout)
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)  # tied
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def gpt2(batch, length, layers, width, heads, vocabulary, dropout):
    """As its users train it: AdamW in one pass, the norm clipped, no decay of vectors."""
    model = Gpt2(layers, width, heads, vocabulary, length, dropout)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                p.copy_(noise(p.shape, 0.035))
            else:
                p.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
    model = shard(model, model.h)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-4, betas=(0.9, 0.95), fused=True)
    tokens = torch.arange(batch * WORLD * length + 1) * 7919 % 1009 % vocabulary
    model = compiled(model)
    ids, targets = own_rows(tokens[:-1].view(-1, length)), own_rows(tokens[1:].view(-1, length))

    def step():
        loss = model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def whole(value):
    """The mean over the ranks, which have the same number of rows."""
    value = value.detach().double().norm()
    if WORLD > 1:
        dist.all_reduce(value)
    return value.item() / WORLD


threads, strategy, kind, *words = sys.argv[2 if COMPILES else 1 :]
torch.set_num_threads(int(threads))
if strategy != "alone":
    dist.init_process_group("gloo")
KINDS = {"mlp": mlp, "lenet": lenet, "residual": residual, "attention": attention, "gpt2": gpt2}


def serve():
    step = KINDS[kind](*(float(word) if "." in word else int(word) for word in words))
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "check":
            answers = [whole(step()) for _ in range(3)]
        else:
            begin = time.perf_counter()
            for _ in range(int(rest[0])):
                step()
            if strategy != "alone":
                dist.barrier()
            answers = [time.perf_counter() - begin]
        if RANK == 0:
            print(*answers, flush=True)


try:
    serve()
except Exception as failure:
    if not COMPILES:
        raise
    print(f"torch.compile: {failure}", file=sys.stderr)
    print("not here", flush=True)
    sys.stdin.read()
if strategy != "alone":
    dist.destroy_process_group()
