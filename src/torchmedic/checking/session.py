"""One file after the other: from its text to what is to say of it."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from torchmedic import registry
from torchmedic.checking import suppressions
from torchmedic.checking.selection import FileIgnores, chosen
from torchmedic.diagnosis import diagnose_source
from torchmedic.model import Evidence, Finding
from torchmedic.source import files, notebooks
from torchmedic.source.flow import names
from torchmedic.source.script import Script

if TYPE_CHECKING:
    from torchmedic.config import Settings


KEPT = 400
"""Files that others import and that stay parsed, of a tree however large."""


@dataclass(slots=True)
class Checked:
    """What a check of some files gave.

    elsewhere: (file, line) of comments that suppress a finding which the check of another file
    gave. needs: the paths whose content, or absence, the rest hangs on.
    """

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    elsewhere: list[tuple[str, int]] = field(default_factory=list)
    needs: tuple[str, ...] = ()

    def add(self, other: Checked) -> None:
        self.findings += other.findings
        self.notes += [note for note in other.notes if note not in self.notes]
        self.files += other.files
        self.elsewhere += other.elsewhere


class Checker:
    """Checks one file after another by the same settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.names = chosen(settings)
        self._ignores = FileIgnores(settings)
        self._all = self.names >= registry.names().keys()
        # Traces hold very many objects that live until their file is done.
        gc.set_threshold(200_000, 20, 50)
        names.forget()

    def file(self, path: str) -> Checked:
        """What is to say of a file. What can't be read becomes a note."""
        try:
            data = files.content(path)
        except files.Unreadable as error:
            return Checked(notes=[f"{path} was not checked: {error}"])
        return self.bytes(data, path)

    def bytes(self, data: bytes, path: str) -> Checked:
        """What is to say of a file that holds this."""
        Script.forget(KEPT)
        try:
            script = files.parsed(data, path)
        except files.Unreadable as error:
            return Checked(notes=[f"{path} was not checked: {error}"])
        checked = self.script(script)
        if path.endswith(".ipynb"):
            checked.findings = _in_cells(checked.findings, path, data.decode("utf-8-sig"))
        return checked

    def script(self, script: Script) -> Checked:
        ignored = self._ignores.of(script.file)
        wanted = self.names - ignored
        result = Checked(files=1)
        rules = tuple(registry.for_source("\n".join(script.lines), wanted))
        said = [f for f in diagnose_source(script, rules, result.notes)
                if not self._ignored_there(f, script.file)]
        asked = suppressions.Asked(wanted, self._all and not ignored, self.settings.folders)
        done = suppressions.applied(script, said, asked)
        result.elsewhere = done.elsewhere
        result.findings = sorted((replace(f, explains=()) for f in done.kept), key=place)
        return result

    def _ignored_there(self, finding: Finding, file: str) -> bool:
        """Whether it lies in another file, where nothing is to be said of it."""
        there = finding.where.file if finding.where else None
        if not there or there == file:
            return False
        return finding.rule in self._ignores.of(there) or excluded(there, self.settings)


def excluded(path: str, settings: Settings) -> bool:
    """Whether the settings leave the file or folder out."""
    if not settings.exclude:
        return False
    from torchmedic.checking.selection import matches

    return any(matches(path, pattern, settings.root) for pattern in settings.exclude)


def place(finding: Finding) -> tuple[str, int, str]:
    """By this, findings are put in order."""
    where = finding.where
    return (where.file or "", where.line or 0, finding.rule) if where else ("", 0, finding.rule)


def _in_cells(said: Iterable[Finding], file: str, text: str) -> list[Finding]:
    """Says in which cell a finding of a notebook is, and counts the lines it tells of by cells."""
    places = notebooks.places(text)

    def by_cell(words: str) -> str:
        return re.sub(r"\bline (\d+)\b", lambda found: _line(int(found[1]), places), words)

    told = []
    for finding in said:
        line = finding.where.line if finding.where and finding.where.file == file else None
        if line and line <= len(places):
            cell, row = places[line - 1]
            fact = Evidence(f"cell {cell}, line {row}", "notebook")
            facts = (replace(e, text=by_cell(e.text)) for e in finding.evidence)
            finding = replace(finding, message=by_cell(finding.message), evidence=(fact, *facts))
        told.append(finding)
    return told


def _line(number: int, places: Sequence[tuple[int, int]]) -> str:
    if not 0 < number <= len(places):
        return f"line {number}"
    cell, row = places[number - 1]
    return f"cell {cell} line {row}"
