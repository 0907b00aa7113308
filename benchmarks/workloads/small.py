"""Steps of 1 to 2 ms: a small convolutional network fed by a DataLoader without workers."""

import sys

import torch
from stopwatch import Stopwatch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, PASSES = 8, 5


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 4 * 4, 10),
    )


def main(steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    samples = steps // PASSES * BATCH
    data = TensorDataset(torch.randn(samples, 1, 16, 16), torch.randint(10, (samples,)))
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    criterion = nn.CrossEntropyLoss()
    watch = Stopwatch()
    for _ in range(PASSES):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            watch.mark(steps)
    watch.write()


main(int(sys.argv[1]))
