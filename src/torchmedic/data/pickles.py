"""Reads a pickle without running it: a stack machine that calls nothing.

Globals stay names, calls become records of what would be called with what, and only what torch
uses to rebuild a tensor is understood. What is read is bounded, whatever the file says.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from torchmedic.data.bounded import Bounded, Opaque, TooLarge, Unreadable, operations

MOST_SETS = 100_000


@dataclass(frozen=True, slots=True)
class Global:
    """A name the pickle asks for."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Made:
    """What a call or an object would have been."""

    maker: Any
    args: Any = ()
    state: Any = None
    items: dict[Any, Any] | None = None
    listed: list[Any] | None = None


@dataclass(slots=True, eq=False)
class Persistent:
    """A reference to what lies outside the pickle: a storage."""

    id: Any


@dataclass(slots=True)
class Machine:
    """Stack, marks and memo of a pickle; `globals` are the names asked for, in order."""

    stack: list[Any] = field(default_factory=list)
    marks: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    globals: dict[Global, None] = field(default_factory=dict)
    sets: int = 0
    references: list[Persistent] = field(default_factory=list)
    called: dict[Global, Any] = field(default_factory=dict)
    """What would be called, with the arguments of the first call."""

    def run(self, stream: BinaryIO) -> Any:
        """The value of the next pickle in a stream, which is read to its end and no further."""
        bounded = Bounded(stream)
        try:
            for name, argument in operations(bounded):
                if name == "STOP":
                    return self.stack.pop()
                self._step(name, argument)
        except TooLarge:
            raise
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error,
                OverflowError) as error:
            raise Unreadable(str(error).partition("\n")[0], bounded.short) from None
        raise Unreadable("the pickle has no end", cut=True)

    def _step(self, name: str, argument: Any) -> None:
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _PUSHES:
            self.stack.append(argument)
        elif name not in ("PROTO", "FRAME"):
            step = _STEPS.get(name)
            if step is None:
                raise Unreadable(f"opcode {name}")
            step(self, argument)

    def drop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.to_mark()

    def to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def asked(self, found: Global) -> None:
        self.globals[found] = None
        self.stack.append(found)

    def push(self, value: Any) -> None:
        """On the stack as it is once the value is made: `to_mark` changes it."""
        self.stack.append(value)

    def refer(self, id_: Any) -> None:
        self.references.append(Persistent(id_))
        self.stack.append(self.references[-1])

    def make(self, maker: Any, args: Any) -> None:
        if isinstance(maker, Global):
            self.called.setdefault(maker, args)
        plain = isinstance(maker, Global) and str(maker) in _DICTS
        if plain and (pairs := _pairs(args)) is not None:
            self.stack.append({_key(key): value for key, value in pairs})
        else:
            self.stack.append(Made(maker, args))

    def fill(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        room = target
        if isinstance(target, Made):
            room = target.items = {} if target.items is None else target.items
        for key, value in zip(pairs[::2], pairs[1::2], strict=False):
            room[_key(key)] = value

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, set):
            target.update(map(_key, values))
            return
        if isinstance(target, Made):
            target.listed = [] if target.listed is None else target.listed
            target = target.listed
        target.extend(values)

    def build(self, state: Any) -> None:
        if isinstance(target := self.stack[-1], Made):
            target.state = state


_DICTS = ("collections.OrderedDict", "builtins.dict", "__builtin__.dict")
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_PUSHES = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "STRING", "BINSTRING",
           "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "UNICODE",
           "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "FLOAT", "BINFLOAT"}
_STEPS: dict[str, Callable[[Machine, Any], None]] = {}
_Step = Callable[["Machine", Any], None]


def _pairs(args: Any) -> list[Any] | None:
    """What a dictionary is made from; None when it is something else."""
    if not args:
        return []
    pairs = args[0] if isinstance(args, tuple) and len(args) == 1 else None
    fits = isinstance(pairs, list) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs)
    return pairs if fits else None


def _key(key: Any) -> Any:
    """A key that can be hashed at no risk: a deep tuple would end the interpreter."""
    return key if isinstance(key, (str, int, float, bytes, type(None))) else Opaque()


def _on(*names: str) -> Callable[[_Step], _Step]:
    def keep(step: _Step) -> _Step:
        _STEPS.update(dict.fromkeys(names, step))
        return step
    return keep


