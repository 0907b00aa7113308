"""What a check is told: settings, selections, suppressions, a baseline, the cache, processes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import torchmedic
from torchmedic.checking.fingerprints import fingerprint
from torchmedic.trainings import STEP, training

SOURCE = Path(torchmedic.__file__).parents[1]
BAD = training(STEP.replace("optimizer.zero_grad()\n", ""))
RULE = "gradients-never-cleared"


def run(folder, *words, stdin=None):
    env = dict(os.environ, PYTHONPATH=str(SOURCE), NO_COLOR="1")
    return subprocess.run([sys.executable, "-m", "torchmedic", "check", *words], cwd=folder, env=env,
                          capture_output=True, text=True, timeout=120, input=stdin)


def rules(done):
    return [line.split(" ")[1] for line in done.stdout.splitlines()]


def concise(folder, *words, **more):
    return run(folder, *words, "--output-format", "concise", **more)


@pytest.fixture
def bad(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    return tmp_path


@pytest.mark.parametrize("options, found", [
    (["--select", RULE], True), (["--select", "gradient"], True), (["--select", "loss"], False),
    (["--ignore", "gradient"], False), (["--ignore", f"loss,{RULE}"], False),
    (["--select", "all", "--ignore", "loss"], True), (["--exclude", "bad.py"], False),
    (["--exclude", "b*"], False), (["--exclude", "other/bad.py"], False)])
def test_the_command_line_chooses_rules_and_files(bad, options, found):
    options[-1] = "bad.py" if options[-1] == "other/bad.py" else options[-1]
    done = concise(bad, *options)
    assert (rules(done) == [RULE], done.returncode) == (found, int(found)), done.stderr


@pytest.mark.parametrize("name, text", [
    ("torchmedic.toml", 'ignore = ["gradient"]\n'),
    ("pyproject.toml", '[tool.torchmedic]\nignore = ["gradients-never-cleared"]\n'),
    ("pyproject.toml", '[tool.torchmedic]\nselect = ["loss"]\nextend-select = ["mode"]\n'),
    ("pyproject.toml", '[tool.torchmedic]\nexclude = ["sub"]\n'),
    ("pyproject.toml", '[tool.torchmedic.per-file-ignores]\n"sub/*.py" = ["all"]\n')])
def test_settings_of_the_folder_above_count(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "bad.py").write_text(BAD)
    below = tmp_path / "sub"
    assert concise(below).stdout == ""
    assert rules(concise(below, "--isolated")) == [RULE]
    (tmp_path / "other.toml").write_text("")
    assert rules(concise(below, "--config", "../other.toml")) == [RULE]


@pytest.mark.parametrize("text, say", [
    ("select = 3\n", "`select` must be a list"), ("selekt = []\n", "did you mean 'select'"),
    ("select = ['gradeint']\n", "did you mean `gradient`"), ("select = [\n", "torchmedic.toml"),
    ("per-file-ignores = 1\n", "must be a table")])
def test_bad_settings_end_with_two(bad, text, say):
    (bad / "torchmedic.toml").write_text(text)
    done = run(bad)
    assert done.returncode == 2 and say in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def suppressed(tmp_path, comment, where):
    lines = BAD.split("\n")
    at = next(i for i, line in enumerate(lines) if "loss.backward()" in line)
    if where == "on":
        lines[at] += "  " + comment
    elif where == "above":
        lines.insert(at, " " * 8 + comment)
    else:
        lines.insert(1, comment)
    (tmp_path / "bad.py").write_text("\n".join(lines))
    return rules(concise(tmp_path))


@pytest.mark.parametrize("comment, where", [
    (f"# torchmedic: ignore[{RULE}]", "on"), (f"# torchmedic: ignore[{RULE}]", "above"),
    (f"#torchmedic:ignore[ {RULE} ]", "on"), ("# torchmedic: ignore", "on"),
    (f"# noqa  # torchmedic: ignore[{RULE}]", "on"), (f"# torchmedic: file-ignore[{RULE}]", "top"),
    ("# torchmedic: file-ignore", "top")])
def test_a_comment_suppresses(tmp_path, comment, where):
    assert suppressed(tmp_path, comment, where) == []


@pytest.mark.parametrize("comment, where, names", [
    (f"# torchmedic: ignore[{RULE}]", "top", {RULE, "unused-suppression"}),
    ("# torchmedic: ignore[no-such-rule]", "on", {RULE, "unused-suppression"}),
    ("# torchmedic: ignore[backward-twice]", "on", {RULE, "unused-suppression"}),
    ("text = '# torchmedic: ignore'", "top", {RULE})])
def test_a_suppression_that_suppresses_nothing_is_told(tmp_path, comment, where, names):
    assert set(suppressed(tmp_path, comment, where)) == names


def test_what_was_not_asked_is_not_called_unused(tmp_path):
    suppressed(tmp_path, f"# torchmedic: ignore[{RULE}]", "on")
    assert concise(tmp_path, "--select", "loss,unused-suppression").stdout == ""


def test_a_comment_in_a_multi_line_statement(tmp_path):
    text = BAD.replace("loss.backward()", "loss.backward(\n        )  # torchmedic: ignore")
    (tmp_path / "bad.py").write_text(text)
    assert concise(tmp_path).stdout == ""


@pytest.mark.parametrize("text, left", [
    # on any line of the statement, or above it with other comments between
    ("        loss.backward(  # torchmedic: ignore[RULE]\n            retain_graph=False,\n        )", ""),
    ("        loss.backward(\n            # torchmedic: ignore[RULE]\n            retain_graph=False)", ""),
    ("        # torchmedic: ignore[RULE]\n        # why\n        loss.backward()", ""),
    # not above an empty line, nor below
    ("        # torchmedic: ignore[RULE]\n\n        loss.backward()", "RULE unused"),
    ("        loss.backward()\n        # torchmedic: ignore[RULE]", "RULE unused"),
    # not through the statement around it
    ("        if loss > 0:\n            loss.backward()\n        else:  # torchmedic: ignore[RULE]\n"
     "            loss.backward()", "RULE unused"),
    # of two, both are of use; of two names in one, each for itself
    ("        # torchmedic: ignore[RULE]\n        loss.backward()  # torchmedic: ignore", ""),
    ("        loss.backward()  # torchmedic: ignore[RULE, softmax-without-dim]", "unused"),
    # what is said of suppressions can be suppressed
    ("        loss.backward()  # torchmedic: ignore[RULE, softmax-without-dim, unused-suppression]", ""),
    ("        loss.backward()  # torchmedic: ignore[]", "RULE"),
    ("        loss.backward()  # torchmedic: ignored[RULE]", "RULE")])
def test_what_a_comment_covers(tmp_path, text, left):
    text = text.replace("RULE", RULE)
    (tmp_path / "bad.py").write_text(BAD.replace("        loss.backward()", text))
    wanted = left.replace("RULE", RULE).replace("unused", "unused-suppression").split()
    assert sorted(set(rules(concise(tmp_path)))) == sorted(wanted)


def test_a_comment_above_a_decorator_covers_the_head_only(tmp_path):
    from torchmedic.checking.suppressions import _comments
    from torchmedic.source.script import Script

    script = Script.parse("# torchmedic: ignore\n@a\n@b(\n    1)\ndef f(\n    x,\n):\n    pass\n    pass\n")
    comment, = _comments(script)
    assert comment.lines == range(2, 8)


@pytest.mark.parametrize("options", [
    ["--select", "loss,unused-suppression"], ["--ignore", "loss"], ["bad.py"]])
def test_without_all_rules_and_files_nobody_knows_what_is_unused(tmp_path, options):
    (tmp_path / "bad.py").write_text("# torchmedic: file-ignore\nx = 1  # torchmedic: ignore\n")
    assert concise(tmp_path, *options).stdout == ""
    assert len(rules(concise(tmp_path))) == 2
    (tmp_path / "bad.py").write_text("x = 1  # torchmedic: ignore[no-such]\n")
    assert rules(concise(tmp_path, *options)) == ["unused-suppression"]
    assert rules(concise(tmp_path, *options, "--ignore", "unused-suppression")) == []


def test_a_baseline_hides_what_was_known(bad):
    assert run(bad, "--write-baseline", "known.json").returncode == 0
    assert run(bad, "--baseline", "known.json").returncode == 0
    (bad / "bad.py").write_text("# moved\n\n" + BAD)
    assert run(bad, "--baseline", "known.json").returncode == 0
    (bad / "new.py").write_text(BAD)
    done = concise(bad, "--baseline", "known.json")
    assert done.stdout.startswith("new.py:") and len(rules(done)) == 1
    (bad / "bad.py").write_text("")
    assert "1 known finding of known.json did not show" in concise(
        bad, "--baseline", "known.json").stderr
    (bad / "known.json").write_text("{}")
    done = run(bad, "--baseline", "known.json")
    assert done.returncode == 2 and "is no baseline" in done.stderr


def test_a_baseline_counts_findings_on_equal_lines():
    assert len({fingerprint("r", "f", "x", 1), fingerprint("r", "f", "x", 2),
                fingerprint("r", "g", "x", 1), fingerprint("s", "f", "x", 1)}) == 4
    assert fingerprint("r", "f", " x ", 1) == fingerprint("r", "f", "x", 1)


def caches(folder):
    return list((folder / ".torchmedic" / "cache").glob("*.json"))


def test_the_cache_follows_every_change(bad):
    (bad / "right.py").write_text(training())
    first = run(bad, "--output-format", "json").stdout
    cache, = caches(bad)
    assert set(json.loads(cache.read_text())["files"]) == {"bad.py", "right.py"}
    kept = cache.read_text().replace("steps in each round", "was kept")
    cache.write_text(kept)  # what it holds is used
    assert "was kept" in run(bad, "--output-format", "json").stdout
    assert "was kept" not in run(bad, "--output-format", "json", "--no-cache").stdout
    assert "was kept" not in run(bad, "--select", "gradient", "--output-format", "json").stdout
    (bad / "third.py").write_text("")  # what still holds stays beside what is new
    assert "was kept" in run(bad, "--output-format", "json").stdout
    (bad / "bad.py").write_text(training())
    assert run(bad).returncode == 0
    assert (bad / ".torchmedic" / "cache" / ".gitignore").read_text() == "*\n"
    (bad / "third.py").unlink()
    (bad / "bad.py").write_text(BAD)
    assert run(bad, "--output-format", "json").stdout == first
    assert set(json.loads(cache.read_text())["files"]) == {"bad.py", "right.py"}


@pytest.mark.parametrize("text", [
    "{ no json", "", "[]", "null", '{"sources": 1}', "\xff", "[" * 5000, '{"files": {"bad.py": 3}}'])
def test_a_broken_cache_is_none(bad, text):
    (bad / "right.py").write_text(training())
    first = run(bad, "--output-format", "json").stdout
    cache, = caches(bad)
    cache.write_text(text, encoding="latin-1")
    assert run(bad, "--output-format", "json").stdout == first
    assert json.loads(cache.read_text())["files"]


def test_entries_of_a_cache_that_are_broken_are_none(bad):
    (bad / "right.py").write_text(training())
    first = run(bad, "--output-format", "json").stdout
    cache, = caches(bad)
    whole = json.loads(cache.read_text())
    for entry in ({}, 3, None, {**whole["files"]["bad.py"], "needs": [99]},
                  {**whole["files"]["bad.py"], "findings": [{"rule": 3}]}):
        cache.write_text(json.dumps({**whole, "files": {**whole["files"], "bad.py": entry}}))
        assert run(bad, "--output-format", "json").stdout == first


def test_a_cache_that_cant_be_written_changes_nothing(bad):
    (bad / "right.py").write_text(training())
    (bad / ".torchmedic").write_text("a file where the folder would be")
    assert rules(concise(bad)) == [RULE]


def test_processes_share_a_cache(bad):
    for number in range(6):
        (bad / f"f{number}.py").write_text(BAD)
    command = [sys.executable, "-m", "torchmedic", "check", "--output-format", "concise"]
    started = [subprocess.Popen(command, cwd=bad, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=dict(os.environ, PYTHONPATH=str(SOURCE)), text=True)
               for _ in range(4)]
    done = [child.communicate(timeout=60) for child in started]
    assert len(set(done)) == 1 and len(done[0][0].splitlines()) == 7 and done[0][1] == ""
    cache, = caches(bad)
    assert len(json.loads(cache.read_text())["files"]) == 7


def test_what_changes_while_it_is_checked_is_not_kept(tmp_path):
    from torchmedic.checking.cache import Cache
    from torchmedic.checking.session import Checked
    from torchmedic.config import Settings

    names = ["steady.py", "changed.py", "needs_one_that_changed.py", "needs_one_that_came.py"]
    for name in names:
        (tmp_path / name).write_text("")
    (tmp_path / "sub").mkdir()
    time.sleep(0.1)
    cache = Cache(Settings(root=tmp_path), tmp_path / "cache")
    paths = [str(tmp_path / name) for name in names]
    time.sleep(0.1)
    Path(paths[1]).write_text("")
    (tmp_path / "sub" / "there.py").write_text("")
    (tmp_path / "sub" / "there.py").unlink()
    for path, needs in zip(paths, ((), (), (paths[1],), (str(tmp_path / "sub" / "there.py"),)), strict=True):
        cache.keep(path, Checked(files=1, needs=needs))
    cache.write()
    again = Cache(Settings(root=tmp_path), tmp_path / "cache")
    assert [again.known(path) is not None for path in paths] == [True, False, False, False]


def test_the_cache_knows_the_files_that_are_imported(tmp_path):
    helper = "def clear(optimizer):\n    optimizer.zero_grad()\n"
    text = training("clear(optimizer)\n" + STEP.replace("optimizer.zero_grad()\n", ""))
    (tmp_path / "train.py").write_text("from helper import clear\n" + text)
    (tmp_path / "other.py").write_text("")
    (tmp_path / "helper.py").write_text(helper)
    assert concise(tmp_path).stdout == ""
    (tmp_path / "helper.py").write_text("def clear(optimizer):\n    return None\n")
    assert rules(concise(tmp_path)) == [RULE]


def test_several_processes_say_the_same(tmp_path):
    for number in range(40):
        (tmp_path / f"f{number:02}.py").write_text(BAD if number % 3 == 0 else training())
    (tmp_path / "broken.py").write_text("def (:\n")
    one = concise(tmp_path, "--no-cache", "--jobs", "1")
    two = concise(tmp_path, "--no-cache", "--jobs", "2")
    assert one.stdout == two.stdout and one.stderr == two.stderr and len(rules(two)) == 14
    assert "broken.py was not checked: syntax error" in two.stderr


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals")
def test_ctrl_c_ends_all_processes(tmp_path):
    for number in range(400):
        (tmp_path / f"f{number}.py").write_text(BAD * 20)
    child = subprocess.Popen(
        [sys.executable, "-m", "torchmedic", "check", "--no-cache", "--jobs", "2"], cwd=tmp_path,
        env=dict(os.environ, PYTHONPATH=str(SOURCE)), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True)
    time.sleep(2)
    os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=30)
    assert child.returncode == 130 and "Traceback" not in err, err[-2000:]


def test_standard_input_statistics_and_exit_zero(bad):
    done = concise(bad, "-", "--stdin-filename", "named.py", stdin=BAD)
    assert done.stdout.startswith("named.py:") and done.returncode == 1
    assert run(bad, "-", stdin="def (").returncode == 0
    assert run(bad, "-", "--fix", stdin=BAD).returncode == 2
    assert run(bad, "--statistics").stdout == f"1  {RULE}\n"
    counted = json.loads(run(bad, "--statistics", "--output-format", "json").stdout)
    assert counted == [{"rule": RULE, "count": 1}]
    assert run(bad, "--exit-zero").returncode == 0
    assert run(bad, "--jobs", "0").returncode == 2


def checked(folder, where="."):
    done = run(folder, where, "--output-format", "json")
    return {f["where"]["file"] for f in json.loads(done.stdout)["findings"]}


def test_gitignore_counts_as_in_git(tmp_path):
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    files = ("a.py", "build/b.py", "sub/build/c.py", "sub/kept.py", "sub/deep/d.py", "logs/e.py",
             "sub/logs/f.py", "x/y/z/g.py", "sub/gone.py")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(BAD)
    (tmp_path / ".gitignore").write_text("# comment\n\n/build/\nlogs/\nx/**/g.py\nsub/*.py\n"
                                         "!sub/kept.py\n")
    (tmp_path / "sub" / ".gitignore").write_text("deep\n")
    listed = subprocess.run(["git", "-C", str(tmp_path), "ls-files", "-o", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout.split()
    assert checked(tmp_path) == {name for name in listed if name.endswith(".py")} == {
        "a.py", "sub/build/c.py", "sub/kept.py"}
    assert checked(tmp_path / "sub") == {"build/c.py", "kept.py"}  # the file above counts too
    assert checked(tmp_path, "build/b.py") == {"build/b.py"}  # what is named is read
