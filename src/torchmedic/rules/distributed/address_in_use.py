"""The port that the processes want to meet on is taken.

## What you see
`RuntimeError: Address already in use`, `EADDRINUSE`, `The server socket has failed to listen on
any local network address. port: 29500`.
## Why
Another run on this machine, or one that was killed and left processes behind, holds the port.
torchrun and `torch.distributed.launch` use 29500 unless told otherwise.
## Fix
Give this run its own port: `torchrun --standalone`, `--master-port 29501`, or
`--rdzv-endpoint=localhost:0`. End processes that an earlier run left behind.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("address", "eaddrinuse", "10048", "errno 98", "errno: 98")
PATTERN = re.compile(r"EADDRINUSE|[Aa]ddress already in use|WinError 10048|Errno 98\b|errno: 98\b"
                     r"|Only one usage of each socket address")
PORT = re.compile(r"port: (\d+)|\]:(\d{4,5})\b|:(\d{4,5}) \(errno|port (\d{4,5})")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if PATTERN.search(failure.message):
        yield _problem(failure.message, failure.place, raised(failure), ())


def in_log(log: Log) -> Iterator[Problem]:
    """What the launcher's socket code prints, where the run failed."""
    hit = logtext.beside(log, PATTERN)
    if hit is None:
        return
    failed = logtext.lasting(log)
    if failed or re.search(r"rror|failed", hit.text):
        yield _problem(hit.text, None, hit.evidence, logtext.about(*failed[-1:]))


def _problem(text: str, where: Place | None, evidence: Evidence,
             about: tuple[str, ...]) -> Problem:
    found = PORT.search(text)
    port = next((group for group in found.groups() if group), None) if found else None
    named = f"port {port}" if port else "the port for the processes to meet on"
    return Problem(
        f"{named} is already in use on this machine", where=where, evidence=(evidence,),
        about=about, fix=Fix(
            "give this run a port of its own: `torchrun --standalone …`, or `--master-port 29501`",
            "or end the other run: a killed one leaves processes behind",
            command=f"ss -ltnp | grep {port or 29500}"))


_LOG = """Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/distributed/run.py", line 9, in main
    store = TCPStore(host, port)
{}
"""

RULE = Rule(
    name="address-in-use", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG.format("torch.distributed.DistNetworkError: The server socket has failed to "
                          "listen on any local network address. port: 29512, useIpv6: false, code: "
                          "-98, name: EADDRINUSE, message: address already in use"),
              "port 29512 is already in use", "--standalone", kind="log", title="port"),
        fires(_LOG.format("RuntimeError: Address already in use"), "--master-port 29501",
              kind="log", title="old wording"),
        quiet(_LOG.format("RuntimeError: Connection refused"), kind="log"),
    ),
)
