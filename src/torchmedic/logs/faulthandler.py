"""Dumps of Python's faulthandler, of Python 3.8 to 3.14, as stacks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from torchmedic.logs.lines import as_lines
from torchmedic.logs.paths import is_user
from torchmedic.observed import Frame

# 3.14: `Thread 0x… [name] (most recent call first):`. 3.13: `(most recent call first):` may be
# followed by `<no Python frame>`.
_THREAD = re.compile(
    r"(?P<current>Current thread|Thread|Stack)(?: (?P<ident>0x[0-9a-fA-F]+))?"
    r"(?: \[(?P<name>[^\]]*)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'  File (?:"(?P<file>.*)"|(?P<odd>\?\?\?)), line (?P<line>\d+|\?\?\?)'
                    r"(?: in (?P<function>.*))?$")
_ERROR = re.compile(r"(?:Fatal Python error|Windows fatal exception): (?P<what>.+)")
_TIMEOUT = re.compile(r"Timeout \(\d+:\d\d:\d\d")
_C_STACK = re.compile(r"Current thread's C stack trace")


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread's stack, outermost first. current: the one that failed."""

    ident: str
    current: bool
    frames: tuple[Frame, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Dump:
    """One dump. error is None where nothing failed (a timeout, a request)."""

    error: str | None
    threads: tuple[Thread, ...]

    @property
    def current(self) -> Thread | None:
        return next((thread for thread in self.threads if thread.current), None)


def read_dumps(text: str | Iterable[str]) -> tuple[Dump, ...]:
    """Every dump of a file, in order; several processes or signals may have appended to it."""
    dumps: list[_Open] = []
    for line in as_lines(text):
        if error := _ERROR.search(line):
            dumps.append(_Open(error["what"].strip()))
        elif _TIMEOUT.match(line):
            dumps.append(_Open(None))
        elif thread := _THREAD.search(line):
            if not dumps or dumps[-1].closes_before(thread):
                dumps.append(_Open(None))
            dumps[-1].threads.append((thread, []))
        elif frame := _FRAME.match(line):
            if dumps and dumps[-1].threads:
                dumps[-1].threads[-1][1].append(_frame(frame))
        elif dumps and (line.startswith("Extension modules:") or _C_STACK.match(line)):
            dumps[-1].closed = True
    return tuple(dump.finished() for dump in dumps)


class _Open:
    """A dump that is being read."""

    def __init__(self, error: str | None) -> None:
        self.error = error
        self.threads: list[tuple[re.Match[str], list[Frame]]] = []
        self.closed = False

    def closes_before(self, thread: re.Match[str]) -> bool:
        """The current thread and each other one come only once in a dump."""
        known = {(match["ident"], match["current"]) for match, _ in self.threads}
        return self.closed or (thread["ident"], thread["current"]) in known

    def finished(self) -> Dump:
        threads = tuple(
            Thread(match["ident"] or "", match["current"] == "Current thread" or self._only(match),
                   tuple(reversed(frames)), match["name"])
            for match, frames in self.threads
        )
        return Dump(self.error, threads)

    def _only(self, match: re.Match[str]) -> bool:
        return match["current"] == "Stack" or len(self.threads) == 1


def _frame(match: re.Match[str]) -> Frame:
    file = match["file"] or "???"
    line = int(match["line"]) if match["line"].isdigit() else 0
    return Frame(file, line, match["function"] or "???", user=is_user(file) and file != "???")
