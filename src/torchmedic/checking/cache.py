"""What an earlier check of a file found, as long as nothing that it hangs on has changed.

One JSON file for each set of settings, in `.torchmedic/cache` below the working folder; only the
process that was started reads and writes it. An entry holds for the content of the file and of
every file of the project that its imports lead to, or could lead to; those are kept as digests.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchmedic
from torchmedic.checking.selection import chosen
from torchmedic.checking.session import Checked
from torchmedic.output import replace_file
from torchmedic.source.text import file_stamp

if TYPE_CHECKING:
    from torchmedic.config import Settings

FOLDER = Path(".torchmedic", "cache")
VERSION = 2
# 1: a file for each entry. 2: all entries of one set of settings together.
OLD = 30 * 24 * 3600
"""Seconds after which a set of settings that nobody has checked with is forgotten."""
COARSE = 20_000_000
"""Nanoseconds that a file system's clock may be behind."""


class Cache:
    """Every trouble with it only means to check again."""

    def __init__(self, settings: Settings, folder: Path = FOLDER) -> None:
        self._file = folder / f"{_digest(_about(settings))}.json"
        self._sources = _digest(_sources())
        self._began = time.time_ns()
        self._digests: dict[str, str | None] = {}
        self._paths: list[str] = []
        self._entries: dict[str, Any] = {}
        self._new: dict[str, Checked] = {}
        self._load()

    def _load(self) -> None:
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
            if data["sources"] == self._sources:
                paths, digests = data["paths"], data["digests"]
                still = [digest == self._digest_of(path)
                         for path, digest in zip(paths, digests, strict=True)]
                self._entries = {file: entry for file, entry in data["files"].items()
                                 if all(still[number] for number in entry["needs"])}
                self._paths = paths
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError,
                RecursionError):
            self._entries = {}

    def known(self, path: str) -> Checked | None:
        """What was found in the file; None when that is not known, or no longer true."""
        from torchmedic.report import jsonfile

        try:
            entry = self._entries[path]
            return Checked(jsonfile.findings(entry["findings"]), list(entry["notes"]),
                           entry["files"], [(file, line) for file, line in entry["elsewhere"]])
        except (KeyError, TypeError, ValueError, AttributeError):
            self._entries.pop(path, None)
            return None

    def keep(self, path: str, checked: Checked) -> None:
        """What has been found now."""
        self._new[path] = checked

    def write(self) -> None:
        """Puts the new entries beside those that still hold. Whole or not at all."""
        if not self._new:
            return
        table: dict[str, int] = {}
        files = {path: {**entry, "needs": _numbers(table, (self._paths[n] for n in entry["needs"]))}
                 for path, entry in self._entries.items() if path not in self._new}
        for path, checked in self._new.items():
            needs = (path, *sorted(checked.needs))
            # A pipe has no digest: what comes through it next is not known.
            if self._digest_of(path) and not any(map(self._touched, needs)):
                files[path] = {"needs": _numbers(table, needs), **_data(checked)}
        data = {"sources": self._sources, "files": files, "paths": list(table),
                "digests": [self._digest_of(path) for path in table]}
        try:
            self._put(json.dumps(data, separators=(",", ":")))
        except (OSError, ValueError):
            return

    def _put(self, text: str) -> None:
        folder = self._file.parent
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / ".gitignore", "*\n")
        replace_file(self._file, text)
        for other in folder.glob("*.json"):
            if time.time() - other.stat().st_mtime > OLD:
                other.unlink(missing_ok=True)

    def _digest_of(self, path: str) -> str | None:
        """Of a file's content; None where there is no file."""
        if path not in self._digests:
            try:
                stamp = file_stamp(path)
                self._digests[path] = stamp and _digest(Path(path).read_bytes())
            except OSError:
                self._digests[path] = None
        return self._digests[path]

    def _touched(self, path: str) -> bool:
        """Whether it may have changed while it was checked: then nobody knows what was seen."""
        while True:
            try:
                return os.stat(path).st_ctime_ns > self._began - COARSE  # noqa: PTH116
            except (OSError, ValueError):
                above = os.path.dirname(path)  # noqa: PTH120 - where it could have been
                if above == path or not path:
                    return False
                path = above or "."


def _numbers(table: dict[str, int], paths: Iterator[str] | tuple[str, ...]) -> list[int]:
    return [table.setdefault(path, len(table)) for path in paths]


def _data(checked: Checked) -> dict[str, Any]:
    from torchmedic.report import jsonfile

    return {"findings": jsonfile.findings_data(checked.findings), "notes": checked.notes,
            "files": checked.files, "elsewhere": checked.elsewhere}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _about(settings: Settings) -> bytes:
    """All that an answer hangs on beside the files and us. Paths are as the check names them."""
    return repr((VERSION, sorted(chosen(settings)), str(settings.root), settings.exclude,
                 sorted(settings.per_file_ignores.items()), settings.folders, str(Path.cwd()),
                 )).encode("utf-8", "surrogatepass")


def _sources() -> bytes:
    """Changes with every edit of ours, and with the Python that reads the files."""
    home = Path(torchmedic.__file__).parent
    stamps = []
    for folder, folders, names in os.walk(home):
        folders[:] = sorted(f for f in folders if f not in ("__pycache__", "examples", "probes"))
        stamps += [(name, file_stamp(os.path.join(folder, name)))  # noqa: PTH118
                   for name in sorted(names) if name.endswith(".py")]
    return repr((torchmedic.__version__, sys.version_info, stamps)).encode()
