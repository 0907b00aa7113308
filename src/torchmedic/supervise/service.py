"""The whole of `run`: supervise, read, diagnose, keep, show."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torchmedic import diagnosis, redact, registry, report, store
from torchmedic.model import Diagnosis, Finding
from torchmedic.observed import Run
from torchmedic.supervise.child import NotStarted
from torchmedic.supervise.outcome import Outcome
from torchmedic.supervise.reading import run_of
from torchmedic.supervise.session import Options, supervise


def run_and_diagnose(command: list[str], args: argparse.Namespace) -> int:
    """Returns the exit code of `torchmedic run`. Raises NotStarted."""
    kept = store.new_run(command)
    try:
        outcome = supervise(command, kept.path, Options(args.hang_after, args.hang_stop), say)
    except NotStarted:
        store.discard(kept)
        raise
    code = exit_code(outcome.status)
    try:
        unkept = failure_of(partial(outcome.write, kept.path))
        diagnosed = diagnose(outcome, kept.path, code)
        unkept = unkept or failure_of(partial(store.finish, kept, diagnosed))
        show(diagnosed, outcome, args.output_format, args.output_file)
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


def failure_of(write: Callable[[], None]) -> str | None:
    """What kept us from writing: a full disk costs the files, not the report."""
    try:
        write()
    except OSError as error:
        return error.strerror or str(error)
    return None


def diagnose(outcome: Outcome, folder: Path, code: int) -> Diagnosis:
    """The diagnosis of a finished run."""
    run = run_of(outcome, folder / "spool")
    catalogue = registry.catalogue()
    notes = [*outcome.facts["notes"], *(f"a rule is missing ({b})" for b in catalogue.broken)]
    findings = diagnosis.diagnose_run(run, tuple(e.rule for e in catalogue.entries), notes)
    notes.extend(blind_spots(run))
    return diagnosis.conclude(
        "run", findings, run.ending, process=process_facts(run, code),
        notes=tuple(notes), retry=retry(run, findings), run_folder=str(folder),
    )


def process_facts(run: Run, code: int) -> dict[str, Any]:
    overhead = max((p.overhead_s for p in run.processes), default=0.0)
    main = run.main
    facts: dict[str, Any] = {
        "exit_code": run.ending.code, "signal": run.ending.signal, "status": code,
        "duration_s": round(run.duration_s, 3), "overhead_s": round(overhead, 4),
    }
    if main is not None:
        facts.update(pid=main.pid, steps=main.step,
                     passes=sum(1 for i in main.iterations if i.exhausted),
                     processes=len(run.processes))
    return facts


def blind_spots(run: Run) -> list[str]:
    """What we could not see, said plainly."""
    notes = [f"a probe was switched off ({error})"
             for p in run.processes for error in p.probe_errors]
    if not run.processes:
        notes.append("no Python process of this run could be observed: it was started with -S, "
                     "with an environment of its own, or it is not Python")
    return notes


def retry(run: Run, findings: tuple[Finding, ...]) -> str | None:
    """The command to type after mending, with secrets masked."""
    if not any(f.severity != "info" for f in findings):
        return None
    return "torchmedic run -- " + shlex.join(redact.argument_list(run.command))


def exit_code(status: int) -> int:
    """As a shell gives it: 128 + N for signal N."""
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def fails(findings: tuple[Finding, ...], fail_on: str | None) -> bool:
    levels = {"error": ("error",), "warning": ("error", "warning")}.get(fail_on or "", ())
    return any(finding.severity in levels for finding in findings)


def show(diagnosed: Diagnosis, outcome: Outcome, output_format: str, file: Path | None) -> None:
    if file is not None:
        report.write_file(diagnosed, output_format, file)
        return
    if output_format == "full":
        sys.stderr.write(gap(diagnosed, outcome.output))
    report.write(diagnosed, output_format, sys.stderr)


def gap(diagnosed: Diagnosis, output: str) -> str:
    """What sets the report apart from the program's last line, which may not be ended."""
    unended = "\n" if output and not output.endswith("\n") else ""
    return unended + ("" if diagnosed.verdict.category == "none" else "\n")


def say(text: str) -> None:
    print(f"torchmedic: {text}", file=sys.stderr, flush=True)
