"""Samples that the model is tested on are also among those it is trained on.

## What you see
The accuracy on the test set is far better than on new data.
## Why
The parts overlap, both loaders were built on the same dataset, or rows were doubled before the
split, so that one copy went into each part.
## Fix
Split first, by index, without overlap; oversample and augment the training part only.
## When this is fine
A measurement on the training set that is called one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import Trace, Value, trace_of
from torchmedic.source.paths import inside
from torchmedic.sourceloaders import dataset, loaders

if TYPE_CHECKING:
    from torchmedic.source.script import Script

TRAIN = re.compile(r"(^|_)(train|trn|fit)(ing)?(_|\d|$)|^x_?tr$|^y_?tr$", re.IGNORECASE)
TEST = re.compile(r"(^|_)(test|tst|val|valid|validation|holdout|held_?out|eval|dev|check)(_|\d|$)",
                  re.IGNORECASE)
PARTS = re.compile(r"DataLoader|Subset|TensorDataset|randperm|permutation|fit_resample|backward\(")
"""Without one of these words a file has no parts that could overlap."""
DOUBLING = re.compile(r"\b(SMOTE|RandomOverSampler|ADASYN|fit_resample)\b")
SPLITS = re.compile(r"\b(train_test_split|random_split|randperm|StratifiedKFold|KFold|"
                    r"StratifiedShuffleSplit|permutation)\b")
JOINS = ("cat", "concat", "concatenate", "vstack", "hstack", "tile", "repeat",
         "repeat_interleave")


def in_source(script: Script) -> Iterator[Problem]:
    text = "\n".join(script.lines)
    if "torch" not in text or not PARTS.search(text):
        return
    bodies: list[ast.AST] = [script.tree, *(f.node for f in script.functions)]
    for body in bodies:
        yield from _slices(script, body)
        yield from _doubled(script, body)
    for body in bodies:
        yield from _own_order(script, body)
    yield from _same_set(script, trace_of(script))


def _slices(script: Script, body: ast.AST) -> Iterator[Problem]:
    """`train = data[:800]` and `test = data[700:]`."""
    ends: dict[str, tuple[int, ast.AST]] = {}
    starts: dict[str, tuple[int, ast.AST]] = {}
    for name, base, lower, upper, node in _cuts(body):
        if TRAIN.search(name) and upper is not None:
            ends[base] = upper, node
        elif TEST.search(name) and not TRAIN.search(name) and lower is not None:
            starts[base] = lower, node
    for base, (end, _) in ends.items():
        if base in starts and 0 <= starts[base][0] < end:
            start, node = starts[base]
            yield Problem(
                f"{end - start} samples of `{base}` are in both parts",
                where=_place(script, node), confidence="certain",
                evidence=(Evidence(f"training ends at {end}, testing begins at {start}",
                                   "source"),),
                fix=Fix(f"begin the test part at {end}", "", "unsafe"))
            return


def _cuts(body: ast.AST) -> Iterator[tuple[str, str, int | None, int | None, ast.AST]]:
    """(name, what of, begin, end, where) of slices, and of `Subset(data, range(begin, end))`."""
    for name, value in _assigned(body):
        for node in ast.walk(value):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
                cut = node.slice
                yield (name, ast.unparse(node.value), _whole(cut.lower), _whole(cut.upper), node)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Subset") and (
                    len(node.args) == 2 and isinstance(node.args[1], ast.Call)
                    and ast.unparse(node.args[1].func) == "range"):
                ends = [_whole(a) for a in node.args[1].args]
                low, high = (0, ends[0]) if len(ends) == 1 else (ends[0], ends[1])
                yield name, ast.unparse(node.args[0]), low, high, node


def _assigned(body: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in inside(body):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for one, value in pairs:
                if isinstance(one, (ast.Name, ast.Attribute)):
                    yield ast.unparse(one).rpartition(".")[2], value


def _own_order(script: Script, body: ast.AST) -> Iterator[Problem]:
    """The test part is cut from a permutation of its own."""
    taken = [(name, value) for name, value in _assigned(body) if isinstance(value, ast.Subscript)]
    for name, value in taken:
        if isinstance(value.value, ast.Call) and ast.unparse(value.value.func).rpartition(".")[
                2] in ("randperm", "permutation") and TEST.search(name) and any(
                TRAIN.search(other) for other, _ in taken):
            yield Problem(
                f"`{name}` is cut from a permutation of its own: it shares samples with the "
                "training part", where=_place(script, value), confidence="likely",
                evidence=(Evidence("the training part is cut from another", "source"),),
                fix=Fix("cut both parts from one permutation", "", "unsafe"))
            return


def _whole(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _doubled(script: Script, body: ast.AST) -> Iterator[Problem]:
    """Rows are repeated and then split."""
    found: list[tuple[str, ast.AST]] = []
    for name, value in _assigned(body):
        if isinstance(value, ast.Call) and _repeats(value):
            found.append((name, value))
    for node in inside(body):
        if isinstance(node, ast.Assign) and DOUBLING.search(ast.unparse(node.value)) and (
                ".fit_resample(" in ast.unparse(node.value)):
            found += [(n.id, node.value) for t in node.targets for n in ast.walk(t)
                      if isinstance(n, ast.Name)]
    splits = [n for n in inside(body) if isinstance(n, ast.Call) and SPLITS.search(
        ast.unparse(n.func))]
    for name, node in found:
        later = [s for s in splits if s.lineno > getattr(node, "lineno", 0)
                 and name in {n.id for a in s.args for n in ast.walk(a) if isinstance(n, ast.Name)}]
        if later and not TRAIN.search(name):
            yield Problem(
                f"rows of `{name}` are repeated before the split: copies of one row go into both "
                "parts", where=_place(script, node), confidence="likely",
                evidence=(Evidence(f"line {later[0].lineno}: `{ast.unparse(later[0].func)}` splits "
                                   "them", "source"),),
                fix=Fix("split first, then repeat the rows of the training part", "", "unsafe"))
            return


def _repeats(call: ast.Call) -> bool:
    """`torch.cat([x, x])`."""
    name = ast.unparse(call.func).rpartition(".")[2]
    if name not in JOINS or not call.args or not isinstance(call.args[0], (ast.List, ast.Tuple)):
        return False
    parts = [ast.unparse(part) for part in call.args[0].elts]
    return len(parts) > 1 and len(set(parts)) < len(parts)


def _same_set(script: Script, trace: Trace) -> Iterator[Problem]:
    """A training and a test loader over one dataset."""
    named = {id(e.value): e.more["name"] for e in trace.of("assign") if e.value is not None}
    named.update({id(e.value): e.more["name"] for e in trace.of("set") if e.value is not None})
    mine = [(named.get(id(made), ""), made) for made in loaders(trace)]
    training = [made for name, made in mine if TRAIN.search(name) and not TEST.search(name)]
    for name, made in mine:
        if not TEST.search(name) or TRAIN.search(name):
            continue
        same = next((t for t in training if _shared(t, made)), None)
        if same is not None:
            yield Problem(
                f"`{name}` goes over the dataset that the model is trained on",
                where=_place(script, made.node), confidence="likely",
                evidence=(Evidence(f"line {getattr(same.node, 'lineno', 0)}: the training loader "
                                   "is built on it, too", "source"),),
                fix=Fix("build it on the test part", "", "unsafe"))


def _shared(one: Value, other: Value) -> bool:
    left, right = dataset(one), dataset(other)
    chosen = any(k in made.kwargs for made in (one, other) for k in ("sampler", "batch_sampler"))
    return left is not None and left is right and not chosen and left.kind != "unknown"


def _place(script: Script, node: ast.AST | None) -> Place:
    line = getattr(node, "lineno", None)
    function = script.function_at(line) if line else None
    return Place(file=script.file, line=line, function=function.name if function else None)


_DATA = """
import torch
from torch.utils.data import DataLoader, TensorDataset

