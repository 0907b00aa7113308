"""Settings of `check`: `[tool.torchmedic]` in pyproject.toml, or torchmedic.toml.

The first of them that is found from the working folder upwards counts for every file of a check; a
pyproject.toml without that table is passed over. Keys are spelled as ruff spells them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from torchmedic.output import UserError

NAMES = ("torchmedic.toml", "pyproject.toml")
LISTS = ("select", "ignore", "extend-select", "extend-ignore", "exclude", "extend-exclude")


class Choice(NamedTuple):
    """What one place says of rules: names of rules or families, or `all`. source: its file."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    source: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """choices: the file's and the command line's; `selection.py` says which word wins.

    per_file_ignores: pattern of paths → what to ignore in them. Patterns are relative to `root`,
    the folder of the file that holds the settings.
    """

    root: Path
    choices: tuple[Choice, ...] = (Choice(("all",)),)
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    baseline: Path | None = None
    source: Path | None = None
    """The file they come from."""
    folders: bool = False
    """Whether folders are checked, and not only files that were named."""


def find(folder: Path) -> Path | None:
    """The nearest file with settings, from the folder upwards."""
    for place in (folder, *folder.parents):
        for name in NAMES:
            path = place / name
            if path.is_file() and (name == NAMES[0] or _mentions(path)):
                return path
    return None


def _mentions(path: Path) -> bool:
    try:
        return b"tool.torchmedic" in path.read_bytes()
    except OSError:
        return False


def load(path: Path) -> Settings:
    """The settings of a file. Raises UserError that names the file and the key."""
    table = _table(path)
    known = {*LISTS, "per-file-ignores", "baseline"}
    for key in table:
        if key not in known:
            raise UserError(f"{path}: there is no setting {key!r}{_near(key, known)}")
    lists = {key: _words(table[key], path, key) for key in LISTS if key in table}
    baseline = table.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        raise UserError(f"{path}: `baseline` must be the path of a file")
    root = path.resolve().parent
    choice = Choice((*lists.get("select", ("all",)), *lists.get("extend-select", ())),
                    (*lists.get("ignore", ()), *lists.get("extend-ignore", ())), path)
    return Settings(
        root=root, choices=(choice,),
        exclude=(*lists.get("exclude", ()), *lists.get("extend-exclude", ())),
        per_file_ignores=_per_file(table.get("per-file-ignores", {}), path),
        baseline=root / baseline if baseline else None, source=path)


def with_options(settings: Settings, *, select: Sequence[str] = (),
                 extend_select: Sequence[str] = (), ignore: Sequence[str] = (),
                 exclude: Sequence[str] = ()) -> Settings:
    """What the command line says comes on top; `select` takes the place of the file's."""
    files = settings.choices
    if select:
        files = tuple(choice._replace(select=()) for choice in files)
    said = Choice((*select, *extend_select), tuple(ignore))
    return replace(settings, choices=(*files, said),
                   exclude=(*settings.exclude, *map(_from_here, exclude)))


def _from_here(pattern: str) -> str:
    """A pattern with folders in it, as seen from the working folder."""
    import glob
    import os

    if "/" not in pattern.rstrip("/") or pattern.startswith(("/", "**/")):
        return pattern
    return os.path.normpath(f"{glob.escape(Path.cwd().as_posix())}/{pattern}")


def _table(path: Path) -> dict[str, Any]:
    import importlib
    import sys

    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror or error}") from None
    except ValueError as error:  # also what is no UTF-8
        raise UserError(f"{path}: {error}") from None
    for key in ("tool", "torchmedic") if path.name == "pyproject.toml" else ():
        data = data.get(key, {})
        if not isinstance(data, dict):
            raise UserError(f"{path}: `{key}` must be a table")
    table: dict[str, Any] = data
    return table


def _words(value: object, path: Path, key: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise UserError(f"{path}: `{key}` must be a list of strings")
    return tuple(value)


def _per_file(value: object, path: Path) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise UserError(f"{path}: `per-file-ignores` must be a table of patterns")
    return {str(pattern): _words(words, path, f"per-file-ignores.{pattern}")
            for pattern, words in value.items()}


def _near(key: str, known: set[str]) -> str:
    import difflib

    near = difflib.get_close_matches(key, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
