"""The Python side of bench/training_step.cpp, by the package shardgrad: the same arguments and protocol, of `alone mlp`."""
import math
import sys
import time

import shardgrad as sg
from shardgrad import nn, optim


def wave(shape, step, scale):
    return sg.tensor([math.sin(i * step) * scale for i in range(math.prod(shape))]).reshape(shape)


def mlp(batch, *sizes):
    last = len(sizes) - 2
    model = nn.Sequential(*(nn.Linear(a, b, activation="none" if i == last else "relu")
                            for i, (a, b) in enumerate(zip(sizes, sizes[1:]))))
    model.materialize()
    with sg.no_grad():
        for p in model.parameters():
            p.copy_(wave(p.shape, 0.7, p.shape[-1] ** -0.5))
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, target = wave((batch, sizes[0]), 0.3, 1), wave((batch, sizes[-1]), 0.11, 1)
    criterion = nn.MSELoss()

    def step():
        loss = criterion(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def main():
    threads, strategy, what, *numbers = sys.argv[1:]
    assert (strategy, what) == ("alone", "mlp"), "usage: python_step.py THREADS alone mlp BATCH SIZE SIZE [SIZE…]"
    sg.dist.init(threads=int(threads))
    step = mlp(*map(int, numbers))
    for line in sys.stdin:
        word, *count = line.split()
        if word == "check":
            print(*(step().norm().item() for _ in range(3)), flush=True)
            continue
        begin = time.perf_counter()
        for _ in range(int(count[0])):
            step()
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
