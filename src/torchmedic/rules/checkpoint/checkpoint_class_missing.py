"""A whole object was saved, and its class is not found where it is loaded.

## What you see
`AttributeError: Can't get attribute 'Net' on <module '__main__' from 'eval.py'>`, or
`ModuleNotFoundError: No module named 'models.yolo'`, under `torch.load`.
## Why
`torch.save(model)` stores the name of the class and of its module, not its code. A class that was
defined in the training script belongs to `__main__`, which is another file now; a module that was
moved or renamed is gone.
## Fix
Save `model.state_dict()` and build the model before loading. For the file at hand: make the class
importable under the same name, load once, and save its `state_dict`.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("can't get attribute", "no module named")
ATTRIBUTE = re.compile(r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>[\w.]+)'")
MODULE = re.compile(r"No module named '?(?P<name>[\w.]+)'?")


def in_failure(failure: Failure) -> Iterator[Problem]:
    frames = failure.frames
    inside = any("serialization" in f.file or "torch.load(" in (f.text or "") for f in frames)
    if not inside or any(frame.function == "spawn_main" for frame in frames):
        return
    if (found := ATTRIBUTE.search(failure.message)) is not None:
        what = f"class `{found['name']}` of `{found['module']}`"
        here = (f"define or import `{found['name']}` in the script that loads it"
                if found["module"] == "__main__" else "install the version it was saved with")
    elif (found := MODULE.search(failure.message)) is not None:
        what = f"module `{found['name']}`"
        here = f"put the folder that holds `{found['name']}` on PYTHONPATH"
    else:
        return
    yield Problem(f"the file holds a whole object, and its {what} is not found here",
                  where=failure.place, evidence=(raised(failure),), fix=Fix(
                      f"{here}, load once, and save `model.state_dict()` from then on", "",
                      "unsafe"))


_LOG = """Traceback (most recent call last):
  File "eval.py", line 8, in <module>
    net = torch.load("last.pt")
{}
"""

RULE = Rule(
    name="checkpoint-class-missing", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG.format("AttributeError: Can't get attribute 'Net' on <module '__main__' from "
                          "'eval.py'>"), "class `Net` of `__main__`", "state_dict()", kind="log",
              title="class"),
        fires(_LOG.format("ModuleNotFoundError: No module named 'models.yolo'"),
              "module `models.yolo`", "PYTHONPATH", kind="log", title="module"),
        quiet(_LOG.format("ModuleNotFoundError: No module named 'einops'").replace(
            "net = torch.load(\"last.pt\")", "import einops"), kind="log", title="an import"),
    ),
)
