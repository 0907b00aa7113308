"""Reports against expected files; `pytest --update` writes them anew."""

import fcntl
import io
import json
import os
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

sys.path.insert(0, str(Path(__file__).parent))
from samples import ALL, CLEAN, FINDINGS, HOSTILE, MODEL, NORMAL, SOURCE, UNKNOWN

from torchmedic import report
from torchmedic.report import jsonfile, text
from torchmedic.report.escape import one_line, visible, write_encodable

EXPECTED = Path(__file__).parent / "expected"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The user's file is there, and nothing of the environment changes a report."""
    (tmp_path / MODEL).write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def shown(diagnosis, width=None):
    stream = io.StringIO()
    text.render(diagnosis, stream, width)
    return stream.getvalue()


def compare(name, got, request):
    file = EXPECTED / name
    if request.config.getoption("--update"):
        file.write_bytes(got.encode("utf-8", "surrogateescape"))
    assert got == file.read_bytes().decode("utf-8")


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize("name", ALL)
def test_full(name, width, request):
    compare(f"{name}-{width}.txt", shown(ALL[name], width), request)


@pytest.mark.parametrize("name", ALL)
def test_concise_and_json(name, request):
    for output_format, suffix in (("concise", "concise.txt"), ("json", "json")):
        stream = io.StringIO()
        report.write(ALL[name], output_format, stream)
        compare(f"{name}.{suffix}", stream.getvalue(), request)


@pytest.mark.parametrize("width", [34, 40, 57, 80, 100])
@pytest.mark.parametrize("name", ALL)
def test_no_line_is_too_long_or_ends_in_blanks(name, width):
    lines = shown(ALL[name], width).split("\n")
    for line in lines:
        assert line == line.rstrip()
        # the one line of a clean run is not broken
        assert cell_len(line) <= width or name == "clean", line


@pytest.mark.parametrize("name", ALL)
def test_nothing_a_terminal_would_obey(name):
    for output_format in report.FORMATS:
        stream = io.StringIO()
        report.write(ALL[name], output_format, stream)
        bad = [c for c in stream.getvalue() if c != "\n" and not c.isprintable()]
        assert bad == []
    assert "[bold red]x[/bold red] :smile:" in shown(HOSTILE, 100)


def test_a_clean_run_is_one_line():
    one_step = replace(CLEAN, process={"exit_code": 0, "steps": 1})
    assert shown(one_step) == "torchmedic: no failure found (exit code 0, 1 optimizer step)\n"
    assert shown(CLEAN, 30) == "torchmedic: no failure found (exit code 0, 301.2 s)\n"


def test_first_line_and_the_users_line():
    lines = shown(NORMAL, 100).split("\n")
    assert lines[0] == ("CODE  recurrent-input-size: LSTM `lstm` expects 256 features for each "
                        "time step and gets 4096")
    assert "    5 | out, _ = self.lstm(x.flatten(2))  # 特征" in lines


def test_a_command_stays_one_command():
    text_of_retry = shown(NORMAL, 40).partition("retry: ")[2].partition("ended:")[0]
    run = subprocess.run(["bash", "-c", text_of_retry.replace("python", "printf '%s|'", 1)],
                         capture_output=True, text=True, check=True)
    assert run.stdout == ("train.py|--mini_batch_size|4|--val_mini_batch_size|4|--name|my run|"
                          "--num_workers|2|--n_sample_points|8192|")


@pytest.mark.parametrize("environment, colour", [
    ({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ({"NO_COLOR": ""}, False), ({"FORCE_COLOR": "0"}, False),
])
def test_colour(environment, colour, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    got = shown(NORMAL, 80)
    assert ("\x1b[" in got) is colour
    if colour:
        plain = io.StringIO()
        monkeypatch.setenv("NO_COLOR", "1")
        text.render(NORMAL, plain, 80)
        assert re.sub(r"\x1b\[[0-9;]*m", "", got) == plain.getvalue()


def test_width_comes_from_the_terminal():
    leader, follower = os.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    with open(follower, "w", encoding="utf-8") as terminal:
        text.render(UNKNOWN, terminal)
    got = os.read(leader, 4000).decode()
    os.close(leader)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", got)
    assert plain != got
    assert "UNKNOWN  the program was ended by SIGKILL, and\r\n" in plain


def test_narrow_encodings():
    data = io.BytesIO()
    stream = io.TextIOWrapper(data, encoding="ascii")
    text.render(ALL["cjk"], stream, 80)
    stream.flush()
    assert b"MEMORY  host-out-of-memory: [WinError 1455] \\u9875\\u9762" in data.getvalue()
    write_encodable("é", stream)


def test_json_can_be_read_back_and_has_no_nan():
    stream = io.StringIO()
    report.write(NORMAL, "json", stream)
    again = jsonfile.read(stream.getvalue())
    assert again.findings == FINDINGS and again.verdict == NORMAL.verdict
    assert again.retry == NORMAL.retry
    data = json.loads(stream.getvalue())
    assert (data["schema"], data["findings"][0]["explains"]) == (1, [1])
    assert "pid" not in data["findings"][2]["where"]
    assert "NaN" not in json.dumps(jsonfile._plain({"x": float("nan")}), allow_nan=False)


@pytest.mark.parametrize("bad", ["", "{", "[]", "{}", '{"schema": 2}', "null",
                                 '{"schema": 1, "command": "run", "verdict": 3}'])
def test_a_bad_report_is_a_value_error(bad):
    with pytest.raises(ValueError):
        jsonfile.read(bad)


def test_escaping():
    assert visible("a\tb\r\nc\x1b\u202e\U000e0001") == "a    b\nc\\x1b\\u202e\\U000e0001"
    assert one_line("a\nb") == "a\\nb"
    assert visible("é 显存 👩\u200d🔬") == "é 显存 👩\u200d🔬"
