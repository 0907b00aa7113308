"""The fixes of a whole check: made in the files, or shown."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic.checking import fixing
from torchmedic.checking.session import Checked, Checker
from torchmedic.source.edits import difference

if TYPE_CHECKING:
    from torchmedic.config import Settings
    from torchmedic.model import Finding

@dataclass(slots=True)
class Done:
    """diff: all changes, one file after the other. made: how many fixes."""

    diff: str = ""
    made: int = 0
    files: int = 0


def mend(checked: Checked, settings: Settings, unsafe: bool, write: bool,
         baseline: Path | None = None) -> Done:
    """Makes the fixes and takes the findings that they cured out of `checked`.

    baseline: what it holds is left alone.
    """
    done = Done()
    chosen = list if baseline is None else partial(_new, baseline)
    checker = Checker(settings)
    for file, findings in _by_file(checked.findings).items():
        if any(fixing.wanted(f, unsafe) for f in findings):
            _mend_file(checker, checked, file, unsafe, write, chosen, done)
    if write and done.made:
        fixes = "fix" if done.made == 1 else "fixes"
        files = "file" if done.files == 1 else "files"
        checked.notes.insert(0, f"{done.made} {fixes} made in {done.files} {files}")
    return done


def _mend_file(checker: Checker, checked: Checked, file: str, unsafe: bool, write: bool,
               chosen: fixing.Filter, done: Done) -> None:
    read = fixing.document_of(file)
    if isinstance(read, str):
        checked.notes.append(f"{file} was not mended: {read}")
        return
    document, data, encoding = read
    result = fixing.mended(checker, file, document, unsafe, chosen)
    checked.notes += result.why
    if result.after is result.before:
        return
    if write:
        trouble = fixing.write(result, data, encoding)
        if trouble is not None:
            checked.notes.append(trouble)
            return
        left = checker.file(file).findings if file.endswith(".ipynb") else result.left
        stay = [f for f in checked.findings if not f.where or f.where.file != file]
        checked.findings[:] = sorted(
            [*stay, *chosen(left)],
            key=lambda f: ((f.where.file or "", f.where.line or 0) if f.where else ("", 0), f.rule))
    done.made += result.made
    done.files += 1
    done.diff += difference(result.before.raw, result.after.raw, _shown(file))


def _new(baseline: Path, findings: Sequence[Finding]) -> list[Finding]:
    from torchmedic.checking.baseline import without_known

    return without_known(findings, baseline)


def _shown(file: str) -> str:
    """Below the working folder as from there, so that `patch -p1` finds it."""
    relative = os.path.relpath(file)
    return file if relative.startswith("..") else relative


def with_diffs(findings: Sequence[Finding]) -> list[Finding]:
    """Each finding with the diff of its own fix."""
    files = {}
    for file in {f.where.file for f in findings if f.where and f.where.file and f.fix
                 and f.fix.edits}:
        read = fixing.document_of(file)
        if not isinstance(read, str):
            files[file] = read[0]
    return fixing.with_diff(findings, files)


def _by_file(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.where is not None and finding.where.file:
            found.setdefault(finding.where.file, []).append(finding)
    return found
