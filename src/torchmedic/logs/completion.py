"""Whether a program said at its end that it is done, so that what was told before was survived."""

from __future__ import annotations

import re
from collections.abc import Sequence

DONE = re.compile(
    r"\b(?:train\w*|fine-?tun\w*|run|job|fit\w*)\b.{0,20}\b(?:completed?|finished|done|succe\w+)\b"
    r"|\b(?:finished|completed|done|end of)\b.{0,12}\btrain\w*|\bepochs? (?:completed|finished)\b"
    r"|^\W*(?:done|finished|completed?|all done)\W*(?:in\b.*)?$|\bdone training\b"
    r"|stopped: `?max_(?:epochs|steps)|Process finished with exit code 0\b", re.IGNORECASE)
NOT = re.compile(r"\b(?:not|never|before|until|when|if)\b", re.IGNORECASE)
BADLY = re.compile(r"fail|error|cancel|abort|crash|non-?zero|(?:code|status)\W{1,3}[1-9-]|训练失败",
                   re.IGNORECASE)
LONGEST = 300
LAST = 6
"""Lines at the end in which a program says so."""


def completed(lines: Sequence[str]) -> int | None:
    """Number of the line that says so, counted from 1."""
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in filled[-LAST:]:
        found = DONE.search(line) if len(line) < LONGEST and not BADLY.search(line) else None
        if found is not None and not NOT.search(line[:found.end()]):
            return number
    return None
