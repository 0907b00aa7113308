"""A C++ exception that nothing caught, as libstdc++ and libc++ print it before they abort."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchmedic.logs.messages import Raised

if TYPE_CHECKING:
    from torchmedic.logs.lines import Line

THROWN = re.compile(r"terminat\w+ (?:called after throwing an instance of '(?P<gnu>[\w:<>]+)'"
                    r"|due to uncaught exception of type (?P<llvm>[\w:<>]*\w)(?:: (?P<said>.*))?)")
WHAT = re.compile(r"\s*what\(\):\s?(?P<message>.*)")
ENDS = re.compile(r"Exception raised from|frame #\d|Aborted|Fatal Python error|terminate called"
                  r"|\s*$|Traceback|\[?\w*\]?:?\[?[EWIF]\d{3,4} ")
LONGEST = 8
"""Lines of a message."""


def thrown_at(lines: list[Line], index: int) -> Raised | None:
    """The exception that line `index` tells of."""
    match = THROWN.search(lines[index].text)
    if match is None:
        return None
    if match["llvm"]:
        return Raised(match["llvm"], match["said"] or "", index + 1)
    end = index + 1
    what = WHAT.match(lines[end].text) if end < len(lines) else None
    if what is None:
        return Raised(match["gnu"], "", end)
    told = [what["message"]]
    end += 1
    while end < len(lines) and len(told) < LONGEST and not ENDS.match(lines[end].text):
        told.append(lines[end].text.rstrip())
        end += 1
    return Raised(match["gnu"], "\n".join(told).strip(), end)
