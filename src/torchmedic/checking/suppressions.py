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

    def speaks_of(self, rule: str) -> bool:
        return self.names is not None and rule in self.names

    def hides(self, finding: Finding) -> bool:
        line = finding.where.line if finding.where else None
        here = self.whole_file or (line is not None and line in self.lines)
        if not here or (self.names is not None and finding.rule not in self.names):
            return False
        self.used.add(finding.rule)
        return True


@dataclass(frozen=True, slots=True)
class Asked:
    """names: the rules that were asked; a suppression of another one may well be of use.

    everything: whether all rules were, and so a suppression without names can be judged.
    folders: whether files that import this one were checked too. Their findings may lie here, so
    that without them nobody can tell that a suppression is of no use.
    """

    names: frozenset[str]
    everything: bool
    folders: bool


@dataclass(slots=True)
class Applied:
    """kept: findings that no comment suppresses, with what is said of the comments themselves.

    elsewhere: (file, line) of comments in other files that suppress a finding of this one.
    """

    kept: list[Finding] = field(default_factory=list)
    elsewhere: list[tuple[str, int]] = field(default_factory=list)


def applied(script: Script, findings: Sequence[Finding], asked: Asked) -> Applied:
    """What is left to say of a file. A finding lies in the file of its place."""
    result = Applied()
    of_file: dict[str, list[Suppression]] = {script.file: _comments(script)}
    for finding in findings:
        file = (finding.where.file if finding.where else None) or script.file
        if file not in of_file:
            of_file[file] = _comments_in(file)
        # All that fit: of two comments that do, both are of use.
        hiding = [comment for comment in of_file[file] if comment.hides(finding)]
        if not hiding:
            result.kept.append(finding)
        elif file != script.file:
            result.elsewhere += [(file, comment.line) for comment in hiding]
    mine = of_file[script.file]
    if UNUSED in asked.names and not any(c.whole_file and c.speaks_of(UNUSED) for c in mine):
        for comment in mine:
            result.kept += _unused(script, comment, asked)
    return result


def _comments_in(file: str) -> list[Suppression]:
    from torchmedic.source.script import Script

    other = Script.read(file)
    return [] if other is None else _comments(other)


def _comments(script: Script) -> list[Suppression]:
    found: list[Suppression] = []
    if not any(MARK in line for line in script.lines):
        return found
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
    decorators = getattr(statement.node, "decorator_list", ())
    first = min([statement.line, *(decorator.lineno for decorator in decorators)])
    last = max(last, statement.line)
    # Such as an `else:`, or an empty line: nothing of the statement around it is meant.
    return range(first, last + 1) if first <= line <= last else range(line, line + 1)


def _unused(script: Script, comment: Suppression, asked: Asked) -> Iterator[Finding]:
    from torchmedic import registry

    known = registry.names()
    if comment.names is None:
        if not comment.used and asked.everything and asked.folders:
            yield _said(script, comment, "this suppression suppresses nothing")
        return
    if comment.speaks_of(UNUSED):
        return
    for name in comment.names:
        if name not in known:
            yield _said(script, comment, f"this suppression names `{name}`, which is no rule")
        elif name not in comment.used and name in asked.names and asked.folders:
            yield _said(script, comment, f"`{name}` has nothing to say here: the suppression is "
                        "not needed")


def _said(script: Script, comment: Suppression, message: str) -> Finding:
    return Finding(
        rule=UNUSED, category="code", severity="warning", confidence="certain", message=message,
        where=Place(file=script.file, line=comment.line),
        evidence=(Evidence(script.line(comment.line).strip(), "source"),),
        fix=Fix("remove it from the comment"))
