"""`torchmedic check PATH…`: reads training code, runs nothing, imports no torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchmedic import output, registry, report
from torchmedic.diagnosis import conclude, diagnose_source
from torchmedic.model import Diagnosis, Evidence, Finding, Rule
from torchmedic.output import UserError
from torchmedic.source import files, notebooks

SUMMARY = "read training code and say what is wrong in it, without running it"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATH",
                        help="files and folders (default: the current folder)")
    output.add_options(parser, tuple(report.FORMATS))


def execute(args: argparse.Namespace) -> int:
    for path in args.paths:
        if not os.path.exists(path):  # noqa: PTH110 - a path may hold a null byte
            raise UserError(f"there is no {path}")
    notes: list[str] = []
    findings = check(args.paths, registry.reading("source"), notes)
    diagnosis = conclude("check", tuple(findings), notes=tuple(notes))
    if args.output_format == "concise":  # it has no place for notes
        for note in notes:
            print(f"torchmedic check: {note}", file=sys.stderr)
    if args.output_file is None:
        with output.opened(None) as stream:
            report.write(diagnosis, args.output_format, stream)
    else:
        _write(diagnosis, args)
    return 1 if findings else 0


def _write(diagnosis: Diagnosis, args: argparse.Namespace) -> None:
    try:
        report.write_file(diagnosis, args.output_format, args.output_file)
    except OSError as error:
        raise UserError(f"can't write {args.output_file}: {error.strerror or error}") from None


def check(paths: Sequence[str], rules: Sequence[Rule], notes: list[str]) -> list[Finding]:
    """All findings, by file and line. What could not be read becomes a note."""
    findings: list[Finding] = []
    for file in files.found(paths):
        try:
            script = files.read(file)
        except files.Unreadable as error:
            notes.append(f"{file} was not checked: {error}")
            continue
        said = diagnose_source(script, rules, notes)
        findings += _in_cells(said, file) if file.endswith(".ipynb") else said
    findings = [replace(finding, explains=()) for finding in findings]
    return sorted(findings, key=_place)


def _place(finding: Finding) -> tuple[str, int, str]:
    where = finding.where
    return (where.file or "", where.line or 0, finding.rule) if where else ("", 0, finding.rule)


def _in_cells(said: Sequence[Finding], file: str) -> list[Finding]:
    """Says in which cell a finding of a notebook is."""
    places = notebooks.places(Path(file).read_text(encoding="utf-8-sig"))
    found = []
    for finding in said:
        line = finding.where.line if finding.where else None
        if line and line <= len(places):
            cell, row = places[line - 1]
            fact = Evidence(f"cell {cell}, line {row}", "notebook")
            finding = replace(finding, evidence=(fact, *finding.evidence))
        found.append(finding)
    return found
