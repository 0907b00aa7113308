"""Puts a wrapper round one attribute, and takes it off again.

The contract every probe keeps: installing twice is once; uninstalling restores the same object;
the user's exceptions, return values and signatures are untouched; when our own code raises, the
probe is switched off, the fault is recorded and the program goes on.
"""

from __future__ import annotations

import os
import sys

from .paths import HERE, is_ours
from .recorder import emit

# From 3.11 a bare `raise` takes the traceback from the exception itself, so a frame that was
# dropped from it in the except clause stays dropped (ceval: RERAISE adds no entry).
CAN_EXCISE = sys.version_info >= (3, 11)


def excise(error):
    """Drop the frame of the wrapper that handles `error`; the `raise` after this keeps it so."""
    traceback = error.__traceback__
    if CAN_EXCISE and traceback is not None:
        error.__traceback__ = traceback.tb_next


probes = []


class Probe:
    """A named set of patches with one switch."""

    def __init__(self, name):
        self.name = name
        self.patches = []
        self.removers = []
        self.failed = False
        probes.append(self)

    @property
    def installed(self):
        return bool(self.patches or self.removers)

    def wrap(self, owner, attribute, make):
        """Replace `owner.attribute` by `make(original)`; a missing attribute is left missing."""
        original = owner.__dict__.get(attribute, _MISSING)
        if original is _MISSING:
            return False
        wrapper = make(original)
        _look_like(wrapper, original)
        for place in (owner, _home(owner, attribute, original)):
            if place is not None:
                setattr(place, attribute, wrapper)
                self.patches.append((place, attribute, original, wrapper))
        return True

    def on_uninstall(self, remove):
        self.removers.append(remove)

    def uninstall(self):
        """Restore every attribute that still is ours; wrappers put on top of ours stay."""
        for owner, attribute, original, wrapper in reversed(self.patches):
            if owner.__dict__.get(attribute) is wrapper:
                setattr(owner, attribute, original)
        for remove in reversed(self.removers):
            remove()
        self.patches = []
        self.removers = []

    def fail(self, error, but=()):
        """Our own code raised: say so once, and leave the program alone from now on.

        but: kinds that are the program's doing, such as a stack with no room left for our call.
        """
        if self.failed or (but and isinstance(error, but)):
            return
        self.failed = True
        try:
            emit("probe-error", probe=self.name, error=describe(error))
            self.uninstall()
        except Exception:
            pass


_MISSING = object()

# `warnings` and `logging` leave out frames of such files when they count stack levels, so that a
# warning is placed at the line where it would be without us.
UNCOUNTED = os.path.join(HERE, "importlib._bootstrap")


def _home(owner, attribute, original):
    """The module a function says it comes from (posix, of os.kill): pickle looks it up there."""
    home = sys.modules.get(getattr(original, "__module__", None) or "")
    found = getattr(home, "__dict__", {}).get(attribute)
    return home if home is not owner and found is original else None


def _look_like(wrapper, original):
    """functools.update_wrapper, whose import alone would cost 4 ms at each start."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, name, None)
        if isinstance(value, str):
            setattr(wrapper, name, value)
    wrapper.__dict__.update(getattr(original, "__dict__", {}))
    wrapper.__wrapped__ = original
    code = wrapper.__code__
    if not is_ours(code.co_filename):
        return  # it stands where the original stood (inplace.py)
    file = os.path.join(UNCOUNTED, os.path.basename(code.co_filename))
    wrapper.__code__ = code.replace(co_filename=file)


def own_codes():
    """The code of every function of ours that is loaded, and of every wrapper in place."""
    package = __name__.rpartition(".")[0] + "."
    left = [wrapper for probe in probes for _, _, _, wrapper in probe.patches]
    for name, module in list(sys.modules.items()):
        if name.startswith(package) and module is not None:
            left.extend(vars(module).values())
    found = {}  # by identity: a wrapper's code equals the one it was made from
    while left:
        item = left.pop()
        if type(item) is type and item.__module__.startswith(package):
            left.extend(vars(item).values())
        code = item if type(item) is type(describe.__code__) else getattr(item, "__code__", None)
        if id(code) not in found and is_ours(getattr(code, "co_filename", "")):
            found[id(code)] = code
            left.extend(code.co_consts)
    return found.values()


def describe(error):
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    line = traceback.tb_lineno if traceback is not None else 0
    return "%s: %s (line %d)" % (type(error).__name__, str(error)[:200], line)
