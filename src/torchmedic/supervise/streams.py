"""Passes the child's output through byte for byte, and keeps its tail.

A terminal is passed on as it is: the child gets the very descriptor, so bars, prompts and
debuggers work, and there is no tail to keep. A file or pipe is fed through a pipe of ours. Where
both streams go to the same file, one pipe serves both, so that their order stays.
"""

from __future__ import annotations

import contextlib
import os
import select
from collections import deque

TAIL = 256 << 10  # bytes
CHUNK = 64 << 10


class Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int = TAIL) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    @property
    def text(self) -> str:
        return b"".join(self._chunks)[-self._limit :].decode("utf-8", "replace")


class Tee:
    """A pipe between the child and one of our own descriptors."""

    def __init__(self, target: int, tail: Tail) -> None:
        self.target = target
        self.tail = tail
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        self.open = True

    def child_started(self) -> None:
        """Only the child holds the writing end now."""
        os.close(self.write_end)

    def pump(self) -> bool:
        """Pass on what is there. True when something was; `open` is False at the end."""
        try:
            chunk = os.read(self.read_end, CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            return self._shut()
        self.tail.add(chunk)
        try:
            write_all(self.target, chunk)
        except BrokenPipeError:
            return self._shut()  # nobody reads: the child learns it as it would without us
        except OSError:
            pass
        return True

    def _shut(self) -> bool:
        self.open = False
        os.close(self.read_end)
        return False

    def leave_open(self) -> None:
        """The child is gone, but a daemon it left holds the stream: go on passing it, detached.

        Closing would send that daemon a SIGPIPE that it would not get without us.
        """
        if not self.open:
            return
        if os.fork() == 0:
            os.setsid()
            os.set_blocking(self.read_end, True)
            with contextlib.suppress(OSError):
                while chunk := os.read(self.read_end, CHUNK):
                    write_all(self.target, chunk)
            os._exit(0)
        os.close(self.read_end)
        self.open = False


def write_all(target: int, data: bytes) -> None:
    """All of it, also where whoever gave us the descriptor made it non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            select.select((), (target,), ())


def tees(tail: Tail) -> tuple[int | None, int | None, list[Tee]]:
    """(stdout, stderr) for Popen, None where the child inherits ours, and the tees to pump."""
    if _is_terminal(2):
        return None, None, []
    tee = Tee(2, tail)
    together = _same_file(1, 2)
    return (tee.write_end if together else None), tee.write_end, [tee]


def _is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def _same_file(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
