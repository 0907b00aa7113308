"""The disk is full, or a file may not grow further.

## What you see
`OSError: [Errno 28] No space left on device`, `[Errno 27] File too large`, `[Errno 122] Disk
quota exceeded`, or from `torch.save` a `PytorchStreamWriter failed writing file`.
## Why
Checkpoints pile up, a cache or a log grows, a quota or a file size limit is reached.
## Fix
Free space or write elsewhere; keep only the last and the best checkpoint. The file being
written is incomplete: do not load it.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import wording
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = (
    "no space", "quota", "errno 28", "errno 122", "errno 27", "too large", "os error 28",
    "streamwriter", "unexpected pos", "iostream",
)
REASONS = (
    (re.compile(r"\[Errno 28\]|No space left on device|os error 28", re.I),
     "no space is left on the device"),
    (re.compile(r"\[Errno 122\]|Disk quota exceeded", re.I), "the disk quota is used up"),
    (re.compile(r"\[Errno 27\]|File too large", re.I), "a file has reached its size limit"),
    # torch/csrc/serialize: the writer learns only that fewer bytes went out than it gave.
    (re.compile(r"PytorchStreamWriter failed writing|inline_container\.cc.*unexpected pos"
                r"|basic_ios::clear: iostream error|unexpected pos \d+ vs \d+", re.I | re.S),
     "torch.save could not write all of its file"),
)
# A full /dev/shm is reported with the same number and has a rule of its own.
SHARED_MEMORY = re.compile(
    r"/dev/shm|torch_\d+_\d+|shared memory|shm|unable to resize file <", re.I)


def in_failure(failure: Failure) -> Iterator[Problem]:
    reason = next((text for pattern, text in REASONS if pattern.search(failure.message)), None)
    if reason is None or SHARED_MEMORY.search(failure.message):
        return
    path = _path(failure)
    yield Problem(
        f"{reason}" + (f": writing `{path}`" if path else ""), failure.place,
        (raised(failure),
         *wording.stack_evidence([f for f in failure.frames if f.user], "exception", 3)),
        Fix("free space, raise the limit or write elsewhere; keep only the last and the best "
            "checkpoint", detail="the file being written is incomplete: do not resume from it",
            command="df -h . && ulimit -f"),
    )


def _path(failure: Failure) -> str | None:
    named = re.search(r"'([^']+)'\s*$", failure.message.splitlines()[0])
    if named:
        return named.group(1)
    for frame in reversed(failure.frames):
        for name in ("f", "path", "filename", "file"):
            value = frame.values.get(name)
            if value is not None and value.kind == "text" and value.text:
                return value.text
    return None


_PROGRAM = """
import resource, torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear({width}, 64)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
torch.save(net.state_dict(), "last.pt")
"""

RULE = Rule(
    name="disk-full", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_PROGRAM.format(width=512), "last.pt", "do not resume from it",
              line='torch.save(net.state_dict(), "last.pt")'),
        quiet(_PROGRAM.format(width=4)),
    ),
)
