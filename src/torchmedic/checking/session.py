"""A check from its paths to its findings."""

from __future__ import annotations

import gc
import os
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

if TYPE_CHECKING:
    from torchmedic.config import Settings
    from torchmedic.source.script import Script


@dataclass(slots=True)
class Checked:
    """What a check of some files gave."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0

    def add(self, other: Checked) -> None:
        self.findings += other.findings
        self.notes += [note for note in other.notes if note not in self.notes]
        self.files += other.files


class Checker:
    """Checks one file after another by the same settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.names = chosen(settings)
        self._ignores = FileIgnores(settings)
        # Traces hold very many objects that live until their file is done.
        gc.set_threshold(200_000, 20, 50)
        names.forget()

    def file(self, path: str) -> Checked:
        """What is to say of a file. What can't be read becomes a note."""
        try:
            script = files.read(path)
        except files.Unreadable as error:
            return Checked(notes=[f"{path} was not checked: {error}"])
        return self.script(script)

    def script(self, script: Script) -> Checked:
        wanted = self.names - self._ignores.of(script.file)
        result = Checked(files=1)
        rules = tuple(registry.for_source("\n".join(script.lines), wanted))
        said = diagnose_source(script, rules, result.notes)
        kept = suppressions.applied(script, said, wanted)
        placed = _in_cells(kept, script) if script.file.endswith(".ipynb") else kept
        result.findings = sorted((replace(f, explains=()) for f in placed), key=_place)
        return result


def found(paths: Sequence[str], settings: Settings) -> list[str]:
    """The files to check; what is excluded is left out, unless it was named itself."""
    if not settings.exclude:
        return list(files.found(paths))
    from torchmedic.checking.selection import matches

    named = {os.path.realpath(path) for path in paths}
    return [file for file in files.found(paths) if os.path.realpath(file) in named or not any(
        matches(file, pattern, settings.root) for pattern in settings.exclude)]


def _place(finding: Finding) -> tuple[str, int, str]:
    where = finding.where
    return (where.file or "", where.line or 0, finding.rule) if where else ("", 0, finding.rule)


def _in_cells(said: Iterable[Finding], script: Script) -> list[Finding]:
    """Says in which cell a finding of a notebook is."""
    with open(script.file, encoding="utf-8-sig") as file:
        places = notebooks.places(file.read())
    told = []
    for finding in said:
        line = finding.where.line if finding.where else None
        if line and line <= len(places):
            cell, row = places[line - 1]
            fact = Evidence(f"cell {cell}, line {row}", "notebook")
            finding = replace(finding, evidence=(fact, *finding.evidence))
        told.append(finding)
    return told
