"""Reads the operations of a pickle from a stream, within bounds that checkpoints keep to."""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

MOST_BYTES = 64 << 20
"""Kept of one pickle; the largest state dicts need a few megabytes."""
MOST_STEPS = 3_000_000
LARGE = 1 << 20
"""A text or a block of bytes from here on is passed over, not kept."""
MOST_SKIPPED = 1 << 30
"""Of a compressed stream, where passing over means reading."""


class Unreadable(Exception):
    """The bytes are no pickle. cut: they end too early."""

    def __init__(self, why: str, cut: bool = False) -> None:
        super().__init__(why)
        self.cut = cut


class TooLarge(Unreadable):
    """More than any checkpoint needs."""


@dataclass(slots=True, eq=False)
class Opaque:
    """Something nobody needs to know more of. size: the bytes that were passed over."""

    size: int = 0


class Bounded:
    """A stream that gives no more than a number of bytes, and knows whether it ended early."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.left, self.short = stream, MOST_BYTES, False
        self.skippable = MOST_SKIPPED

    def read(self, count: int) -> bytes:
        if count > self.left:
            raise TooLarge(f"a pickle that asks for {count} bytes at once or in all")
        got = self.stream.read(count)
        self.short |= len(got) < count
        self.left -= len(got)
        return got

    def skip(self, count: int) -> Opaque:
        if count >= 1 << 62:
            self.short = True
            raise ValueError("a length that no file has")
        if isinstance(self.stream, io.BufferedReader):
            self.stream.seek(count - 1, 1)
            self.short |= not self.stream.read(1)
            return Opaque(count)
        self.skippable -= count
        if self.skippable < 0:
            raise TooLarge(f"a compressed pickle with a block of {count} bytes")
        for start in range(0, count, LARGE):
            want = min(LARGE, count - start)
            self.short |= len(self.stream.read(want)) < want
        return Opaque(count)

    def readline(self) -> bytes:
        got = self.stream.readline(min(self.left, 1 << 16))
        self.short |= not got.endswith(b"\n")
        self.left -= len(got)
        return got


_OPERATIONS = {ord(found.code): found for found in pickletools.opcodes}
_BLOCKS = {"BINBYTES": "<I", "BINBYTES8": "<Q", "BYTEARRAY8": "<Q", "BINSTRING": "<i",
           "BINUNICODE": "<I", "BINUNICODE8": "<Q"}


def operations(stream: Bounded) -> Iterator[tuple[str, Any]]:
    """Names and arguments, as `pickletools.genops` gives them; large blocks are passed over."""
    for _ in range(MOST_STEPS):
        code = stream.read(1)
        if not code:
            return
        operation = _OPERATIONS.get(code[0])
        if operation is None:
            raise ValueError(f"byte {code[0]} is no operation of a pickle")
        name = operation.name
        if name in _BLOCKS:
            yield name, _block(stream, name)
        else:
            read = operation.arg and operation.arg.reader
            yield name, read(cast("BinaryIO", stream)) if read else None
    raise TooLarge(f"a pickle of more than {MOST_STEPS} steps")


def _block(stream: Bounded, name: str) -> Any:
    width = struct.calcsize(_BLOCKS[name])
    count, = struct.unpack(_BLOCKS[name], stream.read(width))
    if count >= LARGE:
        return stream.skip(count)
    if count < 0:
        raise ValueError("a text of negative length")
    got = stream.read(count)
    if len(got) < count:
        raise ValueError("the bytes end inside a text")
    if "UNICODE" in name:
        return got.decode("utf-8", "surrogatepass")
    return got.decode("latin-1") if name == "BINSTRING" else got
