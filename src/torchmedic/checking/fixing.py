"""Makes the fixes that findings carry: in the file, or as a diff that shows them."""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic.output import replace_file
from torchmedic.source import edits
from torchmedic.source.script import Script

if TYPE_CHECKING:
    from torchmedic.checking.session import Checker
    from torchmedic.model import Edit, Finding

ROUNDS = 8
"""A fix may make room for another one; more rounds than this would be a loop."""


@dataclass(slots=True)
class Mended:
    """A file after its fixes. left: findings that stay; why: what could not be mended."""

    file: str
    before: str
    after: str
    made: int = 0
    left: list[Finding] = field(default_factory=list)
    why: list[str] = field(default_factory=list)


def wanted(finding: Finding, unsafe: bool) -> bool:
    """Whether the finding's fix is to be made: exact, and safe or asked for."""
    fix = finding.fix
    return fix is not None and bool(fix.edits) and (
        fix.safety == "safe" or (unsafe and fix.safety == "unsafe"))


def mended(checker: Checker, file: str, text: str, findings: Sequence[Finding],
           unsafe: bool) -> Mended:
    """The text with every fix made that can be; nothing is written.

    A fix that leaves the text unreadable, or its own finding in place, is taken back.
    """
    result = Mended(file, text, text, left=list(findings))
    refused: set[tuple[str, tuple[Edit, ...]]] = set()
    for _ in range(ROUNDS):
        todo = [f for f in result.left if wanted(f, unsafe) and _key(f) not in refused]
        if not todo:
            break
        if not _round(checker, result, todo, refused):
            break
    return result


def _round(checker: Checker, result: Mended, todo: list[Finding],
           refused: set[tuple[str, tuple[Edit, ...]]]) -> bool:
    """Makes what can be made together; else one after the other, to see which one does harm."""
    together = _tried(checker, result, todo)
    if together is not None:
        return _take(result, together)
    for finding in todo:
        alone = _tried(checker, result, [finding])
        if alone is not None:
            return _take(result, alone)
        refused.add(_key(finding))
        line = finding.where.line if finding.where else 0
        result.why.append(f"{result.file}:{line}: the fix of {finding.rule} was not made: it "
                          "would not have cured it")
    return True


def _tried(checker: Checker, result: Mended,
           todo: list[Finding]) -> tuple[str, list[Finding], int] | None:
    """(text, what is still found, fixes made); None when a fix did not cure its finding."""
    try:
        text, made = edits.applied(result.after, [f.fix.edits for f in todo if f.fix])
    except edits.Unfit:
        return None
    script = Script.parse(text, result.file)
    if not any(made) or text == result.after or script is None:
        return None
    left = checker.script(script).findings
    cured = sum(made)
    before = _count(result.left, todo)
    if any(_count(left, [f]) > before - sum(
            1 for g, done in zip(todo, made, strict=True) if done and g.rule == f.rule)
            for f in todo):
        return None
    return text, left, cured


def _count(findings: Sequence[Finding], rules: Sequence[Finding]) -> int:
    names = {f.rule for f in rules}
    return sum(1 for f in findings if f.rule in names)


def _take(result: Mended, done: tuple[str, list[Finding], int]) -> bool:
    result.after, result.left, made = done
    result.made += made
    return True


def _key(finding: Finding) -> tuple[str, tuple[Edit, ...]]:
    return finding.rule, finding.fix.edits if finding.fix else ()


def read(file: str) -> tuple[str, str, str]:
    """(text with `\\n` line ends, its encoding, its own line end)."""
    data = Path(file).read_bytes()
    encoding = tokenize.detect_encoding(BytesIO(data).readline)[0]
    text = data.decode(encoding)
    ending = "\r\n" if "\r\n" in text else "\n"
    return text.replace("\r\n", "\n"), encoding, ending


def write(done: Mended, encoding: str, ending: str) -> str | None:
    """Puts the mended text in the file's place; says why not where that is so."""
    try:
        if read(done.file)[0] != done.before:
            return f"{done.file} changed meanwhile and was not mended"
        text = done.after.replace("\n", ending) if ending != "\n" else done.after
        replace_file(Path(done.file), text, encoding=encoding, errors="strict")
    except (OSError, UnicodeError) as error:
        return f"{done.file} was not mended: {getattr(error, 'strerror', None) or error}"
    return None


def with_diff(findings: Sequence[Finding], texts: dict[str, str]) -> list[Finding]:
    """Each exact fix with its diff. texts: the source of each file, by its path."""
    told = []
    for finding in findings:
        fix, where = finding.fix, finding.where
        text = texts.get(where.file or "") if where else None
        if fix is not None and fix.edits and fix.diff is None and text is not None and where:
            try:
                changed, _ = edits.applied(text, [fix.edits])
                diff = edits.difference(text, changed, where.file or "")
                finding = replace(finding, fix=replace(fix, diff=diff))
            except edits.Unfit:
                finding = replace(finding, fix=replace(fix, edits=()))
        told.append(finding)
    return told
