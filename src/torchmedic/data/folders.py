"""Checkpoints of several files: the shards of an index, and the folders of `torch.distributed`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchmedic.data.objects import _shape
from torchmedic.data.pickles import Global, Machine, Made, Unreadable
from torchmedic.observed.weights import Checkpoint, Defect, Entry, Stored

INDEX = 64 << 20
USUAL = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors",
         "diffusion_pytorch_model.safetensors")


def read(path: Path) -> Checkpoint:
    """The checkpoint an index or a folder stands for. Raises OSError."""
    if path.is_file():
        return _of_index(path)
    if (path / ".metadata").is_file():
        return _of_distributed(path)
    for found in (*sorted(path.glob("*.index.json")),
                  *(path / name for name in USUAL if (path / name).is_file())):
        from torchmedic.data import checkpoints

        return checkpoints.read(found)
    return Checkpoint(str(path), "folder", 0, defects=(Defect(
        "other", "a folder without *.index.json, model.safetensors, pytorch_model.bin or "
        ".metadata"),))


def _of_index(path: Path) -> Checkpoint:
    from torchmedic.data import checkpoints

    blank = Checkpoint(str(path), "shards", path.stat().st_size)
    try:
        with path.open("rb") as index:
            names = json.loads(index.read(INDEX))["weight_map"]
        files = sorted({str(name) for name in names.values()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"the index is not valid: {error}"[:200]
        return replace(blank, defects=(Defect("damaged", why),))
    weights: dict[str, Stored] = {}
    defects, entries, size = [], [], blank.size
    for name in files:
        file = path.parent / Path(name).name
        if not file.is_file():
            defects.append(Defect("shard", "the index names it and it is not there", (name,)))
            continue
        shard = checkpoints.read(file)
        weights.update(shard.weights)
        size += shard.size
        entries.append(Entry(name, shard.format, len(shard.weights)))
        defects.extend(replace(d, detail=f"{name}: {d.detail}") for d in shard.defects)
    lacking = [key for key in names if key not in weights]
    if lacking and not defects:
        defects.append(Defect("shard", f"{len(lacking)} tensors of the index are in no shard",
                              tuple(lacking[:3])))
    return replace(blank, size=size, weights=weights, entries=tuple(entries),
                   defects=tuple(defects))


def _of_distributed(path: Path) -> Checkpoint:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    blank = Checkpoint(str(path), "torch.distributed.checkpoint", size)
    try:
        with (path / ".metadata").open("rb") as file:
            root = Machine().run(file)
    except Unreadable as error:
        return replace(blank, defects=(Defect("cut" if error.cut else "damaged",
                                              f".metadata: {error}"),))
    state = root.state if isinstance(root, Made) else None
    told = state.get("state_dict_metadata") if isinstance(state, dict) else None
    found = {str(key): tensor for key, value in (told or {}).items()
             if (tensor := _planned(value)) is not None}
    files = tuple(Entry(f.name, f"{f.stat().st_size} bytes") for f in sorted(path.glob("*.distcp")))
    return replace(blank, weights=found, entries=files[:20], notes=(
        "a folder of torch.distributed.checkpoint: load it with "
        "`torch.distributed.checkpoint.load`, or `dcp_to_torch_save` makes one file of it",))


def _planned(value: Any) -> Stored | None:
    """The tensor a `TensorStorageMetadata` describes."""
    state = value.state if isinstance(value, Made) else None
    if not isinstance(state, dict) or "size" not in state:
        return None
    shape = _shape(state["size"])
    return None if shape is None else Stored(shape, _planned_dtype(state.get("properties")))


def _planned_dtype(value: Any) -> str:
    """`properties` holds the dtype as the global it was pickled as."""
    left, seen = [value], 0
    while left and seen < 50:
        item, seen = left.pop(), seen + 1
        if isinstance(item, Global) and item.module == "torch":
            return item.name
        if isinstance(item, Made):
            left.extend([item.state, item.args])
        elif isinstance(item, dict):
            left.extend(item.values())
        elif isinstance(item, (tuple, list)):
            left.extend(reversed(item))
    return "unknown"
