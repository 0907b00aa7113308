"""Workflow commands of GitHub Actions, which show findings as annotations on the lines.

Escapes as in the runner's own toolkit (`@actions/core`): `%`, CR and LF everywhere, in properties
also `:` and `,`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from torchmedic.report.escape import visible, write_encodable
from torchmedic.report.places import relative

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding

LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def render(diagnosis: Diagnosis, file: TextIO) -> None:
    """One command for each finding; also for an end that nothing explains."""
    for finding in diagnosis.findings:
        write_encodable(_command(finding) + "\n", file)
    if not diagnosis.findings and diagnosis.verdict.category == "unknown":
        write_encodable(f"::error title=torchmedic::{_data(diagnosis.verdict.summary)}\n", file)


def _command(finding: Finding) -> str:
    properties = []
    where = finding.where
    if where is not None and where.file:
        properties.append(f"file={_property(relative(where.file))}")
        if where.line:
            properties.append(f"line={where.line}")
        if where.end_line:
            properties.append(f"endLine={where.end_line}")
        if where.column is not None:
            properties.append(f"col={where.column}")
    properties.append(f"title={_property(f'torchmedic ({finding.rule})')}")
    message = finding.message
    if finding.fix is not None:
        message += f"\nfix: {finding.fix.title}"
    return f"::{LEVELS[finding.severity]} {','.join(properties)}::{_data(message)}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
