"""`torchmedic runs`: the history of this folder."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from torchmedic import output, store
from torchmedic.report.escape import write_encodable
from torchmedic.tables import table

if TYPE_CHECKING:
    from torchmedic.store import RunRecord

SUMMARY = "list the supervised runs of this folder, newest first"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=int, default=20, metavar="N",
                        help="show at most N runs, 0 for all (default: 20)")
    output.add_options(parser, ("full", "json"))


def execute(args: argparse.Namespace) -> int:
    runs = store.list_runs()
    runs = runs[:args.limit] if args.limit > 0 else runs
    with output.opened(args.output_file) as stream:
        if args.output_format == "json":
            write_encodable(as_json(runs), stream)
        elif runs:
            write_encodable(as_text(runs, output.width(stream)), stream)
        else:
            stream.write("no runs here yet: torchmedic run -- python train.py\n")
    return 0


def as_text(runs: tuple[RunRecord, ...], width: int) -> str:
    rows = [("RUN", "STARTED", "ENDED", "FOUND", "COMMAND")]
    for run in runs:
        started = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started))
        rows.append((run.id, started, ended(run), found(run), run.command))
    return table(rows, width)


def ended(run: RunRecord) -> str:
    """How it ended: a signal, an exit code, or not yet."""
    if run.signal:
        return run.signal
    return "unfinished" if run.exit_code is None else f"exit {run.exit_code}"


def found(run: RunRecord) -> str:
    if run.category in (None, "none", "unknown"):
        return {"none": "nothing", "unknown": "unknown"}.get(run.category or "", "-")
    return f"{run.category}: {run.rule}"


def as_json(runs: tuple[RunRecord, ...]) -> str:
    listed = [{k: str(v) if k == "path" else v for k, v in asdict(run).items() if v is not None}
              for run in runs]
    return json.dumps({"schema": 1, "runs": listed}, indent=2) + "\n"
