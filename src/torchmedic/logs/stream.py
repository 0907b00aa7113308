"""Logs of any size in little memory: the head, the tail, and what matters between them."""

from __future__ import annotations

import codecs
import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from torchmedic.logs.lines import HEADER

CHUNK = 2**20
LONGEST_LINE = 2**18
"""Bytes. Of a longer line the last state of its progress bar, or its ends, are kept."""
HEAD = TAIL = WINDOWS = 2**22
"""Bytes that are kept of each."""
BEFORE, AFTER = 30, 120
"""Lines around one that matters."""
SIGNS = re.compile(
    rb"Traceback|Error\b|Exception|ERROR|[Ww]arning|[Oo]ut of memory|OOM|oom|[Kk]illed|[Ss]ignal"
    rb"|core dumped|[Ff]ault\b|Abort|Assert|FAILED|NCCL|[Ee]xit ?code|  File \"|python|torchrun")
PARTS = (b"Traceback", b"Error", b"Exception", b"ERROR", b"arning", b"ut of memory", b"OOM", b"oom",
         b"illed", b"ignal", b"core dumped", b"ault", b"Abort", b"Assert", b"FAILED", b"NCCL",
         b"xit", b'  File "', b"python", b"torchrun")
"""A line with a sign has one of these; they are found much faster."""
CONTAINER = '{"log":"'
"""Docker writes each line of a container as an object."""
ESCAPED = re.compile(r"(?<!\\)\\n")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a log with the number each has in it. cut: how many lines were left out."""

    lines: tuple[str, ...]
    numbers: tuple[int, ...]
    cut: int = 0


def read(stream: BinaryIO) -> Excerpt:
    """Reads to the end. Memory does not grow with the log."""
    keeper = _Keeper()
    for block in _blocks(stream):
        keeper.add(block)
    return keeper.excerpt()


def _blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    rest = b""
    for chunk in _utf8(stream):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > LONGEST_LINE:
            rest = _shortened(rest)
        yield [line if len(line) <= LONGEST_LINE else _shortened(line) for line in lines]
    if rest:
        yield [rest]


def _shortened(line: bytes) -> bytes:
    half = LONGEST_LINE // 2
    state = line.rfind(b"\r", 0, len(line) - 1)
    return line[state + 1:] if len(line) - state <= half else line[:half] + line[-half:]


def _utf8(stream: BinaryIO) -> Iterator[bytes]:
    """Pieces of the stream; what a Windows shell wrote as UTF-16 becomes UTF-8."""
    read = getattr(stream, "read1", stream.read)  # a pipe gives what it has
    first = read(CHUNK)
    wide = _wide(first)
    decoder = codecs.getincrementaldecoder(wide)("replace") if wide else None
    while first:
        yield decoder.decode(first).encode("utf-8", "replace") if decoder else first
        first = read(CHUNK)


def _wide(first: bytes) -> str | None:
    marked = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for start, name in ((3, "utf-16-le"), (2, "utf-16-be")):
        half = first[start:start + 400:2]  # English text has a zero in every second byte
        if len(half) > 8 and half.count(0) > (0.5 if marked else 0.8) * len(half):
            return "utf-16" if marked else name
    return None


@dataclass(slots=True)
class _Keeper:
    """Takes blocks of lines in their order."""

    head: list[bytes] = field(default_factory=list)
    room: int = HEAD
    seen: int = 0
    tail: deque[tuple[int, list[bytes]]] = field(default_factory=deque)
    tail_size: int = 0
    early: _Windows = field(default_factory=lambda: _Windows())
    late: deque[tuple[int, bytes]] = field(default_factory=deque)
    late_size: int = 0
    wanted: int = 0
    """Lines after the last that mattered and which are still to come."""

    def add(self, block: list[bytes]) -> None:
        if self.room > 0:
            size = sum(map(len, block)) + len(block)
            self.room -= size
            self.head += block
        else:
            self._look(block)
            self._to_tail(block)
        self.seen += len(block)

    def _look(self, block: list[bytes]) -> None:
        """Keeps what lies around lines that matter."""
        whole = b"\n".join(block)
        if not self.wanted and not any(part in whole for part in PARTS):
            return
        before: deque[tuple[int, bytes]] = deque(maxlen=BEFORE)
        for number, line in enumerate(block, self.seen + 1):
            if SIGNS.search(line):
                for kept in before:
                    self._keep(*kept)
                before.clear()
                self.wanted = AFTER
            elif not self.wanted:
                before.append((number, line))
                continue
            else:
                self.wanted -= 1
            self._keep(number, line)

    def _keep(self, number: int, line: bytes) -> None:
        if self.early.size < WINDOWS:
            self.early.lines.append((number, line))
            self.early.size += len(line) + 1
            return
        self.late.append((number, line))
        self.late_size += len(line) + 1
        while self.late_size > WINDOWS:
            self.late_size -= len(self.late.popleft()[1]) + 1

    def _to_tail(self, block: list[bytes]) -> None:
        self.tail.append((self.seen + 1, block))
        self.tail_size += sum(map(len, block))
        while len(self.tail) > 1 and self.tail_size - sum(map(len, self.tail[0][1])) > TAIL:
            self.tail_size -= sum(map(len, self.tail.popleft()[1]))

    def excerpt(self) -> Excerpt:
        found = dict(enumerate(self.head, 1))
        found.update(self.early.lines)
        found.update(self.late)
        for first, block in self.tail:
            found.update(enumerate(block, first))
        lines: list[str] = []
        numbers: list[int] = []
        before = 0
        for number in sorted(found):
            text = found[number].decode("utf-8", "replace").replace("\0", "")
            parts = ([""] if number > before + 1 else []) + _unescaped(text)
            lines += parts
            numbers += [number] * len(parts)
            before = number
        return Excerpt(tuple(lines), tuple(numbers), self.seen - len(found))


@dataclass(slots=True)
class _Windows:
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0


def _unescaped(text: str) -> list[str]:
    """A traceback that was logged as one string, with a backslash and an `n` for a line's end."""
    if text.startswith(CONTAINER):
        text = _of_container(text)
    if HEADER + "\\n" not in text:
        return [text]
    start = text.index(HEADER)
    return [text[:start], *(part.replace('\\"', '"').replace("\\'", "'").replace("\\\\", "\\")
                            for part in ESCAPED.split(text[start:]))]


def _of_container(text: str) -> str:
    try:
        return str(json.loads(text)["log"]).rstrip("\n")
    except (ValueError, KeyError, TypeError):
        return text
