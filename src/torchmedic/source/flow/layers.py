"""Shapes that the layers of torch give, and inputs that they can't take."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torchmedic.source.flow.values import Shape, Value

Sizes = tuple[int | None, ...]
RECURRENT = ("LSTM", "GRU", "RNN")
KEEPING = ("BatchNorm", "InstanceNorm", "GroupNorm", "LayerNorm", "RMSNorm", "GELU", "ELU", "SELU",
           "CELU", "SiLU", "LeakyReLU", "PReLU", "ReLU6", "Mish", "Softplus", "Softsign",
           "Hardtanh", "Hardswish", "Hardsigmoid", "LocalResponseNorm", "TransformerEncoder",
           "SyncBatchNorm", "Tanhshrink", "Threshold", "gelu", "elu", "selu", "silu", "leaky_relu",
           "softplus", "mish", "relu6", "hardtanh", "normalize", "batch_norm", "layer_norm",
           "dropout", "alpha_dropout")
COUNTED = {"Linear": ("in_features", 0), "LSTM": ("input_size", 0), "GRU": ("input_size", 0),
           "RNN": ("input_size", 0), "TransformerEncoderLayer": ("d_model", 0),
           "MultiheadAttention": ("embed_dim", 0)}
"""Layers that count the last axis."""
CHANNELS = {"Conv": ("in_channels", 0), "BatchNorm": ("num_features", 0),
            "GroupNorm": ("num_channels", 1)}


class Misfit:
    """An axis that a layer wants of one size and gets of another.

    parts: the sizes that a flattening multiplied to `got`; empty where none did.
    """

    __slots__ = ("axis", "expected", "got", "shape")

    def __init__(self, expected: int, got: int, axis: str, shape: Shape) -> None:
        self.expected, self.got, self.axis, self.shape = expected, got, axis, shape


def number(value: Value | None, default: int | None = None) -> int | None:
    """A whole number that is known; `default` where the argument is left out."""
    if value is None:
        return default
    return value.data if value.kind == "const" and type(value.data) is int else None


def known(value: Value | None) -> Shape | None:
    """The shape of a tensor, where every possibility has the same."""
    if value is None:
        return None
    shapes = {option.shape if option.kind == "tensor" else None for option in value.options()}
    return next(iter(shapes)) if len(shapes) == 1 else None


def misfit(module: Value, inputs: Sequence[Value]) -> Misfit | None:
    """What about its first input a layer refuses, where both sizes are known."""
    shape = known(inputs[0]) if inputs else None
    if not shape:
        return None
    name = module.name
    if name in COUNTED:
        expected, got, axis = number(module.keyword(*COUNTED[name])), shape[-1], "features"
    else:
        found = next((v for k, v in CHANNELS.items() if name.startswith(k)), None)
        at = _channel_axis(name, shape)
        if found is None or at is None:
            return None
        expected, got, axis = number(module.keyword(*found)), shape[at], "channels"
    if expected is None or got is None or expected == got:
        return None
    return Misfit(expected, got, axis, shape)


def _channel_axis(name: str, shape: Shape) -> int | None:
    axes = _axes(name)
    if name.startswith("Conv"):
        if axes is None or len(shape) not in (axes + 1, axes + 2):
            return None
        return 1 if len(shape) == axes + 2 else 0
    if name == "BatchNorm1d":
        return 1 if len(shape) in (2, 3) else None
    if name.startswith("BatchNorm"):
        return 1 if axes is not None and len(shape) == axes + 2 else None
    return 1 if len(shape) > 1 else None


def _axes(name: str) -> int | None:
    return int(name[-2]) if name[-2:] in ("1d", "2d", "3d") else None


def output(module: Value, inputs: Sequence[Value]) -> Shape | None:
    """The shape of a layer's (first) output; None when it is not known."""
    shape = known(inputs[0]) if inputs else None
    name, axes = module.name, _axes(module.name)
    if name == "Embedding":
        size = number(module.keyword("embedding_dim", 1))
        return (*shape, size) if shape is not None else None
    if not shape:
        return None
    if name in ("Linear", "LazyLinear"):
        return (*shape[:-1], number(module.keyword("out_features", int(name == "Linear"))))
    if name in RECURRENT:
        return _recurrent(module, shape)
    if name == "Flatten":
        return flattened(shape, number(module.keyword("start_dim", 0), 1),
                         number(module.keyword("end_dim", 1), -1))
    if axes is not None and "Norm" not in name and "Dropout" not in name:
        return _spatial(module, name, axes, shape)
    return shape if name.startswith(KEEPING) else None


