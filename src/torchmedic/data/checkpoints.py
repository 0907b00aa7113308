"""Reads what is in a checkpoint from its headers: no tensor, no torch, nothing is executed."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

from torchmedic.data.layouts import lay_out
from torchmedic.data.objects import SIZES, foreign, storage_of, wants_to_run
from torchmedic.data.pickles import Global, Machine, Made, Persistent, TooLarge, Unreadable
from torchmedic.observed.weights import Checkpoint, Defect

LEGACY = 0x1950A86A20F9469CFC6C
"""The number that files from before torch 1.6 begin with."""
TEXTS = ((b"version https://git-lfs", "pointer"), (b"<!doctype", "page"), (b"<html", "page"),
         (b"<?xml", "page"), (b"<", "page"), (b"{", "json"), (b"[", "json"))
MOST_MEMBERS = 2_000_000
CENTRAL = 64 << 20


def read(path: Path, inside: tuple[str, ...] | None = None) -> Checkpoint:
    """The checkpoint in a file or a folder. inside: keys that lead to the weights.

    Raises OSError where the file can't be opened.
    """
    if path.is_dir() or path.name.endswith(".index.json"):
        from torchmedic.data import folders

        return folders.read(path)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(512)
        file.seek(0)
        blank = Checkpoint(str(path), "unknown", size)
        if not head:
            return _with(blank, Defect("empty", "the file has 0 bytes"))
        if head[:4] == b"PK\x03\x04" or head[:4] == b"PK\x05\x06":
            return _of_zip(file, blank, inside)
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40:
            from torchmedic.data import safetensors

            return safetensors.read(file, blank)
        if (text := _text(head)) is not None:
            return _with(blank, text)
        return _of_pickle(file, blank, inside)


def _with(checkpoint: Checkpoint, *defects: Defect) -> Checkpoint:
    return replace(checkpoint, defects=(*checkpoint.defects, *defects))


def _text(head: bytes) -> Defect | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    first = start[:80].split(b"\n")[0].decode("utf-8", "replace")
    for begin, kind in TEXTS:
        if start.lower().startswith(begin):
            return Defect(kind, f"it begins with `{first}`")
    if not head.strip(b"\0"):
        return Defect("damaged", f"its first {len(head)} bytes are all zero")
    known = {b"\x89HDF": "HDF5 (Keras)", b"GGUF": "GGUF (llama.cpp)", b"\x1f\x8b": "gzip",
             b"\x93NUMPY": "NumPy", b"7z": "7z", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}
    for begin, name in known.items():
        if head.startswith(begin):
            return Defect("other", f"it is a file of the format {name}")
    return None


def _of_zip(file: BinaryIO, blank: Checkpoint, inside: tuple[str, ...] | None) -> Checkpoint:
    try:
        archive = zipfile.ZipFile(_Guarded(file, CENTRAL))
        members = {item.filename: item for item in archive.infolist()}
    except TooLarge as error:
        return _with(blank, Defect("too-large", str(error)))
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, KeyError) as error:
        return _with(replace(blank, format="zip"),
                     Defect("cut", f"a zip archive without its end: {error}"))
    top = next((name for name in members if name.endswith("/data.pkl")), None)
    if top is None:
        shown = ", ".join(list(members)[:3]) or "nothing"
        return _with(replace(blank, format="zip"), Defect(
            "other", f"a zip archive of {len(members)} files ({shown}), none of them data.pkl"))
    base = top.removesuffix("data.pkl")
    script = any(name.startswith(f"{base}code/") for name in members)
    blank = replace(blank, format="TorchScript" if script else "torch (zip)")
    machine = Machine()
    try:
        with archive.open(members[top]) as stream:
            root = machine.run(cast("BinaryIO", stream))
    except (Unreadable, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError,
            OSError, ValueError) as error:
        return _broken(blank, machine, error)
    made = _made(blank, machine, root, inside)
    wanted = {key: count * SIZES.get(dtype, 1) for key, dtype, count in _storages(machine)}
    for key, count in wanted.items():
        item = members.get(f"{base}data/{key}")
        if item is None:
            return _with(made, Defect("cut", f"the record data/{key} is not in the archive"))
        if item.file_size < count or item.header_offset + item.compress_size > blank.size:
            return _with(made, Defect("cut", f"the record data/{key} has {item.file_size} bytes, "
                                      f"its tensors need {count}"))
    return made


class _Guarded:
    """A file of which zipfile reads no more at once than a limit: the end record can lie."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file, self._most = file, most
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable
        self.mode, self.closed = "rb", False

    def read(self, count: int = -1) -> bytes:
        if count > self._most:
            raise TooLarge(f"a zip directory of {count} bytes")
        return self._file.read(self._most if count < 0 else count)

    def close(self) -> None:
        """The opener closes the file."""


