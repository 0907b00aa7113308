"""One line per finding, as compilers print them: `file:line:column: rule message`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from torchmedic.report.escape import one_line, write_encodable
from torchmedic.report.places import relative, spot

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Place


def render(diagnosis: Diagnosis, file: TextIO) -> None:
    """Writes the findings in their order; an unexplained end is one line too."""
    lines = [f"{_place(f.where)}: {f.rule} {f.message}" for f in diagnosis.findings]
    if not lines and diagnosis.verdict.category == "unknown":
        lines = [f"-: unknown {diagnosis.verdict.summary}"]
    for line in lines:
        write_encodable(one_line(line) + "\n", file)


def _place(where: Place | None) -> str:
    if where is None or where.file is None:
        return "-"
    file = relative(where.file) if where.file.startswith(os.sep) else where.file
    return file + spot(where)
