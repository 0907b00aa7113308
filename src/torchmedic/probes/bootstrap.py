"""Loads the observer by its absolute path, under a private name. Executed, never imported.

Started by `boot/sitecustomize.py` and by `torchmedic.pth`; whichever comes first does the work.
"""

import os
import sys


def _load(folder, name="_torchmedic"):
    import _frozen_importlib
    import _frozen_importlib_external

    spec = _frozen_importlib_external.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    module = _frozen_importlib.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _start():
    run = os.environ.get("TORCHMEDIC_RUN")
    if not run or "_torchmedic" in sys.modules or os.environ.get("TORCHMEDIC_OFF"):
        return
    _load(os.path.dirname(os.path.abspath(__file__)))
    from _torchmedic import begin

    begin.start(run)


_start()
