"""Shapes of what rearranges the values of tensors: views, permutations, joins."""

from __future__ import annotations

from collections.abc import Sequence

from torchmedic.source.flow.layers import known, number, times
from torchmedic.source.flow.values import Shape, Value


def size(base: Value, axis: int | None, node: object, file: str) -> Value:
    """`x.size(axis)`: the number, or which axis it is of."""
    shape = known(base)
    if shape is None or axis is None or not -len(shape) <= axis < len(shape):
        return Value("unknown", "number", node, file, owner=base)  # type: ignore[arg-type]
    axis %= len(shape)
    if shape[axis] is not None:
        return Value("const", "int", node, file, data=shape[axis])  # type: ignore[arg-type]
    return Value("unknown", "number", node, file, owner=base,  # type: ignore[arg-type]
                 data=("axis", axis))


def viewed(shape: Shape | None, args: Sequence[Value]) -> Shape | None:
    """`x.view(sizes)`: with the size that -1 stands for, where that can be told."""
    if len(args) == 1 and args[0].kind in ("tuple", "list"):
        args = args[0].items
    if not args or any(a.kind not in ("const", "unknown", "either") or a.type == "starred"
                       or a.data == "sizes" for a in args):
        return None
    if len(args) == 1 and args[0].kind != "const":
        return None
    sizes = [number(a) for a in args]
    if sizes.count(-1) != 1:
        return tuple(None if s == -1 else s for s in sizes)
    at = sizes.index(-1)
    sizes[at] = _left(shape, args, [s for i, s in enumerate(sizes) if i != at])
    return tuple(sizes)


def _left(shape: Shape | None, args: Sequence[Value], others: list[int | None]) -> int | None:
    """What -1 stands for beside the other sizes."""
    if not shape:
        return None
    whole = times(shape)
    if whole is None and shape[0] is None and is_batch(args[0]) and others:
        whole, others = times(shape[1:]), others[1:]
    if whole is None or None in others:
        return None
    rest = times(tuple(others)) or 0
    return whole // rest if rest and whole % rest == 0 else None


def is_batch(value: Value) -> bool:
    """`x.size(0)`, of whatever tensor."""
    return bool(value.data == ("axis", 0))


def permuted(shape: Shape | None, args: Sequence[Value]) -> Shape | None:
    if len(args) == 1 and args[0].kind in ("tuple", "list"):
        args = args[0].items
    order = [number(a) for a in args]
    if shape is None or len(order) != len(shape):
        return None
    found = [o % len(shape) for o in order if o is not None and -len(shape) <= o < len(shape)]
    return tuple(shape[o] for o in found) if sorted(found) == list(range(len(shape))) else None


def transposed(shape: Shape | None, args: Sequence[Value]) -> Shape | None:
    axes = [number(a) for a in args[:2]]
    if shape is None or len(axes) != 2 or any(
            a is None or not -len(shape) <= a < len(shape) for a in axes):
        return None
    made = list(shape)
    one, other = axes
    assert one is not None and other is not None
    made[one], made[other] = made[other], made[one]
    return tuple(made)


def joined(parts: Value | None, axis: int | None) -> Shape | None:
    """`torch.cat(parts, axis)`; what does not fit is not known."""
    shapes = _joinable(parts, axis)
    if shapes is None or axis is None:
        return None
    axis %= len(shapes[0])
    made: list[int | None] = []
    for at, sizes in enumerate(zip(*shapes, strict=True)):
        if at == axis:
            made.append(sum(s for s in sizes if s is not None) if None not in sizes else None)
        else:
            one = {s for s in sizes if s is not None}
            made.append(one.pop() if len(one) == 1 else None)
    return tuple(made)


def piled(parts: Value | None, axis: int | None) -> Shape | None:
    """`torch.stack(parts, axis)`."""
    if parts is None or axis is None or parts.kind not in ("list", "tuple") or not parts.items:
        return None
    shapes = {known(p) for p in parts.items}
    first = next(iter(shapes))
    if len(shapes) != 1 or first is None or not -len(first) - 1 <= axis <= len(first):
        return None
    axis %= len(first) + 1
    count = None if parts.data == "comprehension" else len(parts.items)
    return (*first[:axis], count, *first[axis:])


def _parts(parts: Value | None) -> list[Shape] | None:
    if parts is None or parts.kind not in ("list", "tuple") or parts.data == "comprehension":
        return None
    found = [known(p) for p in parts.items]
    whole = [s for s in found if s]
    return whole if whole and len(whole) == len(found) else None


def _joinable(parts: Value | None, axis: int | None) -> list[Shape] | None:
    """The shapes of parts that all have as many axes, and this one among them."""
    shapes = _parts(parts)
    if shapes is None or axis is None or len({len(s) for s in shapes}) != 1:
        return None
    return shapes if -len(shapes[0]) <= axis < len(shapes[0]) else None


def clashing(parts: Value | None, axis: int | None) -> tuple[int, Shape, Shape] | None:
    """(axis, one shape, another) of parts that can't be joined."""
    shapes = _joinable(parts, axis)
    if shapes is None or axis is None:
        return None
    first = shapes[0]
    for other in shapes[1:]:
        for at, (one, two) in enumerate(zip(first, other, strict=True)):
            if at != axis % len(first) and one is not None and two is not None and one != two:
                return at, first, other
    return None
