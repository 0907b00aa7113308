"""What a program may do without end takes bounded room in what is known of it."""

from __future__ import annotations

import tracemalloc

import pytest

from torchmedic.source.flow import trace_of
from torchmedic.source.script import Script

DOUBLED = "parts = parts + parts\n"
MERGED = "table.update(table)\n"
EXTENDED = "parts.extend(parts)\n"


@pytest.mark.parametrize("line", [DOUBLED, MERGED, EXTENDED])
def test_collections_stay_small(line: str) -> None:
    text = "parts, table = [1, 2], {'a': [1]}\ntable['b'] = 2\ntable[parts[0]] = 3\n" + line * 40
    script = Script.parse(text, "train.py")
    assert script is not None
    tracemalloc.start()
    trace_of(script)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20_000_000
