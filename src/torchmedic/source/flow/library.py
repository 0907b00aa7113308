"""What the functions and layers of torch do to tensors."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from torchmedic.source.flow import layers, shapes
from torchmedic.source.flow.values import Value, tensor

LOSSES = {
    "cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss",
    "binary_cross_entropy": "BCELoss", "binary_cross_entropy_with_logits": "BCEWithLogitsLoss",
    "mse_loss": "MSELoss", "l1_loss": "L1Loss", "smooth_l1_loss": "SmoothL1Loss",
    "huber_loss": "HuberLoss", "kl_div": "KLDivLoss", "multi_margin_loss": "MultiMarginLoss",
    "poisson_nll_loss": "PoissonNLLLoss", "ctc_loss": "CTCLoss",
    "multilabel_soft_margin_loss": "MultiLabelSoftMarginLoss",
}
ACTS = {
    "softmax": "softmax", "Softmax": "softmax", "Softmax2d": "softmax", "softmin": "softmax",
    "gumbel_softmax": "softmax",
    "log_softmax": "log_softmax", "LogSoftmax": "log_softmax", "sigmoid": "sigmoid",
    "Sigmoid": "sigmoid", "sigmoid_": "sigmoid", "logsigmoid": "logsigmoid",
    "LogSigmoid": "logsigmoid", "relu": "relu", "ReLU": "relu", "tanh": "tanh", "Tanh": "tanh",
}
SAME = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "Identity", "dropout")
DEPENDENT = ("Dropout", "BatchNorm", "AlphaDropout", "FeatureAlphaDropout", "SyncBatchNorm")
FLAT = ("floor", "ceil", "round", "sign", "heaviside", "trunc")
CUTS = ("argmax", "argmin", "argsort", "gt", "lt", "ge", "le", "eq", "ne", "isnan", "nonzero",
        "bincount", "multinomial")
WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DDP", "FSDP")


BARE = ("Flatten", "CosineSimilarity", "PairwiseDistance", "MaxPool", "AvgPool", "Adaptive",
        "Upsample", "PixelShuffle", "Fold", "Unfold")
"""How layers without parameters begin."""


def is_dependent(module: Value) -> bool:
    """It does something else in training than in evaluation."""
    return module.kind == "module" and module.name.startswith(DEPENDENT)


def parameters(parts: Iterable[Value], node: ast.AST, file: str) -> Value:
    """Parameters of several things; `data` is None where some of them are not known."""
    made = Value("parameters", "", node, file, data="known")
    waiting = list(parts)
    while waiting:
        part = waiting.pop(0)
        if part.kind in ("parameters", "list", "tuple", "dict"):
            if part.kind == "parameters" and part.data is None:
                made.data = None
            waiting = [*part.items, *_groups(part), *waiting]
        elif part.kind in ("module", "instance") or part.kind == "parameter":
            made.items.append(part)
        elif part.kind != "const":
            made.data = None
    return made


def _groups(part: Value) -> list[Value]:
    return [value for name, value in part.attrs.items() if name in ("[params]", "params")]


def activated(name: str, args: list[Value], kwargs: dict[str, Value], node: ast.AST,
              file: str) -> Value:
    """`F.softmax(x, dim=1)` and other element-wise or normalizing operations."""
    base = args[0] if args else kwargs.get("input", Value())
    made = tensor([base], node, file, act=ACTS[name], act_node=node, act_file=file)
    made.shape = _one(base).shape
    return made


def _one(value: Value) -> Value:
    return next(value.options())


def layer(module: Value, inputs: list[Value], node: ast.AST, file: str) -> Value:
    """The output of one layer of `torch.nn`."""
    name = module.name
    base = _one(inputs[0]) if inputs else Value()
    if name in SAME:
        return shapes.moved(base, "", [], node, file) if base.kind == "tensor" else base
    where = module.node or node
    if name in ACTS:
        return tensor(inputs, node, file, act=ACTS[name], act_node=where,
                      act_file=module.file or file, shape=base.shape, data=base.data)
    made = tensor(inputs, node, file)
    made.sources |= {module.id}
    made.device = module.device
    _shaped(made, module, inputs)
    if name in ("LSTM", "GRU", "RNN"):
        return _recurrent(made, module, base, node, file)
    return made


def _shaped(made: Value, module: Value, inputs: list[Value]) -> None:
    name = module.name
    made.shape = layers.output(module, inputs)
    if name in ("Linear", "LazyLinear", "Bilinear") or name.startswith("Conv"):
        made.act, made.act_node, made.act_file = "linear", module.node, module.file
    if name == "Flatten" and not module.args and made.shape is None:
        made.shape = (None, None)


def _recurrent(made: Value, module: Value, base: Value, node: ast.AST, file: str) -> Value:
    made.type = "recurrent"
    made.owner = module
    made.args = [base]
    state = tensor([made], node, file, type="state", owner=module)
    if module.name == "LSTM":
        cell = tensor([made], node, file, type="state", owner=module)
        state = Value("tuple", "", node, file, items=[state, cell])
    return Value("tuple", "", node, file, items=[made, state])


def logged(base: Value, node: ast.AST, file: str) -> Value:
    """`log(p)`: of a softmax it is a log-softmax."""
    one = _one(base)
    made = tensor([base], node, file, shape=one.shape, type="log")
    made.args = [base]
    if one.act in ("softmax", "sigmoid"):
        made.act = "log_softmax" if one.act == "softmax" else "logsigmoid"
        made.act_node, made.act_file = one.act_node, one.act_file
    return made
