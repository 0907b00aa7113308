"""`torchmedic run -- python train.py …`: supervise an unmodified program, say why it died."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from torchmedic import report

SUMMARY = "supervise a training command and say why it died, hung or stopped"
OWN_FAILURE = 125


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torchmedic run [options] -- COMMAND [ARGUMENT ...]"
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND",
                        help="the command as you would type it: python …, torchrun …, bash …")
    parser.add_argument("--hang-after", type=_seconds, metavar="SECONDS",
                        help="call it a hang after this long without progress "
                             "(default: adapts to the run's own pace)")
    parser.add_argument("--hang-stop", action="store_true",
                        help="end a run that hangs (SIGINT, then SIGTERM, then SIGKILL)")
    parser.add_argument("--fail-on", choices=("error", "warning"),
                        help="exit with 1 when a run that exited 0 has such a finding")
    parser.add_argument("--output-format", choices=tuple(report.FORMATS), default="full",
                        help="how the report on standard error looks")
    parser.add_argument("-o", "--output-file", type=Path, metavar="FILE",
                        help="write the report there instead of to standard error")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of seconds: {text}") from None
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be more than 0 seconds: {text}")
    return value


def execute(args: argparse.Namespace) -> int:
    command = command_of(args.command)
    if not command or not command[0]:
        empty = " Its first word is empty." if command else ""
        print(f"torchmedic run: which command?{empty} For example: torchmedic run -- python "
              "train.py", file=sys.stderr)
        return 2
    if args.output_file is not None:
        from torchmedic import output

        output.check(args.output_file)
    from torchmedic.supervise.child import NotStarted
    from torchmedic.supervise.service import run_and_diagnose

    try:
        return run_and_diagnose(command, args)
    except NotStarted as error:
        _say(str(error))
        return error.status
    except Exception as error:
        if os.environ.get("TORCHMEDIC_DEBUG"):
            raise
        _say(f"our own failure, not your program's: {type(error).__name__}: {error} "
             "(TORCHMEDIC_DEBUG=1 shows the traceback)")
        return OWN_FAILURE


def command_of(words: list[str]) -> list[str]:
    """What follows `--`; a bare script is short for `python script`."""
    command = words[1:] if words[:1] == ["--"] else list(words)
    if command and command[0].endswith(".py") and not os.access(command[0], os.X_OK):
        return [sys.executable, *command]
    return command


def _say(text: str) -> None:
    print(f"torchmedic: {text}", file=sys.stderr)
