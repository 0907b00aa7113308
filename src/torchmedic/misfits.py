"""Layers that can't take the sizes that the code gives them, as the rules of shapes report them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.model import Edit, Evidence, Place
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.layers import Misfit, known, times

if TYPE_CHECKING:
    from torchmedic.source.flow.values import Shape
    from torchmedic.source.script import Script

WAITS = ("RuntimeError", "ValueError", "Exception", "BaseException")


@dataclass(frozen=True, slots=True)
class Seen:
    """A layer, the sizes that do not fit, and where both are written."""

    event: Event
    module: Value
    wrong: Misfit
    factors: Shape

    @property
    def text(self) -> str:
        """`nn.Linear(512, 10)`, as the program writes it."""
        text = ast.unparse(self.module.node) if self.module.node is not None else ""
        return text if 0 < len(text) <= 60 else self.module.name

    @property
    def product(self) -> str:
        """` = 16 × 5 × 5`, where a flattening made the number."""
        return " = " + " × ".join(map(str, self.factors)) if len(self.factors) > 1 else ""

    @property
    def place(self) -> Place:
        """Where the layer is made."""
        return Place(file=self.module.file or self.event.file,
                     line=getattr(self.module.node, "lineno", self.event.line))

    @property
    def evidence(self) -> Evidence:
        where = "" if self.event.file == self.place.file else f"{self.event.file}, "
        return Evidence(f"{where}line {self.event.line}: its input is {worded(self.wrong.shape)}",
                        "source")

    def edits(self, name: str, position: int) -> tuple[Edit, ...]:
        """Puts the size that is got into the layer's call."""
        call = self.module.node
        if not isinstance(call, ast.Call):
            return ()
        spots = [k.value for k in call.keywords if k.arg == name]
        spots += call.args[position:position + 1]
        if len(spots) != 1 or isinstance(spots[0], ast.Starred):
            return ()
        return (replacing(spots[0], str(self.wrong.got)),)


def replacing(node: ast.expr, text: str) -> Edit:
    """Puts a text in the place of an expression."""
    return Edit(node.lineno, node.col_offset, node.end_lineno or node.lineno,
                node.end_col_offset or node.col_offset, text)


def worded(shape: Shape) -> str:
    """`(N, 3, 32, 32)`: N and `?` for what is not known."""
    parts = ["N" if size is None and at == 0 else "?" if size is None else str(size)
             for at, size in enumerate(shape)]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def misfits(script: Script, *names: str) -> Iterator[Seen]:
    """Layers whose class begins with one of the names, each once."""
    trace = trace_of(script)
    seen = set()
    for event in trace.of("misfit"):
        module = event.target
        if module is not None and module.name.startswith(names) and (
                id(module.node) not in seen and not is_expected(script, event)):
            seen.add(id(module.node))
            yield Seen(event, module, event.more["wrong"], _factors(trace, event))


def is_expected(script: Script, event: Event) -> bool:
    """A handler waits for what it raises: a test of the refusal, or sizes that are tried out."""
    return event.file == script.file and any(
        h.expects or not h.types or any(t in WAITS for t in h.types)
        for h in script.handlers_around(event.line))


def _factors(trace: Trace, event: Event) -> Shape:
    """The sizes that a flattening before the layer multiplied."""
    got, value = event.more["wrong"].got, event.value
    if value is None:
        return ()
    for view in trace.before(event, "view", "forward"):
        source = view.target if view.kind == "view" else None
        if view.kind == "forward" and view.target is not None and view.target.name == "Flatten":
            source = view.more["args"][0] if view.more["args"] else None
        shape = known(source)
        if source is None or not shape or source.id not in value.lineage:
            continue
        for skip in range(1, len(shape) - 1):
            if times(shape[skip:]) == got:
                return shape[skip:]
    return ()
