"""Every command that gives a report gives it in every format: real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from torchmedic import main, report
from torchmedic.trainings import STEP, training

SOURCE = Path(main.__file__).parents[1]
LOG = ("Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
       "    y = model(x)\nModuleNotFoundError: No module named 'timm'\n")
PARSED = {
    "json": json.loads, "sarif": json.loads, "junit": ElementTree.fromstring,
    "json-lines": lambda text: [json.loads(line) for line in text.splitlines()],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A faulty source, a log, and the report of a run that failed."""
    path = tmp_path_factory.mktemp("formats")
    (path / "bad.py").write_text(training(STEP.replace("optimizer.zero_grad()\n", "")))
    (path / "a.log").write_text(LOG)
    (path / "fails.py").write_text("import no_such_package\n")
    assert call(path, "run", "--", sys.executable, "fails.py").returncode == 1
    return path


def call(folder, *words):
    env = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS")}
    env |= {"PYTHONPATH": str(SOURCE), "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run([sys.executable, "-m", "torchmedic", *words], cwd=folder, env=env,
                          capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", report.FORMATS)
@pytest.mark.parametrize("words, code, rule", [
    (("check", "bad.py"), 1, "gradients-never-cleared"),
    (("explain", "a.log"), 1, "missing-module"),
    (("report", "last"), 0, "missing-module"),
    (("run", "--output-format", "FORMAT", "--", sys.executable, "fails.py"), 1,
     "missing-module"),
])
def test_each_command_in_each_format(folder, words, code, rule, name):
    if words[0] == "run":
        words = [name if word == "FORMAT" else word for word in words]
    else:
        words = [*words, "--output-format", name]
    done = call(folder, *words)
    got = done.stderr if words[0] == "run" else done.stdout
    if words[0] == "run":  # the program's own words come first
        got = got[got.rindex("No module named 'no_such_package'\n", 0, 600):].partition("\n")[2]
    assert done.returncode == code and rule in got, done
    PARSED.get(name, str)(got)


def test_a_file_in_each_format(folder):
    for name in report.FORMATS:
        done = call(folder, "check", "bad.py", "--output-format", name, "-o", f"out.{name}")
        assert (done.returncode, done.stdout) == (1, "")
        text = (folder / f"out.{name}").read_text(encoding="utf-8")
        PARSED.get(name, str)(text)
        assert "gradients-never-cleared" in text
