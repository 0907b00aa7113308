"""The full report, for people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchmedic.report.escape import one_line
from torchmedic.report.layout import Page
from torchmedic.source.text import source_line

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding, Fix, Place

COLOURS = {
    "memory": "bold magenta", "data": "bold blue", "code": "bold red",
    "environment": "bold yellow", "unknown": "bold yellow",
    "error": "bold red", "warning": "bold yellow", "info": "bold",
}
INDENT = 2


def render(diagnosis: Diagnosis, file: TextIO, width: int | None = None,
           colour: bool | None = None) -> None:
    """Writes the report; a clean run is one line and what could not be seen.

    The terminal decides what is None.
    """
    page = Page(file, width, colour)
    if diagnosis.command == "check" and diagnosis.findings:
        from torchmedic.report import listing

        listing.fill(page, diagnosis)
        page.deliver()
        return
    folded = {index for finding in diagnosis.findings for index in finding.explains}
    tops = [f for index, f in enumerate(diagnosis.findings) if index not in folded]
    if diagnosis.verdict.category in ("none", "unknown"):
        _without_cause(page, diagnosis)
    elif tops:
        _cause(page, diagnosis, tops.pop(0))
    for number, finding in enumerate(tops):
        if not number:
            page.blank()
        _further(page, diagnosis, finding)
    if diagnosis.verdict.category != "none":
        _closing(page, diagnosis)
    else:
        notes(page, diagnosis)
    page.deliver()


def _without_cause(page: Page, diagnosis: Diagnosis) -> None:
    verdict = diagnosis.verdict
    if verdict.category == "none":
        page.unbroken(f"torchmedic: {verdict.summary} ({_process(diagnosis)})")
        return
    page.paragraph("UNKNOWN  ", verdict.summary, hang=9, head_style=COLOURS["unknown"])
    if diagnosis.next_checks:
        page.blank()
        page.paragraph("next checks:", "", indent=INDENT)
    for number, check in enumerate(diagnosis.next_checks, 1):
        page.paragraph(f"{number}. ", check, indent=INDENT + 2, head_style="")


def _cause(page: Page, diagnosis: Diagnosis, finding: Finding) -> None:
    """The main finding in full."""
    label = f"{finding.category.upper()}  "
    page.paragraph(label, f"{finding.rule}: {finding.message}", hang=len(label),
                   head_style=COLOURS.get(finding.category, "bold"), style="bold")
    _place(page, finding.where)
    if finding.evidence or finding.confidence != "certain":
        page.blank()
    if finding.confidence != "certain":
        page.paragraph("confidence: ", finding.confidence, indent=INDENT)
    if finding.evidence:
        page.paragraph("evidence:", "", indent=INDENT)
    for evidence in finding.evidence:
        source = f"  ({evidence.source})" if evidence.source else ""
        page.paragraph("- ", evidence.text + source, indent=INDENT + 2, head_style="")
    if finding.fix:
        page.blank()
        _fix(page, finding.fix)
    if finding.explains:
        page.blank()
        page.paragraph("explains:", "", indent=INDENT)
    for index in finding.explains:
        symptom = diagnosis.findings[index]
        page.paragraph("- ", f"{symptom.rule}: {symptom.message}", indent=INDENT + 2,
                       head_style="")


def _place(page: Page, where: Place | None) -> None:
    if where is None:
        return
    spot, moment = location(where), _moment(where)
    if spot or moment:
        page.paragraph("at ", spot or moment, indent=INDENT, head_style="dim")
    if spot and moment:
        page.paragraph("   ", moment, indent=INDENT)
    text = source_line(where.file, where.line)
    if text is not None and where.line:
        page.blank()
        page.source(where.line, text, INDENT + 2)


def location(where: Place) -> str:
    """`train.py:41 in `forward`, module `lstm``."""
    parts = []
    if where.file:
        line = f":{where.line}" if where.line else ""
        parts.append(one_line(shown_path(where.file)) + line)
    if where.function and where.function != "<module>":
        parts.append(f"in `{one_line(where.function)}`")
    spot = " ".join(parts)
    if where.module:
        spot += f"{', ' if spot else ''}module `{one_line(where.module)}`"
    return spot


def _moment(where: Place) -> str:
    facts: list[str] = [where.phase or ""]
    for name in ("epoch", "batch", "step", "rank", "pid"):
        value = getattr(where, name)
        if value is not None:
            facts.append(f"{name} {value}")
    return ", ".join(fact for fact in facts if fact)


def shown_path(file: str) -> str:
    """Relative to the working folder where the file is inside it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _fix(page: Page, fix: Fix) -> None:
    label = "help: " if fix.safety == "display-only" else "fix: "
    title = fix.title + (" (may change results)" if fix.safety == "unsafe" else "")
    page.paragraph(label, title, indent=INDENT, head_style="bold green")
    hang = INDENT + len(label)
    if fix.detail:
        page.paragraph("", fix.detail, indent=hang)
    if fix.diff:
        page.blank()
        lines = fix.diff.rstrip("\n").split("\n")
        whole = all(line.startswith("+") for line in lines)  # code to copy, not a change to read
        for line in lines:
            style = {"+": "green", "-": "red"}.get(line[:1], "")
            if whole:
                page.verbatim(line[1:], hang, style)
            else:
                page.paragraph("", line, indent=hang, style=style)
    if fix.command:
        page.blank()
        page.command("", fix.command, hang)


def _further(page: Page, diagnosis: Diagnosis, finding: Finding) -> None:
    """A finding beside the main one, in a few lines."""
    label = f"{finding.severity}  "
    page.paragraph(label, f"{finding.rule}: {finding.message}", hang=len(label),
                   head_style=COLOURS[finding.severity])
    spot = location(finding.where) if finding.where else ""
    if spot:
        page.paragraph("at ", spot, indent=len(label), head_style="dim")
    if finding.fix:
        page.paragraph("help: ", finding.fix.title, indent=len(label), head_style="green")
    for index in finding.explains:
        symptom = diagnosis.findings[index]
        page.paragraph("explains ", f"{symptom.rule}: {symptom.message}", indent=len(label),
                       hang=len(label) + 2, head_style="dim")


def _closing(page: Page, diagnosis: Diagnosis) -> None:
    """Notes, the command to retry with, how it ended and where the files are."""
    facts = _process(diagnosis) if diagnosis.process else ""
    if facts or diagnosis.notes or diagnosis.retry or diagnosis.run_folder:
        page.blank()
    notes(page, diagnosis)
    if diagnosis.retry:
        page.command("retry: ", diagnosis.retry, 0)
    if facts:
        page.paragraph("ended: ", facts, head_style="dim")
    if diagnosis.run_folder:
        page.paragraph("files: ", shown_path(diagnosis.run_folder), head_style="dim")


def notes(page: Page, diagnosis: Diagnosis) -> None:
    for note in diagnosis.notes:
        page.paragraph("note: ", note, head_style="dim")


def _process(diagnosis: Diagnosis) -> str:
    process, facts = diagnosis.process, []
    if process.get("signal"):
        facts.append(str(process["signal"]))
    elif process.get("exit_code") is not None:
        facts.append(f"exit code {process['exit_code']}")
    if isinstance(process.get("duration_s"), (int, float)):
        facts.append(f"{process['duration_s']:.1f} s")
    if process.get("steps"):
        plural = "" if process["steps"] == 1 else "s"
        facts.append(f"{process['steps']} optimizer step{plural}")
    return ", ".join(facts) or diagnosis.command
