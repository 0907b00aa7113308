"""Reads a checkpoint's tensors with torch, never more than weights: files of torch.save and of
safetensors, the shards of an index, and folders of models. Python 3.8 syntax; the standard library
and torch only, since it also runs in the user's interpreter.
"""

# mypy: ignore-errors
import json
import os

USUAL = ("model.safetensors.index.json", "pytorch_model.bin.index.json", "model.safetensors",
         "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin",
         "diffusion_pytorch_model.safetensors")
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
          "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
          "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
          "U16": "uint16", "U32": "uint32", "U64": "uint64", "C64": "complex64"}
LARGEST = 100000000


def load(path):
    """What the file or folder holds; safetensors and shards are dictionaries of tensors."""
    path = os.fspath(path)
    if os.path.isdir(path):
        path = _in_folder(path)
    if path.endswith(".index.json"):
        return _shards(path)
    with open(path, "rb") as file:
        head = file.read(9)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= LARGEST:
        return _safetensors(path)
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _in_folder(folder):
    for name in USUAL:
        if os.path.isfile(os.path.join(folder, name)):
            return os.path.join(folder, name)
    if os.path.isfile(os.path.join(folder, ".metadata")):
        raise ValueError("%s is a folder of torch.distributed.checkpoint; one file of it: python "
                         "-m torch.distributed.checkpoint.format_utils dcp_to_torch %s FILE"
                         % (folder, folder))
    raise ValueError("%s is a folder without any of %s" % (folder, ", ".join(USUAL)))


def _shards(index):
    with open(index, "rb") as file:
        names = sorted({str(name) for name in json.load(file)["weight_map"].values()})
    found = {}
    for name in names:
        if os.path.basename(name) != name or name.endswith(".index.json"):
            raise ValueError("the index names %r, which is no file beside it" % name)
        found.update(load(os.path.join(os.path.dirname(index), name)))
    return found


def _safetensors(path):
    import torch

    found = {}
    with open(path, "rb") as file:
        start = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(start))
        for key, item in header.items():
            if key == "__metadata__":
                continue
            if item["dtype"] not in DTYPES:
                raise ValueError("%s has the type %s" % (key, item["dtype"]))
            dtype = getattr(torch, DTYPES[item["dtype"]])
            first, last = item["data_offsets"]
            room = bytearray(last - first)
            file.seek(8 + start + first)
            if file.readinto(room) != last - first:
                raise ValueError("the file ends inside %s" % key)
            flat = torch.frombuffer(room, dtype=dtype) if room else torch.empty(0, dtype=dtype)
            found[key] = flat.reshape(item["shape"])
    return found
