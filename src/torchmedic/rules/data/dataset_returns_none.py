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

import re
from collections.abc import Iterator

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised
from torchmedic.samples import batch_facts, own_place

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


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    for batch in loader:
  File "/env/lib/python3.10/site-packages/torch/utils/data/_utils/collate.py", line 191, in collate
    raise TypeError(default_collate_err_msg_format.format(elem_type))
TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found <class '{}'>
"""  # noqa: E501

RULE = Rule(
    name="dataset-returns-none", doc=__doc__, category="data", in_failure=in_failure,
    examples=(
        fires(_LOG.format("NoneType"), "a sample of the dataset is None", kind="log"),
        fires(_LOG.format("PIL.Image.Image"), "holds a `PIL.Image.Image`", "ToTensor",
              kind="log", title="image"),
        quiet(_LOG.partition("TypeError: d")[0] + "TypeError: expected a string\n", kind="log"),
    ),
)
