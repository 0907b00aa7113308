"""A number is larger than its half-precision type can hold.

## What you see
`RuntimeError: value cannot be converted to type at::Half without overflow`, at a `masked_fill` with
`-1e9` or a comparison with a large constant under autocast.
## Why
float16 ends at 65504. A constant such as `-1e9`, which masks attention in float32, lies beyond it.
## Fix
Take the bound from the tensor: `torch.finfo(x.dtype).min`; or bfloat16, which reaches as far as
float32.
## When this is fine
Never: torch refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("without overflow",)
OVERFLOW = re.compile(r"value cannot be converted to type (?:at::)?(?P<type>c10::)?(?P<name>\w+) "
                      r"without overflow")


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = OVERFLOW.search(failure.message)
    if found is not None and found["name"] in ("Half", "BFloat16"):
        name = "float16" if found["name"] == "Half" else "bfloat16"
        yield Problem(
            f"a constant on this line is larger than {name} can hold", where=failure.place,
            evidence=(raised(failure),), fix=Fix(
                "`torch.finfo(x.dtype).min` in place of `-1e9`", "or keep this operation in "
                "float32: `x.float()`", "unsafe"))


_PROGRAM = """
import torch
torch.set_num_threads(1)
x = torch.zeros(3, dtype=torch.float16)
x.masked_fill(x == 0, %s)
"""

RULE = Rule(
    name="half-precision-overflow", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % "-1e9", "larger than float16 can hold", "torch.finfo", line="masked_fill",
              title="mask"),
        quiet(_PROGRAM % "-1e4", title="within range"),
    ),
)
