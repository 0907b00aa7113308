"""A check from its paths to its findings: which files, from the cache or anew, and in order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic.checking.selection import UNUSED
from torchmedic.checking.session import Checked, Checker, excluded, place
from torchmedic.source import files

if TYPE_CHECKING:
    from torchmedic.config import Settings
    from torchmedic.model import Finding


def found(paths: Sequence[str], settings: Settings, forced: bool = False) -> list[str]:
    """The files to check. forced: what is excluded is left out also where it was named itself."""
    if not settings.exclude:
        return list(files.found(paths))
    return [file for file in files.found(paths, lambda path: excluded(path, settings))
            if not (forced and excluded(file, settings))]


def check(paths: Sequence[str], settings: Settings, jobs: int | None = None,
          cached: bool = True) -> Checked:
    """All files, in their order. jobs: None for as many processes as pay."""
    result = Checked()
    for part in _parts(paths, settings, jobs, cached):
        result.add(part)
    if not paths:
        result.notes.append("no Python file was found there")
    used = set(result.elsewhere)
    result.findings = sorted(_each_once(
        f for f in result.findings if f.rule != UNUSED or _at(f) not in used), key=place)
    return result


def _parts(paths: Sequence[str], settings: Settings, jobs: int | None,
           cached: bool) -> Iterator[Checked]:
    if len(paths) < 2:  # a cache would cost more than it saves
        yield from map(Checker(settings).file, paths)
    elif not cached:
        yield from _anew(paths, settings, jobs, needs=False)
    else:
        from torchmedic.checking.cache import Cache

        cache = Cache(settings)
        known = {path: cache.known(path) for path in paths}
        left = [path for path in paths if known[path] is None]
        try:
            for path, part in zip(left, _anew(left, settings, jobs, needs=True), strict=True):
                known[path] = part
                cache.keep(path, part)
        finally:  # also of a check that was interrupted
            cache.write()
        yield from (part for part in known.values() if part is not None)


def _anew(paths: Sequence[str], settings: Settings, jobs: int | None,
          needs: bool) -> Iterator[Checked]:
    checker = Checker(settings)  # names that nobody has are told before any process starts
    from torchmedic.checking import many

    count = many.worth(len(paths)) if jobs is None else min(jobs, len(paths))
    if count > 1:
        yield from many.check(paths, settings, count, needs)
    else:
        yield from (many.one(checker, path, needs) for path in paths)


def standard_input(data: bytes, name: str, settings: Settings) -> Checked:
    """What is to say of a text that has no file."""
    checked = Checker(settings).bytes(data, name)
    checked.notes = [note.replace(f"{name} was not", "standard input was not", 1)
                     if name == "-" else note for note in checked.notes]
    return checked


def _at(finding: Finding) -> tuple[str, int]:
    where = finding.where
    return (where.file or "", where.line or 0) if where else ("", 0)


def _each_once(findings: Iterator[Finding]) -> Iterator[Finding]:
    """What several files that import one another show of the same place is told once."""
    seen = set()
    for finding in findings:
        where = finding.where
        file = where.file if where else None
        key = finding.rule, finding.message, replace(
            where, file=os.path.realpath(file)) if where and file else where
        if key not in seen:
            seen.add(key)
            yield finding
