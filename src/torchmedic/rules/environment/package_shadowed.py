"""A file of the project has the name of an installed package and is imported in its place.

## What you see
`partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular
import)`, or `cannot import name 'Tensor' from 'torch' (…/project/torch.py)`.
## Why
The folder of the script comes first on the search path. A file `torch.py`, `random.py`, `queue.py`
or `logging.py` beside the script hides the package of that name, also from other packages.
## Fix
Rename the file, and remove its `__pycache__` entry.
## When this is fine
Never.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("importerror", "attributeerror", "modulenotfounderror")
PARTIAL = re.compile(r"(?:from )?partially initialized module '(?P<name>\w+)[\w.]*'")
FROM = re.compile(r"cannot import name '\w+' from '(?P<name>\w+)[\w.]*' \((?P<file>[^)]+)\)"
                  r"|renaming '(?P<renamed>[^']+)'")
THIRD = {"torch", "torchvision", "torchaudio", "numpy", "scipy", "matplotlib", "transformers",
         "datasets", "cv2", "PIL", "tqdm", "yaml", "sklearn", "pandas", "timm", "einops",
         "lightning", "tensorboard", "wandb", "accelerate", "tokenizers"}
KNOWN = THIRD | sys.stdlib_module_names


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.short_type not in ("ImportError", "AttributeError", "ModuleNotFoundError"):
        return
    file = _named(failure.message) or _on_stack(failure)
    if file is None:
        return
    name = _module(file)
    yield Problem(
        f"`{file}` is imported in the place of the package `{name}`", where=failure.place,
        evidence=(raised(failure), Evidence(f"`{name}` is the name of an installed package", "")),
        fix=Fix(f"rename `{file}`, and delete its file in `__pycache__`"))


def _named(text: str) -> str | None:
    """A file of the project that the message names."""
    found = FROM.search(text)
    file = (found["file"] or found["renamed"]) if found else None
    ours = file and "-packages" not in file and "/lib/python" not in file
    return file if ours and file and _module(file) in KNOWN else None


def _on_stack(failure: Failure) -> str | None:
    found = PARTIAL.search(failure.message)
    for frame in failure.frames if found else ():
        if found and frame.user and _module(frame.file) == found["name"] in KNOWN:
            return frame.file
    return None


def _module(file: str) -> str:
    """`a/torch/__init__.py` and `a/torch.py` are `torch`."""
    parts = re.split(r"[\\/]", file.removesuffix(".py"))
    return parts[-2] if parts[-1] == "__init__" and len(parts) > 1 else parts[-1]


_LOG = """Traceback (most recent call last):
  File "/home/me/fit.py", line 1, in <module>
    import torch
  File "/home/me/torch.py", line 3, in <module>
    layer = torch.nn.Linear(2, 2)
{}
"""

RULE = Rule(
    name="package-shadowed", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG.format("AttributeError: partially initialized module 'torch' has no attribute "
                          "'nn' (most likely due to a circular import)"),
              "`/home/me/torch.py` is imported in the place of", "rename", kind="log"),
        fires(_LOG.format("ImportError: cannot import name 'Random' from 'random' "
                          "(/home/me/random.py)"), "the package `random`", kind="log",
              title="standard library"),
        quiet(_LOG.replace("/home/me/torch.py", "/home/me/net.py").format(
            "AttributeError: partially initialized module 'net' has no attribute 'Net' (most "
            "likely due to a circular import)"), kind="log", title="two files of one project"),
    ),
)
