"""Exact fixes where the text makes it hard, fixes that are refused, and notebooks."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchmedic
from torchmedic import changes
from torchmedic.checking import fixing
from torchmedic.checking.session import Checker
from torchmedic.config import Settings
from torchmedic.model import Edit
from torchmedic.source import documents, edits, jsontext
from torchmedic.source.documents import Notebook, Text
from torchmedic.source.script import Script
from torchmedic.trainings import HEAD, MODEL, STEP, module, training

SOURCE = Path(torchmedic.__file__).parents[1]
NETS = HEAD + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)
        %s

    def forward(self, x):
        %s

model = Net()
""" + MODEL.split("\n", 2)[2] + """
for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
"""


def mended(tmp_path, text, *rules, unsafe=True):
    file = tmp_path / "train.py"
    file.write_text(text)
    return fixing.mended(Checker(Settings(root=tmp_path)), str(file), Text(text), unsafe,
                         chosen=lambda found: [f for f in found if f.rule in (rules or (f.rule,))])


def forward(text, init="pass"):
    return NETS % (init, text)


LOSS = "softmax-before-cross-entropy"
CASES = {
    "one layer that is called once": (
        LOSS, forward("return self.act(self.fc(x))", "self.act = nn.Softmax(dim=1)  # act"),
        [("nn.Softmax(dim=1)", "nn.Identity()")]),
    "a layer that is called twice": (
        LOSS, forward("x = self.act(x); return self.act(self.fc(x))", "self.act = nn.Softmax(1)"),
        None),
    "columns are bytes": (
        LOSS, forward("é = 'ä'; return F.softmax(self.fc(x), dim=1)  # ü"),
        [("F.softmax(self.fc(x), dim=1)", "self.fc(x)")]),
    "several lines, and an operator": (
        LOSS, forward("return F.softmax(\n            self.fc(x)\n            + 1, dim=-1)"),
        [("F.softmax(\n            self.fc(x)\n            + 1, dim=-1)",
          "(self.fc(x)\n            + 1)")]),
    "a comment inside the call": (
        LOSS, forward("return F.softmax(  # why\n            self.fc(x), dim=1)"), None),
    "a module by another name": (
        LOSS, forward("return FF.softmax(self.fc(x), 1)").replace(
            "import torch.nn.functional as F", "import torch.nn.functional as FF"),
        [("FF.softmax(self.fc(x), 1)", "self.fc(x)")]),
    "a method of the tensor": (
        LOSS, forward("return self.fc(x).softmax(1)"), [(".softmax(1)", "")]),
    "the result has another use": (
        LOSS, training(STEP.replace("loss = criterion(model(x), y)", "p = F.softmax(model(x), 1)\n"
                                    "loss = criterion(p, y)\nprint(p.max())")), None),
    "the result is only ranked": (
        LOSS, training(STEP.replace("loss = criterion(model(x), y)", "p = F.softmax(model(x), 1)\n"
                                    "loss = criterion(p, y)\nprint(p.argmax(1))")),
        [("F.softmax(model(x), 1)", "model(x)")]),
    "a layer on its own line": (
        LOSS, training(setup=MODEL.replace(
            "nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))",
            "nn.Sequential(\n    nn.Linear(8, 3),  # scores\n    nn.Softmax(dim=1),\n)")),
        [("    nn.Softmax(dim=1),\n", "")]),
    "two passes in one step": (
        "gradients-never-cleared", training(
            "criterion(model(x), y).backward()\ncriterion(model(-x), y).backward()\n"
            "optimizer.step()"),
        [("        optimizer.step()", "        optimizer.step()\n        optimizer.zero_grad()")]),
    "steps every fourth batch": (
        "gradients-never-cleared", training(
            "loss = criterion(model(x), y) / 4\nloss.backward()\nif (i + 1) % 4 == 0:\n"
            "    optimizer.step()", index=True),
        [("            optimizer.step()",
          "            optimizer.step()\n            optimizer.zero_grad()")]),
    "on one line": (
        "gradients-never-cleared", training(
            "loss = criterion(model(x), y); loss.backward(); optimizer.step()"), None),
    "tabs": (
        "gradients-never-cleared", training(STEP.replace("optimizer.zero_grad()\n", "")).replace(
            "    ", "\t"), [("\t\tloss.backward", "\t\toptimizer.zero_grad()\n\t\tloss.backward")]),
    "a flag alone with its comma": (
        "retain-graph-left-on", training(STEP.replace(
            "backward()", "backward(\n    retain_graph=True,\n)")),
        [("backward(\n            retain_graph=True,\n        )", "backward()")]),
    "a comment goes along": (
        "clip-after-step", training(STEP + "# no jumps\nnn.utils.clip_grad_norm_(\n"
                                    "    model.parameters(), 1.0)"),
        [("        optimizer.step()\n        # no jumps\n        nn.utils.clip_grad_norm_(\n"
          "            model.parameters(), 1.0)\n",
          "        # no jumps\n        nn.utils.clip_grad_norm_(\n"
          "            model.parameters(), 1.0)\n        optimizer.step()\n")]),
    "a sum is detached as a whole": (
        "graph-kept-alive", training("total = 0\n" + STEP, before="total = 0").replace(
            "        total = 0\n", "").replace("optimizer.step()",
                                               "optimizer.step()\n        total += loss / 2  # ü"),
        [("loss / 2", "(loss / 2).detach()")]),
    "the module's name is taken": (
        "weights-kept-by-reference", "from copy import copy\n" + training(
            after="if epoch > 1: best = model.state_dict()", more="\nbest = {}")
        + "model.load_state_dict(best)\n", None),
    "an argument on a line of its own": (
        "scheduler-plateau-mode", training(
            more="scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(\n    optimizer,  # it\n)",
            after="acc = 1.0\nscheduler.step(acc)"),
        [("optimizer,  # it\n", 'optimizer,  # it\n    mode="max",\n')]),
    "brackets round the last argument": (
        "scheduler-plateau-mode", training(
            more="scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau((optimizer))",
            after="acc = 1.0\nscheduler.step(acc)"),
        [("((optimizer))", '((optimizer), mode="max")')]),
    "the call of the base class comes late": (
        "module-not-registered", module("return self.layer(x)").replace(
            "        super().__init__()\n", "").replace(
            "nn.Linear(8, 3)\n", "nn.Linear(8, 3)\n        super(Net, self).__init__()\n"),
        [("        self.layer = nn.Linear(8, 3)\n        super(Net, self).__init__()\n",
          "        super(Net, self).__init__()\n        self.layer = nn.Linear(8, 3)\n")]),
    "a dict that is asked with get": (
        "module-not-registered", module("return self.d.get('a')(x)",
                                        "self.d = {'a': nn.Linear(8, 3)}"), None),
    "who calls it by the wrong name": (
        "misspelled-attribute", module("return self.layer(x)").replace("forward", "foward")
        + "model.foward(torch.zeros(1, 8))\n", None),
    "the axis that torch takes itself": (
        "softmax-without-dim", training(STEP + "p = F.softmax(model(x))"), [("F.softmax(model(x))", "F.softmax(model(x), dim=1)")]),
    "the state that is saved is loaded": (
        "optimizer-state-not-restored", training(
            setup=MODEL.replace("SGD(model.parameters(), lr=0.1)", "Adam(model.parameters())"),
            more="last = torch.load('last.pt')\nmodel.load_state_dict(last['net'])\n"
                 "start = last['epoch']\n",
            after="torch.save({'net': model.state_dict(), 'adam': optimizer.state_dict(), "
                  "'epoch': epoch}, 'last.pt')"),
        [("(last['net'])\n", "(last['net'])\noptimizer.load_state_dict(last[\"adam\"])\n")]),
    "a text over several lines is not moved in": (
        "gradients-on-in-evaluation", training(
            after='model.eval()\nfor x, y in loader:\n    out = model(x)\n    print("""a\nb""")\n'
                  "model.train()"), None),
}


