"""The pre-commit hook and the Action: what they hold, and that they run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import torchmedic
from torchmedic import report
from torchmedic.trainings import STEP, training

SOURCE = Path(torchmedic.__file__).parents[1]
ROOT = Path(__file__).parents[2]
BAD = training(STEP.replace("optimizer.zero_grad()\n", ""))


def tool(folder):
    """`torchmedic` and `python3` of this environment, first on PATH."""
    folder.mkdir()
    for name, module in (("torchmedic", "-m torchmedic"), ("python3", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        (folder / name).chmod(0o755)
    return dict(os.environ, PYTHONPATH=str(SOURCE), PATH=f"{folder}:{os.environ['PATH']}")


def test_the_hook_fails_on_a_fault_only(tmp_path):
    hook, = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    env = tool(tmp_path / "bin")
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "right.py").write_text(training())
    for name, code in (("bad.py", 1), ("right.py", 0)):
        done = subprocess.run([*hook["entry"].split(), name], cwd=tmp_path, env=env,
                              capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert done.stdout.startswith("bad.py:") == bool(code)
    (tmp_path / "torchmedic.toml").write_text('exclude = ["bad.py"]\n')  # pre-commit names it
    assert subprocess.run([*hook["entry"].split(), "bad.py"], cwd=tmp_path, env=env).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("pre-commit"), reason="pre-commit is not installed")
def test_pre_commit_itself_runs_the_hook(tmp_path):
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    env = dict(os.environ, PRE_COMMIT_HOME=str(tmp_path.parent / "pre-commit"))
    for text, code, said in ((BAD, 1, "gradients-never-cleared"), (training(), 0, "Passed")):
        (tmp_path / "train.py").write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        done = subprocess.run(
            ["pre-commit", "try-repo", str(ROOT), "torchmedic-check", "--all-files"],
            cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == code and said in done.stdout, done.stdout + done.stderr


def action():
    return yaml.safe_load((ROOT / "action.yml").read_text())


def check_step(tmp_path, paths, args="", form="github", file=""):
    step = action()["runs"]["steps"][1]
    env = {**tool(tmp_path / "bin"), "TORCHMEDIC_PATHS": paths, "TORCHMEDIC_ARGS": args,
           "TORCHMEDIC_FORMAT": form, "TORCHMEDIC_FILE": file}
    assert set(step["env"]) <= set(env)
    return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=tmp_path,
                          env=env, capture_output=True, text=True)


def test_the_action_annotates(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    done = check_step(tmp_path, "bad.py")
    assert done.returncode == 1 and done.stdout.startswith("::warning file=bad.py,line=")
    shutil.rmtree(tmp_path / "bin")
    done = check_step(tmp_path, ".", "--ignore gradient --exit-zero", "sarif", "out.sarif")
    assert done.returncode == 0 and (tmp_path / "out.sarif").read_text().startswith("{")


def test_the_action_reads_every_line_of_its_inputs(tmp_path):
    for name in ("good.py", "bad.py"):
        (tmp_path / name).write_text(training() if name == "good.py" else BAD)
    done = check_step(tmp_path, "good.py\nbad.py\n", "--no-cache\n--exit-zero\n")
    assert done.returncode == 0 and "file=bad.py" in done.stdout
    shutil.rmtree(tmp_path / "bin")
    assert "file=bad.py" in check_step(tmp_path, "").stdout  # the current folder


def test_the_action_runs_nothing_of_its_inputs(tmp_path):
    done = check_step(tmp_path, "$(touch pwned) `touch pwned` ; touch pwned")
    assert done.returncode == 2 and not (tmp_path / "pwned").exists()


def test_the_action_is_whole():
    whole = action()
    assert whole["runs"]["using"] == "composite" and whole["name"] and whole["description"]
    for step in whole["runs"]["steps"]:
        assert step["shell"] == "bash" and "${{" not in step["run"]
    assert whole["inputs"]["output-format"]["default"] in report.FORMATS