def _of_pickle(file: BinaryIO, blank: Checkpoint, inside: tuple[str, ...] | None) -> Checkpoint:
    machine = Machine()
    try:
        root = machine.run(file)
        if root != LEGACY:
            return _made(replace(blank, format="pickle"), machine, root, inside)
        blank = replace(blank, format="torch (before 1.6)")
        machine.run(file)
        machine.run(file)
        root = machine.run(file)
        found = {key: count * SIZES.get(dtype, 1) for key, dtype, count in _storages(machine)}
        keys = Machine().run(file)
    except OSError as error:  # a block that ends far behind the file
        return _broken(blank, machine, Unreadable(str(error), cut=True))
    except Unreadable as error:
        return _broken(blank, machine, error)
    made = _made(blank, machine, root, inside)
    needs = sum(found.get(str(key), 0) + 8 for key in keys) if isinstance(keys, list) else 0
    has = blank.size - file.tell()
    if has < needs:
        return _with(made, Defect("cut", f"its tensors need {needs} bytes, {has} are there"))
    return made


def _storages(machine: Machine) -> list[tuple[str, str, int]]:
    return [storage_of(item.id) for item in machine.references if storage_of(item.id)[0]]


def _broken(blank: Checkpoint, machine: Machine, error: Exception) -> Checkpoint:
    if isinstance(error, TooLarge):
        return _with(blank, Defect("too-large", str(error)))
    if names := wants_to_run(machine.globals):
        return _with(blank, _hostile(names))
    known = blank.format != "unknown" or machine.globals
    if isinstance(error, Unreadable) and not error.cut and not known:
        return _with(blank, Defect("other", f"its bytes are of no known format ({error})"))
    cut = isinstance(error, Unreadable) and error.cut
    return _with(blank, Defect("cut" if cut else "damaged", str(error)))


def _hostile(names: tuple[str, ...]) -> Defect:
    return Defect("hostile", "the pickle asks for them; they were not called", names)


def _made(blank: Checkpoint, machine: Machine, root: Any,
          inside: tuple[str, ...] | None) -> Checkpoint:
    layout = lay_out(root, inside)
    defects = []
    script = blank.format == "TorchScript"
    if (names := wants_to_run(machine.globals)) and not script:
        defects.append(_hostile(names))
    elif isinstance(root, Made) and isinstance(root.maker, Global) and not script:
        defects.append(Defect("whole-model", "its outermost object", (str(_class(root)),)))
    elif isinstance(root, (Persistent, int, str, bytes, float, type(None))):
        defects.append(Defect("other", f"its outermost object is of type {type(root).__name__}"))
    notes = (f"further state dicts: {', '.join(layout.others[:6])}",) if layout.others else ()
    return replace(blank, weights=layout.weights, within=layout.within, entries=layout.entries,
                   defects=tuple(defects), notes=notes,
                   refused=() if script else foreign(machine.globals))


def _class(root: Made) -> Any:
    """The class itself where a helper such as `copyreg._reconstructor` would make it."""
    first = root.args[0] if isinstance(root.args, tuple) and root.args else None
    helper = isinstance(root.maker, Global) and root.maker.module in ("copyreg", "copy_reg")
    return first if helper and isinstance(first, Global) else root.maker
