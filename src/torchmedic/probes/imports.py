"""Calls us after a module was imported, and never imports one itself."""

from __future__ import annotations

import sys


class _Loader:
    """The module's own loader, with a call after `exec_module`. Gone when the import is done."""

    def __init__(self, loader, done):
        self._loader = loader
        self._done = done

    def create_module(self, spec):
        create = getattr(self._loader, "create_module", None)
        return create(spec) if create else None

    def exec_module(self, module):
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.loader = self._loader
        try:
            module.__loader__ = self._loader
        except Exception:
            pass
        self._loader.exec_module(module)
        self._done(module)

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder:
    def __init__(self):
        self.waiting = {}
        self.busy = set()

    def find_spec(self, name, path=None, target=None):
        if name not in self.waiting or name in self.busy:
            return None
        self.busy.add(name)
        try:
            spec = self._real_spec(name, path, target)
            if spec is None or not hasattr(spec.loader, "exec_module"):
                return None
            spec.loader = _Loader(spec.loader, lambda module: self.done(name, module))
            return spec
        finally:
            self.busy.discard(name)

    def _real_spec(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                return spec
        return None

    def done(self, name, module):
        for callback in self.waiting.pop(name, ()):
            callback(module)
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)


_finder = _Finder()


def after_import(name, callback):
    """Call `callback(module)` once `name` is imported; now if it is. callback must not raise."""
    module = sys.modules.get(name)
    if module is not None and not _initializing(module):
        callback(module)
        return
    _finder.waiting.setdefault(name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _initializing(module):
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def forget():
    """Drop what is still waited for."""
    _finder.waiting.clear()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
