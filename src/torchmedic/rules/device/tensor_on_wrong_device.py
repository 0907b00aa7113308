"""Tensors on different devices meet in one operation.

## What you see
`RuntimeError: Expected all tensors to be on the same device, but found at least two devices,
cuda:0 and cpu!`, or `Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor)
should be the same`.
## Why
The model or the batch was not moved, a tensor was made inside `forward` on the default device, or
layers are kept in a plain list, which `model.to(device)` does not see.
## Fix
Move the one that stayed behind: `inputs.to(device)`, `model.to(device)`; make new tensors with
`device=x.device`; keep layers in `nn.ModuleList` and constants in `register_buffer`.
## When this is fine
A 0-dimensional CPU tensor may meet tensors on any device.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.defaultdevice import made_on
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import held, raised
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.flow.values import family
from torchmedic.trainings import MODEL, STEP, training

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

ELSEWHERE = ("set_default_device", "set_default_tensor_type", "Accelerator", "device_map")
"""Other ways to put tensors on a device."""
WORDS = (
    "device", "input type", "backend", "to numpy", "on cpu", "invalid combination",
)
TWO = re.compile(r"Expected all tensors to be on the same device, but (?:found at least two "
                 r"devices, (?P<a>[\w:]+) and (?P<b>[\w:]+)!|got \w+ is on (?P<c>[\w:]+), "
                 r"different from other tensors on (?P<d>[\w:]+))")  # torch 1.5 to 2.14
TYPES = re.compile(r"Input type \((?P<input>[\w.:]+)\) and (?:weight|bias) type "
                   r"\((?P<weight>[\w.:]+)\) should be the same")
# torch 0.3 to 1.4
OLD = re.compile(r"Expected object of (?:backend|device type) (?P<a>\w+) but got (?:backend|device "
                 r"type) (?P<b>\w+)|Tensor for (?:argument #\d )?'\w+' is on CPU"
                 r"|invalid combination of arguments - got [^\n]*?"
                 r"(?:torch\.cuda\.\w+Tensor[^\n]*?(?<!cuda)\.\w+Tensor"
                 r"|torch\.(?!cuda)\w+Tensor[^\n]*?torch\.cuda\.\w+Tensor)[^\n]*?but expected",
                 re.IGNORECASE)
SAME = re.compile(r"tensors? (?:are|is) not at the same device|must be on the same device"
                  r"|Placeholder storage has not been allocated on MPS", re.IGNORECASE)
NUMPY = re.compile(r"can't convert (?P<which>CUDA|\S+ device type) tensor to numpy", re.IGNORECASE)
INDEXED = re.compile(r"indices should be either on .* same device as the indexed tensor "
                     r"\((?P<device>[\w:]+)\)")
PARALLEL = re.compile(r"module must have its parameters and buffers on device (?P<want>[\w:]+).*"
                      r"found one of them on device: (?P<got>[\w:]+)")
EXPECTED = re.compile(r"expected device (?P<want>[\w:]+) but got (?:device )?(?P<got>[\w:]+)")
GENERATOR = re.compile(r"Expected a '(?P<want>[\w:]+)' device type for generator but found "
                       r"'(?P<got>[\w:]+)'")
OPTIMIZER = ("torch/optim/", "torch\\optim\\")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if made_on(failure):
        return  # `tensor-created-on-default-device`
    told = _judged(failure.message) or _elsewhere(failure.message)
    if told is not None:
        message, fix = told
        if any(part in frame.file for frame in failure.frames for part in OPTIMIZER):
            fix = Fix("move the model to its device before the optimizer is made",
                      "and load the optimizer's state after both", "unsafe")
        yield Problem(message, where=failure.place, evidence=(raised(failure), *held(failure)),
                      fix=fix)


def in_source(script: Script) -> Iterator[Problem]:
    """A batch as the loader gives it meets a model that was moved, or the reverse."""
    trace = trace_of(script)
    if any(word in "\n".join(script.lines) for word in ELSEWHERE):
        return
    seen = set()
    for event in trace.of("forward", "loss"):
        if (event.file, event.line) in seen or any(
                f.kind == "call" and f.name == "forward" for f in event.frames):
            continue
        for one, other, what in _meeting(event):
            if (one.device, other.device) == ("host", "moved"):
                seen.add((event.file, event.line))
                yield Problem(
                    f"{what} as the loader gives it, on the CPU, and the model was moved",
                    where=place(script.file, event), confidence="likely",
                    evidence=(Evidence("nothing moves it between the loader and this line",
                                       "source"),),
                    fix=Fix("`.to(device)` on each part of the batch, first in the loop", "",
                            "unsafe", edits=_batch(trace, event)))
            elif event.kind == "forward" and one.device == "moved" and _left(trace, other):
                seen.add((event.file, event.line))
                yield Problem(
                    "the input was moved, and nothing moves the model",
                    where=place(script.file, event), confidence="likely",
                    evidence=(Evidence(f"line {getattr(other.node, 'lineno', 0)}: the model is "
                                       "made on the CPU", "source"),),
                    fix=Fix("`model.to(device)`, before the optimizer is made", "", "unsafe",
                            edits=_model(script, other)))


def _goes(script: Script) -> tuple[str, int] | None:
    """(`.to(device)` as the whole file writes it, the line where that device gets its name)."""
    calls = [n for n in ast.walk(script.tree) if isinstance(n, ast.Call)
             and isinstance(n.func, ast.Attribute) and n.func.attr in ("to", "cuda")]
    texts = {f".{n.func.attr}({', '.join(map(ast.unparse, n.args))})"  # type: ignore[attr-defined]
             for n in calls if not n.keywords}
    if len(texts) != 1:
        return None
    given = next((n.args[0] for n in calls if n.args), None)
    if given is None:
        return texts.pop(), 0
    lines = [n.lineno for n in ast.walk(script.tree) if isinstance(n, ast.Name)
             and isinstance(n.ctx, ast.Store) and n.id == ast.unparse(given)]
    return (texts.pop(), lines[0]) if len(lines) == 1 else None


def _batch(trace: Trace, event: Event) -> changes.Edits:
    """All parts of the batch that meet the model where the loader left them."""
    loop, script = event.loops[-1] if event.loops else None, trace.script
    goes = _goes(script)
    if goes is None or loop is None or not isinstance(loop.node, ast.For) or (
            loop.file != script.file) or not changes.reaches(script, goes[1], loop.node.lineno):
        return ()
    given = [args[int(e.kind == "loss")] for e in trace.inside(loop, "forward", "loss")
             for args in [getattr(e.node, "args", [])] if len(args) > int(e.kind == "loss")
             and _where(e) == "host"]
    left = {a.id for a in given if isinstance(a, ast.Name)}
    names = [n.id for n in ast.walk(loop.node.target) if isinstance(n, ast.Name) and n.id in left]
    if not names:
        return ()
    text = f"{', '.join(names)} = {', '.join(name + goes[0] for name in names)}"
    return changes.before(script, loop.node.body[0].lineno, text)


def _where(event: Event) -> str:
    """The device of the input, or of the target of a loss."""
    value = event.more["wanted"] if event.kind == "loss" else next(iter(event.more["args"]), None)
    return value.device if value is not None and value.kind == "tensor" else ""


def _model(script: Script, model: Value) -> changes.Edits:
    """Where it is made, if the device has its name by then."""
    goes, line = _goes(script), getattr(model.node, "lineno", 0)
    if goes is None or not isinstance(model.node, ast.Call) or model.file != script.file or (
            not changes.assigned(script, model.node) or not changes.reaches(script, goes[1], line)):
        return ()
    return changes.wrapping(model.node, "", goes[0])


def _left(trace: Trace, model: Value) -> bool:
    """A model whose making we see, that no call moves and that goes nowhere else."""
    parts = family(model).values()
    known = any(m.name in ("Linear", "Conv1d", "Conv2d", "Conv3d", "Embedding", "LSTM", "GRU")
                for m in parts)
    if not known or any(m.device or "device" in m.kwargs for m in parts):
        return False
    given = {o.id for e in trace.of("opaque", "set", "move") for v in (e.value, e.target)
             if v is not None for i in (v, *v.items) for o in i.options()}
    return model.id not in given and not any(e.target is None for e in trace.of("move"))


def _meeting(event: Event) -> Iterator[tuple[Value, Value, str]]:
    """Pairs that must be on one device."""
    if event.kind == "loss":
        given, wanted = event.more["input"], event.more["wanted"]
        if given.kind == wanted.kind == "tensor":
            yield wanted, given, "the target is"
    elif event.target is not None and event.more["args"]:
        first = event.more["args"][0]
        if first.kind == "tensor":
            yield first, event.target, "the input is"


def _judged(text: str) -> tuple[str, Fix] | None:
    if (found := TWO.search(text)) is not None:
        one, other = found["a"] or found["c"], found["b"] or found["d"]
        if "cpu" in (one, other):
            return f"tensors on {one} and {other} meet in one operation", Fix(
                "move the one on the CPU: `.to(device)`; tensors made in `forward` get "
                "`device=x.device`, constants `register_buffer`", "", "unsafe")
        return f"tensors on {one} and {other} meet in one operation", Fix(
            "use one device for the whole model, or move the tensor between its parts", "",
            "unsafe")
    if (found := TYPES.search(text)) is not None:
        inputs, weights = ("cuda" in found[name] for name in ("input", "weight"))
        if inputs == weights:
            return None  # another dtype, not another device
        if inputs:
            return "the input is on the GPU and the layer's weight on the CPU", Fix(
                "`model.to(device)` before training; layers in a plain list need `nn.ModuleList`",
                "", "unsafe")
        return "the layer's weight is on the GPU and its input on the CPU", Fix(
            "`inputs = inputs.to(device)` in the loop", "", "unsafe")
    if OLD.search(text) or SAME.search(text):
        return "tensors on different devices meet in one operation", Fix(
            "`.to(device)` for model, batch and hidden states", "", "unsafe")
    return None


def _elsewhere(text: str) -> tuple[str, Fix] | None:
    """Wordings of single operations."""
    if NUMPY.search(text):
        return "NumPy is given a tensor that lies on the GPU", Fix(
            "`x.detach().cpu().numpy()`", "", "unsafe")
    if (found := INDEXED.search(text)) is not None:
        return f"a tensor on {found['device']} is indexed by one on another device", Fix(
            f"`index.to(\"{found['device']}\")`, or make the index with `device=x.device`", "",
            "unsafe")
    if (found := PARALLEL.search(text)) is not None:
        return f"`DataParallel` wants the model on {found['want']}, and a part is on " + \
            found["got"], Fix(f"`model.to(\"{found['want']}\")` before it is wrapped",
                              "layers in a plain list need `nn.ModuleList`", "unsafe")
    if (found := GENERATOR.search(text)) is not None:
        return (f"random numbers on {found['want']} are asked of a generator on {found['got']}",
                Fix(f"`generator=torch.Generator(device=\"{found['want']}\")`",
                    "a loader that shuffles under `set_default_device` or a default tensor type "
                    "on the GPU needs one, too", "unsafe"))
    if (found := EXPECTED.search(text)) is not None:
        return f"tensors on {found['want']} and {found['got']} meet in one operation", Fix(
            "keep a tensor, its gradient and what is computed with it on one device", "", "unsafe")
    return None


def _log(message: str) -> str:
    return ('Traceback (most recent call last):\n  File "train.py", line 4, in step\n'
            f"    y = net(x)\nRuntimeError: {message}\n")


_MOVED = ("device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
          "model.to(device)\n")
_HERE = """
def train(device=torch.device("cpu")):
    x = torch.tensor([[0.1] * 8], device=device)
    net = nn.Sequential(nn.Linear(8, 3))
    net.to(device)
    for _ in range(3):
        net(x).sum().backward()
