"""Fixes and evidence that several rules share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix
from torchmedic.shapes import tensors_in, written

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Output

LONGEST = 200
DROP_LAST = "leave out the last, smaller batch: `DataLoader(…, drop_last=True)`"


def raised(failure: Failure) -> Evidence:
    """The exception itself, first line."""
    first = failure.message.strip().partition("\n")[0]
    if len(first) > LONGEST:
        first = first[:LONGEST].rpartition(" ")[0] + " …"
    where = f"log:{failure.line_number}" if failure.line_number else "exception"
    return Evidence(f"{failure.short_type}: {first}" if first else failure.short_type, where)


def held(failure: Failure) -> tuple[Evidence, ...]:
    """Shapes of the tensors in the user's frame, where they are known."""
    text = tensors_in(failure.user_frame)
    return (Evidence(f"on this line: {text}", "frame"),) if text else ()


def drop_last(detail: str = "") -> Fix:
    return Fix(DROP_LAST, detail, "unsafe")


def gave(output: Output) -> tuple[Evidence, ...]:
    """What a module before the failing one gave."""
    text = f"{output.module_class} `{output.module}` gave {written(output.shape)} before it"
    return (Evidence(text, "module outputs"),)


def pooled(axes: int) -> str:
    return f"`AdaptiveAvgPool{axes}d(1)` before the flattening"
