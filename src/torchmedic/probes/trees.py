"""Goes through the modules of a model without calling anything of the user's."""

from __future__ import annotations


def walk(module):
    """(path, module), the root first, as `named_modules`; modules need no hash."""
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


def parameters(module):
    """(name, parameter) of the module's own, without those of the modules below."""
    return [(name, p) for name, p in list(vars(module).get("_parameters", {}).items())
            if p is not None]
