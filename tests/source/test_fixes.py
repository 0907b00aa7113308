"""Exact fixes: every rule's own examples are mended, and nothing else of a file changes."""

import ast
import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchmedic
from torchmedic import changes, registry
from torchmedic.checking import fixing
from torchmedic.checking.session import Checker
from torchmedic.config import Settings
from torchmedic.model import Edit
from torchmedic.source import edits
from torchmedic.source.documents import Text
from torchmedic.source.script import Script
from torchmedic.trainings import STEP, training

SOURCE = Path(torchmedic.__file__).parents[1]
BAD = training(STEP.replace("optimizer.zero_grad()\n", ""))


def checker(tmp_path):
    return Checker(Settings(root=tmp_path))


def firing():
    """The sources on which a rule that reads source fires."""
    for name, rule, example in registry.cases():
        if example.kind == "source" and example.fires and rule.in_source:
            yield pytest.param(rule, example, id=name)


@pytest.mark.parametrize("rule, example", list(firing()))
def test_an_exact_fix_cures_its_finding_and_is_minimal(tmp_path, rule, example):
    file = tmp_path / "train.py"
    file.write_text(example.text)
    check = checker(tmp_path)
    found = check.file(str(file)).findings
    own = [f for f in found if f.rule == rule.name and f.where and f.where.file == str(file)]
    exact = [f for f in own if f.fix and f.fix.edits]
    if not exact:
        pytest.skip("its fix is for a person")
    done = fixing.mended(check, str(file), Text(example.text), unsafe=True,
                         chosen=lambda found: [f for f in found if f.rule == rule.name])
    text = done.after.raw
    assert done.made >= 1, done.why
    ast.parse(text)
    left = [f for f in done.left if f.rule == rule.name and f.fix and f.fix.edits]
    assert len(left) < len(exact)
    fresh = {f.rule for f in done.left} - {f.rule for f in found}
    assert fresh == set(), "the fix makes another fault"
    assert comments(text) >= comments(example.text)
    lines = list(difflib.unified_diff(example.text.split("\n"), text.split("\n"), n=0))
    put, taken = ({x[1:].strip() for x in lines[2:] if x[:1] == sign} for sign in "+-")
    assert len(put - taken) <= 4 * done.made  # others only moved, or go further in
    for f in exact:  # other line ends come out the same
        dos = Text(example.text.replace("\n", "\r\n")).edited(f.fix.edits).raw
        assert dos.count("\n") == dos.count("\r\n")
        assert edits.unified(dos) == Text(example.text).edited(f.fix.edits).raw
    again = fixing.mended(check, str(file), done.after, unsafe=True,
                          chosen=lambda found: [f for f in found if f.rule == rule.name])
    assert again.made == 0


def comments(text):
    return {line.partition("#")[2] for line in text.split("\n") if "#" in line}


def test_edits_are_in_bytes_and_keep_what_is_around():
    text = "x = 'ä' + y  # z\nif a: b = c\n"
    at = len("x = 'ä' + ".encode())
    after, made = edits.applied(text, [(Edit(1, at, 1, at + 1, "w"),)])
    assert (after, made) == (text.replace("y ", "w "), [True])
    with pytest.raises(edits.Unfit):
        edits.applied(text, [(Edit(1, 6, 1, 6, "!"),)])  # inside the character
    with pytest.raises(edits.Unfit):
        edits.applied(text, [(Edit(9, 0, 9, 0, "!"),)])


def test_of_two_fixes_of_one_place_the_first_is_made():
    first, second = (Edit(1, 0, 1, 3, "x"),), (Edit(1, 2, 1, 5, "y"),)
    assert edits.applied("abcdef", [first, second]) == ("xdef", [True, False])
    same = (Edit(1, 0, 1, 0, "import copy\n"),)
    both = [(*same, Edit(2, 0, 2, 1, "A")), (*same, Edit(3, 0, 3, 1, "B"))]
    assert edits.applied("x\na\nb", both) == ("import copy\nx\nA\nB", [True, True])


def script(text):
    found = Script.parse(text, "a.py")
    assert found is not None
    return found


@pytest.mark.parametrize("text, line, wanted", [
    ("if a:\n    b()\n    c()\n", 2, "if a:\n    new\n    b()\n    c()\n"),
    ("if a:\n\tb()\n", 2, "if a:\n\tnew\n\tb()\n"),
    ("if a: b()\n", 1, None), ("a(); b()\n", 1, None), ("@d\ndef f(): pass\n", 2, None)])
def test_a_line_goes_before_a_statement(text, line, wanted):
    made = changes.before(script(text), line, "new")
    assert (edits.applied(text, [made])[0] if made else None) == wanted


