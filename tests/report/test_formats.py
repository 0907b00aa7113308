"""The formats for other tools: valid, escaped, and with the right places."""

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from samples import ALL, CLEAN, HOSTILE, NORMAL, UNKNOWN

from torchmedic import report
from torchmedic.model import Diagnosis, Edit, Finding, Fix, Place, Verdict
from torchmedic.report import jsonfile

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-2.1.0.json").read_text())
CODE = "import torch\nérfolg = 'ü'; x = y  # ä\nz = 1\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.py").write_text(CODE, encoding="utf-8")


def written(diagnosis, name):
    stream = io.StringIO()
    report.write(diagnosis, name, stream)
    return stream.getvalue()


def fixed():
    """A finding with an edit behind characters of two bytes."""
    column = len("érfolg = 'ü'; x = ".encode())
    fix = Fix("use z", "", "safe", edits=(Edit(2, column, 2, column + 1, "z"),))
    finding = Finding("softmax-before-cross-entropy", "code", "warning", "certain", "x is y",
                      Place("a b.py", 2), fix=fix)
    return Diagnosis("check", Verdict("code", finding.rule, finding.message),
                     (finding, replace(finding, fix=None)), notes=("a note",))


@pytest.mark.parametrize("diagnosis", [*ALL.values(), fixed()] if isinstance(ALL, dict)
                         else [*ALL, fixed()])
def test_sarif_is_valid(diagnosis):
    diagnosis = diagnosis[1] if isinstance(diagnosis, tuple) else diagnosis
    data = json.loads(written(diagnosis, "sarif"))
    jsonschema.Draft7Validator(SCHEMA).validate(data)
    results = data["runs"][0]["results"]
    assert len(results) == len(diagnosis.findings)
    names = [rule["id"] for rule in data["runs"][0]["tool"]["driver"]["rules"]]
    assert [names[r["ruleIndex"]] for r in results] == [f.rule for f in diagnosis.findings]


def test_sarif_places_fixes_and_fingerprints():
    run = json.loads(written(fixed(), "sarif"))["runs"][0]
    first, second = run["results"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b.py", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 2}
    change = first["fixes"][0]["artifactChanges"][0]["replacements"][0]
    region, line = change["deletedRegion"], CODE.split("\n")[1]
    assert line[region["startColumn"] - 1:region["endColumn"] - 1] == "y"
    assert change["insertedContent"]["text"] == "z" and "fixes" not in second
    prints = [r["partialFingerprints"]["torchmedic/v1"] for r in (first, second)]
    assert len(set(prints)) == 2
    rule = run["tool"]["driver"]["rules"][0]
    assert "## Why" in rule["help"]["markdown"] and rule["properties"]["tags"] == ["code", "loss"]
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"] == "a note"
    Path("a b.py").write_text("# one more line\n" + CODE, encoding="utf-8")
    moved = fixed()
    moved = replace(moved, findings=tuple(
        replace(f, where=Place("a b.py", 3), fix=None) for f in moved.findings))
    again = json.loads(written(moved, "sarif"))["runs"][0]["results"]
    assert [r["partialFingerprints"]["torchmedic/v1"] for r in again] == prints


def test_github_commands_stay_on_their_line():
    lines = written(fixed(), "github").splitlines()
    assert lines[0] == ("::warning file=a b.py,line=2,title=torchmedic "
                        "(softmax-before-cross-entropy)::x is y%0Afix: use z")
    hostile = Finding("corrupt-sample", "data", "error", "certain",
                      "a\n::error::b %0A\r\x1b[31m::set-output name=x::y",
                      Place("c,line=1::d:\n.py", 1))
    text = written(Diagnosis("check", Verdict("data", "corrupt-sample", "x"), (hostile,)), "github")
    assert text.count("\n") == 1 and text.startswith("::error file=c%2Cline=1%3A%3Ad%3A%0A.py,")
    assert "\x1b" not in text and "%250A" in text and "\r" not in text
    assert written(UNKNOWN, "github").startswith("::error title=torchmedic::")
    assert written(CLEAN, "github") == ""


@pytest.mark.parametrize("diagnosis", [NORMAL, HOSTILE, UNKNOWN, CLEAN, fixed()])
def test_junit_is_xml_with_one_case_for_each_finding(diagnosis):
    root = ElementTree.fromstring(written(diagnosis, "junit"))
    suite = root.find("testsuite")
    assert len(suite.findall("testcase")) == max(1, len(diagnosis.findings))
    assert int(root.get("failures")) == len(suite.findall("*/failure")) == len(
        [f for f in diagnosis.findings if f.severity != "info"])
    assert int(root.get("errors")) == len(suite.findall("*/error")) == (diagnosis is UNKNOWN)
    for case, finding in zip(suite, diagnosis.findings, strict=False):
        assert finding.rule in case.get("name")


@pytest.mark.parametrize("diagnosis", [NORMAL, HOSTILE, UNKNOWN, CLEAN, fixed()])
def test_json_lines_are_the_findings_and_the_verdict(diagnosis):
    lines = [json.loads(line) for line in written(diagnosis, "json-lines").split("\n")[:-1]]
    whole = json.loads(written(diagnosis, "json"))
    assert lines[:-1] == whole["findings"]
    assert lines[-1] == {k: v for k, v in whole.items() if k != "findings"}


def test_what_json_says_is_read_back_with_its_edits():
    assert jsonfile.read(written(fixed(), "json")) == fixed()


@pytest.mark.parametrize("name", ["concise", "json", "json-lines", "github", "sarif", "junit"])
def test_no_machine_format_imports_rich(name):
    code = ("import io, sys; from torchmedic import report; from torchmedic.model import "
            "Diagnosis, Verdict; report.write(Diagnosis('check', Verdict('none', None, 'x')), "
            f"{name!r}, io.StringIO()); sys.exit('rich' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_paths_below_the_folder_are_relative(tmp_path):
    outside = Finding("x", "code", "error", "certain", "m", Place("/somewhere/ü.py", 1))
    diagnosis = Diagnosis("check", Verdict("code", "x", "m"), (outside,))
    place = json.loads(written(diagnosis, "sarif"))["runs"][0]["results"][0]["locations"][0]
    uri = place["physicalLocation"]["artifactLocation"]
    assert unquote(uri["uri"]) == "file:///somewhere/ü.py" and "uriBaseId" not in uri
    inside = replace(outside, where=Place(str(tmp_path / "a b.py"), 1))
    assert "file=a b.py,line=1" in written(replace(diagnosis, findings=(inside,)), "github")
