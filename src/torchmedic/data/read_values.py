"""Runs in the user's interpreter: reads a checkpoint's tensors, weights only, and prints which
hold NaN or Inf, as JSON. Python 3.8 syntax; the standard library, torch and safetensors only.
"""

# mypy: ignore-errors
import json
import os
import sys


def tensors(value, path=""):
    if hasattr(value, "is_floating_point"):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from tensors(inner, f"{path}[{number}]")


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    if sys.argv[1].endswith(".safetensors"):
        from safetensors.torch import load_file

        loaded = load_file(sys.argv[1])
    else:
        loaded = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
    count, bad = 0, []
    for name, value in tensors(loaded):
        count += 1
        if value.is_floating_point() or value.is_complex():
            wide = value if value.element_size() > 1 else value.float()
            nans, infs = int(torch.isnan(wide).sum()), int(torch.isinf(wide).sum())
            if nans or infs:
                bad.append([name, nans, infs])
    json.dump({"tensors": count, "bad": bad}, out)
    out.close()


if __name__ == "__main__":
    main()
