"""Passes the child's output through byte for byte, and keeps its tail.

A terminal is passed on as it is: the child gets the very descriptor, so bars, prompts and
debuggers work, and there is no tail to keep. So is a file, whose end is read afterwards. Only a
pipe is fed through a pipe of ours. Where both streams go to it, one serves both, so that their
order stays.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
from collections import deque
from dataclasses import dataclass

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


class FileTail:
    """The end of a file the child writes to itself: nothing of ours is in between."""

    def __init__(self, descriptor: int, limit: int = TAIL) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._start = os.fstat(descriptor).st_size

    @property
    def text(self) -> str:
        end = os.fstat(self._descriptor).st_size
        start = max(min(self._start, end), end - self._limit)
        return os.pread(self._descriptor, end - start, start).decode("utf-8", "replace")


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
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
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


@dataclass(frozen=True, slots=True)
class Streams:
    """How the child's output goes: descriptors for Popen (None: it inherits ours), and its tail."""

    out: int | None
    err: int | None
    tail: Tail | FileTail
    tees: tuple[Tee, ...] = ()
    terminal: bool = False


def connect() -> Streams:
    """The child's streams, by what our own standard error is."""
    if _is_terminal(2):
        return Streams(None, None, Tail(), terminal=True)
    if (reader := _reader_of_file(2)) is not None:
        return Streams(None, None, FileTail(reader))
    tail = Tail()
    tee = Tee(2, tail)
    together = _same_file(1, 2)
    return Streams(tee.write_end if together else None, tee.write_end, tail, (tee,))


def _reader_of_file(descriptor: int) -> int | None:
    """Another descriptor of the same file, for reading; None for anything but a file."""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


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
