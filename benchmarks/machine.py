"""What a figure depends on and does not show."""

from __future__ import annotations

import os
import platform
from importlib import metadata


def facts() -> dict[str, object]:
    """No names of people, hosts or folders."""
    return {
        "cores": len(os.sched_getaffinity(0)), "processor": _processor(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(), "torch": _version("torch"), "load": load(),
    }


def load() -> list[float] | None:
    """Load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.partition(":")[2].strip() for line in file if line[:10] == "model name"]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def sentence(known: dict[str, object]) -> str:
    return (f"{known['cores']} cores ({known['processor']}), {known['system']}, "
            f"Python {known['python']}, torch {known['torch']}, load average {known['load']}")
