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
from torchmedic.model import Diagnosis, Edit, Evidence, Finding, Fix, Place, Verdict
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


def placed():
    """A finding at a column behind characters of two bytes, and one in a notebook."""
    cells = [{"cell_type": "markdown", "source": "# text"},
             {"cell_type": "code", "source": ["import torch\n", "net(x)"]}]
    Path("book.ipynb").write_text(json.dumps({"cells": cells}, indent=1), encoding="utf-8")
    column = len("érfolg = 'ü'; ".encode())
    first = Finding("missing-eval-mode", "code", "warning", "certain", "one",
                    Place("a b.py", 2, column=column, function="f", module="head.lstm"),
                    explains=(1,))
    second = replace(first, where=Place("book.ipynb", 2, column=0), explains=(),
                     fix=Fix("t", "", "safe", edits=(Edit(2, 0, 2, 3, "x"),)))
    return Diagnosis("check", Verdict("code", first.rule, "one"), (first, second))


VILE = "\0\n\r\x1b[31m]]>&<\"'::set-output name=x::y\x85\u2028\ud800\ufffe\uffff%0A:,\u202e"


def vile():
    """Everything that others wrote is hostile."""
    where = Place(VILE, 3, column=2, function=VILE, module=VILE)
    finding = Finding(VILE, "code", "error", "certain", VILE, where, (Evidence(VILE, VILE),),
                      Fix(VILE, VILE, "safe", VILE, VILE, (Edit(3, 0, 3, 9, VILE),)), (1,))
    return Diagnosis("explain", Verdict("code", VILE, VILE),
                     (finding, replace(finding, severity="info", explains=())), {"signal": VILE},
                     {}, (VILE,), (VILE,), VILE, VILE)


@pytest.mark.parametrize("name", report.FORMATS)
def test_hostile_text_is_only_text(name):
    got = written(vile(), name)
    assert [c for c in got if c != "\n" and not c.isprintable()] == []
    if name == "junit":
        root = ElementTree.fromstring(got)
        assert "]]>&<\"'::set-output" in root.find("*/*/failure").get("message")
    elif name == "sarif":
        jsonschema.Draft7Validator(SCHEMA).validate(json.loads(got))
    elif name == "json-lines":
        assert len(list(map(json.loads, got.splitlines()))) == 3
    elif name in ("github", "concise"):
        assert len(got.splitlines()) == 2
        assert not any(line.startswith("::set-output") for line in got.splitlines())


def test_a_hostile_report_is_read_back_as_it_was():
    assert jsonfile.read(written(vile(), "json")) == vile()


def test_columns_and_notebooks():
    diagnosis = placed()
    assert written(diagnosis, "concise").splitlines() == [
        "a b.py:2:15: missing-eval-mode one", "book.ipynb:cell 2:2:1: missing-eval-mode one"]
    assert written(diagnosis, "github").splitlines() == [
        "::warning file=a b.py,line=2,col=15,title=torchmedic (missing-eval-mode)::one",
        "::warning file=book.ipynb,title=torchmedic (missing-eval-mode)::cell 2, line 2: one%0A"
        "fix: t"]
    first, second = json.loads(written(diagnosis, "sarif"))["runs"][0]["results"]
    place = first["locations"][0]
    assert place["physicalLocation"]["region"] == {"startLine": 2, "startColumn": 15}
    assert [n["fullyQualifiedName"] for n in place["logicalLocations"]] == ["f", "head.lstm"]
    assert second["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "book.ipynb", "uriBaseId": "%SRCROOT%"}}
    assert "fixes" not in second and second["message"]["text"].startswith("cell 2, line 2: one")
    related, = first["relatedLocations"]
    assert related["message"]["text"] == "one"
    cases = list(ElementTree.fromstring(written(diagnosis, "junit"))[0])
    assert [case.get("line") for case in cases] == ["2", None]
    assert cases[1].get("name") == "missing-eval-mode book.ipynb:cell 2:2:1"


@pytest.mark.parametrize("name", report.FORMATS)
def test_only_the_module_of_the_format_is_imported(name):
    code = ("import io, sys; from torchmedic import report; from torchmedic.model import "
            "Diagnosis, Verdict; report.write(Diagnosis('run', Verdict('none', None, 'x')), "
            f"{name!r}, io.StringIO()); print(*sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {m.rpartition(".")[2] for m in done.stdout.split() if m.startswith("torchmedic.report.")}
    wanted = {report.FORMATS[name], *(["jsonfile"] if name == "json-lines" else [])}
    assert ours & set(report.FORMATS.values()) == wanted


@pytest.mark.parametrize("diagnosis", [*ALL.values(), fixed()])
def test_sarif_is_valid(diagnosis):
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
