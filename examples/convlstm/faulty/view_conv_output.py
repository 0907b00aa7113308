"""Fault: the maps' time and channels are exchanged by view, which moves no value."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from model import ConvLSTM
from torch import Tensor
from train import main


class ViewConvLSTM(ConvLSTM):
    """Trains without an error: the shape is right, but each 'time step' mixes all times."""

    def to_sequence(self, maps: Tensor) -> Tensor:
        """(batch, channels, time, height, width) -> (batch, time, channels), wrongly."""
        batch, channels, time, _, _ = maps.shape
        return maps.mean(dim=(3, 4)).view(batch, time, channels)


if __name__ == "__main__":
    main(model_class=ViewConvLSTM)
