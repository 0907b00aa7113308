"""Where an exception's message begins and ends in a log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchmedic.logs.lines import FRAME_START, HEADER, PROGRESS, Line

TYPE = r"(?P<type>[A-Za-z_][\w.]*(?:\([\w.]+\))?)"
EXCEPTION = re.compile(rf"{TYPE}(?::(?: (?P<message>.*)|\s*)|\s*)$")
"""The line after the frames."""
HEADLESS = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): \S")
"""A line that is an exception even without a traceback above it."""

_OUTSIDE = re.compile(
    r"""During\ handling\ of|The\ above\ exception|Exception\ (?:ignored|in\ thread)|"{3}
    |Original\ Traceback|--\ Process\ \d+\ terminated|Process\ \w+-\d+:|Fatal\ Python\ error
    |\d{4}[-/]\d\d[-/]\d\d|\[?\d\d:\d\d:\d\d|[EWIF]\d{4}\ \d
    |\W?(?:ERROR|WARNING|WARN|INFO|DEBUG|CRITICAL)\b|srun:|slurmstepd:|wandb:|make:|bash:
    |terminate\ called|Segmentation\ fault|Killed|Aborted|Bus\ error|Terminated
    |(?:\([\w.-]+\)\ )?[\w.@~:/-]*[$#>]\ |PS\ \w:\\|[Ee]poch\W|={5,}|-{5,}|\*{5,}
    |[^\s:]+:\d+:\ \w*Warning:|\#{3,}
    """,
    re.VERBOSE,
)
LONGEST = 60
"""Lines of a message; a state dict's list of keys is one long line."""
LONGEST_LINE = 20_000
LONGEST_FLUSH = 12
"""Lines at column 0: after that it is the program's ordinary output."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception's last lines. end: index of the first line after them."""

    type: str
    message: str
    end: int


def message_at(lines: list[Line], index: int) -> Raised | None:
    """The exception whose first line is at `index`."""
    match = EXCEPTION.match(lines[index].text)
    if match is None:
        return None
    told = [match["message"] or ""]
    end, flush = index + 1, 0
    while end < len(lines) and len(told) < LONGEST and flush <= LONGEST_FLUSH:
        text = lines[end].text
        said_on = told[-1].rstrip().endswith(":")  # what is announced may stand below
        if _ends(text) or (not text.strip() and not said_on and not _goes_on(lines, end)):
            break
        flush += bool(text.strip()) and not text.startswith((" ", "\t"))
        told.append(text.rstrip())
        end += 1
    return Raised(match["type"], "\n".join(map(_shortened, told)).strip(), end)


def _shortened(line: str) -> str:
    """Rules search a message with patterns that may take the square of a line's length."""
    if len(line) <= LONGEST_LINE or "key(s) in state_dict" in line:
        return line
    return f"{line[:LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2:]}"


def _ends(text: str) -> bool:
    return bool(
        HEADER in text or text.startswith(FRAME_START) or _OUTSIDE.match(text)
        or HEADLESS.match(text) or PROGRESS.search(text)
    )


def _goes_on(lines: list[Line], blank: int) -> bool:
    """After a blank line only indented text, or a child's traceback, still is the message."""
    following = next((line.text for line in lines[blank + 1:blank + 4] if line.text.strip()), "")
    if following.startswith(FRAME_START):
        return False
    return following.startswith(("    ", "\t", "-- Process "))