@pytest.mark.parametrize("text, line, to, wanted", [
    ("a()\nb(1,\n  2)\nc()\nd()\n", 2, 4, "a()\nc()\nb(1,\n  2)\nd()\n"),
    ("a()\nb()\nc()\n", 3, 1, "c()\na()\nb()\n"), ("a()\nb()\nc()", 3, 1, "c()\na()\nb()"),
    ("a()\nb()\nc()\nd()\n", 3, 1, "c()\na()\nb()\nd()\n"),
    ("if x:\n    a()\nb()\nc()\n", 2, 3, None)])
def test_a_statement_is_moved(text, line, to, wanted):
    made = changes.moving(script(text), line, to)
    assert (edits.applied(text, [made])[0] if made else None) == wanted


@pytest.mark.parametrize("call, which, wanted", [
    ("f(a, b=1, c=2)", 1, "f(a, c=2)"), ("f(b=1)", 0, "f()"), ("f(b=1, c=2)", 0, "f(c=2)"),
    ("f(a,\n  b=1)", 1, "f(a)"), ("f(a,  # why\n  b=1)", 1, None)])
def test_an_argument_is_left_out(call, which, wanted):
    text = call + "\n"
    one = script(text)
    node = one.tree.body[0].value
    value = [*node.args, *(k.value for k in node.keywords)][which]
    made = changes.without_argument(one, node, value)
    assert (edits.applied(text, [made])[0] if made else None) == (wanted and wanted + "\n")


@pytest.mark.parametrize("text, wanted", [
    ("import torch\n", "import copy\nimport torch\n"), ("import copy\n", None),
    ('"""Doc."""\nfrom __future__ import annotations\n\nimport os\n',
     '"""Doc."""\nfrom __future__ import annotations\n\nimport copy\nimport os\n'),
    ("import copy as c\n", "import copy\nimport copy as c\n")])
def test_an_import_is_added_once(text, wanted):
    made = changes.importing(script(text), "copy")
    assert (edits.applied(text, [made])[0] if made else None) == wanted


def run(folder, *words):
    env = dict(os.environ, PYTHONPATH=str(SOURCE), NO_COLOR="1")
    return subprocess.run([sys.executable, "-m", "torchmedic", "check", *words], cwd=folder, env=env,
                          capture_output=True, text=True, timeout=60)


def test_diff_writes_nothing_and_fix_writes_only_what_is_safe(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(BAD)
    shown = run(tmp_path, "--diff", "--unsafe-fixes")
    assert shown.returncode == 1 and "+        optimizer.zero_grad()" in shown.stdout
    assert "-        " not in shown.stdout.replace("---", "")
    assert run(tmp_path, "--diff").stdout == "" and file.read_text() == BAD
    assert run(tmp_path, "--fix").returncode == 1 and file.read_text() == BAD
    done = run(tmp_path, "--fix", "--unsafe-fixes")
    assert done.returncode == 0 and "1 fix made in 1 file" in done.stdout
    assert file.read_text() == BAD.replace("        loss.backward",
                                           "        optimizer.zero_grad()\n        loss.backward")
    assert run(tmp_path, "--fix", "--unsafe-fixes").returncode == 0


@pytest.mark.parametrize("head, ending, encoding, tail", [
    ("# ü\n", "\r\n", "utf-8", ""), ("", "\n", "utf-8-sig", ""),
    ("# -*- coding: latin-1 -*-\n# ü\n", "\n", "latin-1", ""), ("", "\n", "utf-8", "x = 1")])
def test_fix_keeps_line_ends_encoding_mode_and_links(tmp_path, head, ending, encoding, tail):
    real, link = tmp_path / "real.txt", tmp_path / "train.py"
    text = head + BAD + tail
    real.write_bytes(text.replace("\n", ending).encode(encoding))
    real.chmod(0o640)
    link.symlink_to(real)
    assert run(tmp_path, "train.py", "--fix", "--unsafe-fixes").returncode == 0
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    wanted = text.replace("        loss.backward",
                          "        optimizer.zero_grad()\n        loss.backward")
    assert real.read_bytes() == wanted.replace("\n", ending).encode(encoding)


@pytest.mark.slow
def test_a_mended_program_trains(tmp_path):
    text = training(setup="""
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3), nn.Softmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
criterion = nn.CrossEntropyLoss()
x = torch.randn(64, 8)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)
""", after="print(loss.item())")
    (tmp_path / "train.py").write_text(text)

    def last():
        done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True,
                              text=True, check=True)
        return float(done.stdout.split()[-1])

    before = last()
    assert run(tmp_path, "--fix", "--unsafe-fixes").returncode == 0
    assert "Softmax" not in (tmp_path / "train.py").read_text()
    assert last() < before
