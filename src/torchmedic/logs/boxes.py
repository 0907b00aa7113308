"""Tracebacks that rich draws in a box, and those of a debugger's window, as Python writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torchmedic.logs.lines import FRAME_START, HEADER, Line

BOX = re.compile(r"[╭┌+][─━-]+ .*Traceback \(most recent call last\)")
BOTTOM = re.compile(r"\s*[╰└][─━-]+")
INSIDE = re.compile(r"\s*[│|┃] ?(?P<text>.*?)\s*[│|┃]?\s*$")
PLACE = re.compile(r"(?P<file>(?:[A-Za-z]:)?[^\s:]\S*?):(?P<line>\d+) in ?(?P<function>[\w.<>]+)?$")
FUNCTION = re.compile(r"[\w.<>]+$")
POINTED = re.compile(r"[❱>] +\d+ (?P<text>.*)")
# VS Code, in some of its languages: the innermost frame comes first, the message above all.
WINDOW = re.compile(r"\s*(?:Exception has occurred|发生异常|發生例外狀況|例外が発生しました"
                    r"|예외가 발생했습니다"
                    r"|Ausnahmefehler aufgetreten|Une exception s'est produite"
                    r"|Se produjo una excepción|Произошло исключение)[::] ?(?P<type>[\w.]+)"
                    r"(?P<rest>.*)")
FRAME = re.compile(r"\s*File \".+\", line \d+")
MOST = 40
"""Lines of a message in a window."""


def of_boxes(lines: list[Line]) -> list[Line]:
    """The lines with each such traceback rewritten; others as they are."""
    if not any(BOX.search(line.text) or WINDOW.match(line.text) for line in lines):
        return lines
    result: list[Line] = []
    at = 0
    while at < len(lines):
        text = lines[at].text
        if BOX.search(text):
            at = _box(lines, at, result)
        elif (window := WINDOW.match(text)) and (end := _window(lines, at, window, result)):
            at = end
        else:
            result.append(lines[at])
            at += 1
    return result


def _box(lines: list[Line], at: int, result: list[Line]) -> int:
    """Writes one box; gives back the index after it."""
    result.append(replace(lines[at], text=HEADER))
    place: tuple[str, str, str] | None = None
    at += 1
    while at < len(lines) and (inside := INSIDE.match(lines[at].text)):
        if BOTTOM.match(lines[at].text):
            break
        line, text = lines[at], inside["text"].strip()
        if found := PLACE.match(text):
            place = found["file"], found["line"], found["function"] or ""
        elif place and not place[2] and FUNCTION.match(text):  # it stands in the next line
            place = (*place[:2], text)
        elif place and (pointed := POINTED.match(text)):
            result += _frame(line, *place, pointed["text"].replace("│", "").strip())
            place = None
        at += 1
    return at + 1 if at < len(lines) and BOTTOM.match(lines[at].text) else at


def _frame(line: Line, file: str, number: str, function: str, text: str) -> Iterator[Line]:
    where = f", in {function}" if function else ""
    yield replace(line, text=f'{FRAME_START}{file}", line {number}{where}')
    if text:
        yield replace(line, text=f"    {text}")


def _window(lines: list[Line], at: int, window: re.Match[str], result: list[Line]) -> int | None:
    """Writes one window; gives back the index after it. None when no frame follows."""
    start = at
    at += 1
    told: list[str] = []
    while at < len(lines) and len(told) < MOST and not FRAME.match(lines[at].text):
        told.append(lines[at].text.strip())
        at += 1
    frames: list[list[Line]] = []
    while at < len(lines) and (FRAME.match(lines[at].text) or lines[at].text.startswith("    ")):
        if FRAME.match(lines[at].text):
            frames.append([])
        frames[-1].append(lines[at])
        at += 1
    if not frames:
        return None
    said = " ".join(filter(None, (window["rest"].strip(" :"), *told)))
    result.append(replace(lines[start], text=HEADER))
    result += [line for frame in reversed(frames) for line in frame]
    result.append(replace(lines[start], text=f"{window['type']}: {said}"))
    return at