def function(name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Shape | None:
    """The shape that `F.max_pool2d(x, 2)` and others give."""
    if name in KEEPING:
        return known(args[0]) if args else None
    kind = "".join(part.capitalize() for part in name.split("_"))
    if "Pool" in kind and kind[-1:] == "d":
        return output(Value("module", kind, args=list(args[1:]), kwargs=kwargs), args[:1])
    return None


def flattened(shape: Shape, start: int | None, end: int | None) -> Shape | None:
    if start is None or end is None or not -len(shape) <= start < len(shape):
        return None
    first, last = start % len(shape), end % len(shape)
    if first > last:
        return None
    return (*shape[:first], times(shape[first:last + 1]), *shape[last + 1:])


def times(sizes: Shape) -> int | None:
    return prod(s for s in sizes if s is not None) if None not in sizes else None


def _recurrent(module: Value, shape: Shape) -> Shape | None:
    hidden = number(module.keyword("hidden_size", 1))
    both = module.kwargs.get("bidirectional")
    if hidden is None or "proj_size" in module.kwargs or len(shape) not in (2, 3):
        return (*shape[:-1], None)
    if both is not None and both.kind != "const":
        return (*shape[:-1], None)
    return (*shape[:-1], hidden * (2 if both is not None and both.data else 1))


def _spatial(module: Value, name: str, axes: int, shape: Shape) -> Shape | None:
    """Convolutions and pools: (batch, channels, sizes) or without the batch."""
    if len(shape) not in (axes + 1, axes + 2):
        return None
    head, sizes = list(shape[:-axes]), shape[-axes:]
    if name.startswith("Adaptive"):
        wanted = several(module.keyword("output_size", 0), axes, keep=True)
        return (*head, *(s if w == 0 else w for w, s in zip(wanted, sizes, strict=True)))
    if name.startswith(("Conv", "LazyConv")):
        head[-1] = number(module.keyword("out_channels", 0 if "Lazy" in name else 1))
        return (*head, *_convolved(module, axes, sizes, "Transpose" in name,
                                   first=1 if "Lazy" in name else 2))
    if name.startswith(("MaxPool", "AvgPool")):
        return (*head, *_pooled(module, name, axes, sizes))
    return None


def _convolved(module: Value, axes: int, sizes: Shape, back: bool, first: int) -> Sizes:
    padding = module.keyword("padding", first + 2)
    if padding is not None and padding.kind == "const" and padding.data == "same":
        return sizes
    if padding is not None and padding.kind == "const" and padding.data == "valid":
        padding = None
    kernel = several(module.keyword("kernel_size", first), axes)
    step = several(module.keyword("stride", first + 1), axes, 1)
    pad = several(padding, axes, 0)
    if back:
        more = several(module.keyword("output_padding", first + 3), axes, 0)
        spread = several(module.keyword("dilation", first + 6), axes, 1)
        return tuple(None if None in v else (v[0] - 1) * v[2] - 2 * v[3] + v[4] * (v[1] - 1) + v[5]
                     + 1 for v in zip(sizes, kernel, step, pad, spread, more, strict=True))
    spread = several(module.keyword("dilation", first + 3), axes, 1)
    return tuple(map(_slid, sizes, kernel, step, pad, spread))


def _pooled(module: Value, name: str, axes: int, sizes: Shape) -> Sizes:
    if "ceil_mode" in module.kwargs or len(module.args) > 3:
        return (None,) * axes
    kernel = several(module.keyword("kernel_size", 0), axes)
    given = module.keyword("stride", 1)
    step = kernel if given is None else several(given, axes)
    pad = several(module.keyword("padding", 2), axes, 0)
    spread = several(module.kwargs.get("dilation"), axes, 1)
    return tuple(map(_slid, sizes, kernel, step, pad, spread))


def _slid(size: int | None, kernel: int | None, step: int | None, pad: int | None,
          spread: int | None) -> int | None:
    """How many places a window has."""
    if size is None or kernel is None or not step or pad is None or spread is None:
        return None
    count = (size + 2 * pad - spread * (kernel - 1) - 1) // step + 1
    return count if count > 0 else None


def several(value: Value | None, axes: int, default: int | None = None,
            keep: bool = False) -> Sizes:
    """A size for each axis, from one number or several. `keep`: None stands for 0."""
    if value is None:
        return (default,) * axes
    if value.kind in ("tuple", "list"):
        found = tuple(several(item, 1, keep=keep)[0] for item in value.items)
        if len(found) == axes and value.data != "comprehension":
            return found
        return (None,) * axes
    if keep and value.kind == "const" and value.data is None:
        return (0,) * axes
    return (number(value),) * axes
