"""A program for several processes was started without its launcher.

## What you see
`environment variable RANK expected, but not set`, `KeyError: 'LOCAL_RANK'`, or `Default process
group has not been initialized`.
## Why
`init_process_group` and `os.environ["LOCAL_RANK"]` read what `torchrun` or a scheduler sets for
each process. Under plain `python` nothing sets it. Without `init_process_group` there is no default
group to ask.
## Fix
`torchrun --standalone --nproc-per-node=1 train.py`; or take the path of one process where the
variables are absent.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = (
    "expected, but not set", "local_rank", "world_size", "process group has", "'rank'",
    "master_addr", "master_port",
)
UNSET = re.compile(r"environment variable (?P<name>\w+) expected, but not set")
NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
GROUP = re.compile(r"[Dd]efault process group has(?: not|n't) been initialized")


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = UNSET.search(failure.message)
    name = found["name"] if found else failure.message.strip("'\" ")
    if found or (failure.short_type == "KeyError" and name in NAMES):
        yield Problem(
            f"`{name}` is not set: the program was started without `torchrun`",
            where=failure.place, evidence=(raised(failure),), fix=Fix(
                "start it with `torchrun --standalone --nproc-per-node=1 …`, or let it train as "
                f"one process where `{name}` is absent"))
    elif GROUP.search(failure.message):
        yield Problem(
            "a process group is asked for before one was made", where=failure.place,
            evidence=(raised(failure),), fix=Fix(
                "`torch.distributed.init_process_group()` first, or ask "
                "`torch.distributed.is_initialized()`",
                "`SyncBatchNorm`, `DistributedSampler` and `get_rank()` need a group, also on one "
                "GPU"))


_LOG = """Traceback (most recent call last):
  File "fit.py", line 12, in <module>
    start()
{}
"""

RULE = Rule(
    name="launcher-missing", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG.format("ValueError: Error initializing torch.distributed using env:// "
                          "rendezvous: environment variable RANK expected, but not set"),
              "`RANK` is not set", "torchrun --standalone", kind="log", title="rank"),
        fires(_LOG.format("KeyError: 'LOCAL_RANK'"), "`LOCAL_RANK` is not set", kind="log",
              title="environment"),
        fires(_LOG.format("RuntimeError: Default process group has not been initialized, please "
                          "make sure to call init_process_group."), "before one was made",
              kind="log", title="group"),
        quiet(_LOG.format("KeyError: 'label'"), kind="log", title="another key"),
    ),
)
