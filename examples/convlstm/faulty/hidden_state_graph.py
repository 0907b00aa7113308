"""Fault: the LSTM's state is kept between batches together with the graph that made it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from model import ConvLSTM
from torch import Tensor
from train import main


class AttachedConvLSTM(ConvLSTM):
    """The backward pass of batch 2 runs on into batch 1, whose graph is already freed."""

    state: tuple[Tensor, Tensor] | None = None

    def last_step(self, sequence: Tensor) -> Tensor:
        """(batch, time, channels) -> (batch, hidden)."""
        outputs, self.state = self.lstm(sequence, self.state)
        return outputs[:, -1]


if __name__ == "__main__":
    main(model_class=AttachedConvLSTM)
