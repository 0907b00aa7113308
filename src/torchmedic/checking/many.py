"""Many files: with the cache, and in several processes where that pays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from torchmedic.checking.session import Checked, Checker

if TYPE_CHECKING:
    from torchmedic.config import Settings

WORTH = 200
"""Files from which on the start of further processes pays."""
SHARE = 16
"""Files that a process is given at a time."""


def check(paths: Sequence[str], settings: Settings, jobs: int | None = None,
          cached: bool = True) -> Checked:
    """All files, in their order. jobs: None for as many processes as pay."""
    count = jobs or (min(_cores(), 8) if len(paths) >= WORTH else 1)
    if count == 1:
        return _checked(paths, settings, cached)
    result = Checked()
    shares = [paths[i:i + SHARE] for i in range(0, len(paths), SHARE)]
    with ProcessPoolExecutor(min(count, len(shares) or 1)) as pool:
        for part in pool.map(_checked, shares, [settings] * len(shares), [cached] * len(shares)):
            result.add(part)
    return result


_ready: dict[tuple[str, bool], object] = {}


def _checked(paths: Sequence[str], settings: Settings, cached: bool) -> Checked:
    result = Checked()
    for path in paths:
        result.add(_one(settings, cached)(path))
    return result


def _one(settings: Settings, cached: bool):  # type: ignore[no-untyped-def]
    """The way to check a file, made once in each process."""
    key = (repr(settings), cached)
    if key not in _ready:
        checker = Checker(settings)
        if cached:
            from torchmedic.checking.cache import Cache

            _ready[key] = Cache(checker).file
        else:
            _ready[key] = checker.file
    return _ready[key]


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
