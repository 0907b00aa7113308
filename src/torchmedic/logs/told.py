"""What the lines before a failure say of the run's settings and progress."""

from __future__ import annotations

import re
from collections.abc import Sequence

from torchmedic.observed import Told

# Not `val_batch_size`: a name of another loader. A total over devices is no batch of one GPU.
BATCH = re.compile(r"(?<![\w-])-{0,2}(?:per[_-](?:device|gpu)[_-])?(?:train(?:ing)?[_-])?"
                   r"(?:mini|micro)?[_-]?batch[_ -]?size(?:[_-]per[_-](?:gpu|device))?['\"]?"
                   r"(?:\s*[=:]\s*| )(\d+)\b"
                   r"|(?:samples|imgs)_per_gpu['\"]?\s*[=:]\s*(\d+)\b", re.IGNORECASE)
EPOCH = re.compile(r"\bepoch\W{0,4}(\d+)", re.IGNORECASE)


def told(lines: Sequence[str], end: int) -> Told:
    """Of the first `end` lines. The largest batch size, where several are named."""
    sizes: list[int] = []
    epochs: set[int] = set()
    for line in lines[:end]:
        lower = line.lower()
        if "batch" in lower or "per_gpu" in lower:
            sizes += [int(one or other) for one, other in BATCH.findall(line)]
        if "epoch" in lower:
            epochs.update(int(number) for number in EPOCH.findall(line)[:1])
    return Told(max(sizes, default=None), max(0, len(epochs) - 1))