@_on("MARK")
def _mark(m: Machine, _: Any) -> None:
    m.marks.append(m.stack)
    m.stack = []


@_on("PUT", "BINPUT", "LONG_BINPUT")
def _put(m: Machine, index: Any) -> None:
    m.memo[index] = m.stack[-1]


@_on("MEMOIZE")
def _memoize(m: Machine, _: Any) -> None:
    m.memo[len(m.memo)] = m.stack[-1]


@_on("GET", "BINGET", "LONG_BINGET")
def _get(m: Machine, index: Any) -> None:
    m.stack.append(m.memo[index])


@_on("GLOBAL")
def _global(m: Machine, argument: str) -> None:
    module, _, name = argument.partition(" ")
    m.asked(Global(module, name))


@_on("STACK_GLOBAL")
def _stack_global(m: Machine, _: Any) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError("a global whose name is no text")
    m.asked(Global(module[:200], name[:200]))


@_on("EXT1", "EXT2", "EXT4")
def _extension(m: Machine, code: Any) -> None:
    m.asked(Global("copyreg", f"extension {code}"))


@_on("REDUCE", "NEWOBJ")
def _reduce(m: Machine, _: Any) -> None:
    args, maker = m.stack.pop(), m.stack.pop()
    m.make(maker, args)


@_on("NEWOBJ_EX")
def _newobj_ex(m: Machine, _: Any) -> None:
    m.stack.pop()
    _reduce(m, None)


@_on("INST")
def _inst(m: Machine, argument: str) -> None:
    args = m.to_mark()
    module, _, name = argument.partition(" ")
    m.asked(Global(module, name))
    m.make(m.stack.pop(), tuple(args))


@_on("OBJ")
def _obj(m: Machine, _: Any) -> None:
    maker, *args = m.to_mark()
    m.make(maker, tuple(args))


@_on("BUILD")
def _build(m: Machine, _: Any) -> None:
    m.build(m.stack.pop())


@_on("PERSID")
def _persid(m: Machine, argument: Any) -> None:
    m.refer(argument)


@_on("BINPERSID")
def _binpersid(m: Machine, _: Any) -> None:
    m.refer(m.stack.pop())


_STEPS["EMPTY_TUPLE"] = lambda m, _: m.stack.append(())
_STEPS["EMPTY_LIST"] = lambda m, _: m.stack.append([])
_STEPS["EMPTY_DICT"] = lambda m, _: m.stack.append({})
_STEPS["TUPLE"] = lambda m, _: m.push(tuple(m.to_mark()))
_STEPS["LIST"] = lambda m, _: m.push(m.to_mark())
_STEPS["FROZENSET"] = lambda m, _: m.push(frozenset(map(_key, m.to_mark())))
_STEPS["DUP"] = lambda m, _: m.stack.append(m.stack[-1])
_STEPS["ADDITEMS"] = _STEPS["APPENDS"] = lambda m, _: m.extend(m.to_mark())
_STEPS["APPEND"] = lambda m, _: m.extend([m.stack.pop()])
_STEPS["SETITEMS"] = lambda m, _: m.fill(m.to_mark())
_STEPS["READONLY_BUFFER"] = lambda m, _: None
_STEPS["NEXT_BUFFER"] = lambda m, _: m.stack.append(Opaque())


for _count in (1, 2, 3):
    def _of(m: Machine, _: Any, count: int = _count) -> None:
        items = tuple(m.stack[-count:])
        del m.stack[-count:]
        m.stack.append(items)
    _STEPS[f"TUPLE{_count}"] = _of


@_on("EMPTY_SET")
def _empty_set(m: Machine, _: Any) -> None:
    m.sets += 1
    if m.sets > MOST_SETS:  # an empty one takes 216 bytes, for one byte of the file
        raise TooLarge(f"a pickle of more than {MOST_SETS} sets")
    m.stack.append(set())


@_on("POP")
def _pop(m: Machine, _: Any) -> None:
    m.drop()


@_on("POP_MARK")
def _pop_mark(m: Machine, _: Any) -> None:
    m.to_mark()


@_on("DICT")
def _dict(m: Machine, _: Any) -> None:
    pairs = m.to_mark()
    m.stack.append({})
    m.fill(pairs)


@_on("SETITEM")
def _setitem(m: Machine, _: Any) -> None:
    value, key = m.stack.pop(), m.stack.pop()
    m.fill([key, value])
