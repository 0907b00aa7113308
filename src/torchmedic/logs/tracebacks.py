"""Python tracebacks in text, as failures."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from torchmedic.logs.boxes import of_boxes
from torchmedic.logs.completion import completed
from torchmedic.logs.cpp import thrown_at
from torchmedic.logs.lines import FRAME_START, HEADER, Line, as_lines, tagged
from torchmedic.logs.messages import EXCEPTION, HEADLESS, Raised, message_at
from torchmedic.logs.notebooks import of_notebooks
from torchmedic.logs.paths import is_user
from torchmedic.logs.told import told
from torchmedic.observed import Failure, Frame, Log

FRAME = re.compile(r'\s*File "(?P<file>.+?)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
WRAPPED = re.compile(r"Caught [\w.]+ in [^\n]*\nOriginal Traceback|\s*-- Process \d+ terminated")
WRAP = re.compile(r"Original Traceback \(most recent|-- Process \d+ terminated with the following")
CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
IGNORED = re.compile(r"Exception ignored (?:in|while|on)\b")
THREAD = re.compile(r"Exception in thread (.+?):\s*$")
GOT_OVER = re.compile(r"\bretry|\btrying again|\bskipping\b|\bfalling back\b", re.IGNORECASE)
GROUP = re.compile(r"\s*[+|] (?:Exception Group )?Traceback \(most recent")
MARGIN = re.compile(r"\s*(?:[|] ?|[+] )")


def read_log(text: str | Iterable[str], source: str = "log") -> Log:
    """A log and the failures its tracebacks tell, in the order of their lines."""
    lines = as_lines(text)
    streams: dict[str, list[Line]] = {}
    for line in of_boxes(of_notebooks(tagged(lines))):
        streams.setdefault(line.stream, []).append(line)
    found = [f for stream in streams.values() for f in _Parser(stream).failures()]
    found.sort(key=lambda failure: failure.line_number or 0)
    done = completed(lines) if found else None
    found = [_with_settings(failure, lines) for failure in found
             if not _got_over(failure, done)]
    return Log(tuple(lines), tuple(found), source)


def _got_over(failure: Failure, done: int | None) -> bool:
    """The program said that it tries again, or later that it is done."""
    if not failure.frames and GOT_OVER.search(failure.message.partition("\n")[0]):
        return True
    return done is not None and (failure.line_number or 0) < done


def _with_settings(failure: Failure, lines: list[str]) -> Failure:
    """The advice for a full GPU depends on the batch's size."""
    if "out of memory" not in failure.message or failure.line_number is None:
        return failure
    return replace(failure, told=told(lines, failure.line_number))


def unwrapped(failure: Failure) -> Failure:
    """The exception of a worker that its parent raised again with the traceback as message.

    The frames are the parent's down to its loop, then the worker's.
    """
    if not WRAPPED.match(failure.message):
        return failure
    inner = read_log(failure.message).failures
    if not inner:
        return failure
    told = inner[-1]
    return replace(failure, type=told.type, message=told.message,
                   frames=(*failure.frames, *told.frames))


def _repeats(failure: Failure, before: Failure) -> bool:
    """The last line alone, once more."""
    return not failure.frames and failure.type == before.type and \
        failure.message.partition("\n")[0] == before.message.partition("\n")[0]


