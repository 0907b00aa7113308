"""`torchmedic check PATH…`: reads training code, runs nothing, imports no torch."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmedic import output, report
from torchmedic.config import Settings, find, load, with_options
from torchmedic.diagnosis import conclude
from torchmedic.output import UserError

if TYPE_CHECKING:
    from torchmedic.checking.session import Checked
    from torchmedic.model import Diagnosis

SUMMARY = "read training code and say what is wrong in it, without running it"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", default=["."], metavar="PATH",
                        help="files and folders (default: the current folder); - is standard input")
    output.add_options(parser, tuple(report.FORMATS))
    rules = parser.add_argument_group("which rules and files")
    listed: dict[str, Any] = {"type": _words, "action": "extend", "default": []}
    rules.add_argument("--select", metavar="RULES", **listed,
                       help="only these: names of rules or families, with commas between, or all")
    rules.add_argument("--extend-select", metavar="RULES", **listed,
                       help="these beside what the settings select")
    rules.add_argument("--ignore", "--extend-ignore", metavar="RULES", **listed, help="not these")
    rules.add_argument("--exclude", "--extend-exclude", metavar="PATTERNS", **listed,
                       help="leave these files and folders out")
    rules.add_argument("--force-exclude", action="store_true",
                       help="leave them out also where they are named as PATH")
    rules.add_argument("--config", type=Path, metavar="FILE",
                       help="settings (default: the next torchmedic.toml, or pyproject.toml with "
                            "[tool.torchmedic], upwards)")
    rules.add_argument("--isolated", action="store_true", help="no settings from files")
    rules.add_argument("--baseline", type=Path, metavar="FILE",
                       help="leave out the findings that this file holds")
    rules.add_argument("--write-baseline", type=Path, metavar="FILE",
                       help="write all findings to this file as known ones")
    rules.add_argument("--stdin-filename", metavar="NAME", default="-",
                       help="the name of what comes from standard input")
    mend = parser.add_argument_group("fixes")
    mend.add_argument("--fix", action="store_true", help="make the safe fixes in the files")
    mend.add_argument("--unsafe-fixes", action="store_true",
                      help="also those that may change results")
    mend.add_argument("--diff", action="store_true",
                      help="show what --fix would do, and write nothing")
    more = parser.add_argument_group("how")
    more.add_argument("--statistics", action="store_true", help="count the findings of each rule")
    more.add_argument("--exit-zero", action="store_true", help="end with 0 also with findings")
    more.add_argument("--jobs", type=_positive, metavar="N", help="processes (default: by need)")
    more.add_argument("--no-cache", action="store_true",
                      help="check files again that have not changed since they were checked")


def execute(args: argparse.Namespace) -> int:
    settings = _settings(args)
    for path in args.paths:
        if path != "-" and not os.path.exists(path):  # noqa: PTH110 - it may hold a null byte
            raise UserError(f"there is no {path}")
    settings = replace(settings, folders=any(map(os.path.isdir, args.paths)))
    files, checked = _checked(args, settings)
    if args.write_baseline:
        return _written(checked, args.write_baseline)
    baseline = args.baseline or settings.baseline
    if baseline is not None:
        from torchmedic.checking.baseline import gone, without_known
        from torchmedic.checking.selection import chosen

        note = gone(checked.findings, baseline, files, chosen(settings))
        checked.findings = without_known(checked.findings, baseline)
        checked.notes += [note] if note else []
    if args.fix or args.diff:
        from torchmedic.checking.mending import mend

        done = mend(checked, settings, args.unsafe_fixes, not args.diff, baseline)
        if args.diff:
            return _shown(done.diff, checked.notes, args)
    if args.statistics:
        return _counted(checked, args)
    _told(_diagnosis(checked, args), args)
    return 1 if checked.findings and not args.exit_zero else 0


def _settings(args: argparse.Namespace) -> Settings:
    here = Path.cwd()
    file = args.config or (None if args.isolated else find(here))
    settings = load(file) if file is not None else Settings(root=here)
    return with_options(settings, select=args.select, extend_select=args.extend_select,
                        ignore=args.ignore, exclude=args.exclude)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("1 or more")
    return number


def _checked(args: argparse.Namespace, settings: Settings) -> tuple[list[str], Checked]:
    """The files, and what is to say of them."""
    from torchmedic.checking import pipeline

    if "-" in args.paths:
        return [args.stdin_filename], _standard_input(args, settings)
    files = pipeline.found(args.paths, settings, args.force_exclude)
    return files, pipeline.check(files, settings, args.jobs, cached=not args.no_cache)


def _standard_input(args: argparse.Namespace, settings: Settings) -> Checked:
    if args.paths != ["-"] or args.fix or args.diff:
        raise UserError("standard input is checked alone, and not mended")
    from torchmedic.checking import pipeline
    from torchmedic.source.text import LARGEST

    data = sys.stdin.buffer.read(LARGEST + 1)
    return pipeline.standard_input(data, args.stdin_filename, settings)


def _shown(diff: str, notes: Sequence[str], args: argparse.Namespace) -> int:
    """The changes as they are for a pipe or a file, and harmless on a terminal."""
    from torchmedic.report.escape import visible, write_encodable

    with output.opened(args.output_file) as stream:
        write_encodable(visible(diff) if stream.isatty() else diff, stream)
    _told_apart(notes)
    return 1 if diff and not args.exit_zero else 0


def _written(checked: Checked, file: Path) -> int:
    from torchmedic.checking import baseline

    output.check(file)
    try:
        baseline.write(checked.findings, file)
    except OSError as error:
        raise UserError(f"can't write {file}: {error.strerror or error}") from None
    _told_apart(checked.notes)
    plural = "" if len(checked.findings) == 1 else "s"
    print(f"{len(checked.findings)} finding{plural} written to {file}")
    return 0


def _told_apart(notes: Iterable[str]) -> None:
    """Notes that the answer itself has no place for."""
    from torchmedic.report.escape import visible

    for note in notes:
        print(f"torchmedic check: {visible(note)}", file=sys.stderr)


def _counted(checked: Checked, args: argparse.Namespace) -> int:
    """The rules by the number of their findings, most first."""
    from collections import Counter

    _told_apart(checked.notes)
    counts = Counter(finding.rule for finding in checked.findings).most_common()
    with output.opened(args.output_file) as stream:
        if args.output_format == "json":
            import json

            stream.write(json.dumps([{"rule": r, "count": n} for r, n in counts], indent=1) + "\n")
        else:
            width = len(str(counts[0][1])) if counts else 1
            for rule, count in counts:
                stream.write(f"{count:{width}}  {rule}\n")
    return 1 if checked.findings and not args.exit_zero else 0


def _diagnosis(checked: Checked, args: argparse.Namespace) -> Diagnosis:
    findings = checked.findings
    if any(finding.fix and finding.fix.edits for finding in findings):
        from torchmedic.checking.mending import with_diffs

        findings = with_diffs(findings)
    return conclude("check", tuple(findings), notes=tuple(checked.notes))


def _told(diagnosis: Diagnosis, args: argparse.Namespace) -> None:
    if args.output_format in report.WITHOUT_NOTES:
        _told_apart(diagnosis.notes)
    if args.output_file is None:
        report.write(diagnosis, args.output_format, sys.stdout)
        return
    try:
        report.write_file(diagnosis, args.output_format, args.output_file)
    except OSError as error:
        raise UserError(f"can't write {args.output_file}: {error.strerror or error}") from None