"""
_SAME = "Expected all tensors to be on the same device, but found at least two devices, "

RULE = Rule(
    name="tensor-on-wrong-device", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_log(_SAME + "cuda:0 and cpu!"), "tensors on cuda:0 and cpu meet",
              "move the one on the CPU", kind="log", title="two devices"),
        fires(_log(_SAME + "cuda:2 and cuda:0!"), "tensors on cuda:2 and cuda:0 meet",
              "one device for the whole model", kind="log", title="two cards"),
        fires(_log("Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should "
                   "be the same"), "the layer's weight on the CPU", "nn.ModuleList", kind="log",
              title="model not moved"),
        fires(_log("Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should "
                   "be the same"), "its input on the CPU", kind="log", title="batch not moved"),
        fires(_log("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy"),
              "NumPy is given a tensor that lies on the GPU", ".cpu().numpy()", kind="log",
              title="to numpy"),
        fires(_log("indices should be either on cpu or on the same device as the indexed tensor "
                   "(cpu)"), "a tensor on cpu is indexed", kind="log", title="index"),
        fires(_log("module must have its parameters and buffers on device cuda:0 (device_ids[0]) "
                   "but found one of them on device: cpu"), "wants the model on cuda:0", kind="log",
              title="data parallel"),
        fires(_log("Expected a 'cuda' device type for generator but found 'cpu'"),
              "a generator on cpu", kind="log", title="generator"),
        fires(_log("Function AddmmBackward0 returned an invalid gradient at index 1 - expected "
                   "device cuda:1 but got cuda:0"), "tensors on cuda:1 and cuda:0 meet",
              kind="log", title="gradient"),
        fires(_log("Placeholder storage has not been allocated on MPS device!"),
              "tensors on different devices", kind="log", title="Apple"),
        fires(training(setup=MODEL + _MOVED), "the input is as the loader gives it", kind="source",
              line="loss = criterion(model(x), y)", title="batch left behind"),
        fires(training("x = x.to(device)\n" + STEP, setup=MODEL + _MOVED),
              "the target is as the loader gives it", kind="source", title="target left behind"),
        quiet(training("x, y = x.to(device), y.to(device)\n" + STEP, setup=MODEL + _MOVED),
              kind="source", title="both moved"),
        fires(training("x, y = x.to(device), y.to(device)\n" + STEP, setup=MODEL + _MOVED.partition(
            "model")[0]), "nothing moves the model", kind="source", title="model left behind"),
        quiet(training("train(torch.device('cpu'))", setup=MODEL, more=_HERE), kind="source",
              title="a device that is the CPU"),
        quiet(training("if device:\n    x, y = x.to(device), y.to(device)\n" + STEP,
                       setup=MODEL + _MOVED), kind="source", title="moved on a condition"),
        quiet(training(setup=MODEL + _MOVED.replace("device = ", "device = 'cpu'  # ")),
              kind="source", title="cpu"),
        quiet(_log("Input type (double) and bias type (float) should be the same"), kind="log",
              title="dtypes"),
    ),
)
