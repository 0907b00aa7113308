"""The index of a history folder: SQLite, never the truth, so no fault of it is one of ours."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from torchmedic.store import RunRecord

NAME = "index.sqlite"
VERSION = 1
PATIENCE_S = 1.0
COLUMNS = tuple(f.name for f in fields(RunRecord) if f.name != "path")


def read(home: Path) -> dict[str, RunRecord]:
    """All rows by run id; none where the index is missing, locked or broken."""
    if not (home / NAME).is_file():
        return {}
    try:
        with _opened(home) as index:
            rows = index.execute(f"SELECT {', '.join(COLUMNS)} FROM runs").fetchall()
        return {row[0]: _record(home, row) for row in rows}
    except (sqlite3.Error, OSError, TypeError, ValueError) as error:
        _drop_if_broken(home, error)
        return {}


def enter(home: Path, records: Iterable[RunRecord], gone: Iterable[str] = ()) -> None:
    """Adds rows and takes out those of runs that are gone, as far as that is possible."""
    marks = ", ".join("?" for _ in COLUMNS)
    rows = [tuple(_storable(getattr(record, name)) for name in COLUMNS) for record in records]
    for _ in range(2):
        try:
            with _opened(home) as index, index:
                index.executemany(f"INSERT OR REPLACE INTO runs VALUES ({marks})", rows)
                index.executemany("DELETE FROM runs WHERE id = ?", [(name,) for name in gone])
            return
        except (sqlite3.Error, OSError) as error:
            if not _drop_if_broken(home, error):
                return


@contextmanager
def _opened(home: Path) -> Iterator[sqlite3.Connection]:
    index = sqlite3.connect(home / NAME, timeout=PATIENCE_S)
    try:
        index.execute("PRAGMA journal_mode = WAL")  # on some network disks it stays as it was
        version = index.execute("PRAGMA user_version").fetchone()[0]
        if version != VERSION:
            index.execute("DROP TABLE IF EXISTS runs")
            index.execute(f"CREATE TABLE runs (id PRIMARY KEY, {', '.join(COLUMNS[1:])})")
            index.execute(f"PRAGMA user_version = {VERSION}")
            index.commit()
        yield index
    finally:
        index.close()


def _storable(value: object) -> object:
    """SQLite takes no lone surrogates, such as those of a file name that is no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def _record(home: Path, row: tuple[str, ...]) -> RunRecord:
    values = dict(zip(COLUMNS, row, strict=True))
    return RunRecord(path=home / "runs" / values["id"], **values)  # type: ignore[arg-type]


def _drop_if_broken(home: Path, error: Exception) -> bool:
    """Removes an index that is no database; one that is locked or read-only stays."""
    if isinstance(error, sqlite3.OperationalError) or not isinstance(error, sqlite3.DatabaseError):
        return False
    try:
        for name in (NAME, f"{NAME}-wal", f"{NAME}-shm"):
            (home / name).unlink(missing_ok=True)
    except OSError:
        return False
    return True
