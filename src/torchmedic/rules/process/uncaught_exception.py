"""An exception that nothing handled ended the program.

## What you see
A traceback, and an exit code of 1.
## Why
No more specific rule knows this exception. Its text and the line it came from are what there is to
go by; the sizes of the tensors on that line are shown where they are known.
## Fix
Read the line of your own code that is named: the innermost one, not the last line of the traceback.
## When this is fine
When the program is meant to end so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import plaincures, workers
from torchmedic.failures import CUT_OFF, of_log, of_run, only_reports
from torchmedic.model import Category, Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.ranking import ENDING
from torchmedic.remedies import held, raised
from torchmedic.samples import own_place, reading

if TYPE_CHECKING:
    from torchmedic.failures import Witness
    from torchmedic.observed import Failure, Log, Run

CONSEQUENCES = re.compile(
    rf"{workers.EXITED.pattern}|background workers are no longer alive|exited unexpectedly"
    r"|process \d+ terminated with|can only (?:join|test) a child process"
)
"""Exceptions that only report that another process died."""
SKIPPED = ("KeyboardInterrupt", "SystemExit", "GeneratorExit", "ChildFailedError",
           "ProcessRaisedException", "ProcessExitedException", "CalledProcessError")
ENDED = {"thread": "ended its thread", "child": "ended a child process",
         "worker": "ended a worker"}
ENDED_PROGRAM = "ended the program"


def in_run(run: Run) -> Iterator[Problem]:
    for seen in of_run(run):
        recorded = seen.failure.how != "logged" or ENDING in seen.about
        if recorded and seen.failure.how != "seen" and not seen.failure.swallowed:
            yield from _problem(seen, _ended(run, seen))


def _ended(run: Run, seen: Witness) -> str:
    """What it ended: a process that others of the run outlived is not the program."""
    main, pid = run.main, seen.failure.pid
    started_it = main is None or (pid in (None, main.pid) and run.process(main.parent) is None)
    whole = started_it or ENDING in seen.about
    return ENDED.get(seen.failure.how, ENDED_PROGRAM if whole else f"ended process {pid}")


def in_log(log: Log) -> Iterator[Problem]:
    for seen in of_log(log):
        if ENDING in seen.about:
            yield from _problem(seen, ENDED_PROGRAM)


def _problem(seen: Witness, ended: str) -> Iterator[Problem]:
    failure = seen.failure
    known = (failure.short_type in SKIPPED or CONSEQUENCES.search(failure.message)
             or (failure.how == "logged" and only_reports(failure)))
    if seen.earlier or known:
        return
    where = own_place(failure)
    inside = f" in `{where.function}`" if where.function not in (None, "<module>") else ""
    yield Problem(
        f"`{_exception(failure)}` {ended}{inside}",
        where=where, evidence=(raised(failure), *_earlier(failure), *held(failure)),
        about=seen.about, confidence="likely", category=_category(failure), fix=_fix(failure),
    )


def _exception(failure: Failure) -> str:
    first = failure.message.strip().partition("\n")[0].rstrip(".").replace("`", "'")
    return f"{failure.short_type}: {first[:160]}" if first else failure.short_type


def _earlier(failure: Failure) -> tuple[Evidence, ...]:
    if failure.during is None:
        return ()
    return (Evidence(f"raised while handling `{_exception(failure.during)}`", "exception"),)


def _category(failure: Failure) -> Category:
    if failure.short_type in ("ImportError", "ModuleNotFoundError"):
        return "environment"
    if failure.short_type == "MemoryError":
        return "memory"
    if "::" in failure.type or failure.short_type in CUT_OFF:
        return "unknown"  # thrown below Python, or a partner that went away for its own reason
    if failure.how == "logged" and failure.frames and failure.user_frame is None:
        return "environment"  # no line of the program is on the stack
    if failure.short_type == "FileNotFoundError" and reading(failure):
        return "data"
    return "environment" if failure.short_type == "PermissionError" else "code"


def _fix(failure: Failure) -> Fix | None:
    missing = re.search(r"No module named '([\w.]+)'", failure.message)
    if missing is None:
        return plaincures.cure(failure.message)
    return Fix(f"install the package that holds `{missing[1]}` for the Python that runs the "
               "program, or run it from the folder the module is in")


_KEY = """
import torch

def lookup(table, x):
    return table["weight"] + x

lookup(%s, torch.zeros(2, 3))
"""
_LOG = '''epoch 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
  File "train.py", line 2, in main
    raise ValueError("no such split: vaild")
ValueError: no such split: vaild
'''
_HANDLED = """
import torch
for name in ("no_such_module", "math"):
    try:
        __import__(name)
    except ImportError:
        pass
"""
_PROBE = """
import subprocess, sys, torch
torch.set_num_threads(1)
found = subprocess.run([sys.executable, "-c", "import torch; raise ValueError('no GPU')"],
                       capture_output=True)
for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
    x.sum()
"""

RULE = Rule(
    name="uncaught-exception", doc=__doc__, category="code", level="fallback", in_run=in_run,
    in_log=in_log,
    examples=(
        fires(_KEY % "{}", "`KeyError: 'weight'` ended the program in `lookup`",
              "on this line: `x` (2, 3)", line='table["weight"]', title="key"),
        fires(_LOG, "`ValueError: no such split: vaild` ended the program in `main`", kind="log",
              title="traceback"),
        fires(_LOG.replace("ValueError: no such split: vaild", "AttributeError: "
                           "'DistributedDataParallel' object has no attribute 'head'"),
              "`model.module.head`", kind="log", title="wrapped model"),
        quiet(_KEY % '{"weight": 1}', title="right key"),
        quiet(_HANDLED, title="handled"),
        quiet(_PROBE, title="of another program, whose failure is expected"),
        quiet("import torch\nraise SystemExit(0)\n", title="exit"),
    ),
)
