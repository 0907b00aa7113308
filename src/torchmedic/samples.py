"""Which sample of a dataset a failure was about: its index, its file, its batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Place
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame

SUFFIX = (
    r"\.(?:png|jpe?g|jpe|bmp|gif|webp|tiff?|jp2|heic|ppm|pgm|exr|hdr|dng|nef|dcm|nii(?:\.gz)?|mha"
    r"|nrrd|mp4|mkv|mov|avi|webm|m4v|mpe?g|flv|ts|wav|flac|mp3|ogg|opus|m4a|npz|npy|pt|pth|pkl"
    r"|pickle|mat|h5|hdf5|json|jsonl|ya?ml|xml|csv|tsv|txt|parquet|arrow|tfrecord|tar|zip|gz|bz2"
    r"|xz|ply|pcd|obj|las|laz|bin|safetensors)"
)
PATH = re.compile(rf"^[^\n\0'\"<>|*?]{{1,400}}{SUFFIX}$", re.IGNORECASE)
QUOTED = re.compile(rf"['\"]([^'\"\n]+{SUFFIX})['\"]", re.IGNORECASE)
FETCH = "_utils/fetch.py"
READING = ("__getitem__", "__getitems__", "__iter__", "__next__")


def is_compiled(frame: Frame) -> bool:
    """A frame of Cython code: its file is not there, its function has the module's full name."""
    return "." in frame.function.replace("<locals>", "")


def own_frames(failure: Failure) -> tuple[Frame, ...]:
    """The user's frames; compiled packages give theirs relative paths such as `av/error.py`."""
    roots = {f.function.partition(".")[0] for f in failure.frames if is_compiled(f)}
    return tuple(f for f in failure.frames if f.user and not is_compiled(f)
                 and re.split(r"[\\/]", f.file)[0] not in roots)


def own_place(failure: Failure) -> Place:
    """The user's innermost line, with what is known about the moment."""
    place, frames = failure.place, own_frames(failure)
    if not frames:
        return place
    last = frames[-1]
    return Place(file=last.file, line=last.line, function=last.function, phase=place.phase,
                 epoch=place.epoch, step=place.step, batch=place.batch, rank=place.rank,
                 pid=place.pid)


def reading(failure: Failure) -> tuple[Frame, ...]:
    """The frames from where a dataset was asked for a sample; empty when none was."""
    for at, frame in enumerate(failure.frames):
        file = frame.file.replace("\\", "/")
        loader = file.endswith((FETCH, "_utils/worker.py"))
        if loader or (frame.user and frame.function in READING):
            return failure.frames[at:]
    return ()


def index_of(failure: Failure) -> int | None:
    """The loader's index of the sample that was being read."""
    frames = reading(failure)
    for frame in frames:
        if frame.file.replace("\\", "/").endswith(FETCH) and (value := frame.values.get("idx")):
            return value.number if isinstance(value.number, int) else None
    asked = next((f for f in frames if f.function == "__getitem__" and f.user), None)
    numbers = [v.number for v in asked.values.values()] if asked else []
    known = [n for n in numbers if type(n) is int and (n in failure.indices)]
    return known[0] if known else None


def path_of(failure: Failure) -> str | None:
    """The file that was read: named in the message, or held by the innermost frame that has one."""
    named = QUOTED.findall(failure.message)
    if named:
        return str(named[-1])
    for frame in reversed(reading(failure)):
        texts = [v.text for v in frame.values.values() if v.kind == "text" and PATH.match(v.text)]
        if texts:
            return texts[-1]
    return None


def batch_facts(failure: Failure) -> tuple[Evidence, ...]:
    """Which samples were in the batch."""
    if not failure.indices:
        return ()
    shown = ", ".join(map(str, failure.indices[:8])) + (", …" if len(failure.indices) > 8 else "")
    which = f"batch {failure.batch}" if failure.batch else "the batch"
    samples = plural(len(failure.indices), "sample").partition(" ")[2]
    return (Evidence(f"{which} holds {samples} {shown}", "loader"),)
