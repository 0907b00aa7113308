"""Many files in several processes, in their order; a file that ends its process is told."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchmedic.checking.session import Checked, Checker
from torchmedic.source.flow.names import depends_on

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from torchmedic.config import Settings

WORTH = 200
"""Files from which on the start of further processes pays."""
SHARE = 16
"""Files that a process is given at a time."""
MOST = 8
"""Processes, unless more are asked for."""


def worth(files: int) -> int:
    """How many processes pay for so many files."""
    return min(_cores(), MOST) if files >= WORTH else 1


def one(checker: Checker, path: str, needs: bool) -> Checked:
    """One file, in this process. needs: say also what the answer hangs on."""
    checked = checker.file(path)
    if needs:
        checked.needs = tuple(depends_on(path))
    return checked


def check(paths: Sequence[str], settings: Settings, jobs: int, needs: bool) -> Iterator[Checked]:
    """One answer for each file."""
    from concurrent.futures.process import BrokenProcessPool

    size = max(1, min(SHARE, -(-len(paths) // jobs)))
    left = [paths[at:at + size] for at in range(0, len(paths), size)]
    while left:
        done = 0
        pool = _pool(min(jobs, len(left)), settings)
        try:
            for future in [pool.submit(_share, share, needs) for share in left]:
                yield from future.result()
                done += 1
        except BrokenProcessPool:
            pass
        finally:
            pool.shutdown(cancel_futures=True)
        if done < len(left):  # the process that ended may have been at work on this share
            yield from _carefully(left[done], settings, needs)
        left = left[done + 1:]


def _carefully(paths: Sequence[str], settings: Settings, needs: bool) -> Iterator[Checked]:
    """One file at a time, each such that its end is not that of the others."""
    from concurrent.futures.process import BrokenProcessPool

    pool = _pool(1, settings)
    try:
        for path in paths:
            try:
                answer = pool.submit(_share, [path], needs).result()[0]
            except BrokenProcessPool:
                pool.shutdown()
                pool = _pool(1, settings)
                answer = Checked(notes=[f"{path} was not checked: the process that checked it "
                                        "ended, as for lack of memory"])
            yield answer
    finally:
        pool.shutdown(cancel_futures=True)


def _pool(jobs: int, settings: Settings) -> ProcessPoolExecutor:
    from concurrent.futures import ProcessPoolExecutor

    return ProcessPoolExecutor(jobs, initializer=_start, initargs=(settings,))


_checkers: list[Checker] = []
"""The one of this process."""


def _start(settings: Settings) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once, and says nothing
    _checkers[:] = [Checker(settings)]


def _share(paths: Sequence[str], needs: bool) -> list[Checked]:
    return [one(_checkers[0], path, needs) for path in paths]


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