@dataclass(slots=True)
class _Parser:
    """Reads the lines of one stream from top to bottom."""

    lines: list[Line]
    at: int = 0

    def failures(self) -> list[Failure]:
        found: list[Failure] = []
        while self.at < len(self.lines):
            start = self.at
            failure = self._next()
            if failure is None or (found and _repeats(failure, found[-1])):
                self.at = max(self.at, start + 1)
            elif found and self._chained(start):
                found[-1] = replace(failure, during=found[-1])
            else:
                found.append(failure)
        return found

    def _next(self) -> Failure | None:
        text = self.lines[self.at].text
        if GROUP.match(text):
            self._take_off_margin()
            text = self.lines[self.at].text
        if HEADER in text:
            return self._block()
        if text.startswith(FRAME_START) and text.rstrip()[-1:].isdigit():
            return self._bare_syntax_error()
        if FRAME.match(text) and text.startswith(FRAME_START):
            return self._headless_frames()
        if HEADLESS.match(text):
            return self._finish(self.at, ())
        if (thrown := thrown_at(self.lines, self.at)) is not None and thrown.message:
            start, self.at = self.at, thrown.end
            return self._failure(start, (), thrown)
        return None

    def _block(self) -> Failure | None:
        """From the header to the end of the message."""
        start = self.at
        self.at += 1
        frames = self._frames()
        if not frames or self.at >= len(self.lines):
            return None
        return self._finish(start, frames)

    def _headless_frames(self) -> Failure | None:
        """A log that begins in the midst of a traceback."""
        start = self.at
        frames = self._frames()
        if self.at < len(self.lines) and HEADLESS.match(self.lines[self.at].text):
            return self._finish(start, frames)
        return None

    def _bare_syntax_error(self) -> Failure | None:
        start = self.at
        frames = self._frames()
        here = self.lines[self.at].text if self.at < len(self.lines) else ""
        if not re.match(r"(?:Syntax|Indentation|Tab)Error\b", here):
            self.at = start + 1
            return None
        return self._finish(start, frames)

    def _finish(self, start: int, frames: tuple[Frame, ...]) -> Failure | None:
        raised = message_at(self.lines, self.at)
        if raised is None:
            return None
        first = self.at
        self.at = raised.end
        if (inner := self._wrapped(first)) is not None:
            return replace(inner, frames=(*frames, *inner.frames),
                           line_number=self.lines[start].number,
                           key=f"log:{self.lines[start].number}")
        return self._failure(start, frames, raised)

    def _failure(self, start: int, frames: tuple[Frame, ...], raised: Raised) -> Failure:
        line = self.lines[start]
        before = self.lines[start - 1].text if start else ""
        thread = THREAD.search(before)
        return Failure(
            key=f"log:{line.number}", type=raised.type, message=raised.message, how="logged",
            frames=frames, rank=line.rank, line_number=line.number,
            swallowed=bool(IGNORED.search(before)), thread=thread[1] if thread else None,
        )

    def _wrapped(self, first: int) -> Failure | None:
        """The worker's own traceback inside the message that begins at `first`."""
        if self.at >= len(self.lines) or not WRAP.match(self.lines[self.at].text):
            return None
        after = self.at
        if HEADER not in self.lines[self.at].text:
            self.at += 1
        while self.at < len(self.lines) and not self.lines[self.at].text.strip():
            self.at += 1
        if self.at < len(self.lines) and HEADER in self.lines[self.at].text:
            inner = self._block()
            if inner is not None:
                return inner
        self.at = after + 1
        return None

    def _frames(self) -> tuple[Frame, ...]:
        frames: list[Frame] = []
        while self.at < len(self.lines):
            text = self.lines[self.at].text
            if match := FRAME.match(text):
                self.at += 1
                frames.append(self._frame(match))
            elif EXCEPTION.match(text) and not text.startswith(" "):
                if HEADLESS.match(text) or not self._frame_follows():
                    break
                self.at += 1
            elif text.strip() and not text.startswith((" ", "\t", "...", "[...", "^", "~")):
                if not self._frame_follows():
                    break
                self.at += 1
            else:
                self.at += 1
        return tuple(frames)

    def _frame(self, match: re.Match[str]) -> Frame:
        file = match["file"]
        text = self.lines[self.at].text if self.at < len(self.lines) else ""
        shown = text.startswith("   ") and not FRAME.match(text)  # 3: a prefix may take one
        return Frame(
            file=file, line=int(match["line"]), function=(match["function"] or "<module>").strip(),
            user=is_user(file), text=text.strip() if shown else None,
        )

    def _frame_follows(self) -> bool:
        """Another process wrote between two frames."""
        for line in self.lines[self.at + 1:self.at + 4]:
            if HEADER in line.text:
                return False
            if FRAME.match(line.text):
                return True
        return False

    def _chained(self, start: int) -> bool:
        before = [line.text for line in self.lines[max(0, start - 4):start]]
        said = [text for text in before if text.strip() and text.strip() != '"""']
        return bool(said) and said[-1].startswith(CHAINS)

    def _take_off_margin(self) -> None:
        for index in range(self.at, len(self.lines)):
            line = self.lines[index]
            match = MARGIN.match(line.text)
            if match is None and not line.text.lstrip().startswith("+-"):
                break
            rest = line.text[match.end():] if match else ""
            self.lines[index] = replace(line, text=rest)
