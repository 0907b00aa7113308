"""What a loss is given: the operation that its input comes from, in every case."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.source.flow.training import node_place

if TYPE_CHECKING:
    from torchmedic.model import Place
    from torchmedic.source.flow.trace import Event, Trace
    from torchmedic.source.flow.values import Value


class Given:
    """A loss and the one operation that every possible input of it comes from."""

    __slots__ = ("act", "event", "file", "line", "node", "text")

    def __init__(self, event: Event, value: Value) -> None:
        self.event, self.act, self.file = event, value.act, value.act_file
        node = self.node = value.act_node
        self.line: int = getattr(node, "lineno", event.line)
        self.text = ast.unparse(node) if node is not None else value.act
        if len(self.text) > 50:
            self.text = value.act

    def place(self, script_file: str) -> Place:
        """Where the operation is written, or the loss where that is not known."""
        return node_place(self.file or script_file, self.node or self.event.node)

    @property
    def loss(self) -> str:
        return self.event.target.name if self.event.target is not None else ""


def losses(trace: Trace, *names: str) -> Iterator[Given]:
    """Losses of these kinds whose input is known, each place once."""
    seen = set()
    for event in trace.of("loss"):
        if event.target is None or event.target.name not in names:
            continue
        options = list(event.more["input"].options())
        acts = {(o.kind, o.act) for o in options}
        if len(acts) != 1 or options[0].kind != "tensor" or not options[0].act:
            continue
        given = Given(event, options[0])
        if (given.file, given.line) not in seen:
            seen.add((given.file, given.line))
            yield given
