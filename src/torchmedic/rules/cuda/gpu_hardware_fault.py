"""The GPU itself failed: its memory, its bus or its power.

## What you see
`uncorrectable ECC error encountered`; in the kernel's log `NVRM: Xid (…): 79, GPU has fallen off
the bus`, or Xid 48, 63, 64, 74, 92, 94, 95, 119.
## Why
Memory cells that are broken, a card that is too hot or has too little power, a loose riser, an
NVLink fault, firmware that hangs. No program causes these.
## Fix
Restart the machine (or reset the GPU) and look whether it comes again; then have the card tested,
and train on another one.
## When this is fine
Never. Xid 13, 31 and 43 are a program's faults and do not count here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("ecc error", "xid", "fallen off the bus", "gpu is lost", "nvlink error", "hardware stack")
FAULT = re.compile(r"uncorrectable (?:ECC|NVLink) error|hardware stack error")
KERNEL = re.compile(r"Xid \([^)]*\): (?P<xid>48|63|64|74|79|92|94|95|119|120|140)\b"
                    r"|GPU has fallen off the bus|GPU is lost")
FIX = Fix("restart the machine and look whether it comes again; train on another GPU meanwhile",
          "then have the card, its power and its cooling looked at: a program cannot cause this",
          command="nvidia-smi -q -d ECC,PAGE_RETIREMENT,TEMPERATURE; dmesg -T | grep -i xid")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if FAULT.search(failure.message):
        yield Problem("the GPU's memory or link failed", where=failure.place,
                      evidence=(raised(failure),), fix=FIX)


def in_log(log: Log) -> Iterator[Problem]:
    if (hit := logtext.first(log, KERNEL)) is not None:
        number = f" (Xid {hit.match['xid']})" if hit.match["xid"] else ""
        yield Problem(f"the driver reports a fault of the GPU itself{number}",
                      evidence=(hit.evidence,), fix=FIX,
                      about=logtext.about(*logtext.lasting(log)[-1:]))


_ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"

RULE = Rule(
    name="gpu-hardware-fault", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_ECC, "the GPU's memory or link failed", "train on another GPU", kind="log",
              title="memory"),
        fires("NVRM: Xid (PCI:0000:3b:00): 79, pid=47, GPU has fallen off the bus.\nRuntimeError: "
              "CUDA error: unspecified launch failure\n", "(Xid 79)", kind="log", title="bus"),
        quiet("NVRM: Xid (PCI:0000:3b:00): 31, pid=47, MMU Fault\n", kind="log",
              title="a program's fault"),
    ),
)
