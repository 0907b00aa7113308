"""Reads what is in a checkpoint from its headers: no tensor, no torch, nothing is executed."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from torchmedic.data import formats
from torchmedic.data.bounded import Unreadable
from torchmedic.data.pickled import broken, made, rooms
from torchmedic.data.pickles import Machine
from torchmedic.observed.weights import Checkpoint, Defect

LEGACY = 0x1950A86A20F9469CFC6C
"""The number that files from before torch 1.6 begin with."""
HEAD = 4096


def read(path: Path, inside: tuple[str, ...] | None = None) -> Checkpoint:
    """The checkpoint in a file or a folder. inside: keys that lead to the weights.

    Raises OSError where the file can't be opened.
    """
    if path.is_dir() or path.name.endswith(".index.json"):
        from torchmedic.data import folders

        return folders.read(path)
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, "it is neither a file nor a folder")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD)
        file.seek(0)
        found = _by_its_head(file, head, Checkpoint(str(path), "unknown", size), inside)
    note = None if found.defects else formats.other_name(path.suffix, found.format)
    return replace(found, notes=(*found.notes, note)) if note else found


def _by_its_head(file: BinaryIO, head: bytes, blank: Checkpoint, inside: tuple[str, ...] | None
                 ) -> Checkpoint:
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        from torchmedic.data import archives

        return archives.read(file, blank, inside)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40:
        from torchmedic.data import safetensors

        return safetensors.read(file, blank)
    if head.startswith(b"\x93NUMPY"):
        from torchmedic.data import arrays

        return arrays.npy(file, blank)
    if formats.is_pickle(head):
        return _of_pickle(file, blank, inside)
    return replace(blank, defects=(formats.defect(head, blank.size, blank.file),))


def _of_pickle(file: BinaryIO, blank: Checkpoint, inside: tuple[str, ...] | None) -> Checkpoint:
    """The form before torch 1.6: five pickles, then the storages; or a pickle of another kind."""
    machine = Machine()
    blank = replace(blank, format="pickle")
    try:
        root = machine.run(file)
        if root != LEGACY:
            return _plain(made(blank, machine, root, inside))
        blank = replace(blank, format="torch (before 1.6)")
        machine.run(file)
        machine.run(file)
        root = machine.run(file)
        keys = Machine().run(file)
    except OSError as error:  # a block that ends far behind the file
        return broken(blank, machine, Unreadable(str(error), cut=True))
    except Unreadable as error:
        return broken(blank, machine, error)
    found = made(blank, machine, root, inside)
    sizes = rooms(machine)
    # Each storage is preceded by its length.
    needs = sum(sizes.get(str(key), 0) + 8 for key in keys) if isinstance(keys, list) else 0
    lacking = file.tell() + needs - blank.size
    if lacking > 0:
        return replace(found, defects=(*found.defects, Defect(
            "cut", f"{lacking:,} of {file.tell() + needs:,} bytes are missing")))
    return found


def _plain(found: Checkpoint) -> Checkpoint:
    if any(defect.kind in ("hostile", "other") for defect in found.defects):
        return found
    count = f" with {len(found.weights)} tensors or arrays" if found.weights else ""
    return replace(found, defects=(*found.defects, Defect("pickle", f"a plain pickle{count}")))
