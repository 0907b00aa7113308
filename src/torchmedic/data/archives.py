"""zip archives: `torch.save` from 1.6 on, TorchScript, torch.export, NumPy, and others."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import BinaryIO, cast

from torchmedic.data.bounded import TooLarge, Unreadable
from torchmedic.data.pickled import SCRIPT, broken, made, rooms
from torchmedic.data.pickles import Machine
from torchmedic.observed.weights import Checkpoint, Defect

FORMAT = "torch (zip)"
CENTRAL = 64 << 20
"""Bytes of an archive's directory."""
INNER = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".h5", ".onnx", ".pkl")
Members = Mapping[str, zipfile.ZipInfo]
END = "the archive's directory, which is at its end, is missing"


def read(file: BinaryIO, blank: Checkpoint, inside: tuple[str, ...] | None) -> Checkpoint:
    blank = replace(blank, format="zip")
    try:
        archive = zipfile.ZipFile(_Guarded(file, CENTRAL))
        members = {item.filename: item for item in archive.infolist()}
    except TooLarge as error:
        return _with(blank, "too-large", str(error))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, KeyError, struct.error):
        return _cut(file, blank, inside)
    if any(item.flag_bits & 1 for item in members.values()):
        return _with(blank, "encrypted", "a zip archive with a password")
    top = next((name for name in members if name.endswith("data.pkl") and name.count("/") <= 1), "")
    base = top.removesuffix("data.pkl")
    if not top or not any(n in (f"{base}version", f"{base}.data/version")
                          or n.startswith(f"{base}data/") for n in members):
        return _other(archive, members, blank)
    script = f"{base}constants.pkl" in members or any(n.startswith(f"{base}code/") for n in members)
    return _of_torch(file, archive, members, replace(blank, format=SCRIPT if script else FORMAT),
                     base, inside)


def _of_torch(file: BinaryIO, archive: zipfile.ZipFile, members: Members, blank: Checkpoint,
              base: str, inside: tuple[str, ...] | None) -> Checkpoint:
    machine = Machine()
    try:
        root = machine.run(_opened(file, archive, members[f"{base}data.pkl"]))
    except (Unreadable, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError,
            OSError, ValueError, struct.error, zlib.error) as error:
        return broken(blank, machine, error)
    found = made(blank, machine, root, inside)
    for key, room in rooms(machine).items():
        item = members.get(f"{base}data/{key}") or members.get(f"{base}{key}")
        if item is None:
            return _with(found, "damaged", f"the record data/{key} is not in the archive")
        if item.file_size < room or item.header_offset + item.compress_size > blank.size:
            return _with(found, "damaged", f"the record data/{key} has {item.file_size:,} bytes, "
                                           f"its tensors need {room:,}")
    return found


def _opened(file: BinaryIO, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> BinaryIO:
    """A member's bytes; in place where they are not compressed: torch may leave out their check
    sum (`set_crc32_options`)."""
    if item.compress_type != zipfile.ZIP_STORED:
        return cast("BinaryIO", archive.open(item))
    start = _first_byte(file, item.header_offset)
    if start is None:
        raise Unreadable("the header of data.pkl is missing")
    file.seek(start)
    return file


def _first_byte(file: BinaryIO, offset: int) -> int | None:
    """Where the bytes of the member begin whose header is there."""
    file.seek(offset)
    header = file.read(30)
    if len(header) < 30 or not header.startswith(b"PK\3\4"):
        return None
    name, extra = struct.unpack_from("<HH", header, 26)
    return int(offset + 30 + name + extra)


def _cut(file: BinaryIO, blank: Checkpoint, inside: tuple[str, ...] | None) -> Checkpoint:
    """torch writes the pickle first: it tells what should follow."""
    start = _first_byte(file, 0)
    file.seek(30)
    name = file.read(max(0, min((start or 30) - 30, 300)))
    if start is None or b"data.pkl" not in name:
        return _with(blank, "cut", END)
    blank = replace(blank, format=FORMAT)
    machine = Machine()
    file.seek(start)
    try:
        root = machine.run(file)
    except (Unreadable, OSError) as error:
        known = isinstance(error, TooLarge) or (isinstance(error, Unreadable) and error.cut)
        return broken(blank, machine, error) if known else _with(blank, "cut", END)
    there = max(0, blank.size - file.tell())
    lacking = sum(rooms(machine).values()) - there
    told = f", and with it at least {lacking:,} bytes" if lacking > 0 else ""
    return _with(made(blank, machine, root, inside), "cut", END + told)


def _other(archive: zipfile.ZipFile, members: Members, blank: Checkpoint) -> Checkpoint:
    files = [name for name in members if not name.endswith("/")]
    if files and all(name.endswith(".npy") for name in files):
        from torchmedic.data import arrays

        return arrays.npz(archive, files, blank)
    inner = [name for name in files if name.lower().endswith(INNER)]
    if any(n.endswith(("archive_format", "serialized_exported_program.json")) for n in files):
        what = "a program of torch.export (`torch.export.load` reads it)"
    elif "model.weights.h5" in files:
        what = "a Keras model"
    elif "MAR-INF/MANIFEST.json" in files:
        what = f"a TorchServe archive{_holding(inner)}"
    elif any(name.endswith(".dist-info/METADATA") for name in files):
        what = "a Python wheel"
    else:
        what = f"a zip archive without data.pkl{_holding(inner or files)}"
    return _with(blank, "other", what)


def _holding(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f", with `{names[0][:80]}`{more}" if names else ", with nothing"


def _with(checkpoint: Checkpoint, kind: str, detail: str) -> Checkpoint:
    return replace(checkpoint, defects=(*checkpoint.defects, Defect(kind, detail)))


class _Guarded:
    """A file of which zipfile reads no more at once than a limit: the end record can lie."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._most = file, most
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self.mode, self.closed = "rb", False

    def read(self, count: int = -1) -> bytes:
        if count > self._most:
            raise TooLarge(f"a zip directory of {count:,} bytes")
        return self._file.read(self._most if count < 0 else count)

    def close(self) -> None:
        """The opener closes the file."""
