"""The history: folders are the truth, the index may lie, lock or break."""

import os
import random
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from torchmedic import report, store
from torchmedic.model import Diagnosis, Finding, Verdict

FOUND = Diagnosis(
    "run", Verdict("data", "ragged-batch", "sizes differ"),
    (Finding("ragged-batch", "data", "error", "certain", "sizes differ"),),
    {"exit_code": 1, "signal": None, "duration_s": 2.5})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def finished(*command):
    run = store.new_run(command or ("python", "train.py"))
    store.finish(run, FOUND)
    return run


def test_a_run_from_start_to_report(here):
    random.seed(1)
    before = random.getstate()
    run = store.new_run(["python", "train.py", "--api-key", "abc"])
    assert random.getstate() == before
    assert run.path == here / ".torchmedic" / "runs" / run.id
    assert (here / ".torchmedic" / ".gitignore").read_text() == "*\n"
    unfinished, = store.list_runs()
    assert (unfinished.category, unfinished.command) == (None, "python train.py --api-key ***")
    store.finish(run, FOUND)
    record, = store.list_runs()
    assert (record.rule, record.exit_code, record.duration_s) == ("ragged-batch", 1, 2.5)
    assert record.path == run.path
    assert store.read_report(record) == replace(FOUND, process={"exit_code": 1, "duration_s": 2.5})
    assert (run.path / "report.txt").read_text().startswith("DATA  ragged-batch: sizes differ\n")
    assert "abc" not in "".join(f.read_text() for f in run.path.iterdir())


def test_find(here):
    first, second = finished(), finished()
    os.rename(first.path, first.path.parent / "20200101-000000-aaaa")
    os.rename(second.path, second.path.parent / "20210101-000000-bbbb")
    assert store.find("2020").id == "20200101-000000-aaaa"
    assert store.find("20210101-000000-bbbb").id == "20210101-000000-bbbb"
    assert store.find("last") == store.list_runs()[0]
    with pytest.raises(store.NoSuchRun, match="2 runs begin with '20'"):
        store.find("20")


@pytest.mark.parametrize("name", [
    "", "..", "../runs", "/", "a\0b", "%", "' OR 1=1 --", "*", "é" * 999,
])
def test_hostile_names(name):
    with pytest.raises(store.NoSuchRun, match="no runs here"):
        store.find(name)
    finished()
    with pytest.raises(store.NoSuchRun, match="no run is called"):
        store.find(name)


def test_a_folder_that_cannot_be_written_falls_back(here, tmp_path):
    (here / ".torchmedic").write_text("a file in its place")
    run = finished()
    assert run.path.parent == tmp_path / "state" / "torchmedic" / "runs"
    assert [r.id for r in store.list_runs()] == [run.id]
    os.chdir(tmp_path)
    assert store.list_runs() == ()  # it belongs to another folder


def test_a_working_folder_that_is_gone(here):
    here.rmdir()
    run = finished()
    assert run.path.is_relative_to(store.homes()[1])
    assert store.find("last").id == run.id


def test_a_user_without_a_home(here, monkeypatch):
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(KeyError()))
    assert finished().path.is_relative_to(here)


def test_no_state_folder_either(here, tmp_path, monkeypatch):
    (here / ".torchmedic").write_text("")
    (tmp_path / "state").write_text("")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(store.tempfile, "tempdir", str(temporary))
    assert finished().path.is_relative_to(temporary)
    monkeypatch.setattr(store.tempfile, "tempdir", str(tmp_path / "state"))
    with pytest.raises(OSError):
        store.new_run(["python"])


@pytest.mark.parametrize("content", [
    b"not a database at all" * 99, b"", b"SQLite format 3\0" + b"x" * 200,
])
def test_a_broken_index_is_made_again(here, content):
    run = finished()
    index = here / ".torchmedic" / "index.sqlite"
    for suffix in ("-wal", "-shm"):
        Path(f"{index}{suffix}").unlink(missing_ok=True)
    index.write_bytes(content)
    assert [r.rule for r in store.list_runs()] == ["ragged-batch"]
    with sqlite3.connect(index) as made:
        assert made.execute("SELECT id FROM runs").fetchall() == [(run.id,)]


def test_an_index_of_another_version_is_made_again(here):
    run = finished()
    with sqlite3.connect(here / ".torchmedic" / "index.sqlite") as index:
        index.executescript("DROP TABLE runs; CREATE TABLE runs (x); PRAGMA user_version = 99")
    assert [r.id for r in store.list_runs()] == [run.id]
    assert [r.rule for r in store.list_runs()] == ["ragged-batch"]


def test_text_that_is_no_utf8_is_indexed(here):
    run = store.new_run(["python", "train.py"])
    verdict = replace(FOUND.verdict, summary="no such file: bad\udcffname.jpg")
    store.finish(run, replace(FOUND, verdict=verdict))
    assert [r.summary for r in store.list_runs()] == ["no such file: bad\\udcffname.jpg"]


def test_a_locked_index_delays_nothing_for_long(here, monkeypatch):
    from torchmedic import runindex

    monkeypatch.setattr(runindex, "PATIENCE_S", 0.05)
    first = finished()
    other = sqlite3.connect(here / ".torchmedic" / "index.sqlite")
    other.execute("BEGIN EXCLUSIVE")
    second = finished()
    assert {r.id for r in store.list_runs()} == {first.id, second.id}
    other.rollback()
    other.close()


def test_removed_and_foreign_folders(here):
    run, kept = finished(), finished()
    store.discard(run)
    runs = here / ".torchmedic" / "runs"
    (runs / "notes").mkdir()
    (runs / "file").write_text("x")
    (runs / "odd").mkdir()
    (runs / "odd" / "run.json").write_text('{"started": "soon"}')
    (runs / "odd" / "report.json").write_text("[")
    assert [r.id for r in store.list_runs()] == [kept.id]


def test_a_report_that_cannot_be_read(here):
    run = finished()
    (run.path / "report.json").write_text("{}")
    with pytest.raises(store.NoSuchRun, match="no readable report"):
        store.read_report(store.find("last"))


def test_many_at_once(here):
    threads = [threading.Thread(target=finished) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.list_runs()) == 8


def test_a_report_file_is_replaced_whole(here):
    target = here / "out.txt"
    link = here / "link.txt"
    link.symlink_to(target)
    report.write_file(FOUND, "full", link)
    report.write_file(FOUND, "concise", link)
    assert target.read_text() == "-: ragged-batch sizes differ\n" and link.is_symlink()
    assert sorted(file.name for file in here.iterdir()) == ["link.txt", "out.txt"]
    with pytest.raises(OSError):
        report.write_file(FOUND, "full", here / "absent" / "out.txt")
    os.mkfifo(here / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((here / "pipe").read_text()))
    reader.start()
    report.write_file(FOUND, "concise", here / "pipe")
    reader.join()
    assert read == ["-: ragged-batch sizes differ\n"]
