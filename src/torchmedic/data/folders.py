"""Checkpoints of several files: the shards of an index, and the folders of `torch.distributed`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchmedic.data.bounded import Unreadable
from torchmedic.data.objects import shape_of
from torchmedic.data.pickles import Global, Machine, Made
from torchmedic.data.statedicts import attributes, items_of
from torchmedic.observed.weights import Checkpoint, Defect, Entry, Stored
from torchmedic.output import UserError

INDEX = 64 << 20
USUAL = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin",
         "diffusion_pytorch_model.safetensors")
SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".pkl", ".jit", ".npz")


def read(path: Path) -> Checkpoint:
    """The checkpoint an index or a folder stands for. Raises OSError, and UserError where a
    folder holds several."""
    if path.is_file():
        return _of_index(path)
    if (path / ".metadata").is_file():
        return _of_distributed(path)
    if (path / "data.pkl").is_file() and (path / "version").is_file():
        return Checkpoint(str(path), "folder", 0, defects=(Defect(
            "unpacked", "it holds `data.pkl` and `version`"),))
    if (path / "saved_model.pb").is_file():
        return Checkpoint(str(path), "folder", 0, defects=(Defect(
            "other", "a TensorFlow SavedModel"),))
    from torchmedic.data import checkpoints

    return checkpoints.read(_only(path))


def _only(path: Path) -> Path:
    """The file of a folder that holds the weights."""
    usual = (*sorted(path.glob("*.index.json")), *(path / name for name in USUAL))
    found = next((file for file in usual if file.is_file()), None)
    if found is not None:
        return found
    files = sorted(f for f in path.iterdir() if f.suffix in SUFFIXES and f.is_file())
    if not files:
        raise UserError(f"{path} is a folder without a checkpoint")
    if len(files) > 1:
        more = f" and {len(files) - 5} more" if len(files) > 5 else ""
        names = ", ".join(f.name for f in files[:5])
        raise UserError(f"{path} is a folder with several checkpoints, name one: {names}{more}")
    return files[0]


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
    defects, entries, size, refused = [], [], blank.size, dict[str, None]()
    for name in files:
        file = path.parent / name
        if Path(name).name != name or name.endswith(".index.json") or not file.is_file():
            defects.append(Defect("shard", "the index names it and it is not there", (name,)))
            continue
        shard = checkpoints.read(file)
        weights.update(shard.weights)
        refused.update(dict.fromkeys(shard.refused))
        size += shard.size
        entries.append(Entry(name, shard.format, len(shard.weights)))
        defects.extend(replace(d, detail=f"{name}: {d.detail}") for d in shard.defects)
    lacking = [str(key)[:200] for key in names if key not in weights]
    if lacking and not defects:
        defects.append(Defect("shard", f"{len(lacking)} tensors of the index are in no shard",
                              tuple(lacking[:3])))
    return replace(blank, size=size, weights=weights, entries=tuple(entries),
                   defects=tuple(defects), refused=tuple(refused))


def _of_distributed(path: Path) -> Checkpoint:
    from torchmedic.data.pickled import broken, hostile

    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    blank = Checkpoint(str(path), "torch.distributed.checkpoint", size)
    machine = Machine()
    try:
        with (path / ".metadata").open("rb") as file:
            root = machine.run(file)
    except Unreadable as error:
        return broken(blank, machine, error)
    told = attributes(root) or {}
    found = {str(key): tensor for key, value in
             (items_of(told.get("state_dict_metadata")) or {}).items()
             if (tensor := _planned(value)) is not None}
    files = tuple(Entry(f.name, f"{f.stat().st_size:,} bytes")
                  for f in sorted(path.glob("*.distcp"))[:20])
    rooms = _rooms(items_of(told.get("storage_data")) or {})
    return replace(blank, weights=found, entries=files,
                   defects=(*hostile(machine), *_lacking(path, rooms)), notes=(
        "a folder of torch.distributed.checkpoint: load it with "
        "`torch.distributed.checkpoint.load`, or `dcp_to_torch_save` makes one file of it",))


def _rooms(places: Mapping[Any, Any]) -> dict[str, int]:
    """How far each file must reach."""
    rooms: dict[str, int] = {}
    for one in places.values():
        state = attributes(one) or {}
        name, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            rooms[name] = max(rooms.get(name, 0), offset + length)
    return rooms


def _lacking(path: Path, rooms: Mapping[str, int]) -> Iterator[Defect]:
    """Files that are not there, or end too early."""
    for name, room in rooms.items():
        file = path / name
        if Path(name).name != name or not file.is_file():
            yield Defect("shard", "`.metadata` names it and it is not there", (name[:200],))
        elif (has := file.stat().st_size) < room:
            yield Defect("cut", f"{name}: {room - has:,} of {room:,} bytes are missing")


def _planned(value: Any) -> Stored | None:
    """The tensor a `TensorStorageMetadata` describes."""
    state = attributes(value) or {}
    shape = shape_of(state.get("size"))
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
