"""Findings that are known already, kept in a file beside the code."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic.checking.fingerprints import fingerprints
from torchmedic.output import UserError, replace_file

if TYPE_CHECKING:
    from torchmedic.model import Finding

VERSION = 1


def write(findings: Sequence[Finding], file: Path) -> None:
    """All findings as known ones, by file and line. May raise OSError."""
    base = file.resolve().parent
    known = [{"fingerprint": print_, "rule": f.rule, "message": f.message,
              "file": os.path.relpath(f.where.file, base) if f.where and f.where.file else None}
             for print_, f in zip(fingerprints(findings, base), findings, strict=True)]
    replace_file(file, json.dumps({"version": VERSION, "findings": known}, indent=1) + "\n")


def without_known(findings: Sequence[Finding], file: Path) -> tuple[list[Finding], str | None]:
    """The findings that the file does not hold, and a note about those that are gone."""
    known = _read(file)
    prints = list(fingerprints(findings, file.resolve().parent))
    new = [f for print_, f in zip(prints, findings, strict=True) if print_ not in known]
    gone = known - set(prints)
    if not gone:
        return new, None
    plural = "" if len(gone) == 1 else "s"
    return new, f"{len(gone)} finding{plural} of {file} did not show in what was checked; " \
                "`--write-baseline` renews it"


def _read(file: Path) -> set[str]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise UserError(f"{file}: version {data['version']} of a baseline is not known")
        return {item["fingerprint"] for item in data["findings"]}
    except OSError as error:
        raise UserError(f"can't read {file}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{file} is no baseline; `--write-baseline {file}` makes one") from None
