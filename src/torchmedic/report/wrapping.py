"""Where to break a line: between words, and between the characters of scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

# Hangul is wide too but puts spaces between words. Closing marks stay with what they close.
_WIDE = r"\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef"
_CLOSING = r"\u3001\u3002\u300d\u300f\u3011\uff01\uff09\uff0c\uff0e\uff1a\uff1b\uff1f"
_PIECE = re.compile(rf"\s*(?:[{_WIDE}][{_CLOSING}]*|[^\s{_WIDE}]+[{_CLOSING}]*|\s+$)")


def breaks(text: str, first: int, later: int) -> Iterator[int]:
    """Offsets at which new lines begin; `first` and `later` are the room on the lines in cells."""
    room, used = first, 0
    for match in _PIECE.finditer(text):
        size = cell_len(match[0])
        if used + size <= room:
            used += size
            continue
        bare = match[0].lstrip()
        start = match.end() - len(bare)
        if match.start() and cell_len(bare) <= later:
            yield start
            room, used = later, cell_len(bare)
            continue
        for offset, character in enumerate(match[0], match.start()):  # longer than a line
            size = cell_len(character)
            if used + size > room and offset > 0:
                yield offset
                room, used = later, 0
            used += size