@pytest.mark.parametrize("name", CASES)
def test_hard_places(tmp_path, name):
    rule, text, wanted = CASES[name]
    done = mended(tmp_path, text, rule)
    if wanted is None:
        assert any(f.rule == rule for f in done.left) and done.after.raw == text
        return
    for old, new in wanted:
        assert text.count(old) == 1, "the case itself"
        text = text.replace(old, new)
    assert done.after.raw == text, done.why
    ast.parse(text)
    assert not any(f.rule == rule for f in done.left)


def test_many_fixes_of_one_file_need_several_rounds(tmp_path):
    text = training("loss = criterion(model(x), y)\nloss.backward(retain_graph=True)\n"
                    "optimizer.step()\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                    "total += loss", before="total = 0",
                    setup=MODEL.replace("nn.Linear(16, 3)", "nn.Linear(16, 3), nn.Softmax(1)"))
    done = mended(tmp_path, text)
    assert done.made == 5 and done.left == [] and done.why == []
    assert "        optimizer.zero_grad()\n        loss.backward()\n        nn.utils" in done.after.raw


def test_without_unsafe_only_what_keeps_the_meaning_is_done(tmp_path):
    text = training(STEP.replace("optimizer.zero_grad()\n", "") + "total += loss",
                    before="total = 0")
    done = mended(tmp_path, text, unsafe=False)
    assert done.after.raw == text.replace("total += loss", "total += loss.detach()")
    assert [f.rule for f in done.left] == ["gradients-never-cleared"]


