"""The PyTorch side of bench/training_step.cpp: the same arguments and protocol."""
import sys
import time

import torch

batch, threads, *sizes = map(int, sys.argv[1:])
torch.set_num_threads(threads)


def wave(shape, step, scale):
    n = 1
    for extent in shape:
        n *= extent
    return (torch.sin(torch.arange(n, dtype=torch.float64) * step) * scale).float().reshape(shape)


layers = []
for i in range(len(sizes) - 1):
    layers.append(torch.nn.Linear(sizes[i], sizes[i + 1]))
    if i + 2 < len(sizes):
        layers.append(torch.nn.ReLU())
model = torch.nn.Sequential(*layers)
with torch.no_grad():
    for p in model.parameters():
        p.copy_(wave(p.shape, 0.7, p.shape[-1] ** -0.5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
x, target = wave((batch, sizes[0]), 0.3, 1), wave((batch, sizes[-1]), 0.11, 1)
criterion = torch.nn.MSELoss()


def step():
    loss = criterion(model(x), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for line in sys.stdin:
    word, *rest = line.split()
    if word == "check":
        print(*(step().item() for _ in range(3)), flush=True)
    else:
        begin = time.perf_counter()
        for _ in range(int(rest[0])):
            step()
        print(time.perf_counter() - begin, flush=True)
