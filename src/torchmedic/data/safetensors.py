"""Reads the header of a safetensors file."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from typing import BinaryIO

from torchmedic.data.objects import SIZES, shape_of
from torchmedic.observed.weights import Checkpoint, Defect, Entry, Stored

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
          "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
          "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
          "U16": "uint16", "U32": "uint32", "U64": "uint64", "C64": "complex64",
          "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
          "F8_E5M2FNUZ": "float8_e5m2fnuz"}
LARGEST = 25 << 20
"""Bytes of a header; the format allows four times as much, the largest models need ten million."""


def read(file: BinaryIO, blank: Checkpoint) -> Checkpoint:
    """Names, shapes and types, and whether the file is as long as they need."""
    blank = replace(blank, format="safetensors")
    length = int.from_bytes(file.read(8), "little")
    if length > LARGEST:
        return replace(blank, defects=(Defect("too-large", f"a header of {length} bytes"),))
    text = file.read(length)
    if len(text) < length:
        return replace(blank, defects=(Defect(
            "cut", f"the header has {length} bytes, {len(text)} are there; how many follow it is "
                   "not told"),))
    try:
        header = json.loads(text)
        meta = header.pop("__metadata__", None) or {}
        weights, end = _tensors(header)
        entries = tuple(Entry(f"metadata {key}", str(value)[:60])
                        for key, value in list(meta.items())[:20])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return replace(blank, defects=(Defect(
            "damaged", f"the header is not valid: {type(error).__name__}: {error}"[:200]),))
    made = replace(blank, weights=weights, entries=entries)
    needs = 8 + length + end
    if blank.size < needs:
        return replace(made, defects=(Defect(
            "cut", f"{needs - blank.size:,} of {needs:,} bytes are missing"),))
    if blank.size > needs:
        return replace(made, defects=(Defect(
            "damaged", f"{blank.size - needs:,} bytes follow its last tensor"),))
    return made


def _tensors(header: dict[str, dict[str, object]]) -> tuple[dict[str, Stored], int]:
    """By name, and where the last one ends."""
    found, end = {}, 0
    for name, item in header.items():
        shape, offsets = shape_of(item["shape"]), shape_of(item["data_offsets"])
        if shape is None or offsets is None or len(offsets) != 2:
            raise ValueError(f"{name[:60]} has no shape")
        dtype = DTYPES.get(str(item["dtype"]), str(item["dtype"]).lower()[:20])
        room = offsets[1] - offsets[0]
        if item["dtype"] in DTYPES and prod(shape) * SIZES.get(dtype, 1) != room:
            raise ValueError(f"{name[:60]} of {list(shape)} {dtype} has {room} bytes")
        found[name] = Stored(shape, dtype, f"{offsets[0]}" if room else "")
        end = max(end, offsets[1])
    return found, end
