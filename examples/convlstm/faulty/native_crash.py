"""Fault: native code called by a normalisation layer reads address 0 in batch 2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import ctypes

from model import ConvLSTM
from torch import Tensor, nn
from train import main


class NativeNormalize(nn.Module):
    """Reads its table of statistics through a pointer that is null after the first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.table = ctypes.create_string_buffer(b"statistics")
        self.address = ctypes.addressof(self.table)

    def forward(self, clips: Tensor) -> Tensor:
        """(batch, 3, time, height, width) -> the same shape, around 0 for each clip."""
        ctypes.string_at(self.address)
        self.address = 0
        return clips - clips.mean(dim=(1, 2, 3, 4), keepdim=True)


class NormalizedConvLSTM(ConvLSTM):
    """The classifier with a normalisation layer in front."""

    def __init__(self, classes: int, width: float) -> None:
        super().__init__(classes, width)
        self.normalize = NativeNormalize()

    def features(self, clips: Tensor) -> Tensor:
        """As in the base class, of normalised clips."""
        return super().features(self.normalize(clips))


if __name__ == "__main__":
    main(model_class=NormalizedConvLSTM)
