"""Why one tensor of a checkpoint and a model does not fit: only what names and shapes show."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Mapping

from torchmedic.observed.weights import Stored

Tensors = Mapping[str, Stored]
MOST = 1500
"""Keys of a side that are aligned by shape and order."""
HEADS = re.compile(r"(^|\.)(fc|classifier|head|heads|linear|logits|lm_head|output|out|score|"
                   r"last_layer|prediction)(\.|$)")
G, V = "parametrizations.weight.original0", "parametrizations.weight.original1"
NORM = "weight norm in two forms: `torch.nn.utils.weight_norm` before and after torch 2.0"
FORMS = (
    (("weight_g", "weight_v"), (G, V), NORM), ((G, V), ("weight_g",), NORM),
    (("weight_g", "weight_v"), ("weight",), "weight norm on one side only"),
    (("weight",), ("weight_g", G), "weight norm on one side only"),
    (("weight_orig", "weight_mask", "weight_u"), ("weight",), "pruned or spectrally normed there"),
    (("weight",), ("weight_orig",), "pruned or spectrally normed on one side only"),
    (("gamma", "beta"), ("weight", "bias"), "`gamma` and `beta` are `weight` and `bias` here"),
    (("weight", "bias"), ("gamma", "beta"), "`gamma` and `beta` in the file"),
    (("zero_point", "_packed_params"), ("weight",), "quantized on one side only"),
)
"""Last names on this side, those of the same layer on the other, and what that means."""
RECURRENT = re.compile(r"(?:^|\.)(?:weight|bias)_[ih]h_l(\d+)(?:_reverse)?$")
COUNTER = "num_batches_tracked"


class Sides:
    """What is asked of a checkpoint's and a model's names again and again, gathered once."""

    def __init__(self, checkpoint: Tensors, model: Tensors) -> None:
        self.checkpoint, self.model = checkpoint, model
        self.places = {id(side): Names(side) for side in (checkpoint, model)}
        self.common = any(name in model for name in checkpoint)
        self.heads = {id(own): any(HEADS.search(name) for name in other if name not in own)
                      for own, other in ((checkpoint, model), (model, checkpoint))}
        """Whether the other side has a head that this one lacks."""

    def of(self, side: Tensors) -> Names:
        return self.places[id(side)]


class Names:
    """numbers: of the layers in each list; layers: of each recurrent module; parents: modules."""

    def __init__(self, side: Tensors) -> None:
        self.numbers: dict[str, set[int]] = defaultdict(set)
        self.layers: dict[str, int] = defaultdict(int)
        self.parents: set[str] = set()
        for name in side:
            parts = name.split(".")
            for count, part in enumerate(parts[:-1]):
                base = ".".join(parts[:count])
                self.parents.add(f"{base}.{part}" if base else part)
                if part.isdecimal() and base and len(part) < 10:
                    self.numbers[base].add(int(part))
            if (layer := RECURRENT.search(name)) is not None:
                base = ".".join(parts[:-1])
                self.layers[base] = max(self.layers[base], int(layer[1][:9]) + 1)


def other_shape(key: str, sides: Sides) -> str:
    """Of a key that both have."""
    checkpoint, model = sides.checkpoint, sides.model
    ours, theirs = checkpoint[key].shape, model[key].shape
    differ = [axis for axis, pair in enumerate(zip(ours, theirs, strict=False))
              if pair[0] != pair[1]]
    if len(ours) != len(theirs):
        same = checkpoint[key].count == model[key].count
        return "the same values in another shape" if same else "another kind of layer"
    if len(ours) == 2 and ours == theirs[::-1]:
        return "transposed"
    last = next(reversed(list(model))).rpartition(".")[0] == key.rpartition(".")[0]
    if differ == [0] and (HEADS.search(key) or last):
        return f"other head: {ours[0]} outputs in the checkpoint, {theirs[0]} in the model"
    if differ == [0] and "emb" in key:
        return f"other vocabulary or length: {ours[0]} against {theirs[0]} rows"
    if differ == [1] and len(ours) > 2 and min(ours[1], theirs[1]) <= 4:
        return f"other input channels: {ours[1]} against {theirs[1]}"
    if differ and all(ours[a] * theirs[differ[0]] == theirs[a] * ours[differ[0]] for a in differ):
        return f"other width: {ours[differ[0]]} against {theirs[differ[0]]}"
    return "other size of a layer"


def missing(key: str, tensor: Stored, renamed_to: Mapping[str, str], tied: Mapping[str, str],
            sides: Sides) -> str:
    """Of a key that only the model has."""
    checkpoint = sides.checkpoint
    if form := _form(key, checkpoint):
        return form
    if key in renamed_to:
        return f"renamed: `{renamed_to[key]}` has its shape and place"
    if key in tied and tied[key] in checkpoint:
        return f"shares its memory with `{tied[key]}`"
    if key.endswith(COUNTER) and f"{key.removesuffix(COUNTER)}running_mean" in checkpoint:
        return "a counter that files from before torch 0.4.1 lack"
    return (_depth(key, sides, checkpoint, "model", "checkpoint")
            or _module(key, sides, checkpoint))


def unexpected(key: str, pairs: Mapping[str, str], sides: Sides) -> str:
    """Of a key that only the checkpoint has."""
    model = sides.model
    if form := _form(key, model):
        return form
    if key in pairs:
        return f"renamed: `{pairs[key]}` has its shape and place"
    return (_depth(key, sides, model, "checkpoint", "model")
            or _module(key, sides, model))


def _form(key: str, other: Tensors) -> str:
    """One value that the two sides hold in different forms, or one that may be left out."""
    start, form, rest = key.partition("parametrizations.")
    last = form + rest
    if not form:
        layer, _, last = key.rpartition(".")
        start = f"{layer}." if layer else ""
    for ours, theirs, why in FORMS:
        if last in ours and any(f"{start}{name}" in other for name in theirs):
            return why
    if last == "position_ids":
        return "a buffer that other versions of the library do not save"
    return "an adapter (LoRA) beside the weights" if "lora_" in key else ""


def _module(key: str, sides: Sides, other: Tensors) -> str:
    """Whether the other side has anything of the same module, or a head that this side lacks."""
    own = sides.model if other is sides.checkpoint else sides.checkpoint
    parent = key.rpartition(".")[0]
    if not parent or parent in sides.of(other).parents:
        return "the layer has another set of parameters" if parent else "no such parameter there"
    head = HEADS.search(key) and sides.heads[id(own)] and sides.common
    return "other head" if head else "no such layer there"


def _depth(key: str, sides: Sides, other: Tensors, here: str, there: str) -> str:
    """A number in the name that the other side's list of layers does not reach."""
    theirs = sides.of(other)
    ours = sides.of(sides.model if other is sides.checkpoint else sides.checkpoint)
    if (layer := RECURRENT.search(key)) is not None:
        base = key.rpartition(".")[0]
        depth = theirs.layers.get(base, 0)
        if depth and int(layer[1][:9]) >= depth:
            return (f"other depth: `{base or 'it'}` has {ours.layers[base]} recurrent layers in "
                    f"the {here}, {depth} in the {there}")
        return "both directions on one side only" if depth and "_reverse" in key else ""
    for found in re.finditer(r"(?<=\.)(\d{1,9})(?=\.)", key):
        base = key[:found.start() - 1]
        numbers = theirs.numbers.get(base)
        if numbers and int(found[1]) > max(numbers):
            return (f"other depth: `{base}` has {len(ours.numbers[base])} layers in the "
                    f"{here}, {len(numbers)} in the {there}")
    return ""


def renamed(lacking: Tensors, further: Tensors) -> dict[str, str]:
    """Checkpoint's key → model's key, of those left over, by shape, last name and order.

    Only where each of the two sides fits as a whole: anything less is a coincidence of sizes.
    """
    olds = [key for key in further if not key.endswith(COUNTER)]
    news = [key for key in lacking if not key.endswith(COUNTER)]
    if not olds or not news or max(len(olds), len(news)) > MOST:
        return {}
    ours, theirs = ([(room[k].shape, k.rpartition(".")[2]) for k in keys]
                    for room, keys in ((further, olds), (lacking, news)))
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    pairs = {olds[b.a + i]: news[b.b + i] for b in blocks for i in range(b.size)}
    telling = sum(len(further[old].shape) > 1 for old in pairs)
    whole = len(pairs) * 5 >= 4 * min(len(olds), len(news))
    return pairs if whole and telling else {}
