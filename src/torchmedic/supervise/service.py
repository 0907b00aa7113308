"""The whole of `run`: supervise, read, diagnose, keep, show."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from torchmedic import store
from torchmedic.supervise.child import NotStarted
from torchmedic.supervise.session import Options, supervise

if TYPE_CHECKING:
    from torchmedic.model import Finding


def run_and_diagnose(command: list[str], args: argparse.Namespace) -> int:
    """Returns the exit code of `torchmedic run`. Raises NotStarted."""
    kept = store.new_run(command)
    try:
        outcome = supervise(command, kept.path, Options(args.hang_after, args.hang_stop), say,
                            threading.Thread(target=_load_the_rest, daemon=True).start)
    except NotStarted:
        store.discard(kept)
        raise
    code = exit_code(outcome.status)
    try:
        from torchmedic.supervise.closing import diagnose, show
        from torchmedic.supervise.rings import fold_rings

        unkept = failure_of(partial(outcome.write, kept.path))
        diagnosed = diagnose(outcome, kept.path, code)
        unkept = unkept or failure_of(partial(store.finish, kept, diagnosed))
        show(diagnosed, outcome, args.output_format, args.output_file)
        with contextlib.suppress(OSError):
            fold_rings(kept.path / "spool")
        if unkept:
            say(f"the run's files could not be written: {unkept}")
    except BrokenPipeError:  # whoever read the report has gone
        return code
    except Exception as error:
        if os.environ.get("TORCHMEDIC_DEBUG"):
            raise
        # The program's own exit code is worth more than ours.
        say(f"the run is over, but its report failed: {type(error).__name__}: {error}")
        return code
    return 1 if code == 0 and fails(diagnosed.findings, args.fail_on) else code


def _load_the_rest() -> None:
    """Imports take a fifth of a second that nobody has to wait for after the end."""
    with contextlib.suppress(Exception):
        from torchmedic.supervise import closing

        closing.warm_up()


def failure_of(write: Callable[[], None]) -> str | None:
    """What kept us from writing: a full disk costs the files, not the report."""
    try:
        write()
    except OSError as error:
        return error.strerror or str(error)
    return None


def exit_code(status: int) -> int:
    """As a shell gives it: 128 + N for signal N."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def fails(findings: tuple[Finding, ...], fail_on: str | None) -> bool:
    levels = {"error": ("error",), "warning": ("error", "warning")}.get(fail_on or "", ())
    return any(finding.severity in levels for finding in findings)


def say(text: str) -> None:
    print(f"torchmedic: {text}", file=sys.stderr, flush=True)
