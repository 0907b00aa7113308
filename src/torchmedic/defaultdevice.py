"""A line that failed because it makes a tensor on the default device and computes with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.observed import Failure

MIXED = re.compile(r"Expected all tensors to be on the same device.*\bcpu\b", re.DOTALL)
MAKES = re.compile(r"\btorch\.(?P<name>zeros|ones|randn?|randint|randperm|arange|full|tensor|empty"
                   r"|linspace|eye)\(")


def made_on(failure: Failure) -> str | None:
    """`torch.zeros`, when the user's line calls it without a device; None where none tells."""
    frame = failure.user_frame
    text = (frame.text if frame else None) or ""
    if not MIXED.search(failure.message) or "device" in text or re.search(r"\.(?:to|cuda)\(", text):
        return None
    found = MAKES.findall(text)
    return f"torch.{found[0]}" if len(found) == 1 else None
