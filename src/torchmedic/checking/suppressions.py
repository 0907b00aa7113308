"""`# torchmedic: ignore[rule]` and `# torchmedic: file-ignore[rule]` in the user's files."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmedic.checking.selection import UNUSED
from torchmedic.model import Evidence, Finding, Fix, Place

if TYPE_CHECKING:
    from torchmedic.source.script import Script

MARK = "torchmedic:"
COMMENT = re.compile(r"#\s*torchmedic:\s*(?P<what>file-ignore|ignore)\b"
                     r"(?:\s*\[(?P<names>[^\]]*)\])?")


@dataclass(slots=True)
class Suppression:
    """One comment. names: None when it names no rule and so means all. line: where it stands."""

    line: int
    names: tuple[str, ...] | None
    whole_file: bool
    lines: range
    """The lines whose findings it suppresses."""
    used: set[str] = field(default_factory=set)

    def hides(self, finding: Finding) -> bool:
        line = finding.where.line if finding.where else None
        here = self.whole_file or (line is not None and line in self.lines)
        if not here or (self.names is not None and finding.rule not in self.names):
            return False
        self.used.add(finding.rule)
        return True


def applied(script: Script, findings: Sequence[Finding],
            names: frozenset[str]) -> Iterator[Finding]:
    """The findings that no comment suppresses, and the comments that suppress nothing.

    names: the rules that were asked; a suppression of another one may well be of use.
    """
    comments = _comments(script) if any(MARK in line for line in script.lines) else []
    for finding in findings:
        # Not `any`: of two comments that fit, both are of use.
        if not [c for c in comments if c.hides(finding)]:
            yield finding
    if UNUSED in names:
        for comment in comments:
            yield from _unused(script, comment, names)


def _comments(script: Script) -> list[Suppression]:
    found = []
    for line, text, alone in _tokens(script):
        match = COMMENT.search(text)
        if match is None:
            continue
        listed = match["names"]
        names = None if listed is None else tuple(
            name.strip() for name in listed.split(",") if name.strip())
        found.append(Suppression(line, names, match["what"] == "file-ignore",
                                 _statement(script, line, alone)))
    return found


def _tokens(script: Script) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether nothing else is on the line) of each comment; no strings."""
    text = "\n".join(script.lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string, not token.line[:token.start[1]].strip()
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return


def _statement(script: Script, line: int, alone: bool) -> range:
    """The lines of the statement that the comment stands on or above; of a block its head."""
    if alone:
        line += 1
        while line <= len(script.lines) and script.line(line).lstrip().startswith("#"):
            line += 1
    statement = script.statement_at(line)
    if statement is None:
        return range(line, line + 1)
    body = getattr(statement.node, "body", None)
    last = body[0].lineno - 1 if isinstance(body, list) and body else statement.end_line
    return range(min(statement.line, line), max(last, line) + 1)


def _unused(script: Script, comment: Suppression, asked: frozenset[str]) -> Iterator[Finding]:
    from torchmedic import registry

    known = registry.names()
    if comment.names is None:
        if not comment.used:
            yield _said(script, comment, "this suppression suppresses nothing")
        return
    for name in comment.names:
        if name not in known and name != UNUSED:
            yield _said(script, comment, f"this suppression names `{name}`, which is no rule")
        elif name not in comment.used and name in asked:
            yield _said(script, comment, f"`{name}` has nothing to say here: the suppression is "
                        "not needed")


def _said(script: Script, comment: Suppression, message: str) -> Finding:
    return Finding(
        rule=UNUSED, category="code", severity="warning", confidence="certain", message=message,
        where=Place(file=script.file, line=comment.line),
        evidence=(Evidence(script.line(comment.line).strip(), "source"),),
        fix=Fix("remove it from the comment"))
