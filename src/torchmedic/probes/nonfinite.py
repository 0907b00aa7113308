"""The first loss that is not finite: which operation of its graph made it so.

A loss on the CPU is read at each backward, unless that cost more than SHARE of the time: then,
after the first ALWAYS, at every eighth. One on a device is read only in the steps that are looked
at, since reading it makes the device wait.
"""

from __future__ import annotations

import sys

from . import coverage, frames, graphs, looks, modes, sampler, training, values, watch
from .recorder import emit

SAVED = ("self", "other", "mat1", "mat2", "input", "weight", "result", "result1", "target", "vec",
         "batch1", "batch2", "exponent", "tensor1", "tensor2")

ALWAYS = 2000  # backward passes: where most losses that are not finite come up
READ_COST = 7e-6  # seconds to read a loss, measured in a loop of small steps
SHARE = 0.005

recent = [None] * 16  # losses on the CPU, the newest at count % 16
count = [0]
before = [0]  # backward passes at the sampler's turn before
left_out = [0]  # a loss is read where the number of its pass & left_out is 0
done = [False]  # told once


def _turn(seconds):
    passes = modes.backwards[0]
    many, before[0] = passes - before[0], passes
    fast = many * READ_COST > SHARE * seconds
    left_out[0] = 7 if fast and passes > ALWAYS else 0


def check(root):
    """Called before each backward, with the tensor it starts from."""
    if not modes.backwards[0] & left_out[0] and root.is_cpu and not root.dim() and not done[0]:
        recent[count[0] & 15] = value = root.item()
        count[0] += 1
        if value - value != 0:
            tell(root, value)


def check_looked_at(roots, options):
    torch = sys.modules["torch"]
    if type(roots) is torch.Tensor and roots.numel() == 1 and not roots.is_cpu and not done[0]:
        value = roots.item()
        if value - value != 0:
            tell(roots, value)


def losses():
    """The last losses that were read, oldest first."""
    newest = count[0]
    return [recent[i & 15] for i in range(max(0, newest - 16), newest)]


def tell(root, value):
    """One event, for the first loss that is not finite."""
    done[0] = True
    torch = sys.modules["torch"]
    if torch._C._len_torch_dispatch_stack() or type(root) is not torch.Tensor:
        return
    nodes = [] if graphs.hooked[0] else [n for n in graphs.below([root])
                                         if n.name() != graphs.LEAF]
    parameters = list(coverage.named(coverage.roots()))
    with torch.no_grad():
        emit("nonfinite", **dict(
            watch.moment(), value=str(float(value)), before=losses()[:-1],
            parameters=_bad_parameters(parameters, torch), causes=_causes(nodes, torch),
            inputs=_bad_data(nodes, {id(p) for _, p, _ in parameters}, torch),
            frames=frames.stack(sys._getframe(1), 40)))


def _bad_parameters(parameters, torch):
    return [name for name, p, _ in parameters
            if p.is_floating_point() and not bool(torch.isfinite(p).all())][:20]


def _causes(nodes, torch):
    """Operations with finite inputs whose result is not finite, the earliest made first."""
    causes = []
    for node in nodes:
        reason = _reason(node.name().partition("Backward")[0], _held(node, torch))
        if reason is not None:
            causes.append((node._sequence_nr(), dict(graphs.node_facts(node), **reason)))
    causes.sort(key=lambda cause: cause[0])
    return [cause for _, cause in causes[:4]]


def _held(node, torch):
    """The tensors and numbers that the node keeps: name → (all finite, smallest, largest)."""
    found = {}
    for name in SAVED:
        value = getattr(node, "_saved_" + name, None)
        if type(value) in (int, float):
            found[name] = (True, value, value)
        elif type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_floating_point() and (
                0 < value.numel() <= 50_000_000):
            value = value.detach()
            finite = bool(torch.isfinite(value).all())
            kept = value[torch.isfinite(value)] if not finite else value
            low, high = (float(kept.min()), float(kept.max())) if kept.numel() else (None, None)
            found[name] = (finite, low, high)
    return found


def _reason(operation, held):
    """What made the result not finite, where the operation and its finite inputs tell it.

    The domains of the functions are torch's own: log needs more than 0, and so on.
    """
    if "self" in held and held["self"][0] and held["self"][1] is not None:
        _, low, high = held["self"]
        if operation in ("Log", "Log2", "Log10") and low <= 0:
            return _told("input", low, high)
        if operation == "Log1P" and low <= -1:
            return _told("input", low, high)
        if operation in ("Acos", "Asin") and (low < -1 or high > 1):
            return _told("input", low, high)
        if operation == "Pow" and "exponent" in held:
            exponent = held["exponent"][1]
            if (low == 0 and exponent < 0) or (low < 0 and exponent != int(exponent)):
                return dict(_told("input", low, high), exponent=exponent)
    if operation == "Div" and held.get("other", (False,))[0] and held["other"][1] is not None:
        if held["other"][1] <= 0 <= held["other"][2]:
            return _told("divisor", held["other"][1], held["other"][2])
    if "result" in held and not held["result"][0] and operation in ("Exp", "Sqrt", "Rsqrt",
                                                                    "Reciprocal", "Sinh", "Cosh"):
        return _told("result", held["result"][1], held["result"][2])
    return None


def _told(what, low, high):
    return {"what": what, "low": values._number(low), "high": values._number(high)}


def _bad_data(nodes, own, torch):
    """Tensors from outside the graph that are not finite and are no parameters."""
    bad = []
    for node in nodes:
        for name in SAVED:
            value = getattr(node, "_saved_" + name, None)
            if type(value) is torch.Tensor and value.is_floating_point() and (
                    value.grad_fn is None and not value.requires_grad and id(value) not in own):
                count = int((~torch.isfinite(value)).sum())
                if count:
                    bad.append({"shape": list(value.shape), "count": count,
                                "of": value.numel(), "operation": node.name()})
        if len(bad) >= 4:
            break
    return bad


sampler.at_turns.append(_turn)
looks.at_backward.append(check_looked_at)
training.at_each_backward.append(check)
