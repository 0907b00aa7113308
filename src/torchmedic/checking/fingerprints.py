"""What stays the same of a finding while lines are added above it."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic.source.text import source_line

if TYPE_CHECKING:
    from torchmedic.model import Finding


def fingerprint(rule: str, path: str, line_text: str, occurrence: int) -> str:
    """32 hexadecimal digits of the rule, the file, the text of the line and its number there.

    occurrence: 1 for the first finding of this rule on a line of this text in this file. White
    space at both ends of the line does not count.
    """
    parts = (rule, path.replace(os.sep, "/"), line_text.strip(), str(occurrence))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def fingerprints(findings: Sequence[Finding], base: Path | None = None) -> Iterator[str]:
    """One for each finding, in their order. base: the folder that paths are relative to."""
    home = os.fspath(base or Path.cwd())
    seen: Counter[tuple[str, str, str]] = Counter()
    for finding in findings:
        where = finding.where
        path = os.path.relpath(where.file, home) if where and where.file else ""
        text = (source_line(where.file, where.line) or "") if where else ""
        key = (finding.rule, path, text.strip())
        seen[key] += 1
        yield fingerprint(*key, seen[key])
