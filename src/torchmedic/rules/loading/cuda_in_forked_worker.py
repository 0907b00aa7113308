"""A forked worker touches the GPU that its parent already uses.

## What you see
`RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing,
you must use the 'spawn' start method`.
## Why
On Linux loader workers are forked, and CUDA does not survive a fork. The dataset (or `collate_fn`)
holds tensors on the GPU, moves samples there, or runs a model.
## Fix
Keep the dataset on the CPU (`torch.load(path, map_location="cpu")`) and move each batch in the
training loop.
## When this is fine
Never.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import sourceloaders
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.samples import own_place
from torchmedic.source.flow import Value, trace_of
from torchmedic.source.flow.training import node_place
from torchmedic.source.paths import inside

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SOURCE_WORDS = ("loader",)
WORDS = ("forked subprocess", "initialization error")
FORKED = re.compile(r"Cannot re-initialize CUDA in forked subprocess")

EARLY = re.compile(r"CUDA error: initialization error|cuda runtime error \(3\)")


def in_failure(failure: Failure) -> Iterator[Problem]:
    lost = EARLY.search(failure.message) and any(
        frame.file.replace("\\", "/").endswith("_utils/worker.py") for frame in failure.frames)
    if FORKED.search(failure.message) or lost:
        yield Problem(
            "a forked worker uses the GPU: its dataset holds tensors there or moves them there",
            where=own_place(failure), evidence=(raised(failure),), fix=Fix(
                "keep the dataset on the CPU (`map_location=\"cpu\"` where it loads tensors) and "
                "move each batch in the training loop",
                "or `num_workers=0`, or `multiprocessing_context=\"spawn\"`", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    names = _gpus(script.tree)
    for loader in sourceloaders.loaders(trace_of(script)):
        if not sourceloaders.workers(loader) or sourceloaders.start_method(
                script, loader) in ("spawn", "forkserver"):
            continue
        for body in _in_worker(loader):
            call = next((n for n in inside(body) if _to_gpu(n, names)), None)
            if call is not None:
                where = getattr(body, "name", "")
                yield Problem(
                    f"a forked worker uses the GPU: `{ast.unparse(call)}` in `{where}`",
                    where=node_place(script.file, call, where), confidence="likely",
                    evidence=(Evidence(f"line {getattr(loader.node, 'lineno', 0)}: the loader has "
                                       f"num_workers={sourceloaders.workers(loader)}", "source"),),
                    fix=Fix("keep the dataset on the CPU and move each batch in the training loop",
                            "or `num_workers=0`", "unsafe"))


def _in_worker(loader: Value) -> Iterator[ast.AST]:
    """Functions that the workers run."""
    held = sourceloaders.dataset(loader)
    if held is not None and (item := sourceloaders.method(held, "__getitem__")) is not None:
        yield item
    collate = loader.kwargs.get("collate_fn")
    if collate is not None and collate.kind == "function" and collate.node is not None:
        yield collate.node


def _gpus(tree: ast.Module) -> set[str]:
    """Names that the file gives a GPU: `device = "cuda"`."""
    return {target.id for n in tree.body if isinstance(n, ast.Assign)
            for target in n.targets if isinstance(target, ast.Name)
            and ast.unparse(n.value).removeprefix("torch.device(")[:5] in ("'cuda", '"cuda')
            and "else" not in ast.unparse(n.value)}


def _to_gpu(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
        return True
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "device")]
    if any(isinstance(a, ast.Name) and a.id in names for a in given):
        return True
    return any(isinstance(a, ast.Constant) and isinstance(a.value, str)
               and a.value.startswith("cuda") for a in given)


_LOG = """RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/env/lib/python3.10/site-packages/torch/utils/data/_utils/fetch.py", line 51, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "sets.py", line 7, in __getitem__
    return self.images[index].cuda()
RuntimeError: {}
"""
_PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.x = torch.randn(8, 3)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.x[i]%s


for x in DataLoader(Images(), batch_size=2, num_workers=%d):
    print(x)
"""

RULE = Rule(
    name="cuda-in-forked-worker", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_LOG.format("Cannot re-initialize CUDA in forked subprocess."),
              "a forked worker uses the GPU", 'map_location="cpu"', kind="log"),
        fires(_PROGRAM % (".cuda()", 2), "`self.x[i].cuda()` in `__getitem__`", kind="source",
              line=".cuda()", title="in getitem"),
        quiet(_PROGRAM % (".cuda()", 0), kind="source", title="no workers"),
        quiet(_PROGRAM % ("", 2), kind="source", title="on the cpu"),
        fires(_LOG.replace("_utils/fetch.py", "_utils/worker.py").format(
            "CUDA error: initialization error"), "a forked worker uses the GPU", kind="log",
              title="initialization"),
        quiet(_LOG.format("CUDA error: out of memory"), kind="log"),
    ),
)
