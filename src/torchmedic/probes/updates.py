"""What an optimizer's step is given: which parameters, with which gradients, cleared or not.

Gradients are read on the steps that are looked at only: one norm for all of an optimizer's
parameters. Nothing is kept but weak references.
"""

from __future__ import annotations

import math
import sys
import weakref

from . import compat, frames, looks, watch
from .recorder import emit

MOST_NAMED = 40
PROBED = 3  # parameters of an optimizer whose gradients are followed from step to step
SMALL = 4096  # elements read of one gradient to see whether it was cleared


class _Optimizer:
    """One optimizer that steps."""

    def __init__(self, number):
        self.number = number
        self.followed = []  # weak references to parameters that had a gradient at the last step
        self.cleared = None  # seen cleared since the last step; None when no backward was seen


_known = weakref.WeakKeyDictionary()


def _state(optimizer):
    found = _known.get(optimizer)
    if found is None:
        found = _known[optimizer] = _Optimizer(len(_known) + 1)
        emit("optimizer", optimizer=found.number, **_settings(optimizer))
    return found


def _settings(optimizer):
    groups = []
    for group in optimizer.param_groups[:16]:
        plain = {name: value for name, value in group.items()
                 if type(value) in (int, float, bool) or value is None}
        groups.append(dict(plain, parameters=len(group["params"])))
    return {"type": type(optimizer).__name__, "groups": groups}


def parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]


def note_backward(roots, options):
    """Gradients that are gone or zero when backward begins were cleared since the step."""
    for entry in list(_known.values()):
        if entry.followed:
            held = [grad_of(ref()) for ref in entry.followed]
            left = [grad for grad in held if grad is not None and _any(grad)]
            entry.cleared = bool(entry.cleared) or len(left) < len(held)


def _any(grad):
    return bool(grad.detach().reshape(-1)[:SMALL].any())


def grad_of(parameter):
    """The gradient without the warning that torch gives for tensors that are no leaves."""
    if parameter is None or not parameter.is_leaf:
        return None
    return parameter.grad


def told_before(optimizer, step):
    """One event for a step about to be made."""
    entry = _state(optimizer)
    torch = sys.modules["torch"]
    parameters = parameters_of(optimizer)
    graded = [p for p in parameters if grad_of(p) is not None]
    norms = _norms([p.grad for p in graded], torch)
    finite = None if norms is None else all(math.isfinite(n) for n in norms)
    emit("update", **dict(
        watch.moment(), step=step, optimizer=entry.number, parameters=len(parameters),
        graded=len(graded), cleared=entry.cleared, finite=finite,
        zero=None if norms is None else sum(1 for n in norms if n == 0),
        norm=_total(norms), rates=[group.get("lr") if type(group.get("lr")) is float else None
                                   for group in optimizer.param_groups[:16]],
        weights=_total(_norms(graded, torch)),
        frames=frames.stack(sys._getframe(1), 30)))


def note_after(optimizer, step):
    """From here on its gradients are followed: are they cleared before they are added to?"""
    entry = _state(optimizer)
    entry.cleared = None
    graded = [p for p in parameters_of(optimizer) if grad_of(p) is not None and _plain(p.grad)]
    spread = graded[:: max(1, len(graded) // PROBED)][:PROBED]
    entry.followed = [weakref.ref(p) for p in spread if _any(p.grad)]


def forget(step):
    """What happens until the next window is not seen."""
    for entry in list(_known.values()):
        entry.followed, entry.cleared = [], None


def _plain(tensor):
    torch = sys.modules["torch"]
    return (type(tensor) in (torch.Tensor, torch.nn.Parameter)
            and tensor.layout == torch.strided and not compat.is_capturing(tensor, torch))


def _norms(tensors, torch):
    """2-norm of each, in one read for each device; None where they can't be read cheaply."""
    if not tensors or len(tensors) > 5000 or not all(map(_plain, tensors)):
        return None
    with torch.no_grad():
        places = {t.device for t in tensors}
        if len(places) > 1:
            return None
        norms = [torch.linalg.vector_norm(t.detach(), dtype=torch.float32
                                          if t.dtype in (torch.float16, torch.bfloat16) else None)
                 for t in tensors]
        return torch.stack([n.float() for n in norms]).tolist()


def _total(norms):
    return None if norms is None else math.sqrt(math.fsum(n * n for n in norms)) \
        if all(map(math.isfinite, norms)) else None


looks.at_backward.append(note_backward)
looks.before_step.append(told_before)
looks.after_step.append(note_after)
looks.at_close.append(forget)
