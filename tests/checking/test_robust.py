"""What goes wrong around a check: bad settings, files that are no files, processes that end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import torchmedic
from torchmedic.trainings import STEP, training

SOURCE = Path(torchmedic.__file__).parents[1]
BAD = training(STEP.replace("optimizer.zero_grad()\n", ""))
RULE = "gradients-never-cleared"
COMMAND = [sys.executable, "-m", "torchmedic", "check"]
ENV = dict(os.environ, PYTHONPATH=str(SOURCE), NO_COLOR="1")


def run(folder, *words, stdin=None, form="concise"):
    done = subprocess.run([*COMMAND, *words, "--output-format", form], cwd=folder, env=ENV,
                          capture_output=True, text=True, timeout=120, input=stdin)
    assert "Traceback" not in done.stderr
    return done


def start(folder, *words):
    return subprocess.Popen([*COMMAND, *words, "--output-format", "concise"], cwd=folder, env=ENV,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("name, text, say", [
    ("pyproject.toml", "tool = 3  # tool.torchmedic", "`tool` must be a table"),
    ("pyproject.toml", "[tool]\ntorchmedic = 3  # tool.torchmedic", "`torchmedic` must be a table"),
    ("torchmedic.toml", "[per-file-ignores]\n'a.py' = ['gradeint']",
     "`per-file-ignores.a.py`: there is no rule or family 'gradeint'; did you mean `gradient`?"),
    ("torchmedic.toml", "extend-ignore = ['gradeint']", "torchmedic.toml: there is no rule"),
    ("torchmedic.toml", "exclude = [3]", "`exclude` must be a list of strings"),
    ("torchmedic.toml", "baseline = []", "`baseline` must be the path"),
    ("torchmedic.toml", "a = 1\na = 2", "torchmedic.toml: ")])
def test_bad_settings_are_told_with_their_file_and_key(tmp_path, name, text, say):
    (tmp_path / name).write_text(text + "\n")
    done = run(tmp_path)
    assert done.returncode == 2 and say in done.stderr and name in done.stderr


def test_settings_that_cant_be_read(tmp_path):
    (tmp_path / "torchmedic.toml").write_bytes(b"select = ['\xff']\n")
    assert run(tmp_path).returncode == 2
    for file in ("missing.toml", "."):
        assert run(tmp_path, "--config", file).returncode == 2


def test_a_wrong_word_of_the_command_line_is_not_laid_to_the_settings(tmp_path):
    (tmp_path / "torchmedic.toml").write_text("ignore = ['loss']\n")
    for option in ("--select", "--ignore", "--extend-select", "--extend-ignore"):
        done = run(tmp_path, option, "gradeint")
        assert done.returncode == 2 and "torchmedic.toml" not in done.stderr
        assert "did you mean `gradient`?" in done.stderr


@pytest.mark.parametrize("text, options, found", [
    ('ignore = ["gradient"]', [], False),
    ('ignore = ["gradient"]', ["--select", RULE], True),
    ('ignore = ["gradient"]', ["--select", "gradient"], True),
    ('ignore = ["gradient"]', ["--select", "all"], False),
    ('ignore = ["gradient"]', ["--extend-select", RULE], True),
    (f'ignore = ["gradient"]\nextend-select = ["{RULE}"]', [], True),
    (f'ignore = ["all"]\nselect = ["{RULE}"]', [], True),
    (f'extend-ignore = ["{RULE}"]', ["--select", "gradient"], False),
    ('select = ["loss"]', ["--select", "gradient"], True),
    ('select = ["loss"]', ["--extend-select", "gradient"], True),
    ('select = ["gradient"]', ["--select", "loss"], False),
    ('select = ["gradient"]', ["--ignore", RULE], False),
    ("", ["--select", "loss", "--select", "gradient"], True)])
def test_the_narrower_word_wins_and_then_the_command_line(tmp_path, text, options, found):
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "torchmedic.toml").write_text(text + "\n")
    assert (RULE in run(tmp_path, *options).stdout) == found


@pytest.mark.parametrize("pattern, where, found", [
    ("sub/bad.py", ".", False), ("sub", ".", False), ("./sub/", ".", False), ("s*/b*.py", ".", False),
    ("**/bad.py", ".", False), ("**/sub/*.py", ".", False), ("other/bad.py", ".", True),
    ("bad.py", "sub", False), ("../sub/bad.py", "sub", False), ("sub/bad.py", "sub", True)])
def test_patterns_of_the_command_line_count_from_here(tmp_path, pattern, where, found):
    (tmp_path / "torchmedic.toml").write_text("")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "bad.py").write_text(BAD)
    done = run(tmp_path / where, "--exclude", pattern)
    assert (RULE in done.stdout) == found
    assert ("no Python file was found there" in done.stderr) != found


def test_what_is_named_is_read_unless_that_is_refused(tmp_path):
    (tmp_path / "torchmedic.toml").write_text("exclude = ['bad.py']\n")
    (tmp_path / "bad.py").write_text(BAD)
    assert run(tmp_path, "bad.py").returncode == 1
    assert run(tmp_path, "bad.py", "--force-exclude").returncode == 0


def test_an_empty_folder_is_not_called_healthy_without_a_word(tmp_path):
    assert "no Python file was found there" in run(tmp_path, form="full").stdout


def test_a_rule_that_is_not_selected_is_not_imported(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    code = ("import sys; from torchmedic.main import main; main(['check', '--select', sys.argv[1]]);"
            "print([m for m in sys.modules if m.startswith('torchmedic.rules.')"
            " and m.count('.') == 3], 'tomllib' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code, RULE], cwd=tmp_path, env=ENV,
                          capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "['torchmedic.rules.gradient.gradients_never_cleared'] False"


def test_statistics_and_a_baseline_say_what_was_not_checked(tmp_path):
    (tmp_path / "broken.py").write_text("def (:\n")
    for words in (["--statistics"], ["--write-baseline", "known.json"]):
        assert "broken.py was not checked: syntax error" in run(tmp_path, *words).stderr


def test_a_baseline_overwrites_baselines_only(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    done = run(tmp_path, "--write-baseline", "bad.py")
    assert done.returncode == 2 and (tmp_path / "bad.py").read_text() == BAD
    for _ in range(2):
        assert run(tmp_path, "--write-baseline", "known.json").returncode == 0


def test_a_baseline_says_nothing_of_what_was_not_asked(tmp_path):
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(BAD)
    (tmp_path / "torchmedic.toml").write_text("baseline = 'known.json'\n")
    run(tmp_path, "--write-baseline", "known.json")
    for words in ([], ["a.py"], ["--select", "loss"]):
        done = run(tmp_path, *words)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    (tmp_path / "b.py").unlink()
    assert "1 known finding" in run(tmp_path, "a.py").stderr


def test_a_notebook_from_standard_input(tmp_path):
    cells = [{"cell_type": "markdown", "source": "text"},
             {"cell_type": "code", "source": BAD.splitlines(keepends=True)}]
    done = run(tmp_path, "-", "--stdin-filename", "no.ipynb", stdin=json.dumps({"cells": cells}),
               form="json")
    finding, = json.loads(done.stdout)["findings"]
    assert finding["where"]["file"] == "no.ipynb"
    assert finding["evidence"][0]["text"].startswith("cell 2, line ")


def test_a_comment_in_a_notebook_suppresses(tmp_path):
    code = BAD.replace("loss.backward()", f"loss.backward()  # torchmedic: ignore[{RULE}]")
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [{"cell_type": "code", "source": code}]}))
    assert run(tmp_path).returncode == 0


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_an_endless_file_is_not_read_to_its_end(tmp_path):
    (tmp_path / "right.py").write_text(training())
    for words in (["/dev/zero"], ["/dev/zero", "right.py"]):
        assert "/dev/zero was not checked: larger than" in run(tmp_path, *words).stderr
    with open("/dev/zero", "rb") as zero:
        done = subprocess.run([*COMMAND, "-"], stdin=zero, cwd=tmp_path, env=ENV, timeout=60,
                              capture_output=True, text=True)
    assert "standard input was not checked: larger than" in done.stdout


def test_what_comes_through_a_pipe_is_read_each_time(tmp_path):
    (tmp_path / "right.py").write_text(training())
    os.mkfifo(tmp_path / "pipe.py")
    for text, code in ((BAD, 1), (training(), 0), (BAD, 1)):
        writer = threading.Thread(target=(tmp_path / "pipe.py").write_text, args=(text,))
        writer.start()
        assert run(tmp_path, "pipe.py", "right.py").returncode == code
        writer.join()


def test_a_file_that_ends_its_process_is_told_and_the_others_are_checked(tmp_path):
    names = [f"f{number:02}.py" for number in range(40)]
    for name in names:
        (tmp_path / name).write_text(BAD)
    os.mkfifo(tmp_path / "pipe.py")  # whoever reads it waits
    names.insert(20, "pipe.py")
    child = start(tmp_path, *names, "--jobs", "2")
    until = time.time() + 100
    while child.poll() is None and time.time() < until:
        for worker in psutil.Process(child.pid).children(recursive=True):
            try:
                held = worker.cpu_times()
                time.sleep(0.5)
                if worker.cpu_times() == held and waits_for_a_writer(worker):
                    worker.kill()
            except psutil.Error:
                pass
    out, err = child.communicate(timeout=30)
    assert [line.partition(":")[0] for line in out.splitlines()] == [n for n in names if n[0] == "f"]
    assert err == ("torchmedic check: pipe.py was not checked: the process that checked it ended, as "
                   "for lack of memory\n")
    assert child.returncode == 1


def waits_for_a_writer(process):
    return "wait_for_partner" in Path(f"/proc/{process.pid}/wchan").read_text() or (
        Path(f"/proc/{process.pid}/syscall").read_text().split()[0] == "257")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_check_ends_soon_and_keeps_what_it_found(tmp_path, jobs):
    for number in range(400):
        (tmp_path / f"f{number:03}.py").write_text(BAD * 10)
    child = start(tmp_path, "--jobs", jobs)
    time.sleep(4)
    child.send_signal(signal.SIGINT)  # only this process, as from a program
    out, err = child.communicate(timeout=60)
    if child.returncode == 1:
        pytest.skip("it was done before")
    assert (child.returncode, out, err) == (130, "", "")
    if jobs == "1":  # with two, the first files may still be under way
        cache, = (tmp_path / ".torchmedic" / "cache").glob("*.json")
        assert json.loads(cache.read_text())["files"]
