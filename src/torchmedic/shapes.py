"""Sizes as texts and numbers: read from messages, written in reports, traced to their factors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame, Output, Value

Shape = tuple[int, ...]


def numbers(text: str) -> Shape:
    """The whole numbers in a text such as `[2, 3, 8, 8]` or `torch.Size([2, 3])`."""
    return tuple(int(found) for found in re.findall(r"\d+", text))


def written(shape: Iterable[int]) -> str:
    """As torch prints a shape: `(2, 3, 8, 8)`, `(4,)`."""
    return str(tuple(shape))


def product_of(channels: int, sides: Sequence[int]) -> str:
    """`256 channels × 4 × 4`, without the sides of length 1."""
    return " × ".join([f"{channels} channels", *(str(side) for side in sides if side != 1)])


def factors(size: int, output: Output, steps: int | None = None) -> Shape | None:
    """(channels, sides…) of an output whose product is `size`: a map that was flattened.

    For a recurrent layer one axis stays outside: time, of length `steps` where that is known.
    """
    if len(output.shape) < 3 or output.shape[1] < 2:
        return None
    channels, sides = output.shape[1], output.shape[2:]
    kept = [tuple(sides[:at] + sides[at + 1:]) for at, side in enumerate(sides)
            if steps in (None, side)]
    for rest in (sides, *kept):
        if channels * prod(rest) == size and any(side > 1 for side in rest):
            return (channels, *rest)
    return None


def flattened_from(size: int, outputs: Sequence[Output], steps: int | None = None
                   ) -> tuple[Output, Shape] | None:
    """The latest output that makes `size` when flattened, and its factors."""
    for output in reversed(outputs):
        found = factors(size, output, steps)
        if found is not None:
            return output, found
    return None


def layer(frame: Frame | None, fallback: str) -> str:
    """A layer as a message names it: LSTM `encoder.lstm`, or `fallback` when nothing tells."""
    if frame is None or not frame.module_class:
        return fallback
    return f"{frame.module_class} `{frame.module}`" if frame.module else frame.module_class


def named(failure: Failure, noun: str) -> str:
    """The layer that failed: LSTM `lstm`; from a log what the line calls: recurrent layer `self.x`.
    """
    call = called_in(failure.user_frame.text if failure.user_frame else None)
    return layer(failure.module_frame, f"{noun} `{call}`" if call else f"a {noun}")


def called_in(text: str | None) -> str | None:
    """`self.lstm` in a source line that calls one attribute and nothing else of the module."""
    calls = re.findall(r"\bself(?:\.\w+)+(?=\()", text or "")
    return calls[0] if len(calls) == 1 else None


def tensors_in(frame: Frame | None, most: int = 6) -> str:
    """`x (2, 3, 8, 8), y (2,)`: the tensors a frame holds, for evidence."""
    if frame is None:
        return ""
    found = [(name, value) for name, value in frame.values.items() if value.shape is not None]
    return ", ".join(f"`{name}` {written(value.shape or ())}" for name, value in found[:most])


def setting(value: Value | None, name: str) -> int | None:
    """A whole number among a module's own attributes."""
    found = value.attributes.get(name) if value is not None else None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def fitted_before(failure: Failure) -> bool:
    """An earlier batch of the same run went through."""
    return bool(failure.step) or (failure.batch or 0) > 1


def inside(failure: Failure, file: str, function: str) -> bool:
    """It was raised in torch's own file or function of that name, or by a call into it."""
    return any(not frame.user and (frame.function == function or frame.file.replace(
        "\\", "/").endswith(f"torch/nn/modules/{file}")) for frame in failure.frames[-3:])
