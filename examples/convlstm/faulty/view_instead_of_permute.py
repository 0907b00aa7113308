"""Fault: the clips' time and channels are exchanged by view, which moves no value."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from clips import ClipWindows
from torch import Tensor
from train import main


class ViewedClips(ClipWindows):
    """Trains without an error: the shape is right, but each 'channel' is a third of all frames."""

    def to_clip(self, pixels: Tensor) -> Tensor:
        """uint8 (frames, height, width, 3) -> float (3, frames, height, width), wrongly."""
        frames, height, width, channels = pixels.shape
        return super().to_clip(pixels.view(channels, frames, height, width).permute(1, 2, 3, 0))


if __name__ == "__main__":
    main(dataset_class=ViewedClips)
