"""torchmedic: why a PyTorch training run died, hung or stopped, and the smallest fix."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from torchmedic.matching import NothingLoaded as NothingLoaded
    from torchmedic.matching import load_matching as load_matching

__version__ = "0.1.0"
_LATE = {"load_matching": "torchmedic.matching", "NothingLoaded": "torchmedic.matching"}
"""Names of the library with the modules that hold them: imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATE[name]), name)
