"""`torchmedic explain [LOG | -]`: what a log that is already there says about a failure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from torchmedic import output, report
from torchmedic.output import UserError

if TYPE_CHECKING:
    from torchmedic.logs.stream import Excerpt
    from torchmedic.model import Diagnosis, Finding
    from torchmedic.observed import Log

SUMMARY = "read a log or a pasted traceback and say what went wrong"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", nargs="?", metavar="LOG",
                        help="the file, or - for standard input (the default in a pipe)")
    output.add_options(parser, tuple(report.FORMATS))


def execute(args: argparse.Namespace) -> int:
    diagnosis = diagnose(args.log)
    if args.output_file is None:
        report.write(diagnosis, args.output_format, sys.stdout)
    else:
        try:
            report.write_file(diagnosis, args.output_format, args.output_file)
        except OSError as error:
            raise UserError(f"can't write {args.output_file}: {error.strerror or error}") from None
    return 0 if diagnosis.verdict.category == "none" else 1


def diagnose(name: str | None) -> Diagnosis:
    """The whole way from the file's bytes to the answer."""
    from torchmedic import registry
    from torchmedic.diagnosis import conclude, diagnose_log
    from torchmedic.logs import stream
    from torchmedic.logs.commandline import command_in, supervised
    from torchmedic.logs.tracebacks import read_log

    excerpt = _read(name, stream.read)
    log = read_log(excerpt.lines)
    notes: list[str] = []
    rules = registry.for_log("\n".join(log.lines))
    found = diagnose_log(log, rules, notes)
    if not any(finding.severity != "info" for finding in found):
        from torchmedic import barelines

        found = (*barelines.diagnose(log, rules), *found)
    findings = tuple(_numbered(finding, excerpt.numbers) for finding in found)
    if excerpt.cut:
        notes.append(f"{excerpt.cut} lines of ordinary output in the middle were passed over")
    command = command_in(log.lines)
    diagnosis = conclude("explain", findings, notes=tuple(notes),
                         retry=_masked(supervised(command)) if command else None)
    told = diagnosis.verdict.category not in ("none", "unknown")
    return diagnosis if told else _without_cause(diagnosis, log)


def _without_cause(diagnosis: Diagnosis, log: Log) -> Diagnosis:
    """All is well; or what is missing, and what to run next."""
    from torchmedic import unexplained

    own = unexplained.verdict(log, diagnosis.findings)
    diagnosis = replace(diagnosis, verdict=own) if own else diagnosis
    if diagnosis.verdict.category == "none":
        return replace(diagnosis, retry=None)
    return replace(diagnosis,
                   next_checks=unexplained.next_checks(diagnosis.findings, diagnosis.retry),
                   notes=(*diagnosis.notes, *unexplained.notes(log)))


def _masked(command: str) -> str:
    from torchmedic import redact

    return redact.text(command)


def _read(name: str | None, read: Callable[[BinaryIO], Excerpt]) -> Excerpt:
    if name in (None, "-"):
        if name is None and sys.stdin.isatty():
            raise UserError("which log? For example: torchmedic explain train.log, or "
                            "python train.py 2>&1 | torchmedic explain -")
        return read(sys.stdin.buffer)
    try:
        with Path(name).open("rb") as file:
            return read(file)
    except OSError as error:
        raise UserError(f"can't read {name}: {error.strerror or error}") from None


def _numbered(finding: Finding, numbers: tuple[int, ...]) -> Finding:
    """Evidence with the line numbers of the file itself."""
    told = []
    for evidence in finding.evidence:
        head, _, number = evidence.source.partition("log:")
        if not head and number.isdigit() and 0 < int(number) <= len(numbers):
            evidence = replace(evidence, source=f"log:{numbers[int(number) - 1]}")
        told.append(evidence)
    return replace(finding, evidence=tuple(told))
