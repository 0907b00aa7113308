"""What rules look at: a supervised run, its failures, a script. Plain data, read-only.

Built by `supervise/reading.py` (a run), `logs/` (a log) and `source/` (a script). Nothing here
knows a failure kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchmedic.observed.failure import (
    Failure,
    FailureKind,
    Frame,
    Log,
    Output,
    Told,
    Value,
)
from torchmedic.observed.process import (
    Calls,
    ExitCall,
    Iteration,
    Loader,
    Mode,
    Process,
    SignalSent,
)
from torchmedic.observed.run import Ending, HostMemory, Run, Stall
from torchmedic.observed.weights import (
    Checkpoint,
    Comparison,
    Defect,
    Differs,
    Stored,
    Weights,
)

if TYPE_CHECKING:
    from torchmedic.source.script import Script

__all__ = [
    "Calls", "Checkpoint", "Comparison", "Defect", "Differs", "Ending", "ExitCall", "Failure",
    "FailureKind", "Frame", "HostMemory", "Iteration", "Loader", "Log", "Mode", "Output",
    "Process", "Run", "Script", "SignalSent", "Stall", "Stored", "Told", "Value", "Weights",
]
