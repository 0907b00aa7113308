"""What happened, in order, and inside which loops, conditions and functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchmedic.source.flow.values import Value, family

if TYPE_CHECKING:
    from torchmedic.source.script import Script

_traces: dict[int, tuple[Script, Trace]] = {}


class Frame:
    """One thing that is being gone through: a loop, a branch, a call or a `with`."""

    __slots__ = ("branch", "file", "kind", "name", "node", "site", "value")

    def __init__(self, kind: str, node: ast.AST | None, file: str, name: str = "",
                 branch: str = "", value: Value | None = None) -> None:
        self.kind, self.node, self.file = kind, node, file
        self.name, self.branch, self.value = name, branch, value
        self.site: ast.AST | None = None
        """What calls it, of a call."""

    def __repr__(self) -> str:
        return f"<{self.kind} {getattr(self.node, 'lineno', '?')} {self.name}{self.branch}>"


class Event:
    """One call or assignment that rules may ask for.

    kind: clear, backward, step, clip, unscale, schedule, train, eval, forward, loss, keep, …
    target: what it is done to. value: what it is done with, such as the loss.
    """

    __slots__ = ("at", "file", "frames", "grad", "kind", "more", "node", "target", "value")

    def __init__(self, kind: str, node: ast.AST, file: str, frames: tuple[Frame, ...], at: int,
                 target: Value | None, value: Value | None, grad: bool | None,
                 more: dict[str, Any]) -> None:
        self.kind, self.node, self.file, self.frames, self.at = kind, node, file, frames, at
        self.target, self.value, self.grad, self.more = target, value, grad, more

    def __repr__(self) -> str:
        return f"<{self.kind} {self.line} {self.target} {self.value} {self.frames}>"

    @property
    def line(self) -> int:
        return getattr(self.node, "lineno", 0)

    @property
    def loops(self) -> tuple[Frame, ...]:
        """Loops around it, outermost first, through every call."""
        return tuple(f for f in self.frames if f.kind == "loop")

    @property
    def branches(self) -> tuple[Frame, ...]:
        return tuple(f for f in self.frames if f.kind == "branch")

    @property
    def function(self) -> str:
        """Name of the function it is written in."""
        calls = [f.name for f in self.frames if f.kind == "call"]
        return calls[-1] if calls else "<module>"

    def inside(self, frame: Frame) -> bool:
        return frame in self.frames

    def within(self, frame: Frame) -> tuple[Frame, ...]:
        """The frames further in than this one."""
        return self.frames[self.frames.index(frame) + 1:] if frame in self.frames else ()

    def periodic(self, frame: Frame) -> Frame | None:
        """The branch inside `frame` that is taken every k-th time: `if (i + 1) % k == 0`."""
        return next((f for f in self.within(frame) if f.kind == "branch" and counts(f)), None)


class Trace:
    """All events of one file."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.events: list[Event] = []
        self.classes: list[Value] = []
        self.made: list[Value] = []
        """Optimizers, schedulers, loaders, … in the order they were made."""
        self.moves = False
        """Something is moved to a device."""
        self.spawns = False
        self.roots: dict[int, tuple[Frame, ...]] = {}
        """The loops around each call of a layer that a graph goes through."""
        self.layers: dict[int, int] = {}
        """The layer of each of these calls."""
        self._counted = 0
        self._kinds: dict[str, list[Event]] = {}

    def of(self, *kinds: str) -> list[Event]:
        """The events of these kinds, in their order."""
        if self._counted != len(self.events):  # it still grows while the file is gone through
            self._counted = len(self.events)
            self._kinds = {}
            for event in self.events:
                self._kinds.setdefault(event.kind, []).append(event)
        if len(kinds) == 1:
            return self._kinds.get(kinds[0], [])
        return sorted((e for kind in kinds for e in self._kinds.get(kind, ())), key=_at)

    def after(self, event: Event, *kinds: str) -> Iterator[Event]:
        return (e for e in self.events[event.at + 1:] if e.kind in kinds)

    def before(self, event: Event, *kinds: str) -> Iterator[Event]:
        """Earlier events, the latest first."""
        return (e for e in reversed(self.events[:event.at]) if e.kind in kinds)

    def inside(self, frame: Frame, *kinds: str) -> list[Event]:
        return [e for e in self.events if e.kind in kinds and frame in e.frames]

    def here(self, event: Event) -> bool:
        """It is written in the file that is checked, not in one that it imports."""
        return event.file == self.script.file


def _at(event: Event) -> int:
    return event.at


def counts(branch: Frame) -> bool:
    """`if (i + 1) % k == 0`, or the last batch."""
    test = getattr(branch.node, "test", None)
    return test is not None and any(
        isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))


def shares(one: Value | None, other: Value | None) -> bool:
    """An optimizer, a module or some parameters that have a module in common, or may have."""
    if one is None or other is None or one is other:
        return True
    left, right = modules_of(one), modules_of(other)
    return not left or not right or bool(left & right)  # what holds nothing isn't known


def modules_of(value: Value) -> frozenset[int] | None:
    """Ids of all modules whose parameters it holds; None when that is not known."""
    if value.kind in ("optimizer", "parameters"):
        if value.data is None:
            return None
        return frozenset(i for m in value.items for i in (modules_of(m) or (m.id,)))
    if value.kind in ("module", "instance"):
        return frozenset(family(value))
    if value.kind == "either":
        parts = [modules_of(option) for option in value.options()]
        return None if None in parts else frozenset().union(*(p for p in parts if p))
    return None


def trace_of(script: Script) -> Trace:
    """The trace of a file, made once."""
    known = _traces.get(id(script))
    if known is None or known[0] is not script:
        from torchmedic.source.flow.interpreter import follow

        if len(_traces) > 8:
            _traces.clear()
        known = _traces[id(script)] = (script, follow(script))
    return known[1]
