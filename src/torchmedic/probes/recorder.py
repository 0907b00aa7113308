"""Where observations go: a ring (state, overwritten) and a spool (events, appended).

Both are files, so that what a process knew is there after a SIGKILL: a page written through a
shared mapping or by write(2) belongs to the kernel, not to the process. Every process has its
own pair; a forked child starts a new one before anything else of ours runs in it.
"""

from __future__ import annotations

import _thread
import mmap
import os
import sys
import time

from . import layout
from .encode import encode

HIGH_FD = 200  # The user's program keeps the low descriptor numbers it would have without us.
SPOOL_LIMIT = 8 << 20  # bytes per process; a run must never fill the disk because of us
SECRET = ("key", "token", "secret", "passw", "credential", "auth")
IMPORTANT = frozenset((
    "failure", "failure-after", "exit", "process", "signal", "ended", "worker-exit", "loader",
    "pass", "pass-ended", "pass-open", "ring",
))


class State:
    """The current ring's slots. One attribute, so that a fork can exchange it under the hooks."""

    __slots__ = ("slots",)

    def __init__(self):
        self.slots = memoryview(bytearray(layout.SLOTS * 8)).cast("Q")


state = State()


class Recorder:
    def __init__(self):
        self.folder = None
        self.pid = 0
        self.name = ""
        self.written = 0
        self.torn = False
        self.spool_fd = -1
        self.fault_file = None
        self.ring = None
        self.facts = {}
        self.after_fork = []
        self.at_end = []

    def open(self, folder, **facts):
        """Start this process's ring and spool in `folder`. A full disk leaves us in memory."""
        self.folder = folder
        self.pid = os.getpid()
        self.written = 0
        self.name = "%d-%d" % (self.pid, time.time_ns() // 1000)
        self.ring = self._open_ring()
        self.spool_fd = self._open_file(".events")
        self.facts = facts
        state.slots[layout.PID] = self.pid

    def _path(self, suffix):
        return os.path.join(self.folder, self.name + suffix)

    def _open_file(self, suffix, extra=0):
        flags = os.O_CREAT | os.O_RDWR | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | extra
        try:
            return high_descriptor(os.open(self._path(suffix), flags, 0o600))
        except OSError:
            return -1

    def _open_ring(self):
        try:
            fd = high_descriptor(os.open(self._path(".ring"), os.O_CREAT | os.O_RDWR, 0o600))
            try:
                # Blocks are reserved now: a write to a hole on a full disk would be a SIGBUS.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, layout.SIZE)
                else:
                    os.write(fd, b"\0" * layout.SIZE)
                ring = _mapped(fd)
            finally:
                os.close(fd)
        except (OSError, ValueError):
            ring = mmap.mmap(-1, layout.SIZE)
        state.slots = memoryview(ring)[: layout.AREA_START].cast("Q")
        state.slots[layout.MAGIC_SLOT] = layout.MAGIC
        return ring

    def fault_descriptor(self):
        """A file for faulthandler's dumps; -1 when there is none."""
        return self._open_file(".fault")

    def emit(self, kind, **fields):
        """Append one event. Never raises."""
        try:
            if self.ring is None or (self.written > SPOOL_LIMIT and kind not in IMPORTANT):
                return
            fields["kind"] = kind
            fields.setdefault("time", time.time())
            self._append(encode(fields).encode() + b"\n")
        except Exception:
            pass

    def _append(self, line):
        if self.torn:
            line = b"\n" + line  # what was cut short must not take this one with it
        try:
            count = os.write(self.spool_fd, line)
        except OSError:
            count = 0
        self.written += count
        self.torn = 0 < count < len(line)
        if count < len(line):
            # No room on the disk: what explains that must not be lost with it.
            used = state.slots[layout.RESERVE_USED]
            if used + len(line) <= layout.RESERVE_SIZE:
                start = layout.RESERVE_START + used
                self.ring[start : start + len(line)] = line
                state.slots[layout.RESERVE_USED] = used + len(line)

    def fork_child(self):
        """In a forked child: leave the parent's files alone and start our own."""
        parent = self.pid
        if not self.folder:
            return
        old = self.spool_fd
        self.open(self.folder, **self.facts)
        if old >= 0:
            os.close(old)
        self.emit("process", pid=self.pid, parent=parent, via="fork", **self.facts)
        for callback in self.after_fork:
            try:
                callback()
            except Exception as error:
                self.emit("probe-error", probe="fork", error=repr(error))

    def finish(self):
        """The process is about to end: every part tells what is still open."""
        for callback in self.at_end:
            try:
                callback()
            except Exception as error:
                self.emit("probe-error", probe="finish", error=repr(error)[:300])

    def fold_ring(self):
        """At the good end of a child: its ring as an event, for there may be thousands."""
        self.emit("ring", slots=list(state.slots[: layout.IN_USE]))
        try:
            os.unlink(self._path(".ring"))
        except OSError:
            pass

    def spent(self, nanoseconds):
        """Account for time that we took from the program outside its hot path."""
        try:
            state.slots[layout.OVERHEAD_NS] += nanoseconds
        except Exception:
            pass


def _mapped(fd):
    """The file in memory. mmap keeps a duplicate, which must not take a low number either."""
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, layout.SIZE, trackfd=False)
    taken = []
    try:
        while not taken or taken[-1] < HIGH_FD:
            taken.append(os.dup(fd))
    except OSError:  # Fewer are allowed: any number will do.
        if taken:
            os.close(taken.pop())
    try:
        return mmap.mmap(fd, layout.SIZE)
    finally:
        for number in taken:
            os.close(number)


def high_descriptor(fd):
    """The same file under a high number that is closed on exec."""
    try:
        import fcntl

        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
    except (ImportError, OSError, ValueError):
        return fd
    os.close(fd)
    return high


def process_facts():
    """What is known of this process at its start."""
    orig = getattr(sys, "orig_argv", None) or [sys.executable, *getattr(sys, "argv", [])]
    rank = os.environ.get("RANK")
    return {
        "argv": masked([str(a)[:2000] for a in orig[:100]]),
        "executable": sys.executable,
        "python": sys.version.split()[0],
        "cwd": _cwd(),
        "rank": int(rank) if rank and rank.isdigit() else None,
        "library": [os.path.dirname(os.__file__)],
        "main_thread": _thread.get_ident(),
    }


def masked(arguments):
    """Arguments without the values of options that name a secret."""
    shown, hide = [], False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        secret = is_secret(name)
        if hide and not argument.startswith("-"):
            shown.append("***")
        else:
            shown.append(name + "=***" if equals and secret else argument)
        hide = secret and argument.startswith("-") and not equals
    return shown


def is_secret(name):
    """Names such as `--api-key`, `HF_TOKEN` and `password`."""
    lowered = name.lower()
    return any(word in lowered for word in SECRET)


def _cwd():
    try:
        return os.getcwd()
    except OSError:
        return None


recorder = Recorder()
emit = recorder.emit
