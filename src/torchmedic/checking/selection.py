"""Which rules a check uses, by their names and families, before any of them is imported."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic import registry
from torchmedic.output import UserError

if TYPE_CHECKING:
    from torchmedic.config import Settings

UNUSED = "unused-suppression"
"""What says that a suppression suppresses nothing; chosen and ignored as a rule is."""


def chosen(settings: Settings) -> frozenset[str]:
    """Names of the rules to use. Raises UserError for a name that nobody has.

    The narrower word wins: a rule's name over its family's, that over `all`. Of equally narrow
    words, the command line's wins over the file's, and in one place `ignore` over `select`.
    """
    families = registry.names()
    told = [(_known(choice.select, families, choice.source),
             _known(choice.ignore, families, choice.source)) for choice in settings.choices]
    found: set[str] = set()
    for width in range(3):
        for select, ignore in told:
            found |= select[width]
            found -= ignore[width]
    return frozenset(found)


def _known(words: Iterable[str], families: dict[str, str], source: Path | None,
           key: str = "") -> tuple[set[str], set[str], set[str]]:
    """Rules that `all`, the families' names and their own names mean. families: rule → family."""
    everything: set[str] = set()
    by_family: set[str] = set()
    single: set[str] = set()
    for word in words:
        if word == "all":
            everything = {*families, UNUSED}
        elif word in families or word == UNUSED:
            single.add(word)
        elif word in families.values():
            by_family |= {name for name, family in families.items() if family == word}
        else:
            raise UserError(_unknown(word, families, source, key))
    return everything, by_family, single


def _unknown(word: str, families: dict[str, str], source: Path | None, key: str) -> str:
    import difflib

    near = difflib.get_close_matches(word, [*families, *set(families.values()), UNUSED], 1)
    hint = f"; did you mean `{near[0]}`?" if near else "; `torchmedic rules` lists them"
    place = f"{source}: {key}" if source else ""
    return f"{place}there is no rule or family {word!r}{hint}"


class FileIgnores:
    """`per-file-ignores` of the settings: which rules do not speak in which files."""

    def __init__(self, settings: Settings) -> None:
        families = registry.names() if settings.per_file_ignores else {}
        self._root = settings.root
        self._patterns = [
            (pattern, frozenset().union(*_known(
                words, families, settings.source, f"`per-file-ignores.{pattern}`: ")))
            for pattern, words in settings.per_file_ignores.items()]

    def of(self, file: str) -> frozenset[str]:
        """Names that are ignored in the file."""
        found: frozenset[str] = frozenset()
        for pattern, names in self._patterns:
            if matches(file, pattern.removeprefix("!"), self._root) != pattern.startswith("!"):
                found |= names
        return found


def matches(file: str, pattern: str, root: Path) -> bool:
    """Whether a path matches a pattern of the settings: its name, a part of it, or all of it."""
    full = os.path.abspath(file).replace(os.sep, "/")  # noqa: PTH100
    inside = full.removeprefix(root.as_posix().rstrip("/") + "/")
    pattern = pattern.removeprefix("./").rstrip("/")
    if "/" not in pattern:
        return any(fnmatch.fnmatchcase(part, pattern) for part in inside.split("/"))
    parts = (full if pattern.startswith("/") else inside).split("/")
    heads = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    # `**/` also stands for no folder at all.
    return any(fnmatch.fnmatchcase(head, way) for way in (pattern, pattern.replace("**/", ""))
               for head in heads)