def test_a_fix_that_brings_another_fault_or_does_not_cure_is_taken_back(tmp_path):
    """Clipping before the scaler's step would clip what is still scaled."""
    text = training("optimizer.zero_grad()\nscaler.scale(criterion(model(x), y)).backward()\n"
                    "scaler.step(optimizer)\nnn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
                    "scaler.update()", more="scaler = torch.amp.GradScaler()\n")
    done = mended(tmp_path, text, "clip-after-step")
    assert done.after.raw == text and "would have brought clip-before-unscale" in done.why[0]


class Stubborn(Checker):
    """Finds its fault always: no fix cures it."""

    def script(self, script):
        from torchmedic.checking.session import Checked
        from torchmedic.model import Finding, Fix, Place

        fix = Fix("x", "", "safe", edits=(Edit(1, 0, 1, 0, "# x\n"),))
        return Checked([Finding("a-rule", "code", "error", "certain", "m",
                                Place(file=script.file, line=script.lines.index("a = 1") + 1),
                                fix=fix)])


def test_no_loop_where_a_fix_never_cures(tmp_path):
    done = fixing.mended(Stubborn(Settings(root=tmp_path)), "a.py", Text("a = 1\n"), True)
    assert done.made == 0 and done.after.raw == "a = 1\n" and len(done.why) == 1
    assert "would not have cured it" in done.why[0]


def test_each_line_keeps_its_own_end():
    mixed = "a = 1\r\nb = 2\nc = 3\r\n"
    assert Text(mixed).edited([Edit(2, 0, 2, 0, "x\n"), Edit(3, 0, 3, 0, "y\n")]).raw == (
        "a = 1\r\nx\nb = 2\ny\r\nc = 3\r\n")
    assert edits.edited("a\rb\r", [Edit(2, 0, 2, 1, "B")]) == "a\rB\r"
    assert edits.edited("", [Edit(1, 0, 1, 0, "x\n")]) == "x\n"


def test_a_fix_whose_own_edits_clash_is_not_made():
    assert edits.applied("abc", [(Edit(1, 0, 1, 2, "x"), Edit(1, 1, 1, 3, "y"))]) == (
        "abc", [False])


def test_the_diff_can_be_applied(tmp_path):
    file = tmp_path / "a.py"
    before, after = "a = 1\r\nb = '\x0c'\nc = 3", "a = 1\r\nb = 2\nc = 3"
    file.write_bytes(before.encode())
    diff = edits.difference(before, after, "a.py")
    subprocess.run(["patch", "-p1", "--binary", "-s"], cwd=tmp_path, input=diff.encode(), check=True)
    assert file.read_bytes() == after.encode()


def test_what_changed_meanwhile_or_may_not_be_written_is_left(tmp_path):
    file = tmp_path / "train.py"
    text = training(STEP + "total += loss", before="total = 0")
    done = mended(tmp_path, text)
    assert done.made == 1
    data = file.read_bytes()
    file.write_text("# newer\n" + text)
    assert "changed meanwhile" in fixing.write(done, data, "utf-8")
    assert file.read_text() == "# newer\n" + text
    file.write_bytes(b"# -*- coding: iso2022_jp -*-\n# \x1b(J\n")
    assert "can't be written back" in fixing.document_of(str(file))
    assert isinstance(fixing.document_of(str(tmp_path / "gone.py")), str)


def test_statements_that_leave_the_block_are_not_passed():
    def moved(text, line, to):
        script = Script.parse(text, "a.py")
        made = changes.moving(script, line, to)
        return edits.applied(text, [made])[0] if made else None

    assert moved("def f():\n    a()\n    if x: return\n    b()\n", 2, 4) is None
    assert moved("a()\nfor i in x:\n    break\nb()\n", 1, 4) == "for i in x:\n    break\nb()\na()\n"
    assert moved("a(n)\nn = 2\nb()\n", 1, 3) is None
    assert moved("n = 1\nb(n)\n", 1, 2) is None


