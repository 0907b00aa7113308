"""Fault: a helper that checks a budget ends the whole program, with exit code 0, in batch 2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from tqdm import tqdm
from train import main, train_step

SAMPLE_BUDGET = 1  # meant to be a large number of clips


def check_budget(clips_seen: int) -> None:
    """A library function should return an answer; this one leaves."""
    if clips_seen > SAMPLE_BUDGET:
        sys.exit(0)


def train_one_epoch(
    model: nn.Module, loader: DataLoader, optimizer: Optimizer, device: torch.device
) -> float:
    """The plain loop with one innocent-looking call."""
    model.train()
    losses, seen = [], 0
    for clips, labels in tqdm(loader, desc="train", unit="batch"):
        check_budget(seen)
        losses.append(train_step(model, clips.to(device), labels.to(device), optimizer))
        seen += len(clips)
    return sum(losses) / len(losses)


if __name__ == "__main__":
    main(train_one_epoch=train_one_epoch)
