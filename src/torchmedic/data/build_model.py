"""Runs in the user's interpreter: builds a model and prints its tensors' shapes as JSON.

`build_model.py MODULE:FACTORY ARGUMENTS`. Python 3.8 syntax; the standard library and torch only.
What the factory prints goes to standard error.
"""

# mypy: ignore-errors
import importlib
import json
import os
import sys
from pathlib import Path


def build(factory, arguments):
    import torch

    def call():
        return factory(**arguments) if isinstance(arguments, dict) else factory(*arguments)

    try:
        with torch.device("meta"):  # takes no memory; not every factory can do with it
            model = call()
        names(model)
        return model
    except Exception:
        return call()


def names(model):
    found, places, tied = {}, {}, {}
    for key, value in model.state_dict(keep_vars=True).items():
        if hasattr(value, "shape"):
            found[key] = [list(value.shape), str(value.dtype).replace("torch.", "")]
            first = places.setdefault(id(value), key)
            if first != key:
                tied[key] = first
    return found, tied


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module, _, path = sys.argv[1].partition(":")
    # The folder of this file is on the path, and has modules that share names with others.
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [str(Path.cwd()), *(p for p in sys.path if str(Path(p).resolve()) != here)]
    factory = importlib.import_module(module)
    for part in path.split("."):
        factory = getattr(factory, part)
    arguments = json.loads(sys.argv[2])
    model = factory if hasattr(factory, "state_dict") and not isinstance(factory, type) \
        else build(factory, arguments)
    if not hasattr(model, "state_dict"):
        raise TypeError(f"{sys.argv[1]} gives a {type(model).__name__}, not a model")
    found, tied = names(model)
    json.dump({"name": type(model).__name__, "tensors": found, "tied": tied}, out)
    out.close()


if __name__ == "__main__":
    main()
