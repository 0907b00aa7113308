"""The local history: one folder per run, and an index that can always be made again from them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmedic import redact

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis

FOLDER = ".torchmedic"
START, REPORT, TEXT = "run.json", "report.json", "report.txt"


class NoSuchRun(LookupError):
    """No run, or more than one, answers to a name."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its files."""

    path: Path
    id: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What the history knows of a run. Facts of one that never finished are None."""

    id: str
    path: Path
    started: float
    command: str
    cwd: str
    category: str | None = None
    rule: str | None = None
    summary: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    duration_s: float | None = None


def homes() -> tuple[Path, ...]:
    """Folders that may hold runs, best first: here, the user's state, a temporary folder."""
    number = os.getuid() if hasattr(os, "getuid") else 0
    state = _state()
    return (
        Path(_cwd(), FOLDER), *((state / "torchmedic",) if state else ()),
        Path(tempfile.gettempdir()) / f"torchmedic-{number}",
    )


def _cwd() -> str:
    """The working folder; empty when it was removed, and a program can still run in it."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _state() -> Path | None:
    """The folder for the user's state; a user without a home, as in containers, has none."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "")
    if state.is_absolute():
        return state
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError:
        return None


def new_run(command: Sequence[str]) -> RunFolder:
    """A fresh folder for a run. Raises OSError when none can be made anywhere."""
    problem: OSError | None = None
    for home in homes():
        try:
            return _made(home, command)
        except OSError as error:
            problem = error
    raise problem or OSError("no folder for the run")


def finish(run: RunFolder, diagnosis: Diagnosis) -> None:
    """Writes the reports of a run and enters it in the index."""
    from torchmedic import report

    report.write_file(diagnosis, "json", run.path / REPORT)
    report.write_file(diagnosis, "full", run.path / TEXT)
    if (record := read_folder(run.path)) is not None:
        from torchmedic import runindex

        runindex.enter(run.path.parent.parent, [record])


def discard(run: RunFolder) -> None:
    """Removes a run that never started."""
    shutil.rmtree(run.path, ignore_errors=True)


def list_runs() -> tuple[RunRecord, ...]:
    """The runs started from this folder, newest first."""
    here = _cwd()
    found = {}
    for number, home in enumerate(homes()):
        for record in _runs_in(home):
            if number == 0 or record.cwd == here:
                found[record.id] = record
    return tuple(sorted(found.values(), key=lambda r: (r.started, r.id), reverse=True))


def find(name: str) -> RunRecord:
    """A run by its id, by the beginning of it, or `last`. Raises NoSuchRun."""
    runs = list_runs()
    if not runs:
        raise NoSuchRun("there are no runs here yet: torchmedic run -- python train.py")
    if name == "last":
        return runs[0]
    matching = [run for run in runs if run.id == name] or \
        [run for run in runs if name and run.id.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        listed = ", ".join(run.id for run in matching[:5])
        raise NoSuchRun(f"{len(matching)} runs begin with {name!r}: {listed}")
    raise NoSuchRun(f"no run is called {name!r}; the last one is {runs[0].id}")


def read_report(run: RunRecord) -> Diagnosis:
    """The diagnosis of a finished run. Raises NoSuchRun when its report can't be read."""
    from torchmedic.report import jsonfile

    if run.category is None:
        raise NoSuchRun(f"run {run.id} has no report: it did not finish, or still runs")
    try:
        return jsonfile.read((run.path / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NoSuchRun(f"run {run.id} has no readable report: {error}") from None


def read_folder(path: Path) -> RunRecord | None:
    """What a run's own files tell; None where they can't be read."""
    start = _data(path / START)
    if start is None:
        return None
    report = _data(path / REPORT) or {}
    try:
        verdict, process = report.get("verdict") or {}, report.get("process") or {}
        return RunRecord(
            id=path.name, path=path, started=float(start["started"]),
            command=str(start["command"]), cwd=str(start["cwd"]),
            category=verdict.get("category"), rule=verdict.get("rule"),
            summary=verdict.get("summary"), exit_code=process.get("exit_code"),
            signal=process.get("signal"), duration_s=process.get("duration_s"),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _made(home: Path, command: Sequence[str]) -> RunFolder:
    runs = home / "runs"
    runs.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "getuid") and home.lstat().st_uid != os.getuid() and home != homes()[0]:
        raise PermissionError(f"{home} belongs to somebody else")
    ignore = home / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    while True:
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
        name = f"{stamp}-{os.urandom(2).hex()}"  # leaves the random module's state alone
        try:
            (runs / name).mkdir()
        except FileExistsError:
            continue
        break
    start = {"command": " ".join(redact.argument_list(command)), "cwd": _cwd(),
             "started": now}
    (runs / name / START).write_text(json.dumps(start) + "\n", encoding="utf-8")
    return RunFolder(runs / name, name)


def _runs_in(home: Path) -> Iterator[RunRecord]:
    """From the index where it is right, from the folders where it is not."""
    try:
        folders = {folder.name: folder for folder in (home / "runs").iterdir()}
    except OSError:
        return
    from torchmedic import runindex

    known = runindex.read(home)
    missing = []
    for name, folder in folders.items():
        record = known.get(name)
        if record is None and (record := read_folder(folder)) is not None and record.category:
            missing.append(record)
        if record is not None:
            yield record
    gone = [name for name in known if name not in folders]
    if missing or gone:
        runindex.enter(home, missing, gone)


def _data(file: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None
