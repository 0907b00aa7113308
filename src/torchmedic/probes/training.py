"""Watches a training loop: module calls, backward, optimizer steps, scheduler steps.

The module call is the hot path: it writes its number to the ring and keeps the shape of what came
back, unless calls come too fast for that. Under torch.compile it folds to the plain call. Backward
and the optimizer's step are not marked as they happen: a stack tells them.
"""

from __future__ import annotations

import weakref

from . import compat, frames, inplace, looks, modes, sampler, trees, watch
from .layout import CALLS, FORWARD, MODULE, PHASE, SCHEDULES, STEPS
from .patching import Probe, excise
from .recorder import emit, state

TRAIL = 64  # module outputs remembered; a power of two
MOST_NAMED = 5000
UNKNOWN = 1
KEEP_COST = 2e-6  # seconds for one shape, measured in a loop of small steps
SHARE = 0.005

at_each_backward = []  # part(tensor), before backward: cheap, and never raises for a plain one

modules = Probe("modules")
gradients = Probe("backward")
optimizers = Probe("optimizer")
schedulers = Probe("scheduler")


class _Names:
    """Small numbers for modules, in the order in which they are first called."""

    def __init__(self):
        self.index = {}
        self.table = [("", ""), (None, None)]  # 0: no module; UNKNOWN: the table was full
        self.numbers = {}
        self.keep = {}
        self.new = []

    def add(self, module, path, label):
        key = id(module)
        number = self.numbers.get((path, label))  # such as a loss that is made anew each step
        if number is None and len(self.table) < MOST_NAMED:
            number = self.numbers[path, label] = len(self.table)
            self.table.append((path, label))
            self.new.append((number, path, label))
        number = self.index[key] = number or UNKNOWN
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
plain = [None]  # torch.Tensor, once torch is there
calls = [0]  # a list item is the cheapest counter; the sampler copies it to the ring
told = [None]  # the type whose shapes are kept: torch.Tensor, or None while calls come too fast
frames.module_path["of"] = names.of


def name_module(module, outer):
    """Number a module that is called for the first time, and with a root all its children."""
    if outer:
        path = names.table[outer][0]
        label = type(module).__name__
        names.add(module, path + "." + label if path else label, label)
    else:
        for path, child in trees.walk(module):
            if id(child) not in names.index:
                names.add(child, path, type(child).__name__)
    if names.new:
        emit("modules", modules=names.new)
        names.new = []
    return names.index.get(id(module), 0)


class _Budget:
    """Keeping a shape costs up to 2 us: not while that were more than SHARE of the time."""

    def __init__(self):
        self.kind = None
        self.calls = 0

    def turn(self, seconds):
        done, self.calls = calls[0] - self.calls, calls[0]
        told[0] = None if done * KEEP_COST > SHARE * seconds else self.kind


budget = _Budget()


def outputs():
    """The remembered module outputs, oldest first: [path, class, shape]."""
    newest = calls[0]
    order = [trail[(newest + 1 + i) & (TRAIL - 1)] for i in range(TRAIL)]
    found = []
    for item in order:
        path, label = names.table[item[0]] if item is not None else (None, None)
        if path is not None:
            found.append([path, label, list(item[1])])
    return {"outputs": found[-16:]}


watch.add_fact(outputs)
sampler.counters.append((CALLS, calls))
sampler.at_turns.append(budget.turn)


def _wrap_call(torch):
    def make(original):
        names_used = {
            "state": state, "index": names.index, "name_module": name_module, "trail": trail,
            "calls": calls, "told": told, "fail": modules.fail, "seen": watch.seen,
            "looking": looks.looking, "tally": modes.tally, "new_mode": modes.new_mode,
            "grad_on": torch.is_grad_enabled,
            "compiling": compat.is_compiling(torch), "tracing": compat.is_tracing(torch),
        }
        constants = {"MODULE": MODULE, "PHASE": PHASE, "FORWARD": FORWARD}
        return (inplace.call_in_place(original, constants, names_used)
                or inplace.call_around(original, constants, dict(names_used, excise=excise)))

    return make


def _noting(compiling, note, probe):
    """Makes wrappers of functions that only pass on, and are noted before."""

    def make(original):
        def passing_on(*args, **kwargs):
            if compiling():
                return original(*args, **kwargs)
            try:
                note(args, kwargs)
            except Exception as error:
                probe.fail(error)
            try:
                return original(*args, **kwargs)
            except BaseException as error:
                watch.seen(error)
                excise(error)
                raise

        return passing_on

    return make


def _note_backward(args, kwargs):
    modes.backwards[0] += 1
    root = args[0] if args else kwargs.get("tensors")
    if type(root) is plain[0]:
        for part in at_each_backward:
            part(root)
    if looks.open_[0]:
        looks.backward(root, _options(args, kwargs))


def _note_grad(args, kwargs):
    modes.backwards[0] += 1


def _note_schedule(args, kwargs):
    state.slots[SCHEDULES] += 1


def _options(args, kwargs):
    """Of `torch.autograd.backward`; the order has been the same since 1.0."""
    names = ("tensors", "grad_tensors", "retain_graph", "create_graph")
    return dict(zip(names, args), **kwargs)


def _after_step(compiling):
    def torchmedic_after_step(optimizer, args, kwargs):
        try:
            if not compiling():
                slots = state.slots
                slots[STEPS] = steps = slots[STEPS] + 1
                if looks.open_[0]:
                    looks.stepped(optimizer, steps)
                if steps >= looks.due[0]:
                    looks.turn(steps)
        except Exception as error:
            optimizers.fail(error)

    return torchmedic_after_step


def install(torch):
    """Idempotent. Every probe stands alone: one that fails leaves the others."""
    compiling = compat.is_compiling(torch)
    plain[0] = told[0] = budget.kind = torch.Tensor
    if not modules.installed:
        modules.wrap(torch.nn.Module, "__call__", _wrap_call(torch))
    if not gradients.installed:
        gradients.wrap(torch.autograd, "backward", _noting(compiling, _note_backward, gradients))
        gradients.wrap(torch.autograd, "grad", _noting(compiling, _note_grad, gradients))
    hook = compat.after_step_hook(torch)
    if hook is not None and not optimizers.installed:
        optimizers.on_uninstall(hook(_after_step(compiling)).remove)
        looks.start(torch)
        optimizers.on_uninstall(looks.stop)
    base = compat.scheduler_class(torch)
    if base is not None and not schedulers.installed:
        schedulers.wrap(base, "step", _noting(compiling, _note_schedule, schedulers))


def uninstall():
    for probe in (modules, gradients, optimizers, schedulers):
        probe.uninstall()
