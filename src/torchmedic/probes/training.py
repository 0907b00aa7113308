"""Watches a training loop: module calls, backward, optimizer steps, scheduler steps.

The module call is the hot path. It writes four numbers to the ring and keeps the shape of what
came back; it calls nothing else of ours. Under torch.compile it folds to the plain call.
"""

from __future__ import annotations

import weakref

from . import compat, frames, watch
from .layout import (
    BACKWARD,
    BACKWARDS,
    CALLS,
    FORWARD,
    MODULE,
    OTHER,
    PHASE,
    SCHEDULES,
    STEP,
    STEPS,
)
from .patching import Probe, excise
from .recorder import emit, state

TRAIL = 64  # module outputs remembered; a power of two
MOST_NAMED = 5000

modules = Probe("modules")
gradients = Probe("backward")
optimizers = Probe("optimizer")
schedulers = Probe("scheduler")


class _Names:
    """Small numbers for modules, in the order in which they are first called."""

    def __init__(self):
        self.index = {}
        self.table = [("", "")]
        self.keep = {}

    def add(self, module, path, label):
        key = id(module)
        if len(self.table) >= MOST_NAMED:
            return 0
        number = len(self.table)
        self.table.append((path, label))
        self.index[key] = number
        # The address may serve another module once this one is gone.
        self.keep[key] = weakref.ref(module, lambda _, key=key: self._forget(key))
        return number

    def _forget(self, key):
        self.index.pop(key, None)
        self.keep.pop(key, None)

    def of(self, module):
        """Path from the root, or None if it was never called."""
        number = self.index.get(id(module))
        return None if number is None else self.table[number][0]


names = _Names()
trail = [None] * TRAIL
frames.module_path["of"] = names.of


def name_module(module, outer):
    """Number a module that is called for the first time, and with a root all its children."""
    if outer:
        path = names.table[outer][0]
        label = type(module).__name__
        number = names.add(module, path + "." + label if path else label, label)
        _tell([(number, module)])
        return number
    new = []
    for path, child in _tree(module):
        if id(child) not in names.index:
            number = names.add(child, path, type(child).__name__)
            if number:
                new.append((number, child))
    _tell(new)
    return names.index.get(id(module), 0)


def _tree(module):
    """As `named_modules`, but calls nothing of the user's and needs no hash of a module."""
    seen = set()
    left = [("", module)]
    while left:
        path, module = left.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        yield path, module
        children = list(vars(module).get("_modules", {}).items())
        for name, child in reversed(children):
            left.append((path + "." + name if path else name, child))


def _tell(new):
    emit("modules", modules=[(n, names.table[n][0], type(m).__name__) for n, m in new])


def outputs():
    """The remembered module outputs, oldest first: [path, class, shape]."""
    calls = state.slots[CALLS]
    order = [trail[(calls + 1 + i) & (TRAIL - 1)] for i in range(TRAIL)]
    found = []
    for item in order:
        if item is not None:
            path, label = names.table[item[0]]
            found.append([path, label, list(item[1])])
    return {"outputs": found[-16:]}


watch.add_fact(outputs)


def _wrap_call(torch):
    Tensor = torch.Tensor
    compiling = compat.is_compiling(torch)
    tracing = compat.is_tracing(torch)
    index = names.index
    seen = watch.seen

    def make(original):
        def __call__(self, *args, **kwargs):
            if compiling():
                return original(self, *args, **kwargs)
            try:
                slots = state.slots
                outer = slots[MODULE]
                here = index.get(id(self)) or name_module(self, outer)
                slots[MODULE] = here
                if not outer:
                    before = slots[PHASE]
                    slots[PHASE] = FORWARD
            except Exception as error:
                modules.fail(error)
                slots = None
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                seen(error)
                try:
                    slots[MODULE] = outer
                except Exception as problem:
                    modules.fail(problem)
                excise(error)
                raise
            if slots is None:
                return result
            try:
                slots[MODULE] = outer
                calls = slots[CALLS] + 1
                slots[CALLS] = calls
                if type(result) is Tensor and not tracing():
                    trail[calls & 63] = (here, result.shape)
                if not outer:
                    slots[PHASE] = before
            except Exception as error:
                modules.fail(error)
            return result

        return __call__

    return make


def _wrap_backward(make_compiling):
    compiling = make_compiling

    def make(original):
        def backward(*args, **kwargs):
            if compiling():
                return original(*args, **kwargs)
            try:
                before = state.slots[PHASE]
                state.slots[PHASE] = BACKWARD
            except Exception as error:
                gradients.fail(error)
                before = 0
            try:
                result = original(*args, **kwargs)
            except BaseException as error:
                watch.seen(error)
                excise(error)
                raise
            try:
                state.slots[PHASE] = before
                state.slots[BACKWARDS] += 1
            except Exception as error:
                gradients.fail(error)
            return result

        return backward

    return make


def _before_step(compiling):
    def torchmedic_before_step(optimizer, args, kwargs):
        if not compiling():
            try:
                state.slots[PHASE] = STEP
            except Exception as error:
                optimizers.fail(error)

    return torchmedic_before_step


def _after_step(compiling):
    def torchmedic_after_step(optimizer, args, kwargs):
        if not compiling():
            try:
                slots = state.slots
                slots[STEPS] += 1
                slots[PHASE] = OTHER
            except Exception as error:
                optimizers.fail(error)

    return torchmedic_after_step


def _wrap_schedule(compiling):
    def make(original):
        def step(self, *args, **kwargs):
            if compiling():
                return original(self, *args, **kwargs)
            try:
                state.slots[SCHEDULES] += 1
            except Exception as error:
                schedulers.fail(error)
            try:
                return original(self, *args, **kwargs)
            except BaseException as error:
                watch.seen(error)
                excise(error)
                raise

        return step

    return make


def install(torch):
    """Idempotent. Every probe stands alone: one that fails leaves the others."""
    compiling = compat.is_compiling(torch)
    if not modules.installed:
        modules.wrap(torch.nn.Module, "__call__", _wrap_call(torch))
    if not gradients.installed:
        gradients.wrap(torch.autograd, "backward", _wrap_backward(compiling))
    hooks = compat.optimizer_hooks(torch)
    if hooks and not optimizers.installed:
        optimizers.on_uninstall(hooks[0](_before_step(compiling)).remove)
        optimizers.on_uninstall(hooks[1](_after_step(compiling)).remove)
    base = compat.scheduler_class(torch)
    if base is not None and not schedulers.installed:
        schedulers.wrap(base, "step", _wrap_schedule(compiling))


def uninstall():
    for probe in (modules, gradients, optimizers, schedulers):
        probe.uninstall()