data, labels = torch.randn(1000, 3), torch.randint(0, 2, (1000,))
"""
_SLICES = _DATA + "train, test = data[:800], data[%d:]\n"
_SETS = _DATA + """
train_set = TensorDataset(data[:800], labels[:800])
test_set = TensorDataset(data[800:], labels[800:])
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(%s, batch_size=8)
"""
_TWICE = _DATA + """
%sorder = torch.randperm(len(data))
train_data, test_data = data[order[:800]], data[order[800:]]
%s"""

RULE = Rule(
    name="train-test-overlap", doc=__doc__, category="data", severity="warning",
    in_source=in_source, examples=(
        fires(_SLICES % 700, "100 samples of `data` are in both parts", kind="source",
              line="data[700:]", title="slices"),
        fires(_SETS % "train_set", "`test_loader` goes over the dataset", kind="source",
              line="test_loader =", title="one dataset"),
        fires(_TWICE % ("data = torch.cat([data, data])\n", ""), "repeated before the split",
              kind="source", line="torch.cat", title="doubled first"),
        quiet(_SLICES % 800, kind="source", title="slices apart"),
        quiet(_SETS % "test_set", kind="source", title="two datasets"),
        quiet(_TWICE % ("", "train_data = torch.cat([train_data, train_data])\n"), kind="source",
              title="doubled after"),
    ),
)
