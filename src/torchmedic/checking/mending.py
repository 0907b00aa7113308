"""The fixes of a whole check: made in the files, or shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def mend(checked: Checked, settings: Settings, unsafe: bool, write: bool) -> Done:
    """Makes the fixes and takes the findings that they cured out of `checked`."""
    done = Done()
    checker = Checker(settings)
    for file, findings in _by_file(checked.findings).items():
        if not any(fixing.wanted(f, unsafe) for f in findings):
            continue
        if file.endswith(".ipynb"):
            checked.notes.append(f"{file}: notebooks are not mended; the fix says what to change")
            continue
        _mend_file(checker, checked, file, findings, unsafe, write, done)
    if write and done.made:
        fixes = "fix" if done.made == 1 else "fixes"
        files = "file" if done.files == 1 else "files"
        checked.notes.insert(0, f"{done.made} {fixes} made in {done.files} {files}")
    return done


def _mend_file(checker: Checker, checked: Checked, file: str, findings: list[Finding],
               unsafe: bool, write: bool, done: Done) -> None:
    try:
        text, encoding, ending = fixing.read(file)
    except (OSError, SyntaxError, UnicodeError, LookupError) as error:
        checked.notes.append(f"{file} was not mended: {error}")
        return
    result = fixing.mended(checker, file, text, findings, unsafe)
    checked.notes += result.why
    if result.after == result.before:
        return
    if write:
        trouble = fixing.write(result, encoding, ending)
        if trouble is not None:
            checked.notes.append(trouble)
            return
        stay = [f for f in checked.findings if not f.where or f.where.file != file]
        checked.findings[:] = sorted(
            [*stay, *result.left],
            key=lambda f: ((f.where.file or "", f.where.line or 0) if f.where else ("", 0), f.rule))
    done.made += result.made
    done.files += 1
    done.diff += difference(result.before, result.after, file) + "\n"


def with_diffs(findings: Sequence[Finding]) -> list[Finding]:
    """Each finding with the diff of its own fix."""
    texts = {}
    for file in {f.where.file for f in findings if f.where and f.where.file and f.fix
                 and f.fix.edits}:
        try:
            texts[file] = fixing.read(file)[0]
        except (OSError, SyntaxError, UnicodeError, LookupError):
            continue
    return fixing.with_diff(findings, texts)


def _by_file(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.where is not None and finding.where.file:
            found.setdefault(finding.where.file, []).append(finding)
    return found
