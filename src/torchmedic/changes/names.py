"""Names that a file gives to modules and values, and imports that it lacks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic.model import Edit
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.changes.places import Edits
    from torchmedic.source.script import Script


def assigned(script: Script, value: ast.AST | None) -> str | None:
    """The name that an expression's value is given: `model`, `self.model`."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and node.value is value and len(node.targets) == 1 and (
                isinstance(node.targets[0], (ast.Name, ast.Attribute))):
            return ast.unparse(node.targets[0])
    return None


def reaches(script: Script, made: int, used: int) -> bool:
    """A name that is set on one line has its value on another one, further down."""
    one, other = script.function_at(made), script.function_at(used)
    return made < used and (one is None or one == other)


def name_of(script: Script, module: str) -> str | None:
    """How the file names a module that it imports, such as `nn` for `torch.nn`."""
    package, _, last = module.rpartition(".")
    for node in script.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == package and not node.level:
            found = next((a.asname or a.name for a in node.names if a.name == last), None)
        elif isinstance(node, ast.Import):
            found = next((a.asname or a.name for a in node.names if a.name == module), None)
        else:
            found = None
        if found:
            return found
    outer = name_of(script, package) if package else None
    return f"{outer}.{last}" if outer else None


def importing(script: Script, module: str) -> Edits | None:
    """`import module` among the imports of the file, unless it is there; None when the file uses
    that name for something else."""
    wanted = [n for n in script.tree.body if isinstance(n, ast.Import)]
    if _taken(script.tree, module):
        return None
    if any(a.name == module and a.asname is None for n in wanted for a in n.names):
        return ()
    line = _import_line(script)
    return (Edit(line, 0, line, 0, f"import {module}\n"),)


def _import_line(script: Script) -> int:
    """Where the first import stands that is none of the future; else the first statement."""
    body = script.tree.body
    if body and ast.get_docstring(script.tree, clean=False) is not None:
        body = body[1:]
    later = [n for n in body if not (isinstance(n, ast.ImportFrom) and n.module == "__future__")]
    first = next((n for n in later if isinstance(n, (ast.Import, ast.ImportFrom))),
                 later[0] if later else None)
    if first is None:
        return 1
    above: list[ast.expr] = getattr(first, "decorator_list", [])
    return min([first.lineno, *(d.lineno for d in above)])


def _taken(tree: ast.Module, name: str) -> bool:
    """Something else in the file has this name. Methods are no names of the file."""
    methods = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            taken = any(a.asname == name and a.name != name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            taken = any((a.asname or a.name) in (name, "*") and not (
                a.name == "*" and (node.module or "").startswith("torch")) for a in node.names)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            taken = node.name == name and id(node) not in methods
        elif isinstance(node, ast.Name):
            taken = node.id == name and not isinstance(node.ctx, ast.Load)
        else:
            taken = isinstance(node, ast.arg) and node.arg == name
        if taken:
            return True
    return False
