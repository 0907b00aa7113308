"""`Script`: one parsed source file, and what encloses a line of it."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field

from torchmedic.source import text as texts
from torchmedic.source.blocks import (
    Function,
    Handler,
    Loop,
    Statement,
    functions_in,
    handlers_on,
    loop_of,
    own_handler,
    statement_of,
)
from torchmedic.source.paths import Step, path_to
from torchmedic.source.text import file_stamp, read_text

_parsed: dict[str, tuple[tuple[int, int], Script | None]] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A source file as a tree. Lines count from 1, as in tracebacks."""

    file: str
    tree: ast.Module
    lines: tuple[str, ...]
    functions: tuple[Function, ...] = ()
    """Every function and method, in the order of their lines."""
    _paths: dict[int, tuple[Step, ...]] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, path: str) -> Script | None:
        """The script in a file, parsed once for each version; None when it is no Python."""
        stamp = file_stamp(path)
        if stamp is None:
            return None
        known = _parsed.get(path)
        if known is None or known[0] != stamp:
            text = read_text(path)
            known = _parsed[path] = (stamp, None if text is None else cls.parse(text, path))
        return known[1]

    @classmethod
    def parse(cls, text: str, file: str = "<text>") -> Script | None:
        """A script from its text; None when Python of this version can't read it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to print
                tree = ast.parse(text, filename="<script>")
            functions = tuple(functions_in(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return cls(file, tree, tuple(text.split("\n")), functions)

    @staticmethod
    def forget(most: int) -> None:
        """Keeps the trees of so many files that were read, the latest: they are large."""
        for path in list(_parsed)[:-most]:
            del _parsed[path]
        texts.forget(most)

    def line(self, number: int) -> str:
        """The text of a line; empty when there is none."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""

    def function_at(self, line: int) -> Function | None:
        """The innermost function whose body or header holds the line."""
        around = [f for f in self.functions if f.line <= line <= f.end_line]
        return max(around, key=lambda f: f.line, default=None)

    def handlers_around(self, line: int) -> tuple[Handler, ...]:
        """Handlers whose `try` body covers the line in the same function, innermost first.

        The handlers of one `try` keep their order. `with suppress(…)` counts as a handler, and
        `with pytest.raises(…)`.
        """
        found: list[Handler] = []
        for step in reversed(self._path(line)):
            found.extend(handlers_on(step))
        return tuple(found)

    def handler_at(self, line: int) -> Handler | None:
        """The innermost handler whose body, or own `except` line, holds the line."""
        found = (own_handler(step) for step in reversed(self._path(line)))
        return next((handler for handler in found if handler), None)

    def loops_around(self, line: int) -> tuple[Loop, ...]:
        """`for` and `while` loops around the line in the same function, innermost first.

        The line of the `for` itself counts: that is where a loader's failure shows.
        """
        found = (loop_of(step) for step in reversed(self._path(line)))
        return tuple(loop for loop in found if loop)

    def statement_at(self, line: int) -> Statement | None:
        """The innermost statement on the line (the last one, when it holds several)."""
        path = self._path(line)
        return statement_of(path[-1].node) if path else None

    def _path(self, line: int) -> tuple[Step, ...]:
        if line not in self._paths:
            self._paths[line] = path_to(self.tree, line)
        return self._paths[line]
