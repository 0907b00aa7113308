"""Which kept recurrent state explains that backward reached a freed graph."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING

from torchmedic.source.recurrent import Kept, kept_states

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Run
    from torchmedic.source.script import Script

# torch 0.4 to 1.8: "…a second time, but the buffers have already been freed"; 1.9 to 2.14:
# "…a second time (or directly access saved tensors after they have already been freed)"
SECOND = re.compile(r"Trying to backward through the graph a second time")


def culprit(run: Run, failure: Failure) -> tuple[Script, Kept] | None:
    """The file and the state, nearest to where backward failed first."""
    found = [(script, kept) for script in _scripts(run, failure) for kept in kept_states(script)]
    return min(found, key=lambda pair: (pair[1].reset, pair[1].layer is None), default=None)


def _scripts(run: Run, failure: Failure) -> Iterator[Script]:
    """The user's files on the stack, then the modules beside them that they import."""
    files = list(dict.fromkeys(f.file for f in reversed(failure.frames) if f.user))
    seen = set()
    for depth in range(2):
        more: list[str] = []
        for file in files:
            script = run.script(file) if file not in seen else None
            seen.add(file)
            if script is not None:
                yield script
                more.extend(_imported(script))
        files = more if depth == 0 else []


def _imported(script: Script) -> Iterator[str]:
    folders = [PurePath(script.file).parent, PurePath(script.file).parent.parent]
    for node in ast.walk(script.tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            parts = name.split(".")
            yield from (str(folder.joinpath(*parts).with_suffix(".py")) for folder in folders)
