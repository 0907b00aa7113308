"""Exits that a script can come to."""

import pytest

from torchmedic.source.reach import exits_in
from torchmedic.source.script import Script


@pytest.mark.parametrize(("text", "lines"), [
    ("raise SystemExit(main())", [1]), ("raise SystemExit\nraise SystemExit(2)", [1]),
    ("def f():\n    return 1\n    raise SystemExit(2)\nf()", []),
    ("def unused():\n    raise SystemExit(2)", []),
    ("def used():\n    raise SystemExit(2)\nprint(used)", [2]),
    ("if False:\n    raise SystemExit(2)", []), ("if a:\n    raise ValueError(2)", []),
    ("if False:\n    pass\nelse:\n    raise SystemExit(2)", [4]),
    ("try:\n    go()\nexcept OSError:\n    raise SystemExit(3) from None", [4]),
    ("class A:\n    def go(self):\n        raise SystemExit(1)\nA().go()", [3]),
])
def test_exits_that_can_be_reached(text, lines):
    assert [node.lineno for node in exits_in(Script.parse(text).tree)] == lines
