"""Which failures of a run or a log the rules see, and what each of them is about."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic import caught
from torchmedic.ranking import ENDING

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log, Process, Run

REPORTS = re.compile(r"background workers are no longer alive|exited unexpectedly"
                     r"|process \d+ terminated with exit code"
                     r"|can only (?:join|test) a child process")
CUT_OFF = ("ConnectionResetError", "BrokenPipeError", "EOFError", "ConnectionRefusedError")
LAUNCHERS = ("ChildFailedError", "ProcessExitedException", "CalledProcessError")


@dataclass(frozen=True, slots=True)
class Witness:
    """A failure to show to the rules. about: the keys of what it is, and of what it led to.

    order: smaller came first. earlier: another exception was raised from it or while it was
    handled.
    """

    failure: Failure
    about: tuple[str, ...]
    order: float = 0.0
    earlier: bool = False


def of_run(run: Run) -> tuple[Witness, ...]:
    """Recorded failures by time, then those that only the error stream tells. Made once a run."""
    if not run.witnesses:
        run.witnesses.append(tuple(_of_run(run)))
    found: tuple[Witness, ...] = run.witnesses[0]
    return found


def _of_run(run: Run) -> Iterator[Witness]:
    recorded = [*run.failures]
    # A traceback that a program prints and survives is no failure of the run.
    told = [f for f in run.output.failures if run.ending.code != 0 and not _known(f, recorded)]
    last = _that_ended(run, recorded, told)
    again: dict[str, tuple[str, ...]] = {}
    shown = []
    standing = [f for process in run.processes for f in process.failures
                if (caught.lost_by(run, process, f) if f.swallowed
                    else not _was_got_over(run, process, f))]
    for failure in sorted(standing, key=lambda f: f.time) + told:
        inner = _unwrapped(failure)
        twin = next((f for f in recorded if inner is not failure and _same(f, inner)), None)
        about = (f"failure:{failure.key}", *((ENDING,) if failure is last else ()))
        if twin is not None:  # a worker's exception, raised again in the parent
            again[twin.key] = (*again.get(twin.key, ()), *about)
        else:
            shown.append((inner, about))
    for order, (failure, about) in enumerate(shown):
        yield from _with_earlier(failure, (*about, *again.get(failure.key, ())), order)


def _was_got_over(run: Run, process: Process, failure: Failure) -> bool:
    """It ended another program, started by one that ended well all the same."""
    return run.ending.code == 0 and failure.how == "uncaught" and process is not run.main


def of_log(log: Log) -> Iterator[Witness]:
    """The failures in the order of the text."""
    last = _last_told(log.failures)
    for order, failure in enumerate(log.failures):
        about = (f"failure:{failure.key}", *((ENDING,) if failure is last else ()))
        yield from _with_earlier(_unwrapped(failure), about, order)


def _last_told(told: Sequence[Failure]) -> Failure | None:
    """The failure that ended what a text tells of.

    Of several ranks the first that failed: the others lost their partner. A launcher's own
    traceback, with no frame of the user's, only reports it.
    """
    lasting = [f for f in told if not f.swallowed]
    lasting = [f for f in lasting if not only_reports(f)] or lasting
    ranks = [f for f in lasting if f.rank is not None]
    if ranks:
        return ranks[0]
    own = [f for f in lasting if f.user_frame or not f.frames]
    return next(reversed(own or lasting), None)


def only_reports(failure: Failure) -> bool:
    """It says that another process ended, and not why."""
    if failure.short_type in CUT_OFF and failure.thread:  # the loader's thread lost its workers
        return any("pin_memory" in frame.file for frame in failure.frames)
    return failure.short_type in LAUNCHERS or REPORTS.search(failure.message) is not None


def _with_earlier(failure: Failure, about: tuple[str, ...], order: float) -> Iterator[Witness]:
    yield Witness(failure, about, order)
    seen = {id(failure)}
    while failure.during is not None and id(failure.during) not in seen:
        failure = failure.during
        seen.add(id(failure))
        yield Witness(_unwrapped(failure), (f"failure:{failure.key}", *about), order,
                      earlier=True)


def _that_ended(run: Run, recorded: list[Failure], told: list[Failure]) -> Failure | None:
    if run.ending.code == 0:
        return None
    main = run.main.failures if run.main else ()
    for group in (main, sorted(recorded, key=lambda f: f.time)):
        for failure in group:
            if failure.how == "uncaught" and not failure.swallowed:
                return failure
    # A traceback that was only printed says nothing about a signal.
    return _last_told(told) if run.ending.signal is None else None


def _unwrapped(failure: Failure) -> Failure:
    # Imported late: rules import this module, and the list of rules needs no log reader.
    from torchmedic.logs.tracebacks import unwrapped

    return unwrapped(failure)


def _known(told: Failure, recorded: list[Failure]) -> bool:
    inner = _unwrapped(told)
    for failure in recorded:
        now: Failure | None = failure
        while now is not None:
            if _same(_unwrapped(now), inner):
                return True
            now = now.during
    return False


def _same(one: Failure, other: Failure) -> bool:
    return one.short_type == other.short_type and _last_line(one) == _last_line(other)


def _last_line(failure: Failure) -> str:
    lines = failure.message.strip().splitlines()
    return lines[-1].strip() if lines else ""
