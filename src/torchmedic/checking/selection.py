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
    """Names of the rules to use. Raises UserError for a name that nobody has."""
    families = registry.names()
    picked = _expanded(settings.select, families, settings.source)
    return picked - _expanded(settings.ignore, families, settings.source)


def _expanded(words: Iterable[str], families: dict[str, str],
              source: Path | None) -> frozenset[str]:
    """families: rule → family."""
    found: set[str] = set()
    for word in words:
        if word == "all":
            found |= {*families, UNUSED}
        elif word in families or word == UNUSED:
            found.add(word)
        elif word in families.values():
            found |= {name for name, family in families.items() if family == word}
        else:
            raise UserError(_unknown(word, families, source))
    return frozenset(found)


def _unknown(word: str, families: dict[str, str], source: Path | None) -> str:
    import difflib

    near = difflib.get_close_matches(word, [*families, *set(families.values()), UNUSED], 1)
    hint = f"; did you mean `{near[0]}`?" if near else "; `torchmedic rules` lists them"
    place = f"{source}: " if source else ""
    return f"{place}there is no rule or family {word!r}{hint}"


class FileIgnores:
    """`per-file-ignores` of the settings: which rules do not speak in which files."""

    def __init__(self, settings: Settings) -> None:
        families = registry.names() if settings.per_file_ignores else {}
        self._root = settings.root
        self._patterns = [(pattern, _expanded(words, families, settings.source))
                          for pattern, words in settings.per_file_ignores.items()]

    def of(self, file: str) -> frozenset[str]:
        """Names that are ignored in the file."""
        found: frozenset[str] = frozenset()
        for pattern, names in self._patterns:
            if matches(file, pattern, self._root):
                found |= names
        return found


def matches(file: str, pattern: str, root: Path) -> bool:
    """Whether a path matches a pattern of the settings: its name, a part of it, or all of it."""
    full = os.path.abspath(file).replace(os.sep, "/")  # noqa: PTH100
    base = root.as_posix().rstrip("/") + "/"
    inside = full.removeprefix(base)
    parts = inside.split("/")
    pattern = pattern.removeprefix("./").rstrip("/")
    if "/" not in pattern:
        return any(fnmatch.fnmatchcase(part, pattern) for part in parts)
    heads = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    return any(fnmatch.fnmatchcase(head, pattern) for head in heads)
