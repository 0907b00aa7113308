"""A disk or a network folder did not do what was asked of it.

## What you see
`OSError: [Errno 5] Input/output error`, `[Errno 116] Stale file handle`, `[Errno 107] Transport
endpoint is not connected`, `[Errno 30] Read-only file system`, `[Errno 121] Remote I/O error`.
## Why
A network folder was lost or mounted anew, a disk is failing and was made read-only, or the folder
is mounted so that nobody may write.
## Fix
Look at the mount and at the kernel's log; copy the data to a local disk; write to a folder of your
own.
## When this is fine
Never. The program is not at fault, and the file itself may be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("errno 5]", "errno 30]", "errno 107]", "errno 112]", "errno 116]", "errno 121]")
KINDS = (
    (re.compile(r"\[Errno (?:5|121)\]"), "the disk or network folder could not read or write"),
    (re.compile(r"\[Errno (?:116|107|112)\]"), "the network folder was lost while it was in use"),
    (re.compile(r"\[Errno 30\]"), "the folder to be written to is mounted read-only"),
)
FIX = Fix("look at the mount and the disk; read from a local copy, write to a folder of your own",
          "the program is not at fault", command="mount | tail; df -h; dmesg -T | tail -n 30")


def in_failure(failure: Failure) -> Iterator[Problem]:
    told = next((text for pattern, text in KINDS if pattern.search(failure.message)), None)
    if told is not None:
        yield Problem(told, where=failure.place, evidence=(raised(failure),), fix=FIX)


_LOG = """Traceback (most recent call last):
  File "fit.py", line 12, in <module>
    save(path)
{}
"""

RULE = Rule(
    name="storage-failed", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("OSError: [Errno 116] Stale file handle: '/nfs/x.npy'"),
              "the network folder was lost", kind="log", title="stale"),
        fires(_LOG.format("OSError: [Errno 30] Read-only file system: '/ro/last.pt'"),
              "mounted read-only", kind="log", title="read-only"),
        fires(_LOG.format("OSError: [Errno 5] Input/output error"), "could not read or write",
              kind="log", title="disk"),
        quiet(_LOG.format("OSError: [Errno 28] No space left on device"), kind="log", title="full"),
    ),
)
