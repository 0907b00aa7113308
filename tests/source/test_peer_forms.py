"""Forms of common faults that checkers tend to miss, each with its right twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchmedic import registry
from torchmedic.diagnosis import diagnose_source
from torchmedic.model import Finding
from torchmedic.source.script import Script

HEAD = """
import torch
import torch.nn.functional as F2
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
from parts import Head, Steps

loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        {start}
        self.body = nn.Linear(8, 16)
        {layers}
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.body(x))
        {between}
        return {out}
"""
TRAIN = """
model = Net()
optimizer = optim.SGD(model.parameters(), lr=0.1)
{more}
for epoch in range(3):
    for x, y in loader:
        {step}
"""
STEP = ("optimizer.zero_grad()", "loss = F2.cross_entropy(model(x), y)", "loss.backward()",
        "optimizer.step()")
PARTS = """
from torch import nn
import torch.nn.functional as functional


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x):
        return {out}


class Steps:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def update(self, loss):
        {clear}
        loss.backward()
        self.optimizer.step()
"""


def program(step: tuple[str, ...] = STEP, more: str = "", start: str = "super().__init__()",
            layers: str = "self.deep = nn.ModuleList([nn.Linear(16, 16)])",
            between: str = "for layer in self.deep: x = torch.relu(layer(x))",
            out: str = "self.head(x)") -> str:
    net = NET.format(start=start, layers=layers, between=between, out=out)
    return HEAD + net + TRAIN.format(more=more, step="\n        ".join(step))


def swapped(*order: int) -> tuple[str, ...]:
    return tuple(STEP[at] for at in order)


HELPER = """
def update(loss):
    {clear}
    loss.backward()
    optimizer.step()
"""
BY_HELPER = ("loss = F2.cross_entropy(model(x), y)", "update(loss)")
REPLACED = "model.head = nn.Linear(16, 3)"
IMPORTED = HEAD + """
model = Head()
steps = Steps(optim.SGD(model.parameters(), lr=0.1))
for x, y in loader:
    steps.update(F2.cross_entropy(model(x), y))
"""
FORMS = {
    "softmax inside forward": (
        program(out="F2.softmax(self.head(x), dim=1)"), program(),
        "softmax-before-cross-entropy", "F2.softmax("),
    "step before backward": (
        program(swapped(0, 1, 3, 2)), program(), "accumulation-discarded",
        "optimizer.zero_grad()"),
    "zero_grad between backward and step": (
        program(swapped(1, 2, 0, 3)), program(), "accumulation-discarded",
        "optimizer.zero_grad()"),
    "helper that forgets zero_grad": (
        program(BY_HELPER, HELPER.format(clear="pass")),
        program(BY_HELPER, HELPER.format(clear="optimizer.zero_grad()")),
        "gradients-never-cleared", "loss.backward()"),
    "missing super().__init__": (
        program(start="self.width = 16"), program(), "module-not-registered", "self.body = "),
    "layers in a plain list": (
        program(layers="self.deep = [nn.Linear(16, 16)]"), program(), "module-not-registered",
        "self.deep = ["),
    "head replaced after the optimizer was built": (
        program(more=REPLACED), program(), "parameters-not-in-optimizer", REPLACED),
}


def findings(folder: Path, text: str, out: str = "self.layer(x)",
             clear: str = "self.optimizer.zero_grad()") -> list[Finding]:
    (folder / "parts.py").write_text(PARTS.format(out=out, clear=clear), encoding="utf-8")
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    script = Script.read(str(path))
    assert script is not None
    notes: list[str] = []
    found = diagnose_source(script, tuple(registry.for_source("\n".join(script.lines))), notes)
    assert notes == []
    return [finding for finding in found if finding.severity != "info"]


@pytest.mark.parametrize("form", FORMS)
def test_found_on_its_line(form: str, tmp_path: Path) -> None:
    bad, _, rule, line = FORMS[form]
    main = findings(tmp_path, bad)[0]
    assert main.rule == rule
    assert main.where is not None and main.where.line is not None
    lines = bad.split("\n")
    near = lines[max(0, main.where.line - 3):main.where.line + 2]
    assert any(line in text for text in near), lines[main.where.line - 1]


@pytest.mark.parametrize("form", FORMS)
def test_right_twin_is_quiet(form: str, tmp_path: Path) -> None:
    assert findings(tmp_path, FORMS[form][1]) == []


def test_softmax_of_a_class_in_another_file(tmp_path: Path) -> None:
    main = findings(tmp_path, IMPORTED, out="functional.softmax(self.layer(x), dim=1)")[0]
    assert main.rule == "softmax-before-cross-entropy"
    assert main.where is not None and str(main.where.file).endswith("parts.py")


def test_gradients_of_a_class_in_another_file(tmp_path: Path) -> None:
    main = findings(tmp_path, IMPORTED, clear="pass")[0]
    assert main.rule == "gradients-never-cleared"
    assert main.where is not None and str(main.where.file).endswith("parts.py")


def test_classes_in_other_files_that_are_right(tmp_path: Path) -> None:
    assert findings(tmp_path, IMPORTED) == []
