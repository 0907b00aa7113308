"""Finds lists and sums, in the user's own variables, that keep graphs of batches that are over."""

from __future__ import annotations

import sys

from . import frames, graphs, looks, modes, watch
from .layout import MODULE
from .paths import is_user_file
from .recorder import emit, state

MOST_TOLD = 40
FRAMES = 4  # of the user's, from the innermost outwards
FEWEST = 3  # items of a list, terms of a sum
EVERY = 4  # calls of a model between two looks


class _Count:
    def __init__(self):
        self.calls = self.told = 0


_count = _Count()


def note_call(module, args, result):
    """After every few calls of a whole model with gradients on: what holds results by now?"""
    if state.slots[MODULE] or not sys.modules["torch"].is_grad_enabled():
        return
    _count.calls += 1
    if _count.calls % EVERY == 0:
        look(training=bool(module.training))


def note_close(step):
    look(training=True)


def look(training):
    """One event for each variable that holds several results with their graphs."""
    torch = sys.modules["torch"]
    frame, left = sys._getframe(1), FRAMES
    while frame is not None and left > 0:
        if is_user_file(frame.f_code.co_filename):
            left -= 1
            for name, value in _variables(frame, torch):
                facts = _kept(value, torch)
                if facts is not None and _count.told < MOST_TOLD:
                    _count.told += 1
                    emit("kept", **dict(watch.moment(), name=name, training=training,
                                        frames=frames.stack(frame, 30), **facts))
        frame = frame.f_back


def _variables(frame, torch):
    """(name, value) of a frame's variables, and of the attributes of its `self`."""
    found = frames.variables(frame)
    owner = found.pop("self", None)
    yield from found.items()
    if owner is not None and hasattr(type(owner), "__dict__") and not isinstance(owner, type):
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            yield "self." + name, value


def _kept(value, torch):
    kind = type(value)
    if kind is torch.Tensor:
        terms = _terms(value)
        return None if terms < FEWEST else {
            "what": "sum", "count": terms, "bytes": 0, "older": _older(value, oldest=True)}
    if kind is dict and 0 < len(value) <= 20:
        lists = [v for v in value.values() if type(v) is list and len(v) >= FEWEST]
        return next(filter(None, (_kept(v, torch) for v in lists)), None)
    if kind is not list or len(value) < FEWEST:
        return None
    ends = [value[0], value[1], value[-1]]
    if not all(type(v) is torch.Tensor and v.grad_fn is not None for v in ends):
        return None
    size = value[-1].numel() * value[-1].element_size()
    return {"what": "list", "count": len(value), "bytes": size * len(value),
            "shape": list(value[-1].shape), "older": _older(value[0])}


def _terms(value):
    """How many results were added up, one after another, in a tensor."""
    node, count = value.grad_fn, 0
    while node is not None and node.name() == "AddBackward0" and count < 1000:
        count += 1
        before = [child for child, _ in node.next_functions if child is not None]
        node = before[0] if before else None
    return count


def _older(value, oldest=False):
    """Its graph was made before the last optimizer step that was looked at."""
    node = value.grad_fn
    while oldest and node.name() == "AddBackward0" and node.next_functions[0][0] is not None:
        node = node.next_functions[0][0]
    return bool(graphs.marks) and node._sequence_nr() < graphs.marks[-1][1]


def evaluating(module, how):
    """A model is called in evaluation mode with gradients on: is what it gives kept?"""
    if not how[1] and how[2]:
        looks.look_at_calls()


looks.at_call.append(note_call)
looks.at_close.append(note_close)
modes.at_new.append(evaluating)
