"""Findings that lie in another file than the one whose check shows them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchmedic
from torchmedic.trainings import training

SOURCE = Path(torchmedic.__file__).parents[1]
RULE = "softmax-before-cross-entropy"
NET = """from torch import nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return F.softmax(self.fc(x), dim=1)
"""
TRAIN = "from net import Net\n" + training(setup="""
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
""")


@pytest.fixture
def project(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    for name in ("train.py", "also.py"):
        (tmp_path / name).write_text(TRAIN)
    return tmp_path


def told(folder, *words):
    done = subprocess.run(
        [sys.executable, "-m", "torchmedic", "check", *words, "--output-format", "json"],
        cwd=folder, env=dict(os.environ, PYTHONPATH=str(SOURCE)), capture_output=True, text=True,
        timeout=120)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert "notes" not in report
    return [(f["where"]["file"], f["where"]["line"], f["rule"]) for f in report["findings"]]


AT = NET.split("\n").index("        return F.softmax(self.fc(x), dim=1)") + 1


def test_what_two_files_show_of_a_third_is_told_once(project):
    assert told(project) == [("net.py", AT, RULE)]
    assert told(project) == [("net.py", AT, RULE)]  # from the cache
    assert told(project, "--no-cache", "--jobs", "2") == [("net.py", AT, RULE)]
    assert told(project, "train.py") == [("net.py", AT, RULE)]
    assert told(project, "net.py") == []


@pytest.mark.parametrize("comment, line", [
    (f"# torchmedic: ignore[{RULE}]", AT), ("# torchmedic: ignore", AT),
    (f"# torchmedic: file-ignore[{RULE}]", 1)])
def test_the_comment_stands_where_the_finding_lies(project, comment, line):
    lines = NET.split("\n")
    lines[line - 1] += "  " + comment
    (project / "net.py").write_text("\n".join(lines))
    for words in ((), (), ("--no-cache", "--jobs", "2"), ("train.py",), ("net.py",)):
        assert told(project, *words) == []  # nor is it called unused, though net.py shows nothing


def test_a_comment_of_the_file_that_shows_it_does_not_count(project):
    for name in ("train.py", "also.py"):
        lines = TRAIN.split("\n")
        lines[AT - 1] += f"  # torchmedic: ignore[{RULE}]"
        (project / name).write_text("\n".join(lines))
    assert told(project) == [("also.py", AT, "unused-suppression"), ("net.py", AT, RULE),
                             ("train.py", AT, "unused-suppression")]
    assert told(project, "train.py") == [("net.py", AT, RULE)]


@pytest.mark.parametrize("text", [
    'exclude = ["net.py"]', '[per-file-ignores]\n"net.py" = ["loss"]',
    '[per-file-ignores]\n"!t*.py" = ["loss"]'])
def test_settings_count_where_the_finding_lies(project, text):
    (project / "torchmedic.toml").write_text(text)
    assert told(project) == [] == told(project, "train.py")


def test_the_cache_knows_the_comments_of_the_other_file(project):
    assert told(project)
    (project / "net.py").write_text("# torchmedic: file-ignore\n" + NET)
    assert told(project) == []
    (project / "net.py").write_text(NET.replace("F.softmax(self.fc(x), dim=1)", "self.fc(x)"))
    assert told(project) == []


def test_the_cache_knows_of_files_that_come(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "train.py").write_text(TRAIN)
    (package / "other.py").write_text("")
    assert told(package) == []
    (package / "net.py").write_text(NET)
    assert told(package) == [("net.py", AT, RULE)]
    (package / "net.py").unlink()
    assert told(package) == []
    (tmp_path / "net.py").write_text(NET)
    (package / "__init__.py").write_text("")  # now modules are looked for above it, too
    assert told(package) == [(str(Path("..", "net.py")), AT, RULE)]
