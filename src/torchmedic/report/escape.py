"""Makes text that others wrote safe to show: what a terminal would obey is spelled out."""

from __future__ import annotations

import re
import unicodedata
from typing import TextIO

_SUSPECT = re.compile(r"[^\x20-\x7e\n]")
_KEPT = "\u200c\u200d"  # they join letters and emoji


def visible(text: str) -> str:
    """Control characters, escapes and direction marks as `\\x1b`; line ends stay."""
    return _SUSPECT.sub(lambda match: _spelled(match[0]), text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same on one line."""
    return visible(text).replace("\n", "\\n")


def _spelled(character: str) -> str:
    if character == "\t":
        return "    "
    unsafe = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") \
        or ord(character) & 0xFFFE == 0xFFFE  # no characters at all, and no XML
    if not unsafe or character in _KEPT:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 \
        else f"\\U{code:08x}"


def write_encodable(text: str, stream: TextIO) -> None:
    """Writes text; what the stream's encoding lacks appears as `\\u…`."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
