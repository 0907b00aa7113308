"""Log text as clean lines: no colour, no overwritten progress, the launcher's prefix set apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_]|\([A-Z0-9])"
)
PROGRESS = re.compile(r"\d+%\|| \d+/\d+ \[\d|\d+it \[\d")
HEADER = "Traceback (most recent call last):"
FRAME_START = '  File "'

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?:? ?")
_RANKS = tuple(re.compile(p) for p in (
    r"\[rank ?(\d+)\]: ?",  # torch 2.3 and newer
    r"\[default(\d+)\]: ?",  # torchrun --tee
    r"\[\d+,(\d+)\]<std(?:err|out)>: ?",  # mpirun --tag-output
    r"(?=\(\w+ pid=\d+)\(\w+ pid=(\d+)[^)]*\) ?",  # Ray: a pid, no rank
    r" {0,3}(\d{1,4}): (?=Traceback| |\w+(?:\.\w+)*(?:Error|Exception))",  # srun --label
))
RAY = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One line. number counts from 1; stream tells apart the processes that wrote the log."""

    number: int
    text: str
    stream: str = ""
    rank: int | None = None


def as_lines(text: str | Iterable[str]) -> list[str]:
    """Lines as a person would see them: escapes gone, only the last state of a progress bar."""
    raw = text.split("\n") if isinstance(text, str) else [line.rstrip("\n") for line in text]
    if raw and raw[-1] == "":
        raw.pop()
    return [_last_state(ANSI.sub("", line)) for line in raw]


def _last_state(line: str) -> str:
    states = [part for part in line.split("\r") if part.strip()]
    return states[-1] if states else ""


def tagged(lines: Iterable[str]) -> list[Line]:
    """Each line without its prefix, and whose line it is."""
    found = [_tagged(number, text) for number, text in enumerate(lines, 1)]
    return _without_fixed_prefix(found)


def _tagged(number: int, text: str) -> Line:
    stream, rank = "", None
    for _ in range(3):
        if time := _TIME.match(text):
            rest = text[time.end():]
            if not (rest.startswith((" ", "[", "Traceback", "Original")) or _ERROR.match(rest)):
                break  # an ordinary log record keeps its time
            text = rest if rest.startswith("  ") or not rest.startswith(" ") else rest[1:]
            continue
        found = next(((i, m) for i, p in enumerate(_RANKS) if (m := p.match(text))), None)
        if found is None:
            break
        index, match = found
        stream += match[0].strip().replace("<stdout>", "<stderr>")
        rank = int(match[1]) if index != RAY else rank
        text = text[match.end():]
    return Line(number, text, stream, rank)


_INDENT = re.compile(r"([ \t]+)(?:traceback ?: )?(?=Traceback \(most)")
"""torchrun's summary writes `traceback : Traceback (most …`, and the frames below it."""
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b")


def _without_fixed_prefix(lines: list[Line]) -> list[Line]:
    """Takes off any other prefix that a traceback's lines share, such as `trainer-1  | `.

    A traceback in an indented block loses its indent.
    """
    width, left, indent = 0, 0, ""
    result = []
    for index, line in enumerate(lines):
        following = lines[index + 1].text if index + 1 < len(lines) else ""
        start = line.text.find(HEADER)
        if start > 0 and not line.text[:start].isspace() and \
                following.find(FRAME_START) == start:
            width, left, indent = start, 200, ""
        elif start > 0 and (found := _INDENT.match(line.text)) and \
                following.startswith(found[1] + FRAME_START):
            width, left, indent = len(found[1]), 200, found[1]
        text = line.text
        if indent and text.strip() and not text.startswith(indent):
            width, left, indent = 0, 0, ""
        if left and width and len(text) >= width:
            text = text[width:]
        left = left - 1 if indent or _goes_on(line.text, width) else 0
        result.append(Line(line.number, text, line.stream, line.rank))
    return result


def _goes_on(text: str, width: int) -> bool:
    return bool(width) and (len(text) <= width or not text[:width].isspace())
