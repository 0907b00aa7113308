"""The environment that lets a child, and all Python processes below it, start the observer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torchmedic import probes

PAYLOAD = Path(probes.__file__).resolve().parent
OURS = ("TORCHMEDIC_RUN", "TORCHMEDIC_BOOT")


def child_environment(environment: Mapping[str, str], spool: Path) -> dict[str, str]:
    """A copy of `environment` in which Python starts our boot file first.

    An empty PYTHONPATH entry means the working directory, so none is added by accident.
    """
    child = dict(environment)
    theirs = child.get("PYTHONPATH")
    boot = str(PAYLOAD / "boot")
    child["PYTHONPATH"] = boot + os.pathsep + theirs if theirs else boot
    child["TORCHMEDIC_RUN"] = str(spool.resolve())
    child["TORCHMEDIC_BOOT"] = str(PAYLOAD / "bootstrap.py")
    return child


def without_us(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for helpers of ours, which must not be observed."""
    return {name: value for name, value in environment.items() if name not in OURS}
