"""JUnit's XML, as CI systems read test reports: one suite, a failed case for each finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO
from xml.etree import ElementTree

from torchmedic.report.escape import visible
from torchmedic.report.places import line_in_file, relative, spot

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis, Finding


def render(diagnosis: Diagnosis, file: TextIO) -> None:
    """Without a finding one case that passed."""
    findings = diagnosis.findings
    failed = sum(1 for f in findings if f.severity != "info")
    unknown = not findings and diagnosis.verdict.category == "unknown"
    counts = {"tests": str(max(1, len(findings))), "failures": str(failed),
              "errors": str(int(unknown)), "skipped": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "torchmedic", **counts})
    for finding in findings:
        _case(suite, finding)
    if not findings:
        case = _named(suite, "torchmedic", diagnosis.command)
        if unknown:
            summary = visible(diagnosis.verdict.summary)
            ElementTree.SubElement(case, "error", {"message": summary, "type": "unknown"})
    file.write('<?xml version="1.0" encoding="utf-8"?>\n')
    # ASCII with references: right in every encoding that the stream may have.
    file.write(ElementTree.tostring(root, encoding="us-ascii").decode("ascii") + "\n")


def _case(suite: ElementTree.Element, finding: Finding) -> None:
    where = finding.where
    path = visible(relative(where.file)) if where and where.file else "-"
    case = _named(suite, path, f"{finding.rule} {path}{spot(where) if where else ''}")
    case.set("file", path)
    if where and (line := line_in_file(where)):
        case.set("line", str(line))
    text = "\n".join([visible(finding.message), *(f"- {visible(e.text)}" for e in finding.evidence),
                      *([f"fix: {visible(finding.fix.title)}"] if finding.fix else [])])
    if finding.severity == "info":
        ElementTree.SubElement(case, "system-out").text = text
        return
    failure = ElementTree.SubElement(case, "failure", {
        "message": visible(finding.message), "type": finding.severity})
    failure.text = text


def _named(suite: ElementTree.Element, group: str, name: str) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", {
        "classname": visible(group), "name": visible(name)})
