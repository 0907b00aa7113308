"""Fault: batch normalisation of maps pooled to 1x1x1, and a last batch of one clip."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from functools import partial

from few_windows import FewWindows
from model import ConvLSTM, scaled
from torch import Tensor, nn
from train import main, parse_args


class PooledNormConvLSTM(ConvLSTM):
    """One value a channel and clip is too few to normalise when there is one clip."""

    def __init__(self, classes: int, width: float) -> None:
        super().__init__(classes, width)
        self.pool = nn.AdaptiveAvgPool3d(1)
        self.norm = nn.BatchNorm3d(scaled(256, width))

    def features(self, clips: Tensor) -> Tensor:
        """(batch, 3, time, height, width) -> (batch, channels, 1, 1, 1)."""
        return self.norm(self.pool(super().features(clips)))


if __name__ == "__main__":
    keep = parse_args().batch_size + 1  # batch 2, the last one, has a single clip
    main(model_class=PooledNormConvLSTM, dataset_class=partial(FewWindows, keep=keep))
