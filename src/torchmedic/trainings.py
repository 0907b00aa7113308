"""Training programs for the examples of source rules: one template, with lines to fill in."""

from __future__ import annotations

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
MODEL = """
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
"""
STEP = """
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
"""


def indented(text: str, depth: int) -> str:
    return "".join(" " * 4 * depth + line + "\n" if line.strip() else "\n"
                   for line in text.strip("\n").split("\n"))


def training(batch: str = STEP, *, setup: str = MODEL, more: str = "", before: str = "",
             after: str = "", index: bool = False) -> str:
    """A file that trains: `batch` for each batch, `before` and `after` it for each epoch."""
    head = "for i, (x, y) in enumerate(loader):" if index else "for x, y in loader:"
    return (f"{HEAD}{setup}{more}\nfor epoch in range(3):\n{indented(before or 'pass', 1)}"
            f"    {head}\n{indented(batch, 2)}{indented(after or 'pass', 1)}")


def module(forward: str, init: str = "self.layer = nn.Linear(8, 3)", more: str = "") -> str:
    """A class of a model, and its instance."""
    return (f"{HEAD}\n\nclass Net(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{indented(init, 2)}\n    def forward(self, x):\n"
            f"{indented(forward, 2)}\n\nmodel = Net()\n{more}")
