"""`view` or `reshape` is used to exchange axes, which moves no value and mixes the data.

## What you see
No error. The shape is right, the model trains, and stays worse than it should be: each "channel"
or "time step" holds pieces of all of them.
## Why
`view` and `reshape` keep the order of the values in memory and only cut it in another way. They
can join neighbouring axes or split one. Only `permute` and `transpose` exchange axes.
## Fix
`x.permute(0, 2, 1)` in place of `x.view(b, t, c)` for a tensor of (b, c, t); where axes are also
joined, permute first and reshape the result.
## When this is fine
When one of the exchanged axes has length 1.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.axes import Reordering, reorderings

if TYPE_CHECKING:
    from torchmedic.source.blocks import Function
    from torchmedic.source.script import Script


PADS = re.compile(r"(?:^|\.)(?:pad|cat|concat)$")
SOURCE_WORDS = ("view", "reshape")


def in_source(script: Script) -> Iterator[Problem]:
    for found in reorderings(script):
        line = found.node.end_lineno or found.node.lineno
        function = script.function_at(line)
        if _padded(function, found):
            continue
        axes = ", ".join(name or "_" for name in found.axes)
        call = ast.unparse(found.node)
        yield Problem(
            f"`{call}` exchanges the axes of ({axes}) without moving a value",
            where=Place(file=script.file, line=line,
                        function=function.name if function else None),
            evidence=(Evidence(f"`{found.receiver}` has the axes ({axes}), as the code unpacked "
                               "them; a view only cuts the same order of values in another way",
                               "source"),),
            confidence="certain" if found.permutation else "likely", fix=_fix(script, found),
        )


def _padded(function: Function | None, found: Reordering) -> bool:
    """A column put in front shifts each row by one more: how relative positions are aligned."""
    if function is None:
        return False
    made = [n for n in ast.walk(function.node) if isinstance(n, ast.Assign)]
    names = {ast.unparse(t) for n in made if found.node in ast.walk(n.value) for t in n.targets}
    return any(isinstance(n.value, ast.Call) and PADS.search(ast.unparse(n.value.func))
               and found.receiver in (ast.unparse(t) for t in n.targets) for n in made) or any(
        _cuts(n.value) and ast.unparse(n.value.value) in names for n in made
        if isinstance(n.value, ast.Subscript))


def _cuts(part: ast.Subscript) -> bool:
    """`x[:, :, 1:]`: the first values of rows are left out."""
    return isinstance(part.slice, ast.Tuple) and any(
        isinstance(s, ast.Slice) and s.lower is not None for s in part.slice.elts)


def _fix(script: Script, found: Reordering) -> Fix:
    order = found.permutation
    if order is None:
        return Fix("`permute` the axes into this order first, then `reshape`", "", "unsafe")
    moved = f"{found.receiver}.permute({', '.join(map(str, order))})"
    single = all(len(names) == 1 for names in found.wanted)
    if not single:
        moved += f".reshape({', '.join(ast.unparse(size) for size in found.sizes)})"
    # What views it afterwards would need its values in one piece.
    whole = ".contiguous()" if single and _viewed_later(script, found) else ""
    return Fix(f"`{moved}`", "results change: until now the model saw mixed values", "unsafe",
               edits=changes.replacing(found.node, moved + whole))


def _viewed_later(script: Script, found: Reordering) -> bool:
    end = found.node.end_lineno or found.node.lineno
    function = script.function_at(end)
    last = function.end_line if function is not None else len(script.lines)
    return any(".view(" in script.line(number) for number in range(end + 1, last + 1))


def _function(*lines: str) -> str:
    return "def forward(self, x):\n    " + "\n    ".join(lines) + "\n    return x\n"


_UNPACK = "b, c, t, h, w = x.shape"
_RIGHT = {
    "neighbours joined": (_UNPACK, "x = x.view(b, c * t, h, w)"),
    "product in any order": (_UNPACK, "x = x.reshape(b, t * c, h * w)"),
    "permuted before": (_UNPACK, "x = x.permute(0, 2, 1, 3, 4).reshape(b, t, c * h * w)"),
    "permuted in a statement": (_UNPACK, "x = x.transpose(1, 2)", "x = x.reshape(b, t, c, h, w)"),
    "rest": (_UNPACK, "x = x.view(b, c, -1)"),
    "split": ("b, n, c = x.shape", "x = x.view(b, n, 8, c // 8)"),
    "other tensor": (_UNPACK, "x = self.encoder(x).view(b, t, c)"),
    "assigned again": ("b, c, t = x.shape", "x = self.mix(x)", "x = x.view(b, t, c)"),
    "names of another": ("b, c, t = y.shape", "x = x.view(b, t, c)"),
    "name changed": ("b, c, t = x.shape", "c = b", "x = x.view(b, t, c)"),
    "two layouts": ("if self.last:", "    b, t, c = x.shape", "else:", "    b, c, t = x.shape",
                    "x = x.view(b, t, c)"),
    "permuted in place": ("b, c, t = x.shape", "x.transpose_(1, 2)", "x = x.reshape(b, t, c)"),
    "einops": ("b, c, t = x.shape", "x = rearrange(x, 'b c t -> b t c', b=b)"),
    "pooled to one": ("b, c, _, _ = x.size()", "x = x.view(b, -1, c)"),
    "star": ("b, *rest = x.shape", "x = x.view(-1, b)"),
    "a size of two axes": ("b, h, w, c, _, _ = x.shape", "x = x.reshape(b * h * w, c, h, w)"),
    "skewed": ("x = F.pad(x, (1, 0))", "b, n, q, k = x.shape", "x = x.view(b, n, k, q)[:, :, 1:]"),
    "shifted": ("b, n, q, k = x.shape", "x = x.reshape(b, n, k, q)", "x = x[:, :, s:, :]"),
    "windows": ("b, h, w, c = x.shape", "x = x.view(b, h // 7, 7, w // 7, 7, c)"),
}
_WRONG = (
    fires(_function(_UNPACK, "x = x.view(b, t, c, h, w)"),
          "`x.view(b, t, c, h, w)` exchanges the axes of (b, c, t, h, w)",
          "`x.permute(0, 2, 1, 3, 4)`", kind="source", line="x.view(b, t, c", title="two axes"),
    fires(_function("frames, height, width, channels = x.size()",
                    "x = x.view(channels, frames, height, width).permute(1, 2, 3, 0)"),
          "`x.permute(3, 0, 1, 2)`", kind="source", title="channels last"),
    fires(_function("b, c, t, _, _ = x.shape", "x = x.mean(dim=(3, 4)).view(b, t, c)"),
          "exchanges the axes of (b, c, t)", "`x.mean(dim=(3, 4)).permute(0, 2, 1)`",
          kind="source", title="after a mean"),
    fires(_function("b = x.size(0)", "c, t = x.size(1), x.size(2)",
                    "x = x.contiguous().view(b, t, -1)"),
          "`x.contiguous().permute(0, 2, 1)`", kind="source", title="sizes one by one"),
    fires(_function("b, c, h, w = x.shape", "x = torch.reshape(x, (b, h * w, c))"),
          "`x.permute(0, 2, 3, 1).reshape(b, h * w, c)`", kind="source", title="image to tokens"),
    fires(_function("b, c = x.shape[:2]", "t = x.shape[2]", "x = x.reshape([b, t, c])"),
          "exchanges the axes of (b, c, t)", kind="source", title="slices"),
)

RULE = Rule(
    name="view-instead-of-permute", doc=__doc__, category="code", in_source=in_source,
    examples=(*_WRONG, *(quiet(_function(*lines), kind="source", title=title)
                         for title, lines in _RIGHT.items())),
)
