"""Starts torchmedic's observer in this interpreter, then the sitecustomize that it shadows.

The only file of its folder: whatever lies beside it would be importable by the user's program.
"""

import os
import sys


def _leave_the_path():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]


def _observe():
    boot = os.environ.get("TORCHMEDIC_BOOT")
    if boot:
        try:
            with open(boot, "rb") as source:
                code = source.read()
            exec(compile(code, boot, "exec"), {"__name__": "_torchmedic_boot", "__file__": boot})
        except Exception:
            pass  # Our failure is ours: the program starts without an observer.


def _start_the_shadowed_one():
    # Where there is none, its ImportError goes on: `site` expects it, and no module of ours stays.
    sys.modules.pop("sitecustomize", None)
    import sitecustomize  # noqa: F401


_leave_the_path()
_observe()
_start_the_shadowed_one()
