"""A recurrent layer's output is indexed on the axis that does not hold the time.

## What you see
No error. The model learns little: it sees the last sample of each batch instead of the last step.
## Why
Without `batch_first=True` the output is (time, batch, features): `out[:, -1]` is the last sample.
With it the output is (batch, time, features): `out[-1]` is the last sample.
## Fix
`batch_first=True` for inputs of (batch, time, features) and `out[:, -1]` for the last step.
## When this is fine
When the last sample is really wanted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.source.script import Script


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("index"):
        output = event.target
        layer = output.owner if output is not None else None
        if layer is None or id(event.node) in seen or output is None:
            continue
        first = layer.keyword("batch_first", 4)
        if first is not None and first.kind != "const":
            continue
        wrong = _wrong(event, output, bool(first is not None and first.data))
        if wrong:
            seen.add(id(event.node))
            yield _problem(script, event, layer, wrong)


def _wrong(event: Event, output: Value, first: bool) -> str | None:
    key = event.node.slice if isinstance(event.node, ast.Subscript) else None
    if first:
        alone = _is_last(key) and output.type == "recurrent"
        return "(batch, time, features)" if alone else None
    if isinstance(key, ast.Tuple) and len(key.elts) >= 2 and _is_whole(key.elts[0]) and (
            _is_last(key.elts[1])):
        return "(time, batch, features)"
    return None


def _is_last(node: ast.AST | None) -> bool:
    return isinstance(node, ast.UnaryOp) and ast.unparse(node) == "-1"


def _is_whole(node: ast.AST) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None


def _problem(script: Script, event: Event, layer: Value, axes: str) -> Problem:
    line = getattr(layer.node, "lineno", 0)
    return Problem(
        f"`{ast.unparse(event.node)}` is the last sample of the batch, not the last step",
        where=place(script.file, event), confidence="likely",
        evidence=(Evidence(f"the `{layer.name}` of line {line} gives {axes}", "source"),),
        fix=Fix("`batch_first=True`, and `[:, -1]` for the last step", "", "unsafe"))


_INIT = "self.rnn = nn.LSTM(3, 5%s)\nself.layer = nn.Linear(5, 2)"
_LAST = "out, _ = self.rnn(x)\nreturn self.layer(out[%s])"

RULE = Rule(
    name="batch-first-mismatch", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(module(_LAST % ":, -1, :", init=_INIT % ""), "the last sample of the batch",
              kind="source", line="out[:, -1, :]", title="time first"),
        fires(module(_LAST % "-1", init=_INIT % ", batch_first=True"), kind="source",
              line="out[-1]", title="batch first"),
        quiet(module(_LAST % ":, -1", init=_INIT % ", batch_first=True"), kind="source",
              title="both batch first"),
        quiet(module(_LAST % "-1", init=_INIT % ""), kind="source", title="both time first"),
        quiet(module("out, _ = self.rnn(x)\nreturn self.layer(out.transpose(0, 1)[:, -1])",
                     init=_INIT % ""), kind="source", title="transposed"),
    ),
)
