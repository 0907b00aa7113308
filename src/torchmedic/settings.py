"""The configuration of a program: its fields, and which of them the code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

HOLDER = re.compile(r"^(cfg|conf|config|configuration|hparams|hps|hyper\w*|params|settings|opts?|"
                    r"defaults|args)$", re.IGNORECASE)
CLASS = re.compile(r"(Config|Cfg|Args|Arguments|Params|Hparams|Settings|Options)$")


def fields_of(tree: ast.Module) -> Iterator[tuple[str, int, str]]:
    """(field, line, holder) of dicts with such a name and of classes made to hold settings."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and (
                HOLDER.match(node.targets[0].id)):
            for name, line in _entries(node.value):
                yield name, line, node.targets[0].id
        elif isinstance(node, ast.ClassDef) and (CLASS.search(node.name) or any(
                "dataclass" in ast.unparse(d) for d in node.decorator_list)):
            for field in node.body:
                target = field.target if isinstance(field, ast.AnnAssign) else (
                    field.targets[0] if isinstance(field, ast.Assign) else None)
                if isinstance(target, ast.Name):
                    yield target.id, field.lineno, node.name


def _entries(value: ast.expr) -> Iterator[tuple[str, int]]:
    if isinstance(value, ast.Dict):
        for key in value.keys:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, key.lineno
    elif isinstance(value, ast.Call) and ast.unparse(value.func) in (
            "dict", "SimpleNamespace", "types.SimpleNamespace", "Namespace", "argparse.Namespace"):
        for given in value.keywords:
            if given.arg is not None:
                yield given.arg, given.value.lineno


def reads(tree: ast.Module) -> set[str]:
    """Names of attributes and entries that are read anywhere."""
    found = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)
             and isinstance(n.ctx, ast.Load)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            found.add(str(node.slice.value))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
                node.func.attr in ("get", "pop")) and node.args and isinstance(
                node.args[0], ast.Constant):
            found.add(str(node.args[0].value))
    return found


def private(tree: ast.Module, holders: set[str]) -> bool:
    """The configuration goes nowhere as a whole: whatever is read of it is read by name here."""
    classes = holders & {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
    names = holders - classes
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and (
                ast.unparse(node.value.func) in classes):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    owners = {id(n.value) for n in ast.walk(tree) if isinstance(n, (ast.Attribute, ast.Subscript))}
    shown = {id(a) for n in ast.walk(tree) if isinstance(n, ast.Call)
             and ast.unparse(n.func) in ("print", "logging.info", "logger.info") for a in n.args}
    made = sum(isinstance(n, ast.Call) and ast.unparse(n.func) in classes for n in ast.walk(tree))
    if classes and not made:
        return False
    return not any(isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)
                   and id(n) not in owners and id(n) not in shown for n in ast.walk(tree))
