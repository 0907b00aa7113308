"""Steps of about 0.3 ms: a two-layer network on two tensors, nothing else. The hardest case."""

import sys

import torch
from stopwatch import Stopwatch
from torch import nn


def main(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    inputs, labels = torch.randn(64, 32), torch.randint(10, (64,))
    watch = Stopwatch()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        watch.mark(steps)
    watch.write()


main(int(sys.argv[1]))
