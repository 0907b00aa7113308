"""Which of a model's parameters are trained: seen by autograd, held by an optimizer, or neither.

Names are torch's own (`named_parameters`), from the root modules that were called. What the
windows show is added up, and told at the end of each window.
"""

from __future__ import annotations

import sys
import weakref

from . import looks, training, trees, updates
from .recorder import emit

MOST_NAMED = 30
MOST_PARAMETERS = 20000


class _Book:
    def __init__(self):
        self.graded = {}  # id → weak reference to a parameter that had a gradient
        self.held = {}  # the same of one that an optimizer stepped with
        self.called = {}  # the same of a module that was called with gradients on, in training
        self.steps = 0


book = _Book()


def note_call(module, args, result):
    torch = sys.modules["torch"]
    if torch.is_grad_enabled() and module.training:
        _put(book.called, module)


def note(optimizer, step):
    """What this optimizer holds and which of it has a gradient, right before its step."""
    parameters = updates.parameters_of(optimizer)
    if len(parameters) > MOST_PARAMETERS:
        return
    book.steps += 1
    for parameter in parameters:
        _put(book.held, parameter)
    for parameter in (*(p for _, p, _ in named(roots())), *parameters):
        if updates.grad_of(parameter) is not None:
            _put(book.graded, parameter)


def _put(table, parameter):
    # By address: to compare tensors as keys would compare their elements.
    if id(parameter) not in table:
        key = id(parameter)
        table[key] = weakref.ref(parameter, lambda _: table.pop(key, None))


def named(models):
    """(name, parameter, module) of the models that `roots` gives, each parameter once."""
    seen = set()
    for prefix, module in models:
        for path, child in trees.walk(module):
            for name, parameter in trees.parameters(child):
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    full = ".".join(part for part in (prefix, path, name) if part)
                    yield full, parameter, child


def roots():
    """(prefix, module): models that were called from outside any module. A prefix tells several."""
    found = []
    for key, number in list(training.names.index.items()):
        path, label = training.names.table[number]
        module = training.names.keep[key]() if key in training.names.keep else None
        if path == "" and module is not None and vars(module).get("_modules") is not None:
            found.append((label, module))
    inner = {id(child) for _, module in found for path, child in trees.walk(module) if path}
    found = [(label, module) for label, module in found if id(module) not in inner]
    found = [(label, module) for label, module in found if _parameters(module)]
    return [(label if len(found) > 1 else "", module) for label, module in found]


def _parameters(module):
    return [p for _, child in trees.walk(module) for _, p in trees.parameters(child)]


def told(step):
    """One event for the state of all parameters so far."""
    if not book.steps:
        return
    models = roots()
    groups = {"outside": [], "idle": [], "unreached": [], "frozen": [], "trained": []}
    own, detached, last = set(), [], "frozen"
    for name, parameter, module in named(models):
        own.add(id(parameter))
        group = _group(parameter)
        groups[group].append(name)
        last = last if group == "frozen" else group
        if group == "unreached" and id(module) in book.called:
            detached.append(name)
    strangers = [ref() for key, ref in list(book.held.items()) if key not in own]
    lost = [p for p in strangers if p is not None and id(p) not in book.graded]
    emit("parameters", step=step, windows_steps=book.steps, stale=len(lost),
         stale_shapes=[list(p.shape) for p in lost[:8]], strangers=len(strangers),
         counts={name: len(items) for name, items in groups.items()},
         alone=[type(root).__name__ for _, root in models if _alone(root)],
         roots=[type(root).__name__ for _, root in models], detached=detached[:MOST_NAMED],
         last=last == "outside", unregistered=unregistered(models),
         **{name: groups[name][:MOST_NAMED] for name in ("outside", "unreached", "frozen")})


def _alone(root):
    """Gradients reach it, and nothing that steps holds any of it."""
    own = {id(parameter) for parameter in _parameters(root)}
    return not own.isdisjoint(book.graded) and own.isdisjoint(book.held)


def _group(parameter):
    if not parameter.requires_grad:
        return "frozen"
    graded = id(parameter) in book.graded
    if id(parameter) not in book.held:
        return "outside" if graded else "idle"
    return "trained" if graded else "unreached"


def unregistered(models):
    """Modules in plain lists, tuples and dicts, and tensors to train that are no parameters."""
    torch = sys.modules["torch"]
    found = []
    for prefix, root in models:
        own = {id(child) for _, child in trees.walk(root)}
        for path, child in trees.walk(root):
            if type(child).__module__.startswith("torch."):
                continue
            for name, value in list(vars(child).items()):
                if name.startswith("_"):
                    continue
                told_ = _unregistered(value, own, torch)
                if told_ and len(found) < MOST_NAMED:
                    full = ".".join(part for part in (prefix, path, name) if part)
                    found.append(dict(told_, name=full, attribute=name,
                                      owner=type(child).__name__))
    return found


def _unregistered(value, own, torch):
    kind = type(value)
    if kind is torch.Tensor and value.requires_grad and value.is_leaf:
        return {"kind": "tensor", "shape": list(value.shape),
                "graded": value.grad is not None, "held": id(value) in book.held}
    items = list(value.values()) if kind is dict else \
        list(value) if kind in (list, tuple) and len(value) <= 1000 else ()
    modules = [m for m in items if isinstance(m, torch.nn.Module) and id(m) not in own
               and _parameters(m)]
    if not modules:
        return None
    held = all(id(p) in book.held for m in modules for p in _parameters(m) if p.requires_grad)
    graded = any(id(p) in book.graded or p.grad is not None for m in modules
                 for p in _parameters(m) if p.is_leaf)
    return {"kind": kind.__name__, "modules": len(modules), "held": held, "graded": graded,
            "called": sum(1 for m in modules if id(m) in training.names.index)}


looks.at_call.append(note_call)
looks.before_step.append(note)
looks.at_close.append(told)
