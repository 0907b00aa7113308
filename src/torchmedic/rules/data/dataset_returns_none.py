"""A dataset's sample is None, or another thing that cannot be put into a batch.

## What you see
`TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists;
found <class 'NoneType'>`; `'NoneType' object is not subscriptable` in a `collate_fn`.
## Why
`__getitem__` ends without a `return` on some path (an image that could not be read, an `except`),
or gives back a PIL image or an object of the project.
## Fix
None: return a sample on every path, or leave the index out of the dataset. A PIL image:
`ToTensor()` in the transforms.
## When this is fine
With a `collate_fn` that takes the None samples out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import sourceloaders
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.samples import batch_facts, own_place
from torchmedic.source.flow import trace_of
from torchmedic.source.paths import inside
from torchmedic.source.reach import falls_through

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

WORDS = ("batch must contain",)
FOUND = re.compile(r"batch must contain .*?; found <class '(?P<type>[\w.]+)'>", re.DOTALL)


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = FOUND.search(failure.message)
    if found is None:
        return
    name = found["type"]
    if name == "NoneType":
        message = "a sample of the dataset is None"
        fix = Fix("return a sample on every path through `__getitem__`, or leave what can't be "
                  "read out of the dataset", "a `collate_fn` can drop the None samples of a batch")
    else:
        message = f"a sample of the dataset holds a `{name}`, which has no place in a batch"
        fix = Fix("turn it into a tensor in `__getitem__`"
                  + (": `transforms.ToTensor()`" if "PIL" in name else ""),
                  "or a `collate_fn` that keeps it as a list", "unsafe")
    yield Problem(message, where=own_place(failure), fix=fix,
                  evidence=(raised(failure), *batch_facts(failure)),
                  category="data" if name == "NoneType" else "code")


def in_source(script: Script) -> Iterator[Problem]:
    """A way through `__getitem__` that gives no sample, with torch's own collating."""
    for loader in sourceloaders.loaders(trace_of(script)):
        held = sourceloaders.dataset(loader)
        body = sourceloaders.method(held, "__getitem__") if held is not None else None
        if body is None or "collate_fn" in loader.kwargs or not _gives(body):
            continue
        end = next(_empty(body.body), None) or (body if falls_through(body.body) else None)
        if end is not None:
            line = body.lineno if end is body else end.lineno
            yield Problem(
                "a sample of the dataset is None on some path through `__getitem__`",
                where=Place(file=held.file if held else script.file, line=line,
                            function="__getitem__"), category="code", confidence="likely",
                evidence=(Evidence("the path that gives None ends here" if end is not body else
                                   "the function can end without a `return`", "source"),),
                fix=Fix("return a sample on every path, or leave what can't be read out of the "
                        "dataset", "a `collate_fn` can drop the None samples of a batch"))


def _gives(body: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Return) and n.value is not None for n in inside(body)) and not any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in inside(body))


def _empty(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in (n for statement in body for n in (statement, *inside(statement))):
        if isinstance(node, ast.Return) and (node.value is None or (
                isinstance(node.value, ast.Constant) and node.value.value is None)):
            yield node


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    for batch in loader:
  File "/env/lib/python3.10/site-packages/torch/utils/data/_utils/collate.py", line 191, in collate
    raise TypeError(default_collate_err_msg_format.format(elem_type))
TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class '{}'>
"""  # noqa: E501
_SET = """
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        try:
            return load(self.names[i])
        except OSError:
            %s


loader = DataLoader(Images(names), batch_size=2)
"""

RULE = Rule(
    name="dataset-returns-none", doc=__doc__, category="data", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_LOG.format("NoneType"), "a sample of the dataset is None", kind="log"),
        fires(_LOG.format("PIL.Image.Image"), "holds a `PIL.Image.Image`", "ToTensor",
              kind="log", title="image"),
        fires(_SET % "pass", "can end without a `return`", kind="source", line="def __getitem__",
              title="falls off"),
        fires(_SET % "return None", kind="source", line="return None", title="returns none"),
        quiet(_SET % "raise", kind="source", title="raises"),
        quiet((_SET % "pass").replace("batch_size=2", "collate_fn=keep"), kind="source",
              title="own collate"),
        quiet(_LOG.partition("TypeError: d")[0] + "TypeError: expected a string\n", kind="log"),
    ),
)
