"""SARIF 2.1.0, as code scanning reads it.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from torchmedic import __version__, registry
from torchmedic.checking.fingerprints import fingerprints
from torchmedic.report.escape import visible
from torchmedic.report.places import cell, column, line_in_file, region, relative

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding, Fix, Place

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
            "results": [_result(finding, names.index(finding.rule), print_, diagnosis.findings)
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


def _result(finding: Finding, index: int, print_: str,
            everyone: Sequence[Finding]) -> dict[str, Any]:
    text, where = visible(finding.message), finding.where
    at = cell(where) if where is not None else None
    if at is not None:
        text = f"cell {at[0]}, line {at[1]}: {text}"
    if finding.fix is not None:
        text += f"\nfix: {visible(finding.fix.title)}"
    result: dict[str, Any] = {
        "ruleId": finding.rule, "ruleIndex": index, "level": LEVELS[finding.severity],
        "message": {"text": text}, "partialFingerprints": {"torchmedic/v1": print_},
        "properties": {"category": finding.category, "confidence": finding.confidence,
                       "evidence": [visible(e.text) for e in finding.evidence]},
    }
    if where is not None and where.file:
        result["locations"] = [_location(where)]
        if finding.fix is not None and finding.fix.edits and line_in_file(where):
            result["fixes"] = [_fix(finding.fix, where.file)]
    symptoms = [everyone[index] for index in finding.explains]
    related = [{**_location(s.where), "message": {"text": visible(s.message)}}
               for s in symptoms if s.where is not None and s.where.file]
    return {**result, "relatedLocations": related} if related else result


def _location(where: Place) -> dict[str, Any]:
    assert where.file is not None
    physical: dict[str, Any] = {"artifactLocation": _artifact(where.file)}
    if line := line_in_file(where):
        first = column(where)
        physical["region"] = {
            "startLine": line, **({"startColumn": first} if first is not None else {}),
            **({"endLine": where.end_line} if where.end_line else {})}
    location: dict[str, Any] = {"physicalLocation": physical}
    names = [{"fullyQualifiedName": visible(name), "kind": kind} for name, kind in (
        (where.function, "function"), (where.module, "member")) if name]
    if names:
        location["logicalLocations"] = names
    return location


def _artifact(path: str) -> dict[str, str]:
    name = relative(path)
    try:
        raw = name.encode("utf-8", "surrogateescape")  # the bytes that the system knows
    except UnicodeEncodeError:
        raw = name.encode("utf-8", "backslashreplace")
    if name.startswith("/"):
        return {"uri": f"file://{quote(raw)}"}
    if name[1:3] == ":/":
        return {"uri": f"file:///{quote(raw, safe='/:')}"}
    return {"uri": quote(raw), "uriBaseId": ROOT}


def _fix(fix: Fix, path: str) -> dict[str, Any]:
    replacements = [{"deletedRegion": region(path, edit), "insertedContent": {"text": edit.text}}
                    for edit in fix.edits]
    return {"description": {"text": visible(fix.title)},
            "artifactChanges": [{"artifactLocation": _artifact(path),
                                 "replacements": replacements}]}
