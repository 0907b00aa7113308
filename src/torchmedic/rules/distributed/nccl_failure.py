"""NCCL, which moves data between GPUs, refused or lost a partner.

## What you see
`NCCL error … unhandled system error`, `invalid usage`, `Duplicate GPU detected : rank 1 and rank 0
both on CUDA device`, `remote process exited or there was a network error`.
## Why
Two ranks use one GPU; a rank ended and the others notice; the network interface or shared memory
that NCCL chose does not work here.
## Fix
`torch.cuda.set_device(local_rank)` before the first collective call. Otherwise `NCCL_DEBUG=INFO`
makes NCCL say what failed.
## When this is fine
On ranks that were stopped after another one failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Category, Confidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("nccl",)

NCCL = re.compile(r"NCCL error|nccl(?:Internal|System|InvalidUsage|UnhandledCuda|Remote)\w*")
DUPLICATE = re.compile(r"Duplicate GPU detected ?:? ?(?P<who>rank \d+ and rank \d+)?")
Told = tuple[str, Category, Confidence, Fix]
DEBUG = "NCCL_DEBUG=INFO torchrun …"
LOST: Told = ("a rank lost its connection to another one, which had ended or was out of reach",
              "unknown", "possible",
              Fix("look for the first traceback of any rank; if there is none, let NCCL tell",
                  command=DEBUG))
ELSE: Told = ("NCCL could not set up or use the connection between the GPUs", "environment",
              "possible", Fix("let NCCL say what failed: driver, shared memory, or the network "
                              "interface (NCCL_SOCKET_IFNAME)", "in a container `--ipc=host`",
                              command=DEBUG))


def in_failure(failure: Failure) -> Iterator[Problem]:
    if NCCL.search(failure.message) and "out of memory" not in failure.message:
        message, category, confidence, fix = _judged(failure.message)
        yield Problem(message, where=failure.place, evidence=(raised(failure),), fix=fix,
                      category=category, confidence=confidence)


def _judged(text: str) -> Told:
    if found := DUPLICATE.search(text):
        return (f"{found['who'] or 'two ranks'} use the same GPU", "code", "certain",
                Fix("`torch.cuda.set_device(local_rank)` before `init_process_group`, and no more "
                    "processes per node than GPUs"))
    if re.search(r"remote process exited|ncclRemoteError|Connection (?:reset|closed)", text):
        return LOST
    return ELSE


_LOG = """Traceback (most recent call last):
  File "fit.py", line 12, in <module>
    dist.barrier()
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, {}
"""

RULE = Rule(
    name="nccl-failure", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("invalid usage\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 "
                          "both on CUDA device 5e000"), "rank 1 and rank 0 use the same GPU",
              "set_device(local_rank)", kind="log", title="one GPU"),
        fires(_LOG.format("remote process exited or there was a network error"),
              "lost its connection", kind="log", title="partner"),
        fires(_LOG.format("unhandled system error"), "NCCL_DEBUG=INFO", kind="log", title="system"),
        quiet(_LOG.partition("NCCL")[0] + "barrier timed out\n", kind="log"),
    ),
)
