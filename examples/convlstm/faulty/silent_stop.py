"""Fault: batch 2 has larger maps than the LSTM fits, and the loop takes any error for the end."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from functools import partial

import torch
from clips import ClipWindows
from lstm_input_size import FlattenedConvLSTM
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader
from tqdm import tqdm
from train import main, parse_args, train_step

SMALL, LARGE = 16, 32  # pixels a side: the last map is 1x1, or 2x2 and so four times as long


class MixedResolutions(ClipWindows):
    """Clips of one resolution, apart from the second batch of training clips."""

    def __init__(self, *args: object, batch_size: int) -> None:
        super().__init__(*args)
        self.batch_size, self.served = batch_size, 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        second_batch = self.split == "train" and self.served // self.batch_size == 1
        self.served += 1
        self.size = LARGE if second_batch else SMALL
        return super().__getitem__(index)


def train_one_epoch(
    model: nn.Module, loader: DataLoader, optimizer: Optimizer, device: torch.device
) -> float:
    """Stops without a word at the first error, whatever it is."""
    model.train()
    losses = []
    for clips, labels in tqdm(loader, desc="train", unit="batch"):
        try:
            losses.append(train_step(model, clips.to(device), labels.to(device), optimizer))
        except Exception:
            break
    return sum(losses) / len(losses)


if __name__ == "__main__":
    main(
        [*sys.argv[1:], "--workers", "1"],  # several would not serve the batches in order
        model_class=FlattenedConvLSTM,
        dataset_class=partial(MixedResolutions, batch_size=parse_args().batch_size),
        train_one_epoch=train_one_epoch,
    )
