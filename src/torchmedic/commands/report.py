"""`torchmedic report RUN`: the report of an earlier run, in any format."""

from __future__ import annotations

import argparse

from torchmedic import output, report, store
from torchmedic.output import UserError

SUMMARY = "show the report of an earlier run again"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="last",
                        help="a run's id, the beginning of it, or `last` (the default)")
    output.add_options(parser, tuple(report.FORMATS))


def execute(args: argparse.Namespace) -> int:
    try:
        diagnosis = store.read_report(store.find(args.run))
    except store.NoSuchRun as error:
        raise UserError(str(error)) from None
    if args.output_file is None:
        with output.opened(None) as stream:
            report.write(diagnosis, args.output_format, stream)
        return 0
    try:
        report.write_file(diagnosis, args.output_format, args.output_file)
    except OSError as error:
        raise UserError(f"can't write {args.output_file}: {error.strerror or error}") from None
    return 0
