"""What follows the end of a run: its diagnosis, and the report.

Everything that only this needs is imported here, while the program still runs (`service.py`).
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmedic import diagnosis, redact, registry, report
from torchmedic.supervise.reading import run_of

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding
    from torchmedic.observed import Run
    from torchmedic.supervise.outcome import Outcome


def diagnose(outcome: Outcome, folder: Path, code: int) -> Diagnosis:
    """The diagnosis of a finished run."""
    run = run_of(outcome, folder / "spool")
    catalogue = registry.catalogue()
    notes = [*outcome.facts["notes"], *(f"a rule is missing ({b})" for b in catalogue.broken)]
    findings = diagnosis.diagnose_run(run, tuple(e.rule for e in catalogue.entries), notes)
    notes.extend(blind_spots(run))
    if not findings and (run.ending.code or run.ending.signal):
        notes.extend(last_words(run))
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


def last_words(run: Run) -> list[str]:
    """The last line the program wrote, where nothing else says why it ended."""
    said = [line.strip() for line in run.output.lines if line.strip()]
    return [f"its last line on standard error was: {said[-1][:300]}"] if said else []


def retry(run: Run, findings: tuple[Finding, ...]) -> str | None:
    """The command to type after mending, with secrets masked."""
    if not any(f.severity != "info" for f in findings):
        return None
    return "torchmedic run -- " + shlex.join(redact.argument_list(run.command))


def show(diagnosed: Diagnosis, outcome: Outcome, output_format: str, file: Path | None) -> None:
    if file is not None:
        try:
            report.write_file(diagnosed, output_format, file)
            return
        except OSError as error:
            sys.stderr.write(f"\ntorchmedic: can't write {file}: {error.strerror or error}; the "
                             f"report follows, and is kept in {diagnosed.run_folder}\n")
    if output_format == "full":
        sys.stderr.write(gap(diagnosed, outcome.output))
    report.write(diagnosed, output_format, sys.stderr)


def gap(diagnosed: Diagnosis, output: str) -> str:
    """What sets the report apart from the program's last line, which may not be ended."""
    unended = "\n" if output and not output.endswith("\n") else ""
    return unended + ("" if diagnosed.verdict.category == "none" else "\n")


def warm_up() -> None:
    """Load what a report needs; the imports above have loaded the rest."""
    registry.rules()
    report.load("full")
