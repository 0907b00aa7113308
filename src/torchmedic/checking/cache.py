"""What an earlier check of a file found, as long as nothing that it hangs on has changed.

One entry for each file, in `.torchmedic/cache` below the working folder. Its key is the file's
path and content, our version, the sources of our rules and the chosen names; it also holds the
stamp (time and size) of every module of the project that the file's imports were looked for at.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torchmedic
from torchmedic.checking.session import Checked, Checker
from torchmedic.source.flow.names import depends_on
from torchmedic.source.text import file_stamp

FOLDER = Path(".torchmedic", "cache")


class Cache:
    """A folder of entries. Every trouble with it only means to check again."""

    def __init__(self, checker: Checker, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._checker = checker
        self._base = hashlib.sha256(json.dumps([
            _sources(), sorted(checker.names), str(checker.settings.root),
            {k: sorted(v) for k, v in checker.settings.per_file_ignores.items()},
        ]).encode()).digest()

    def file(self, path: str) -> Checked:
        """From the entry, or checked now and kept."""
        key = self._key(path)
        known = None if key is None else self._read(key)
        if known is not None:
            return known
        checked = self._checker.file(path)
        if key is not None:
            self._write(key, path, checked)
        return checked

    def _key(self, path: str) -> str | None:
        try:
            content = Path(path).read_bytes()
        except (OSError, ValueError):
            return None
        name = f"{path}\0{Path.cwd()}\0".encode("utf-8", "surrogateescape")
        return hashlib.sha256(self._base + name + content).hexdigest()

    def _read(self, key: str) -> Checked | None:
        from torchmedic.report import jsonfile

        try:
            data = json.loads((self._folder / key[:2] / key[2:]).read_text(encoding="utf-8"))
            for path, stamp in data["depends"].items():
                now = file_stamp(path)
                if (list(now) if now else None) != stamp:
                    return None
            return Checked(jsonfile.findings(data["findings"]), data["notes"], data["files"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def _write(self, key: str, path: str, checked: Checked) -> None:
        from torchmedic.report import jsonfile

        data = {"depends": {p: file_stamp(p) for p in sorted(depends_on(path))},
                "findings": jsonfile.findings_data(checked.findings), "notes": checked.notes,
                "files": checked.files}
        try:
            self._put(self._folder / key[:2] / key[2:], data)
        except (OSError, ValueError):
            return

    def _put(self, place: Path, data: dict[str, Any]) -> None:
        """Whole or not at all, also where several processes write."""
        if not self._folder.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n", encoding="utf-8")
        place.parent.mkdir(exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(data, file)
        Path(name).replace(place)


def _sources() -> Sequence[object]:
    """Changes with every edit of ours: the newest and the number of our files."""
    home = Path(torchmedic.__file__).parent
    stamps = []
    for folder, folders, names in os.walk(home):
        folders[:] = [f for f in folders if f not in ("__pycache__", "examples", "probes")]
        stamps += [file_stamp(os.path.join(folder, n)) for n in names]  # noqa: PTH118
    newest = max((stamp[0] for stamp in stamps if stamp), default=0)
    return torchmedic.__version__, newest, len(stamps), sum(s[1] for s in stamps if s)
