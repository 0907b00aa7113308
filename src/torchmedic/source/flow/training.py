"""Questions that rules ask of a trace: which calls belong together in a training loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Place
from torchmedic.source.flow.trace import Event, Frame, Trace, shares

if TYPE_CHECKING:
    from torchmedic.source.blocks import Function
    from torchmedic.source.flow.values import Value
    from torchmedic.source.script import Script

CLEARING = re.compile(r"zero|clear|reset|step|optim|update_(weights|param)|backward|train")


OTHERS = re.compile(r"sched|prof|env|bar|progress|lr_|warm|decay|anneal")
"""What else has a `step()`."""


class Update:
    """A backward pass and the optimizer step that uses it, in the loop that repeats both."""

    __slots__ = ("backward", "loop", "step")

    def __init__(self, backward: Event, step: Event, loop: Frame) -> None:
        self.backward, self.step, self.loop = backward, step, loop


def place(script_file: str, event: Event) -> Place:
    return Place(file=event.file or script_file, line=event.line,
                 column=getattr(event.node, "col_offset", None),
                 function=None if event.function == "<module>" else event.function)


def function_of(script: Script, event: Event) -> Function | None:
    """The function it is written in, in whichever file."""
    home = home_of(script, event)
    return home.function_at(event.line) if home is not None else None


def home_of(script: Script, event: Event) -> Script | None:
    """The file it is written in."""
    from torchmedic.source.script import Script

    return script if event.file == script.file else Script.read(event.file)


def node_place(file: str, node: ast.AST | None, function: str | None = None) -> Place:
    return Place(file=file, line=getattr(node, "lineno", None),
                 column=getattr(node, "col_offset", None), function=function)


def common_loop(one: Event, other: Event) -> Frame | None:
    """The innermost loop around both."""
    return next((f for f in reversed(one.loops) if f in other.frames), None)


def updates(trace: Trace) -> Iterator[Update]:
    """Each optimizer step in a loop with the backward pass before it."""
    for step in trace.of("step"):
        for backward in trace.before(step, "backward"):
            loop = common_loop(backward, step)
            if loop is not None:
                yield Update(backward, step, loop)
                break


def clears(trace: Trace, loop: Frame, optimizer: Value | None) -> list[Event]:
    """Where a loop clears the gradients that an optimizer uses, or may clear them."""
    found = [e for e in trace.inside(loop, "clear") if shares(optimizer, e.target)]
    found += [e for e in trace.inside(loop, "set") if e.more["name"] == "grad"]
    return found + [e for e in trace.inside(loop, "opaque") if may_train(e)]


def steps_unknown(trace: Trace) -> bool:
    """Something steps that is no optimizer whose parameters we know."""
    known = {id(e.node) for e in trace.of("step", "schedule")}
    if any(o.kind != "optimizer" or o.data is None for e in trace.of("step")
           for o in (e.target.options() if e.target else ())):
        return True
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
               and n.func.attr == "step" and not n.args and id(n) not in known
               and not OTHERS.search(ast.unparse(n.func.value).lower())
               for n in ast.walk(trace.script.tree))


def may_train(event: Event) -> bool:
    """A call that we can't look into, and that may clear gradients or take a step."""
    given = event.value.items if event.value is not None else []
    owner = [event.target] if event.target is not None else []
    kinds = {o.kind for v in (*given, *owner) for o in v.options()}
    last = event.more["name"].rpartition(".")[2]
    return "optimizer" in kinds or bool(CLEARING.search(last.lower()) and kinds)


def trains(trace: Trace, module: Value) -> bool:
    """Some loss of it goes backward in a loop."""
    return any(e.loops and e.value is not None and any(
        module.id in o.sources for o in e.value.options()) for e in trace.of("backward"))


def called(value: Value | None, default: str = "the optimizer") -> str:
    """How the program names an object: `optimizer`, `self.optimizer`."""
    node = value.node if value is not None else None
    return getattr(node, "arg", None) or default


def written(event: Event) -> str:
    """The receiver of a call as the program writes it."""
    node = event.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func.value)
    return "it"


def unconditional(event: Event, loop: Frame | None) -> bool:
    """It happens each time round the loop."""
    frames = event.within(loop) if loop is not None else event.frames
    return not any(f.kind == "branch" for f in frames)


def main_guard(frame: Frame) -> bool:
    test = getattr(frame.node, "test", None)
    return test is not None and "__name__" in ast.unparse(test)


def conditions(event: Event) -> set[tuple[int, str]]:
    return {(id(f.node), f.branch) for f in event.branches if not main_guard(f)}
