"""One direction: who may import whom, read from the source."""

import ast
from pathlib import Path

import pytest

import torchmedic

SOURCE = Path(torchmedic.__file__).parent
TORCH = ("probes", "rehearse", "data", "matching.py", "integrations", "examples")
FILES = sorted(f for f in SOURCE.rglob("*.py") if "examples" not in f.parts)


def imports(file):
    """Absolute names of the modules a file imports, also inside functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_who_imports_whom(file):
    part = file.relative_to(SOURCE).parts[0]
    roots = {name.partition(".")[0] for name in imports(file)}
    ours = {name.split(".")[1] for name in imports(file) if name.startswith("torchmedic.")}
    if part not in TORCH:
        assert "torch" not in roots
    if part != "report":
        assert "rich" not in roots
    if part in ("source", "logs"):  # an observer knows no failure kind and no report
        assert not ours & {"rules", "registry", "diagnosis", "report", "commands"}
    if part == "rules":
        assert not ours & {"report", "commands", "supervise", "probes", "store"}
        assert not roots & {"os", "pathlib", "subprocess", "io"}
    if part == "report":
        assert not ours & {"observed", "rules", "supervise", "probes", "diagnosis"}
