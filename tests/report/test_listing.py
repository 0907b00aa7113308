"""What `check` shows to people: by file, the word underlined, a count at the end."""

import io
import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from rich.cells import cell_len

sys.path.insert(0, str(Path(__file__).parent))

from torchmedic.model import Diagnosis, Edit, Evidence, Finding, Fix, Place, Verdict
from torchmedic.report import listing, text

EXPECTED = Path(__file__).parent / "expected"
TRAIN = ("import torch\n\n\ndef train(model, loader):\n\tfor x, y in loader:\n"
         "\t\tложь = '页面文件'; loss = F.cross_entropy(F.softmax(model(x), dim=1), y)\n"
         "\t\tloss.backward()\n")
LONG = "x = [" + "1, " * 60 + "model.cuda()]\n"
DIFF = ("--- a/train.py\n+++ b/train.py\n@@ -5,3 +5,3 @@\n \tfor x, y in loader:\n"
        "-\t\tloss = F.cross_entropy(F.softmax(model(x), dim=1), y)\n"
        "+\t\tloss = F.cross_entropy(model(x), y)\n \t\tloss.backward()\n")


def column(source, line, word):
    whole = source.split("\n")[line - 1]
    return len(whole[:whole.index(word)].encode())


def finding(rule, severity, message, where, fix=None, confidence="certain", *evidence):
    return Finding(rule, "code", severity, confidence, message, where,
                   tuple(Evidence(fact, "source") for fact in evidence), fix)


EDIT = (Edit(6, 0, 6, 1, ""),)
FINDINGS = (
    finding("softmax-before-cross-entropy", "error", "`cross_entropy` is given probabilities",
            Place("train.py", 6, column=column(TRAIN, 6, "F.softmax"), function="train"),
            Fix("leave out `F.softmax`", "", "unsafe", DIFF, edits=EDIT), "certain",
            "line 7: it goes backward"),
    finding("gradients-never-cleared", "warning", "nothing clears them",
            Place("train.py", 7, column=2), Fix("clear them", "", "safe", edits=EDIT), "likely"),
    finding("model-not-moved", "warning", "it is moved in a list", Place(
        "long.py", 1, column=column(LONG, 1, "model.cuda"))),
    finding("missing-eval-mode", "info", "it is evaluated in training mode",
            Place("book.ipynb", 3, column=0)),
    finding("unused-suppression", "warning", "of no place", None),
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN, encoding="utf-8")
    Path("long.py").write_text(LONG, encoding="utf-8")
    cells = [{"cell_type": "code", "source": ["import torch\n", "a = 1"]},
             {"cell_type": "markdown", "source": "text"},
             {"cell_type": "code", "source": ["net(x)\n", "b = 2"]}]
    Path("book.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}, indent=1))


def shown(findings, width=80, **more):
    first = findings[0]
    diagnosis = Diagnosis("check", Verdict("code", first.rule, first.message), tuple(findings),
                          **more)
    stream = io.StringIO()
    text.render(diagnosis, stream, width, colour=False)
    return stream.getvalue()


@pytest.mark.parametrize("width", [80, 40])
def test_against_the_expected_files(width, request):
    got, file = shown(FINDINGS, width, notes=("a note",)), EXPECTED / f"listing-{width}.txt"
    if request.config.getoption("--update"):
        file.write_text(got, encoding="utf-8")
    assert got == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [24, 33, 40, 57, 80, 100])
def test_the_word_is_underlined_and_no_line_is_too_long(width):
    lines = shown(FINDINGS, width).split("\n")
    assert max(map(cell_len, lines)) <= width and all(line == line.rstrip() for line in lines)
    marked = {}
    for above, line in pairwise(lines):
        mark = re.fullmatch(r" +\| ( *)(\^+)", line)
        if mark:
            start, end = mark.start(2), mark.end(2)
            cells = "".join(c * cell_len(c) for c in above)
            marked[cells[start:end]] = True
    if width >= 57:
        assert list(marked) == ["F.softmax", "loss.backward", "model.cuda", "net"]
    assert "loss.backward" in marked and "net" in marked


def test_a_notebooks_line_is_that_of_its_cell():
    got = shown(FINDINGS[3:4])
    assert "at book.ipynb:cell 3:1:1\n" in got and "    1 | net(x)\n      | ^^^\n    2 | b = 2" in got
    assert "cell_type" not in got and "a = 1" not in got


def test_the_count():
    assert listing.found(FINDINGS) == "Found 5 problems (1 error, 3 warnings, 1 hint) in 3 files"
    assert listing.found(FINDINGS[:1]) == "Found 1 error in 1 file"
    assert listing.found(FINDINGS[1:3]) == "Found 2 warnings in 2 files"
    assert listing.fixable(FINDINGS) == ("1 fixable with `--fix`, 1 more with "
                                         "`--fix --unsafe-fixes`")
    assert listing.fixable(FINDINGS[:1]) == "1 fixable with `--fix --unsafe-fixes`"
    assert listing.fixable(FINDINGS[2:]) == ""


def test_what_others_wrote_stays_text():
    name = "a\nb\x1b[2K.py"
    Path(name).write_text("x = '\x1b[31m\u202e'; y = 1\n", encoding="utf-8")
    hostile = finding("x\x1b[1m", "error", "a\nFound 0 problems\x07", Place(name, 1, column=0,
                      function="f\n\x1b"), Fix("\x1b[2J", "", "safe", "+\x1b[31m\n"))
    got = shown([hostile])
    assert [c for c in got if c != "\n" and not c.isprintable()] == []
    assert got.startswith("a\\nb\\x1b[2K.py\n") and "\n    1 | x = '\\x1b[31m\\u202e'; y = 1\n" in got


def test_a_file_that_is_gone_or_shorter_now_is_no_trouble():
    for where in (Place("gone.py", 3, column=4), Place("train.py", 99, column=0),
                  Place("train.py", 1, column=500), Place("gone.ipynb", 3, column=1),
                  Place("train.py"), Place("long.py", 1, column=0, end_line=1)):
        assert "Found 1 error in 1 file\n" in shown([finding("x", "error", "m", where)])
