"""NumPy's own files: the headers of `.npy`, alone or in an `.npz`."""

from __future__ import annotations

import ast
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import BinaryIO, cast

from torchmedic.data.objects import NUMPY, shape_of
from torchmedic.observed.weights import Checkpoint, Defect, Stored

MOST = 1 << 16
NOTE = "`numpy.load` reads it, `torch.load` does not"


def npz(archive: zipfile.ZipFile, names: Sequence[str], blank: Checkpoint) -> Checkpoint:
    weights = {}
    for name in names:
        try:
            with archive.open(name) as stream:
                found = header(cast("BinaryIO", stream))
        except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError,
                ValueError, zlib.error, struct.error) as error:
            return replace(blank, defects=(Defect("damaged", f"{name[:60]}: {error}"),))
        if found is not None:
            weights[name.removesuffix(".npy")] = found
    return replace(blank, format="NumPy (.npz)", weights=weights, notes=(NOTE,))


def npy(file: BinaryIO, blank: Checkpoint) -> Checkpoint:
    found = header(file)
    if found is None:
        return replace(blank, defects=(Defect("damaged", "a NumPy array without a header"),))
    return replace(blank, format="NumPy (.npy)", weights={"(the file's only array)": found},
                   notes=(NOTE,))


def header(stream: BinaryIO) -> Stored | None:
    start = stream.read(12)
    if len(start) < 12 or not start.startswith(b"\x93NUMPY"):
        return None
    old = start[6] == 1  # its length has two bytes, not four
    count, = struct.unpack_from("<H" if old else "<I", start, 8)
    text = (start[10:] if old else b"") + stream.read(max(0, min(count, MOST) - 2 * old))
    try:
        data = ast.literal_eval(text.decode("latin-1").strip())
        code, shape = str(data["descr"]).lstrip("<>=|")[:20], shape_of(data["shape"])
    except (ValueError, SyntaxError, KeyError, TypeError, MemoryError, RecursionError):
        return None
    return None if shape is None else Stored(shape, NUMPY.get(code, code), kind="NumPy")
