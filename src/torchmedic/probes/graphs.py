"""Reads the graph that a backward pass is about to go through: what stands between model and loss.

Saved tensors are unpacked only while nobody has set hooks for them: with activation checkpointing
to unpack one is to compute it again.
"""

from __future__ import annotations

import sys

from . import frames, looks, values, watch
from .patching import Probe, excise
from .recorder import emit

saved = Probe("saved tensors")
hooked = [False]  # hooks for saved tensors were set once: nothing is unpacked any more

MOST_NODES = 4000
LONGEST = 10  # nodes told of the way from a loss towards the model
LOSS_WORDS = ("Loss", "CrossEntropy", "KlDiv")
LEAF = "torch::autograd::AccumulateGrad"


marks = []  # (optimizer steps done, number of a node made right after), of the steps looked at


def note_step(optimizer, step):
    """A node made now tells the number from which later ones count."""
    torch = sys.modules["torch"]
    with torch.enable_grad():
        leaf = torch.zeros((), requires_grad=True)
        marks.append((step, leaf.neg().grad_fn._sequence_nr()))
    del marks[:-64]


def told(roots, options):
    """One event for a backward pass: the loss, its graph, and the line that asked for it."""
    torch = sys.modules["torch"]
    roots = [roots] if isinstance(roots, torch.Tensor) else list(roots or ())
    roots = [r for r in roots if type(r) is torch.Tensor and r.grad_fn is not None]
    if roots:
        emit("backward", **dict(
            watch.moment(), loss=_loss(roots[0], torch), roots=len(roots),
            retain=bool(options.get("retain_graph")), create=bool(options.get("create_graph")),
            frames=frames.stack(sys._getframe(1), 40), **_graph(roots)))


def _loss(root, torch):
    summary = values.tensor(root, torch)
    number = summary.get("minimum") if root.numel() == 1 else None
    return {"shape": summary["shape"], "dtype": summary["dtype"], "device": summary["device"],
            "value": number, "nans": summary.get("nans")}


def below(roots):
    """The nodes of the graphs of these tensors, nearest first, at most MOST_NODES of them.

    A list, since a node's address may serve another one once its wrapper is gone.
    """
    seen, found = set(), []
    level = [root.grad_fn for root in roots]
    while level and len(found) < MOST_NODES:
        further = []
        for node in level:
            if node is not None and node not in seen:
                seen.add(node)
                found.append(node)
                further.extend(child for child, _ in node.next_functions)
        level = further
    return found


def _graph(roots):
    """The nodes below the roots: how many, the ways from each loss, those of an earlier step."""
    nodes = below(roots)
    inner = [node for node in nodes if node.name() != LEAF]
    losses = [n for n in inner if any(word in n.name() for word in LOSS_WORDS)]
    return {
        "nodes": len(nodes), "whole": len(nodes) < MOST_NODES, "leaves": len(nodes) - len(inner),
        "losses": [way(node) for node in losses[:8]], "way": way(roots[0].grad_fn),
        "older": _older(min(inner, key=lambda node: node._sequence_nr(), default=None)),
    }


def _older(node):
    """The oldest node, and after which optimizer step it was not made any more; None if now."""
    steps = [step for step, number in marks if node is not None and node._sequence_nr() < number]
    return dict(node_facts(node), before_step=steps[0]) if steps else None


def way(node):
    """From a node towards the model, along the first input that is differentiable."""
    found = []
    while node is not None and len(found) < LONGEST and node.name() != LEAF:
        found.append(node_facts(node))
        node = next((child for child, _ in node.next_functions if child is not None), None)
    return found


def node_facts(node):
    """Name, shape of its result, and the axis it worked along."""
    facts = {"name": node.name(), "shape": _shape(node),
             "inputs": [_shape(child) for child, _ in node.next_functions if child is not None]}
    dim = getattr(node, "_saved_dim", None)
    if type(dim) is int:
        facts["dim"] = dim if dim < 1 << 63 else dim - (1 << 64)  # an unsigned view of it
    if any(word in facts["name"] for word in LOSS_WORDS):
        facts["target"] = saved_facts(node, "_saved_target")
    return facts


def saved_facts(node, name):
    """Shape, type and range of a tensor that the node keeps; None where it is not for us."""
    if hooked[0]:
        return None
    torch = sys.modules["torch"]
    value = getattr(node, name, None)
    return values.tensor(value, torch) if type(value) is torch.Tensor else None


def _wrap_hooks(original):
    def __enter__(self):
        hooked[0] = True
        try:
            return original(self)
        except BaseException as error:
            excise(error)
            raise

    return __enter__


def install(torch):
    hooks = getattr(torch.autograd.graph, "saved_tensors_hooks", None)
    if hooks is not None and not saved.installed:
        saved.wrap(hooks, "__enter__", _wrap_hooks)


def _shape(node):
    """Of the node's first result; None where torch does not tell (before 2.1)."""
    told = getattr(node, "_input_metadata", None)
    return [int(size) for size in told[0].shape] if told else None


looks.at_backward.append(told)
looks.after_step.append(note_step)
