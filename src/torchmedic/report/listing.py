"""The full report of `check`: file by file, each finding at its line, and a count."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic.report import places
from torchmedic.report.escape import one_line
from torchmedic.report.text import COLOURS, INDENT, notes, shown_path
from torchmedic.source.text import source_line

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding, Fix, Place, Severity
    from torchmedic.report.layout import Page

NOUNS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "hint"}
AROUND = 1
"""Lines of source that are shown above and below the one that counts."""
MOST_CHANGED = 12
"""Changed lines of a fix that are shown; `--diff` shows all."""
_NAME = re.compile(r"[\w.]+|\S")


def fill(page: Page, diagnosis: Diagnosis) -> None:
    """Puts the findings, in their order, under the names of their files."""
    file: str | None = ""
    for finding in diagnosis.findings:
        here = finding.where.file if finding.where else None
        if here != file:
            file = here
            page.paragraph("", one_line(shown_path(file)) if file else "no file", style="bold")
            page.blank()
        _finding(page, finding)
        page.blank()
    page.paragraph("", found(diagnosis.findings), style="bold")
    mendable = fixable(diagnosis.findings)
    if mendable:
        page.paragraph("", mendable)
    notes(page, diagnosis)


def _finding(page: Page, finding: Finding) -> None:
    label = f"{NOUNS[finding.severity]}  "
    page.paragraph(label, f"{finding.rule}: {finding.message}", indent=INDENT, style="bold",
                   hang=2 * INDENT, head_style=COLOURS[finding.severity])
    where, framed = finding.where, False
    if where is not None and where.file and where.line:
        within = f" in `{one_line(where.function)}`" if where.function else ""
        page.paragraph("at ", one_line(shown_path(where.file)) + places.spot(where) + within,
                       indent=2 * INDENT, head_style="dim")
        framed = _frame(page, where)
    doubt = [] if finding.confidence == "certain" else [f"{finding.confidence}, not certain"]
    told = [e.text for e in finding.evidence if e.source != "notebook"]
    if framed and (told or doubt or finding.fix):
        page.blank()
    for text in (*told, *doubt):
        page.paragraph("- ", text, indent=2 * INDENT, head_style="dim")
    if finding.fix:
        _fix(page, finding.fix)


def _frame(page: Page, where: Place) -> bool:
    """The line with its neighbours; in a notebook only those of its cell."""
    assert where.line
    own = source_line(where.file, where.line)
    if own is None or not own.strip():
        return False
    at = places.cell(where)
    offset = where.line - at[1] if at else 0
    lines = []
    for line in range(max(1, where.line - AROUND), where.line + AROUND + 1):
        text = source_line(where.file, line)
        near = places.cell(replace(where, line=line)) if at else None
        if text is not None and text.strip() and (
                not at or (near is not None and near[0] == at[0])):
            lines.append((line - offset, text.expandtabs(4)))
    page.blank()
    page.frame(where.line - offset, lines, _mark(where, own), 2 * INDENT)
    return True


def _mark(where: Place, text: str) -> tuple[int, int] | None:
    """The word at the column."""
    first = places.column(where)
    match = _NAME.match(text, first - 1) if first is not None else None
    if match is None:
        return None
    tabs = len(text[:match.start()].expandtabs(4)) - match.start()
    return match.start() + tabs, match.end() + tabs


def _fix(page: Page, fix: Fix) -> None:
    label = "help: " if fix.safety == "display-only" else "fix: "
    title = fix.title + (" (may change results)" if fix.safety == "unsafe" else "")
    page.paragraph(label, title, indent=2 * INDENT, head_style="bold green")
    if fix.detail:
        page.paragraph("", fix.detail, indent=2 * INDENT + len(label))
    changed = _changed(fix.diff or "")
    if changed:
        page.blank()
    for line in changed[:MOST_CHANGED]:
        style = {"+": "green", "-": "red"}.get(line[0], "")
        page.paragraph("", line, indent=2 * INDENT, hang=2 * INDENT + 6, style=style)
    if len(changed) > MOST_CHANGED:
        page.paragraph("", f"and {len(changed) - MOST_CHANGED} more changed lines (--diff)",
                       indent=2 * INDENT, style="dim")
    if fix.command:
        page.command("", fix.command, 2 * INDENT)


def _changed(diff: str) -> list[str]:
    """The lines that go and come, without what they have in common on the left."""
    lines = [line for line in diff.split("\n")
             if line[:1] in ("+", "-") and not line.startswith(("+++ ", "--- "))]
    depths = [len(line) - 1 - len(line[1:].lstrip()) for line in lines if line[1:].strip()]
    depth = min(depths, default=0)
    return [f"{line[0]} {line[1 + depth:]}" for line in lines]


def found(findings: Sequence[Finding]) -> str:
    """`Found 7 problems (5 errors, 2 warnings) in 3 files`."""
    counts = Counter(finding.severity for finding in findings)
    kinds = [_count(counts[kind], noun) for kind, noun in NOUNS.items() if counts[kind]]
    files = len({f.where.file for f in findings if f.where and f.where.file})
    total = _count(len(findings), "problem")
    if len(kinds) == 1:
        total, kinds = kinds[0], []
    inside = f" ({', '.join(kinds)})" if kinds else ""
    return f"Found {total}{inside}" + (f" in {_count(files, 'file')}" if files else "")


def fixable(findings: Sequence[Finding]) -> str:
    """`4 fixable with --fix, 2 more with --fix --unsafe-fixes`; empty when none is."""
    safety = Counter(f.fix.safety for f in findings if f.fix and f.fix.edits)
    told = [f"{safety['safe']} fixable with `--fix`"] if safety["safe"] else []
    if safety["unsafe"]:
        word = "more" if told else "fixable"
        told.append(f"{safety['unsafe']} {word} with `--fix --unsafe-fixes`")
    return ", ".join(told)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
