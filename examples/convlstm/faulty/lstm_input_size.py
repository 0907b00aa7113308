"""Fault: maps are flattened for the LSTM, whose input size is the channel count alone."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from model import ConvLSTM
from torch import Tensor
from train import main


class FlattenedConvLSTM(ConvLSTM):
    """The LSTM gets channels * height * width values a step where it expects channels."""

    def to_sequence(self, maps: Tensor) -> Tensor:
        """(batch, channels, time, height, width) -> (batch, time, channels * height * width)."""
        return maps.permute(0, 2, 1, 3, 4).flatten(start_dim=2)


if __name__ == "__main__":
    main(model_class=FlattenedConvLSTM)
