"""Makes the fixes that findings carry, and takes back each one that does not cure."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic.output import replace_file
from torchmedic.source import documents, edits
from torchmedic.source.script import Script

if TYPE_CHECKING:
    from torchmedic.checking.session import Checker
    from torchmedic.model import Finding
    from torchmedic.source.documents import Document

ROUNDS = 60
"""A fix may make room for another one; more rounds than this would be a loop."""

Key = tuple[str, str, str]
Filter = Callable[[Sequence["Finding"]], "list[Finding]"]


@dataclass(slots=True)
class Mended:
    """A file after its fixes. left: findings that stay; why: what could not be mended."""

    file: str
    before: Document
    after: Document
    made: int = 0
    left: list[Finding] = field(default_factory=list)
    why: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: set[Key] = field(default_factory=set)


def wanted(finding: Finding, unsafe: bool) -> bool:
    """Whether the finding's fix is to be made: exact, and safe or asked for."""
    fix = finding.fix
    return fix is not None and bool(fix.edits) and (
        fix.safety == "safe" or (unsafe and fix.safety == "unsafe"))


def mended(checker: Checker, file: str, document: Document, unsafe: bool,
           chosen: Filter = list) -> Mended:
    """The document with every fix made that can be; nothing is written.

    chosen: of the findings of the file, those to mend; such as those that no baseline holds.
    """
    result = Mended(file, document, document)
    script = Script.parse(document.source, file)
    if script is None:
        return result
    checked = checker.script(script)
    result.left, result.notes = checked.findings, checked.notes
    mine = chosen(result.left)
    result.refused = {_key(f, document) for f in result.left if f not in mine}
    for _ in range(ROUNDS):
        todo = [f for f in result.left if wanted(f, unsafe) and _here(f, file)
                and _key(f, result.after) not in result.refused]
        if not todo or not _some(checker, result, todo):
            break
    return result


def _here(finding: Finding, file: str) -> bool:
    return finding.where is not None and finding.where.file == file


def _some(checker: Checker, result: Mended, todo: Sequence[Finding]) -> bool:
    """Makes as many at once as cure; of one that does not it is said. False: nothing to do."""
    trouble = _tried(checker, result, todo)
    if trouble is None:
        return True
    if len(todo) > 1:
        half = len(todo) // 2
        before = result.after
        _some(checker, result, todo[:half])
        # What the first half changed has moved the other's places.
        return result.after is not before or _some(checker, result, todo[half:])
    finding = todo[0]
    result.refused.add(_key(finding, result.after))
    line = finding.where.line if finding.where else 0
    result.why.append(f"{result.file}:{line}: the fix of {finding.rule} was not made: {trouble}")
    return True


def _tried(checker: Checker, result: Mended, todo: Sequence[Finding]) -> str | None:
    """Makes these fixes; when one does harm, none, and what is wrong with them."""
    chosen, made = edits.compatible([f.fix.edits for f in todo if f.fix])
    done = [f for f, yes in zip(todo, made, strict=True) if yes]
    try:
        after = result.after.edited(chosen)
    except edits.Unfit as error:
        return str(error)
    script = Script.parse(after.source, result.file)
    if script is None:
        return "Python could not read what it makes"
    if not done or after.raw == result.after.raw:
        return "it changes nothing"
    checked = checker.script(script)
    trouble = _trouble(result, after, done, checked.findings) or next(
        (note for note in checked.notes if note not in result.notes), None)
    if trouble is None:
        result.after, result.left = after, checked.findings
        result.made += len(done)
    return trouble


def _trouble(result: Mended, after: Document, done: Sequence[Finding],
             left: Sequence[Finding]) -> str | None:
    """What these fixes left or brought."""
    before, now = (Counter(f.rule for f in found) for found in (result.left, left))
    mine = Counter(f.rule for f in done)
    came_from = _origins(result.after.source, after.source)
    for rule, count in mine.items():
        if now[rule] <= before[rule] - count:
            continue
        cured = {f.where.line for f in done if f.rule == rule and f.where}
        stay = [came_from.get(f.where.line or 0) for f in left if f.rule == rule and f.where]
        if any(line is None or line in cured for line in stay):
            return "it would not have cured it"
    fresh = next((f for f in left if now[f.rule] > before[f.rule] and f.rule not in mine
                  and f.severity != "info"), None)
    return f"it would have brought {fresh.rule}" if fresh else None


def _origins(before: str, after: str) -> dict[int, int]:
    """For each line that stayed or was changed: its number before."""
    old, new = before.split("\n"), after.split("\n")
    found = {}
    for what, a, end, b, last in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
        if what == "equal" or (what == "replace" and end - a == last - b):
            found.update({b + i + 1: a + i + 1 for i in range(end - a)})
    return found


def _key(finding: Finding, document: Document) -> Key:
    line = finding.where.line if finding.where else None
    lines = document.source.split("\n")
    return finding.rule, finding.message, lines[line - 1] if line and line <= len(lines) else ""


def write(done: Mended, data: bytes, encoding: str) -> str | None:
    """Puts the mended text in the file's place; says why not where that is so."""
    path = Path(done.file)
    try:
        if path.read_bytes() != data:
            return f"{done.file} changed meanwhile and was not mended"
        if not os.access(path, os.W_OK):
            return f"{done.file} was not mended: it is read-only"
        replace_file(path, done.after.raw, encoding=encoding, errors="strict")
    except (OSError, UnicodeError) as error:
        return f"{done.file} was not mended: {getattr(error, 'strerror', None) or error}"
    return None


def with_diff(findings: Sequence[Finding], files: dict[str, Document]) -> list[Finding]:
    """Each exact fix with its diff; one that does not fit the file is no longer exact."""
    told = []
    for finding in findings:
        fix, where = finding.fix, finding.where
        document = files.get(where.file or "") if where else None
        if fix is not None and fix.edits and fix.diff is None and document is not None and where:
            try:
                changed = document.edited(fix.edits).source
                diff = edits.difference(document.source, changed, where.file or "")
                finding = replace(finding, fix=replace(fix, diff=diff))
            except edits.Unfit:
                finding = replace(finding, fix=replace(fix, edits=()))
        told.append(finding)
    return told


def document_of(file: str) -> tuple[Document, bytes, str] | str:
    """The file as it can be changed, its bytes and encoding; else why it can't be."""
    if not os.path.isfile(file):  # noqa: PTH113 - a pipe would be waited for a second time
        return "it is no regular file"
    try:
        return documents.read(file)
    except (OSError, SyntaxError, ValueError, LookupError) as error:
        return getattr(error, "strerror", None) or str(error)
