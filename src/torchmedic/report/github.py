"""Workflow commands of GitHub Actions, which show findings as annotations on the lines.

Escapes as in the runner's own toolkit (`@actions/core`): `%`, CR and LF everywhere, in properties
also `:` and `,`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from torchmedic.report.escape import visible, write_encodable
from torchmedic.report.places import cell, column, line_in_file, relative

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding, Place

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
        properties += _position(where)
    properties.append(f"title={_property(f'torchmedic ({finding.rule})')}")
    at = cell(where) if where is not None else None
    message = f"cell {at[0]}, line {at[1]}: {finding.message}" if at else finding.message
    if finding.fix is not None:
        message += f"\nfix: {finding.fix.title}"
    return f"::{LEVELS[finding.severity]} {','.join(properties)}::{_data(message)}"


def _position(where: Place) -> list[str]:
    if not (line := line_in_file(where)):
        return []
    end = [f"endLine={where.end_line}"] if where.end_line else []
    first = column(where)
    return [f"line={line}", *end, *([f"col={first}"] if first is not None else [])]


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
