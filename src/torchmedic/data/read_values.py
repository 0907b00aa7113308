"""Runs in the user's interpreter: reads a checkpoint's tensors, weights only, and prints which
hold NaN or Inf, as JSON. Python 3.8 syntax; the standard library and torch only.
"""

# mypy: ignore-errors
import importlib.util
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def tensors(value, path=""):
    if hasattr(value, "is_floating_point"):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from tensors(inner, f"{path}[{number}]")


def counted(value):
    """NaN and Inf of a tensor; of a sparse one those of what it stores."""
    import torch

    if value.is_quantized or value.is_meta:
        return 0, 0
    if value.layout != torch.strided:
        value = value.to_sparse().coalesce().values() if value.layout != torch.sparse_coo \
            else value.coalesce().values()
    wide = value if value.element_size() > 1 else value.float()
    return int(torch.isnan(wide).sum()), int(torch.isinf(wide).sum())


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # The folder of this file is on the path, and has modules that share names with others.
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != HERE]
    spec = importlib.util.spec_from_file_location(
        "_torchmedic_read_tensors", os.path.join(HERE, "read_tensors.py"))
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    count, bad = 0, []
    for name, value in tensors(reader.load(sys.argv[1])):
        count += 1
        if value.is_floating_point() or value.is_complex():
            nans, infs = counted(value)
            if nans or infs:
                bad.append([name, nans, infs])
    json.dump({"tensors": count, "bad": bad}, out)
    out.close()


if __name__ == "__main__":
    main()