@pytest.mark.parametrize("text, wanted", [
    ("import torch.nn as nn\n", "nn"), ("from torch import nn as x\n", "x"),
    ("import torch\n", "torch.nn"), ("import torch as t\n", "t.nn"), ("import os\n", None)])
def test_how_a_file_names_a_module(text, wanted):
    assert changes.name_of(Script.parse(text, "a.py"), "torch.nn") == wanted


BAD = training(STEP.replace("optimizer.zero_grad()\n", "")).strip("\n")


def notebook(*cells, **more):
    held = [{"cell_type": "code", "execution_count": 3, "metadata": {}, "outputs": [
        {"name": "stdout", "output_type": "stream", "text": ["x\n"]}],
        "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": [{"cell_type": "markdown", "metadata": {}, "source": ["# Hé"]},
                                 *held], "metadata": {"x": 1.50}, "nbformat": 4,
                       "nbformat_minor": 5}, **more)


@pytest.mark.parametrize("more", [{"indent": 1, "ensure_ascii": False}, {"indent": 4}, {}])
def test_a_notebook_is_mended_in_its_cells_and_keeps_all_else(tmp_path, more):
    file = tmp_path / "a.ipynb"
    head, rest = BAD.split("\nmodel = ")
    text = notebook("%matplotlib inline\n" + head, "# ü\n!ls\nmodel = " + rest, **more) + "\n"
    file.write_text(text, encoding="utf-8")
    done = run(tmp_path, "--fix", "--unsafe-fixes")
    assert done.returncode == 0, done.stdout + done.stderr
    after = file.read_text(encoding="utf-8")
    old, new = json.loads(text), json.loads(after)
    cell = new["cells"][2]
    assert "        optimizer.zero_grad()\n" in cell["source"]
    assert cell["source"][:2] == ["# ü\n", "!ls\n"]
    cell["source"].remove("        optimizer.zero_grad()\n")
    assert new == old
    lost = set(text.split("\n")) - set(after.split("\n"))
    assert len(lost) == (0 if more else 1)
    assert json.dumps(json.loads(after), **more) + "\n" == after


def test_a_cell_that_is_one_text_stays_one():
    text = '{"cells": [{"cell_type": "code", "source": "a = 1\\nb = \\u00e4"}], "x": [1, {}]}'
    assert Notebook(text).edited([Edit(1, 4, 1, 5, "ö")]).raw == text.replace(
        "a = 1", "a = \\u00f6")
    assert jsontext.with_text('{"s": [ ] }', ("s",), "a\nb") == '{"s": ["a\\n", "b"] }'


def test_magics_and_the_ends_of_cells_are_no_place_for_edits():
    text = notebook("%time x\na = 1", "b = 2")
    for edit in (Edit(1, 0, 1, 4, "y"), Edit(2, 0, 3, 0, ""), Edit(9, 0, 9, 0, "x")):
        with pytest.raises(edits.Unfit):
            Notebook(text).edited([edit])
    assert documents.Text("a").source == "a"


def run(folder, *words):
    env = dict(os.environ, PYTHONPATH=str(SOURCE), NO_COLOR="1")
    return subprocess.run([sys.executable, "-m", "torchmedic", "check", *words], cwd=folder, env=env,
                          capture_output=True, text=True, timeout=60)


def test_known_findings_of_a_baseline_are_not_mended(tmp_path):
    file = tmp_path / "train.py"
    file.write_text(BAD)
    run(tmp_path, "--write-baseline", "known.json")
    done = run(tmp_path, "--fix", "--unsafe-fixes", "--baseline", "known.json")
    assert done.returncode == 0 and file.read_text() == BAD


def test_a_diff_shows_every_file_and_standard_input_is_refused(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(BAD)
    shown = run(tmp_path, "--diff", "--unsafe-fixes", "-o", "all.diff")
    assert shown.returncode == 1 and shown.stdout == ""
    assert (tmp_path / "all.diff").read_text().count("+++ b/") == 2
    subprocess.run(["patch", "-p1", "-s", "-i", "all.diff"], cwd=tmp_path, check=True)
    assert run(tmp_path, "--diff", "--unsafe-fixes").returncode == 0
    assert run(tmp_path, "--diff", "-").returncode == 2
