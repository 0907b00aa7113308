"""Findings that are known already, kept in a file beside the code."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic.checking.fingerprints import fingerprints
from torchmedic.output import UserError, replace_file

if TYPE_CHECKING:
    from torchmedic.model import Finding

VERSION = 1


def write(findings: Sequence[Finding], file: Path) -> None:
    """All findings as known ones, by file and line. May raise OSError and UserError."""
    if file.exists() and file.stat().st_size:
        _read(file)  # what is no baseline is not overwritten
    base = file.resolve().parent
    known = [{"fingerprint": print_, "rule": f.rule, "message": f.message,
              "file": _relative(f, base)}
             for print_, f in zip(fingerprints(findings, base), findings, strict=True)]
    replace_file(file, json.dumps({"version": VERSION, "findings": known}, indent=1) + "\n")


def without_known(findings: Sequence[Finding], file: Path) -> list[Finding]:
    """The findings that the file does not hold."""
    known = _read(file)
    prints = fingerprints(findings, file.resolve().parent)
    return [f for print_, f in zip(prints, findings, strict=True) if print_ not in known]


def gone(findings: Sequence[Finding], file: Path, files: Sequence[str],
         rules: Collection[str]) -> str | None:
    """A note about known findings that are no more.

    findings: all of the check, with those that are known. files, rules: what was checked, and by
    what: nothing is said of others.
    """
    known = _read(file)
    base = file.resolve().parent
    seen = {os.path.relpath(path, base) for path in files}
    left = [print_ for print_ in known.keys() - set(fingerprints(findings, base))
            if known[print_].get("rule") in rules and _is_gone(known[print_], seen, base)]
    if not left:
        return None
    plural = "" if len(left) == 1 else "s"
    return f"{len(left)} known finding{plural} of {file} did not show; `--write-baseline` renews it"


def _is_gone(known: dict[str, object], seen: Collection[str], base: Path) -> bool:
    place = str(known.get("file"))
    return place in seen or not (base / place).exists()


def _relative(finding: Finding, base: Path) -> str | None:
    where = finding.where
    return os.path.relpath(where.file, base) if where and where.file else None


def _read(file: Path) -> dict[str, dict[str, object]]:
    """What is known, by its fingerprint."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise UserError(f"{file}: version {data['version']} of a baseline is not known")
        return {item["fingerprint"]: item for item in data["findings"]}
    except OSError as error:
        raise UserError(f"can't read {file}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{file} is no baseline; `--write-baseline {file}` makes one") from None
