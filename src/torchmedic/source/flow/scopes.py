"""Where a name is looked up: functions inside functions inside a file."""

from __future__ import annotations

import ast
import re

from torchmedic.source.flow.values import Value

GUESSES = (
    (re.compile(r"(.*_)?(optimi[sz]ers?|optim|opt)(_\w+|\d+)?$", re.I), "optimizer"),
    (re.compile(r"(.*_)?(lr_)?sched(uler)?(_\w+)?$", re.I), "scheduler"),
    (re.compile(r"(.*_)?(grad_?)?scaler$", re.I), "scaler"),
    (re.compile(r"(.*_)?(criterion|loss_fn|loss_func|loss_function)(_\w+)?$", re.I), "criterion"),
    (re.compile(r"(?!(?:.*_)?(?:d|dim|n|num|size)_model$)"  # these are sizes
                r"(.*_)?(model|net|network|generator|discriminator)(_\w)?$", re.I), "module"),
    (re.compile(r"(.*_)?(data)?_?(loader|dl)(_\w+)?$", re.I), "loader"),
)


class Scope:
    """Names of one function, class or file."""

    __slots__ = ("file", "names", "outside", "parent", "script")

    def __init__(self, file: str, parent: Scope | None = None, script: object = None) -> None:
        self.file, self.parent, self.script = file, parent, script
        self.names: dict[str, Value] = {}
        self.outside: dict[str, Scope] = {}

    def get(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.outside:
                return scope.outside[name]._own(name)
            if name in scope.names:
                return scope._own(name)
            scope = scope.parent
        return None

    def _own(self, name: str) -> Value | None:
        """What an import gives is looked for when its name is first asked for."""
        value = self.names.get(name)
        if value is not None and value.kind == "pending":
            # Two files may import each other: meanwhile it is only a name.
            self.names[name] = Value("external", value.type, value.node, value.file)
            found: Value = value.data()
            self.names[name] = found
            return found
        return value

    def set(self, name: str, value: Value) -> None:
        self.outside.get(name, self).names[name] = value

    def declare(self, node: ast.Global | ast.Nonlocal) -> None:
        """`global x` and `nonlocal x`: the scope that has the name."""
        scope = self.parent
        while scope is not None:
            last = scope.parent is None
            for name in node.names:
                if name not in self.outside and (last or (
                        isinstance(node, ast.Nonlocal) and name in scope.names)):
                    self.outside[name] = scope
            scope = scope.parent


def guessed(name: str, node: ast.AST, file: str) -> Value:
    """What a parameter of this name most probably is, as nobody shows what is passed."""
    for pattern, kind in GUESSES:
        if pattern.match(name):
            return Value(kind, "", node, file)
    return Value("unknown", "", node, file)
