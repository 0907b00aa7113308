"""The report for programs, and the way back: a stored report is read from here."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any, TextIO

from torchmedic import __version__
from torchmedic.model import Diagnosis, Edit, Evidence, Finding, Fix, Place, Verdict

FORMAT_VERSION = 1
# 1: first version. Beside verdict and findings: process, memory, notes, next_checks, retry and
#    run_folder, where they are known.


def render(diagnosis: Diagnosis, file: TextIO) -> None:
    """Writes the report as one object, in ASCII."""
    json.dump(as_data(diagnosis), file, indent=2, allow_nan=False)
    file.write("\n")


def as_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The report as plain data. An absent fact is an absent key."""
    plain = _plain(dataclasses.asdict(diagnosis))
    data: dict[str, Any] = {
        "schema": FORMAT_VERSION,
        "tool": {"name": "torchmedic", "version": __version__},
        "command": diagnosis.command,
        "verdict": {"rule": None, **plain["verdict"]},
        "findings": findings_data(diagnosis.findings),
    }
    for name in ("process", "memory", "notes", "next_checks", "retry", "run_folder"):
        if plain.get(name):
            data[name] = plain[name]
    return data


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def read(text: str) -> Diagnosis:
    """A diagnosis from its report. Raises ValueError when the text is none of this version."""
    try:
        data = json.loads(text)
        if data["schema"] != FORMAT_VERSION:
            raise ValueError(f"schema {data['schema']} is not {FORMAT_VERSION}")
        return _diagnosis(data)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no report: {type(error).__name__}: {error}") from None


def _diagnosis(data: dict[str, Any]) -> Diagnosis:
    return Diagnosis(
        command=data["command"], verdict=Verdict(**data["verdict"]),
        findings=tuple(_finding(item) for item in data["findings"]),
        process=data.get("process", {}), memory=data.get("memory", {}),
        notes=tuple(data.get("notes", ())), next_checks=tuple(data.get("next_checks", ())),
        retry=data.get("retry"), run_folder=data.get("run_folder"),
    )


def findings(data: list[dict[str, Any]]) -> list[Finding]:
    """Findings from what `findings_data` made of them. Raises KeyError, TypeError."""
    return [_finding(item) for item in data]


def findings_data(items: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as plain data. An absent fact is an absent key."""
    told = [_plain(dataclasses.asdict(item)) for item in items]
    for item in told:
        if not item.get("fix", {}).get("edits", True):
            del item["fix"]["edits"]
    return told


def _finding(data: dict[str, Any]) -> Finding:
    rest = {k: v for k, v in data.items() if k not in ("where", "evidence", "fix", "explains")}
    return Finding(
        **rest,
        where=Place(**data["where"]) if "where" in data else None,
        evidence=tuple(Evidence(**item) for item in data.get("evidence", ())),
        fix=_fix(data["fix"]) if "fix" in data else None,
        explains=tuple(data.get("explains", ())),
    )


def _fix(data: dict[str, Any]) -> Fix:
    rest = {k: v for k, v in data.items() if k != "edits"}
    return Fix(**rest, edits=tuple(Edit(**item) for item in data.get("edits", ())))
