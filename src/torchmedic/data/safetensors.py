"""Reads the header of a safetensors file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import BinaryIO

from torchmedic.observed.weights import Checkpoint, Defect, Entry, Stored

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
          "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
          "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
          "U16": "uint16", "U32": "uint32", "U64": "uint64", "C64": "complex64"}
LARGEST = 100_000_000
"""Bytes of a header: the format's own limit."""


def read(file: BinaryIO, blank: Checkpoint) -> Checkpoint:
    """Names, shapes and types, and whether the file is as long as they need."""
    blank = replace(blank, format="safetensors")
    length = int.from_bytes(file.read(8), "little")
    if length > LARGEST:
        return replace(blank, defects=(Defect("too-large", f"a header of {length} bytes"),))
    text = file.read(length)
    if len(text) < length:
        return replace(blank, defects=(Defect(
            "cut", f"the header has {length} bytes, {len(text)} are there"),))
    try:
        weights, end = _tensors(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return replace(blank, defects=(Defect(
            "damaged", f"the header is not valid: {type(error).__name__}: {error}"[:200]),))
    meta = json.loads(text).get("__metadata__") or {}
    entries = tuple(Entry(f"metadata {key}", str(value)[:60]) for key, value in meta.items())
    made = replace(blank, weights=weights, entries=entries[:20])
    needs = 8 + length + end
    if blank.size < needs:
        return replace(made, defects=(Defect(
            "cut", f"its tensors need {needs} bytes, the file has {blank.size}"),))
    return made


def _tensors(header: dict[str, dict[str, object]]) -> tuple[dict[str, Stored], int]:
    found, end = {}, 0
    for name, item in header.items():
        if name == "__metadata__":
            continue
        shape, offsets = item["shape"], item["data_offsets"]
        if not isinstance(shape, list) or not isinstance(offsets, list):
            raise ValueError(f"{name[:60]} has no shape")
        found[name] = Stored(tuple(map(int, shape)), DTYPES.get(
            str(item["dtype"]), str(item["dtype"]).lower()), f"{offsets[0]}")
        end = max(end, int(offsets[1]))
    return found, end
