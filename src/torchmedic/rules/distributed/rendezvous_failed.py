"""The processes could not find each other when the run began.

## What you see
`The client socket has timed out after 600s while trying to connect to (node1, 29500)`, `The client
socket has failed to connect`, `Connection refused` under `init_process_group`, or
`RendezvousConnectionError`.
## Why
`MASTER_ADDR` and `MASTER_PORT` do not name the machine and port of rank 0, its process has not
started or has ended, a firewall or another network lies between, or the name resolves elsewhere.
## Fix
Let every node use the address of rank 0 that it can reach, start them within the timeout, and open
the port.
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
    "client socket", "rendezvousconnection", "connection refused", "no route to host",
    "getaddrinfo",
)
SOCKET = re.compile(r"client socket has (?:timed out|failed to connect)[^(]*"
                    r"(?:\(?(?P<host>[\w.\-\[\]:]+?), (?P<port>\d+)\))?"
                    r"|IPv[46] network addresses of \((?P<name>[^,]+),")
REFUSED = re.compile(r"Connection refused|No route to host|getaddrinfo failed|Name or service not")
STARTS = ("init_process_group", "rendezvous", "_create_c10d_store", "_create_tcp_store")


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = SOCKET.search(failure.message)
    begun = any(frame.function in STARTS for frame in failure.frames)
    lost = failure.short_type == "RendezvousConnectionError" or (
        begun and REFUSED.search(failure.message))
    if found is None and not lost:
        return
    host = (found["host"] or found["name"]) if found else None
    where = f" {host}" + (f" port {found['port']}" if found and found["port"] else "") \
        if host else " the first rank"
    yield Problem(
        f"this process could not reach{where}, where the ranks meet", where=failure.place,
        evidence=(raised(failure),), confidence="likely", fix=Fix(
            "see that rank 0 is up and that MASTER_ADDR and MASTER_PORT (`--rdzv-endpoint`) name "
            "it on a network this machine reaches", "a firewall, or a host name that stands for "
            "127.0.1.1 in /etc/hosts, does the same; one machine alone: `torchrun --standalone`",
            command="echo $MASTER_ADDR:$MASTER_PORT; getent hosts $MASTER_ADDR"))


_LOG = """Traceback (most recent call last):
  File "fit.py", line 12, in <module>
    dist.init_process_group("nccl")
torch.distributed.DistNetworkError: {}
"""

RULE = Rule(
    name="rendezvous-failed", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("The client socket has timed out after 600s while trying to connect to "
                          "(node1, 29500)."), "could not reach node1 port 29500", "MASTER_ADDR",
              kind="log", title="timed out"),
        fires(_LOG.format("The client socket has failed to connect to any network address of "
                          "(node1, 29500)."), "could not reach", kind="log", title="refused"),
        quiet(_LOG.format("Connection reset by peer"), kind="log", title="later"),
    ),
)
