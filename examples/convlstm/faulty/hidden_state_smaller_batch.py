"""Fault: the LSTM's state is kept between batches, and the last batch has fewer clips."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from functools import partial

from few_windows import FewWindows
from model import ConvLSTM
from torch import Tensor
from train import main, parse_args


class StatefulConvLSTM(ConvLSTM):
    """Begins each batch with the state that the previous batch left, one row for each clip."""

    state: tuple[Tensor, Tensor] | None = None

    def last_step(self, sequence: Tensor) -> Tensor:
        """(batch, time, channels) -> (batch, hidden)."""
        outputs, (hidden, cell) = self.lstm(sequence, self.state)
        self.state = (hidden.detach(), cell.detach())
        return outputs[:, -1]


if __name__ == "__main__":
    batch_size = parse_args().batch_size
    smaller = max(1, batch_size // 2)  # clips in batch 2, the last one
    main(
        model_class=StatefulConvLSTM,
        dataset_class=partial(FewWindows, keep=batch_size + smaller),
    )
