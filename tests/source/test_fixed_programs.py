"""Programs that fail, or do not learn, run for real before and after their fix."""

import os
import re
import subprocess
import sys

import pytest

from torchmedic.checking import fixing
from torchmedic.checking.session import Checker
from torchmedic.config import Settings
from torchmedic.source.documents import Text

pytestmark = pytest.mark.slow

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 16)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(F.relu(self.fc(x)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
x = torch.randn(68, 8)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)
for epoch in range(8):
    total = 0
    for a, b in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        total += loss.item()
print(total / len(loader))
"""
LAYERS = "self.out(F.relu(self.fc(x)))"
PROGRAMS = {
    "an optimizer without parameters": (
        [("self.out = nn.Linear(16, 3)", "self.rest = [nn.Linear(16, 3)]"),
         ("self.fc = nn.Linear(8, 16)", "self.first = [nn.Linear(8, 16)]"),
         (LAYERS, "self.rest[0](F.relu(self.first[0](x)))")], "empty parameter list"),
    "a base class that was not called": (
        [("        super().__init__()\n", "")], "cannot assign module before Module.__init__"),
    "sizes that do not fit": (
        [("nn.Linear(16, 3)", "nn.Linear(12, 3)")], "cannot be multiplied"),
    "a value that backward needs": (
        [(LAYERS, "self.gate(x)"), ("\n\nmodel", """
    def gate(self, x):
        h = torch.sigmoid(self.fc(x))
        h += 1
        return self.out(h)


model""")], "modified by an inplace operation"),
    "two ways back through one graph": (
        [("        loss.backward()\n", "        extra = 0.1 * loss\n        loss.backward()\n"
          "        extra.backward()\n")], "backward through the graph a second time"),
    "a batch of another size": (
        [(f"return {LAYERS}", "x = F.relu(self.fc(x))\n        return self.out(x.view(8, 16))")],
        "is invalid for input of size"),
    "a method with a wrong name": (
        [("def forward", "def foward")], 'missing the required "forward" function'),
    "gradients of all batches": ([("        optimizer.zero_grad()\n", "")], None),
    "softmax twice": ([(LAYERS, f"F.softmax({LAYERS}, dim=1)")], None),
    "the wrong axis": (
        [("F.cross_entropy(model(a), b)", "F.nll_loss(F.log_softmax(model(a), dim=0), b)")], None),
    "no step at all": ([("        optimizer.step()\n", "")], None),
}


def ran(folder, text):
    (folder / "train.py").write_text(text)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run([sys.executable, "train.py"], cwd=folder, env=env, timeout=120,
                          capture_output=True, text=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_when_it_is_mended(tmp_path, name):
    changes, error = PROGRAMS[name]
    text = HEAD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    before = ran(tmp_path, text)
    assert (before.returncode != 0) == bool(error)
    assert error is None or re.search(re.escape(error), before.stderr)
    file = str(tmp_path / "train.py")
    done = fixing.mended(Checker(Settings(root=tmp_path)), file, Text(text), True)
    assert done.made >= 1 and done.why == []
    after = ran(tmp_path, done.after.raw)
    assert after.returncode == 0, after.stderr
    assert float(after.stdout) < 0.9 and (error or float(after.stdout) < float(before.stdout))
