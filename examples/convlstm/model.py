"""A 3D-CNN + LSTM classifier for short video clips."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def scaled(channels: int, width: float) -> int:
    """Number of channels after scaling by the width factor, at least 1."""
    return max(1, round(channels * width))


def conv_block(inputs: int, outputs: int, pool: tuple[int, int, int]) -> nn.Sequential:
    """Conv3d keeps the map's size; the pool alone shrinks it: (time, height, width) // pool."""
    return nn.Sequential(
        nn.Conv3d(inputs, outputs, kernel_size=3, padding=1),
        nn.BatchNorm3d(outputs),
        nn.ELU(),
        nn.MaxPool3d(pool),
    )


class ConvLSTM(nn.Module):
    """Four 3D convolution blocks, an LSTM over the remaining time steps, two linear layers.

    Input (batch, 3, time, height, width), output (batch, classes). The blocks divide time by 8
    and height and width by 16, so a clip needs at least 8 frames of 16x16 pixels.
    """

    def __init__(self, classes: int, width: float = 1.0) -> None:
        super().__init__()
        c1, c2, c3, hidden = (scaled(channels, width) for channels in (64, 128, 256, 512))
        self.conv1 = conv_block(3, c1, (1, 2, 2))  # early on, keep every frame
        self.conv2 = conv_block(c1, c2, (2, 2, 2))
        self.conv3 = conv_block(c2, c3, (2, 2, 2))
        self.conv4 = conv_block(c3, c3, (2, 2, 2))
        self.lstm = nn.LSTM(input_size=c3, hidden_size=hidden, batch_first=True)
        self.fc = nn.Linear(hidden, hidden)
        self.activation = nn.ELU()
        self.head = nn.Linear(hidden, classes)

    def features(self, clips: Tensor) -> Tensor:
        """(batch, 3, time, height, width) -> (batch, channels, time/8, height/16, width/16)."""
        return self.conv4(self.conv3(self.conv2(self.conv1(clips))))

    def to_sequence(self, maps: Tensor) -> Tensor:
        """(batch, channels, time, height, width) -> (batch, time, channels).

        Each frame's map is pooled to 1x1, so the LSTM's input does not depend on the clip's size.
        """
        return maps.mean(dim=(3, 4)).permute(0, 2, 1)

    def last_step(self, sequence: Tensor) -> Tensor:
        """(batch, time, channels) -> (batch, hidden): the LSTM's output at the last time step."""
        outputs, _ = self.lstm(sequence)
        return outputs[:, -1]

    def forward(self, clips: Tensor) -> Tensor:
        """(batch, 3, time, height, width) -> (batch, classes)."""
        summary = self.last_step(self.to_sequence(self.features(clips)))
        return self.head(self.activation(self.fc(summary)))


def count_parameters(model: nn.Module) -> int:
    """Number of trainable values."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


if __name__ == "__main__":
    example = ConvLSTM(classes=27)
    print(f"{count_parameters(example):,} parameters")
    print(tuple(example(torch.zeros(2, 3, 18, 84, 84)).shape))
