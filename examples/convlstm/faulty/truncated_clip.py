"""Fault: one clip file ends in the middle, as after an interrupted download."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tempfile

import av
from clips import SUFFIXES, default_folder
from train import main, parse_args


def copy_clip(source: Path, target: Path) -> None:
    """Copy the video stream with the index first, as clips on the web have it.

    The header of such a file can be read, and tells the full number of frames, after its end is
    lost: only decoding shows that something is wrong.
    """
    options = {"movflags": "faststart"}
    with av.open(str(source)) as reader, av.open(str(target), "w", options=options) as writer:
        stream = writer.add_stream_from_template(reader.streams.video[0])
        for packet in reader.demux(video=0):
            if packet.dts is not None:  # the packet without a time only marks the end
                packet.stream = stream
                writer.mux(packet)


def truncate(path: Path) -> None:
    """Keep the first half of a file."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


if __name__ == "__main__":
    original = parse_args().clips or default_folder()
    with tempfile.TemporaryDirectory(prefix="clips-") as name:
        folder = Path(name)
        for file in sorted(p for p in original.iterdir() if p.suffix.lower() in SUFFIXES):
            copy_clip(file, folder / (file.stem + ".mp4"))
        truncate(max(folder.iterdir(), key=lambda p: p.stat().st_size))
        main([*sys.argv[1:], "--clips", name])
