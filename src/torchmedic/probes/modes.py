"""How models are called: in training or evaluation mode, with gradients on or off, and how often.

Only the outermost module call counts. A pass over a loader tells what was called during it.
"""

from __future__ import annotations

import sys

from . import frames, trees, watch
from .recorder import emit, recorder

MOST = 200  # kinds of calls that are told

tally = {}  # (number of the module, training, gradients on) → calls so far
backwards = [0]  # backward passes so far
at_new = []  # part(module, how): called in a way in which it was not called before


def new_mode(module, how):
    """A model is called in a way in which it was not called before."""
    tally[how] = 1
    for part in at_new:
        part(module, how)
    if len(tally) <= MOST:
        number, training, grad = how
        emit("mode", **dict(watch.moment(), module=number, training=bool(training), grad=grad,
                            type=type(module).__name__, frames=frames.stack(sys._getframe(2), 30),
                            **_parts(module)))


def _parts(module):
    """The layers below that behave differently in training: how many are in which mode."""
    torch = sys.modules["torch"]
    nn = torch.nn
    norms, drops = nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd
    facts = {"norms": 0, "norms_training": 0, "drops": 0, "drops_training": 0, "parameters": 0}
    for _, part in trees.walk(module):
        facts["parameters"] += sum(1 for _, p in trees.parameters(part) if p.requires_grad)
        for base, name in ((norms, "norms"), (drops, "drops")):
            if isinstance(part, base) and (name == "norms" or part.p > 0):
                facts[name] += 1
                facts[name + "_training"] += bool(part.training)
    return facts


def snapshot():
    """What to compare with at the end of a pass."""
    return dict(tally), backwards[0]


def since(before):
    """Calls of each kind since a snapshot: (calls, backward passes)."""
    then, passes = before
    calls = [[*how, count - then.get(how, 0)] for how, count in list(tally.items())
             if count != then.get(how, 0)]
    return calls[:MOST], backwards[0] - passes


def _forget():
    tally.clear()  # the same dict: the hot path holds it
    backwards[0] = 0


recorder.after_fork.append(_forget)
