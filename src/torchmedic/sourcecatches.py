"""Handlers in a training loop that hide whatever its steps raise."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.source.flow import Event, trace_of
from torchmedic.source.paths import inside

if TYPE_CHECKING:
    from torchmedic.source.blocks import Handler
    from torchmedic.source.script import Script

BROAD = ("Exception", "BaseException", "RuntimeError")
SILENT = ("pass", "continue", "break", "return")


@dataclass(frozen=True, slots=True)
class Hidden:
    """A handler that takes everything that a step raises, and tells nobody."""

    handler: Handler
    event: Event

    @property
    def does(self) -> str:
        return {"break": "ends the loop", "return": "ends the function"}.get(
            self.handler.kind, "goes on with the next batch")


def hidden(script: Script) -> Iterator[Hidden]:
    """Each such handler around a backward pass or an optimizer step in a loop, once."""
    seen = set()
    for event in trace_of(script).of("backward", "step"):
        if not event.loops or event.file != script.file:
            continue
        for handler in script.handlers_around(event.line):
            if handler.line not in seen and _takes_all(handler) and _says_nothing(handler):
                seen.add(handler.line)
                yield Hidden(handler, event)


def _takes_all(handler: Handler) -> bool:
    return handler.kind in SILENT and not handler.reraises and not handler.chooses and (
        not handler.types or any(name in BROAD for name in handler.types)) and not handler.expects


def _says_nothing(handler: Handler) -> bool:
    """It neither looks at the exception nor prints, logs or counts anything."""
    body = getattr(handler.node, "body", [])
    answers = any(isinstance(s, ast.Return) and s.value is not None for s in body)
    return isinstance(handler.node, ast.ExceptHandler) and not answers and not any(
        isinstance(n, (ast.Call, ast.AugAssign, ast.If)) for s in body for n in (s, *inside(s)))
