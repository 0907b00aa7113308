"""IPython's tracebacks, of 5 to 9, as Python writes them."""

from __future__ import annotations

import re
from dataclasses import replace

from torchmedic.logs.lines import FRAME_START, HEADER, Line

START = re.compile(r"[\w.]+(?:Error|Exception|Interrupt|Warning)\s+Traceback \(most recent call")
CELL = re.compile(r"(?:Cell )?In ?\[(?P<cell>\d+)\], (?:in )?line (?P<line>\d+)"
                  r"|Input In \[(?P<cell2>\d+)\], in (?P<in2>.+?)(?:\(.*)?$"
                  r"|<ipython-input-(?P<cell3>\d+)-\w+> in (?P<in3>.+?)(?:\(.*)?$")
FILE = re.compile(r"(?:File )?(?P<file>(?:[A-Za-z]:)?[~/\\][^:\n]*?\.pyx?)(?::(?P<line>\d+))?,? in "
                  r"(?P<function>[\w.<>]+)")
ARROW = re.compile(r"-+> ?(?P<line>\d+) (?P<text>.*)")
OTHER = re.compile(r" +\d+(?: |$)|\s*$|-{20,}")
LAST = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Warning|Iteration)(?:: |$)")


def of_notebooks(lines: list[Line]) -> list[Line]:
    """The lines with each notebook's traceback rewritten; others as they are."""
    if not any(START.search(line.text) for line in lines):
        return lines
    result: list[Line] = []
    at = 0
    while at < len(lines):
        if START.search(lines[at].text):
            at = _rewritten(lines, at, result)
        else:
            result.append(lines[at])
            at += 1
    return result


def _rewritten(lines: list[Line], at: int, result: list[Line]) -> int:
    """Writes one traceback; gives back the index of its last line."""
    result.append(replace(lines[at], text=HEADER))
    at += 1
    opened: tuple[str, str] | None = None
    while at < len(lines) and not LAST.match(lines[at].text):
        line = lines[at]
        if (frame := _frame(line.text)) is not None:
            opened = frame
        elif (arrow := ARROW.match(line.text)) and opened:
            file, function = opened
            result.append(replace(
                line, text=f'{FRAME_START}{file}", line {arrow["line"]}, in {function}'))
            result.append(replace(line, text=f"    {arrow['text'].strip()}"))
            opened = None
        elif not (arrow or OTHER.match(line.text) or opened):
            break
        at += 1
    return at


def _frame(text: str) -> tuple[str, str] | None:
    """(file, function) of a frame's first line."""
    if cell := CELL.match(text):
        number = cell["cell"] or cell["cell2"] or cell["cell3"]
        function = (cell["in2"] or cell["in3"] or "<module>").strip()
        return f"<ipython-input-{number}>", function
    if file := FILE.match(text):
        return file["file"], file["function"].rpartition(".")[2]
    return None
