"""SARIF 2.1.0, as code scanning reads it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from torchmedic import __version__, registry
from torchmedic.checking.fingerprints import fingerprints
from torchmedic.report.escape import visible
from torchmedic.report.places import region, relative

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding, Fix

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}
ROOT = "%SRCROOT%"
"""The name that code scanning gives the root of the repository."""


def render(diagnosis: Diagnosis, file: TextIO) -> None:
    """One run with all findings, in ASCII."""
    json.dump(as_data(diagnosis), file, indent=2, allow_nan=False)
    file.write("\n")


def as_data(diagnosis: Diagnosis) -> dict[str, Any]:
    """The log as plain data."""
    names = list(dict.fromkeys(finding.rule for finding in diagnosis.findings))
    notes = [{"level": "note", "message": {"text": visible(note)}} for note in diagnosis.notes]
    prints = fingerprints(diagnosis.findings)
    return {
        "$schema": SCHEMA, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "torchmedic", "version": __version__, "semanticVersion": __version__,
                "rules": [_rule(name) for name in names]}},
            "columnKind": "unicodeCodePoints",
            "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
            "results": [_result(finding, names.index(finding.rule), print_)
                        for finding, print_ in zip(diagnosis.findings, prints, strict=True)],
        }],
    }


def _rule(name: str) -> dict[str, Any]:
    entry = registry.find(name)
    if entry is None:  # what is said of suppressions is no rule
        return {"id": name, "name": name}
    title, _, body = entry.rule.doc.strip().partition("\n")
    return {
        "id": name, "name": name, "shortDescription": {"text": title},
        "fullDescription": {"text": title},
        "help": {"text": body.strip() or title, "markdown": body.strip() or title},
        "defaultConfiguration": {"level": LEVELS[entry.rule.severity]},
        "properties": {"tags": sorted({entry.family, entry.rule.category})},
    }


def _result(finding: Finding, index: int, print_: str) -> dict[str, Any]:
    text = visible(finding.message)
    if finding.fix is not None:
        text += f"\nfix: {visible(finding.fix.title)}"
    result: dict[str, Any] = {
        "ruleId": finding.rule, "ruleIndex": index, "level": LEVELS[finding.severity],
        "message": {"text": text}, "partialFingerprints": {"torchmedic/v1": print_},
        "properties": {"category": finding.category, "confidence": finding.confidence,
                       "evidence": [visible(e.text) for e in finding.evidence]},
    }
    where = finding.where
    if where is not None and where.file:
        physical: dict[str, Any] = {"artifactLocation": _artifact(where.file)}
        if where.line:
            physical["region"] = {"startLine": where.line}
        result["locations"] = [{"physicalLocation": physical}]
        if finding.fix is not None and finding.fix.edits:
            result["fixes"] = [_fix(finding.fix, where.file)]
    return result


def _artifact(path: str) -> dict[str, str]:
    name = relative(path)
    if name.startswith("/") or name[1:2] == ":":
        return {"uri": Path(name).as_uri()}
    return {"uri": quote(name.encode("utf-8", "surrogateescape")), "uriBaseId": ROOT}


def _fix(fix: Fix, path: str) -> dict[str, Any]:
    replacements = [{"deletedRegion": region(path, edit), "insertedContent": {"text": edit.text}}
                    for edit in fix.edits]
    return {"description": {"text": visible(fix.title)},
            "artifactChanges": [{"artifactLocation": _artifact(path),
                                 "replacements": replacements}]}
