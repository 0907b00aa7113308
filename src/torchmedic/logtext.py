"""Lines of a log that say something, for rules that read more than tracebacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.logs.completion import completed
from torchmedic.model import Evidence
from torchmedic.ranking import ENDING

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

LONGEST = 200
ENDS = 1000
"""Characters of a very long line's beginning and end that are looked at."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that says what was looked for. number counts from 1."""

    number: int
    text: str
    match: re.Match[str]

    @property
    def evidence(self) -> Evidence:
        text = self.text.strip()
        return Evidence(text if len(text) <= LONGEST else text[:LONGEST].rstrip() + " …",
                        f"log:{self.number}")


def hits(log: Log, pattern: re.Pattern[str]) -> Iterator[Hit]:
    for number, line in enumerate(log.lines, 1):
        if len(line) > 2 * ENDS:  # a pattern may take the square of a line's length
            line = f"{line[:ENDS]}\n{line[-ENDS:]}"
        if (match := pattern.search(line)) is not None:
            yield Hit(number, line, match)


def first(log: Log, pattern: re.Pattern[str]) -> Hit | None:
    return next(hits(log, pattern), None)


def beside(log: Log, pattern: re.Pattern[str]) -> Hit | None:
    """The first such line, where no exception of the log says it."""
    if any(pattern.search(f.message) for f in every_failure(log)):
        return None
    hit = first(log, pattern)
    done = completed(log.lines) if hit else None
    return hit if done is None or hit is None or hit.number > done else None


def every_failure(log: Log) -> Iterator[Failure]:
    """Also those that others were raised from."""
    for failure in log.failures:
        now: Failure | None = failure
        while now is not None:
            yield now
            now = now.during


def lasting(log: Log) -> tuple[Failure, ...]:
    """Exceptions that Python did not ignore."""
    return tuple(failure for failure in log.failures if not failure.swallowed)


def said_by(log: Log, pattern: re.Pattern[str]) -> Failure | None:
    """The last exception whose message says it."""
    told = [f for f in every_failure(log) if pattern.search(f.message)]
    return told[-1] if told else None


def about(*failures: Failure | None) -> tuple[str, ...]:
    """Keys of what ended the log: its end, and the exceptions that only report it."""
    return (ENDING, *(f"failure:{failure.key}" for failure in failures if failure is not None))
