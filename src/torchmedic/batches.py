"""Which batch of which loader a failure was in, from what the run knows of its loaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic.failures import of_run
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.failures import Witness
    from torchmedic.model import Problem
    from torchmedic.observed import Failure, Iteration, Loader, Run

    Look = Callable[[Failure, Loader | None], Iterator[Problem]]
    InFailure = Callable[[Failure], Iterator[Problem]]
    InRun = Callable[[Run], Iterator[Problem]]


def recorded(run: Run) -> Iterator[Witness]:
    """The failures a live process recorded, with what each is about.

    Those that only the error stream tells are left to `in_failure`.
    """
    return (seen for seen in of_run(run) if seen.failure.how != "logged")


def matchers(problems: Look) -> tuple[InFailure, InRun]:
    """`in_failure` for logs and `in_run` for runs of a rule that looks at a failure and at the
    loader whose batch it was in."""
    def in_failure(failure: Failure) -> Iterator[Problem]:
        if failure.how == "logged":
            yield from problems(failure, None)

    def in_run(run: Run) -> Iterator[Problem]:
        for seen in recorded(run):
            for problem in problems(seen.failure, loader_of(run, seen.failure)):
                yield replace(problem, about=seen.about)

    return in_failure, in_run


def loader_of(run: Run, failure: Failure) -> Loader | None:
    """The loader whose batch was in work: of the pass that began last before the failure."""
    process = run.process(failure.pid)
    if process is None or failure.batch is None:
        return None
    passes = [p for p in process.iterations if p.time <= failure.time and _holds(p, failure)]
    return max(passes, key=lambda p: p.time).loader if passes else None


def _holds(item: Iteration, failure: Failure) -> bool:
    if failure.loader is not None:
        return item.loader.key == failure.loader
    return item.loader.batches is None or (failure.batch or 0) <= item.loader.batches


def rest_of(loader: Loader | None) -> int | None:
    """Samples in the last, smaller batch; None when unknown or when there is no such batch."""
    if loader is None or loader.drop_last or not loader.samples or not loader.batch_size:
        return None
    return loader.samples % loader.batch_size or None


def is_last(loader: Loader | None, failure: Failure) -> bool:
    """The failure was in the last batch of its loader."""
    return loader is not None and loader.batches is not None and failure.batch == loader.batches


def last_batch(loader: Loader | None, failure: Failure) -> str:
    """`batch 3 is the last one: 11 samples in batches of 4 leave 3`; empty when it is not so."""
    rest = rest_of(loader)
    if loader is None or rest is None or not is_last(loader, failure):
        return ""
    return (f"batch {failure.batch} is the last one: {plural(loader.samples or 0, 'sample')} "
            f"in batches of {loader.batch_size} leave {rest}")
