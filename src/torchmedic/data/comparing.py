"""How the tensors of a checkpoint fit those of a model, and why they do not."""

from __future__ import annotations

from collections.abc import Mapping

from torchmedic.data.prefixes import fitting, repaired
from torchmedic.data.reasons import Sides, missing, other_shape, renamed, unexpected
from torchmedic.observed.weights import Comparison, Differs, Stored

Tensors = Mapping[str, Stored]


def compare(checkpoint: Tensors, model: Tensors, name: str,
            tied: Mapping[str, str] | None = None, repair: bool = True) -> Comparison:
    """tied: keys of the model that share memory with an earlier key; repair: of a prefix."""
    prefix, names = repaired(checkpoint, model) if repair else (None, {k: k for k in checkpoint})
    found = {names[key]: tensor for key, tensor in checkpoint.items()}
    common = [key for key in model if key in found]
    shapes = [key for key in common if found[key].shape != model[key].shape]
    lacking = {k: v for k, v in model.items() if k not in found}
    further = {k: v for k, v in found.items() if k not in model}
    pairs = renamed(lacking, further)
    back = {new: old for old, new in pairs.items()}
    sides = Sides(found, model)
    return Comparison(
        model=name, plain=len(fitting(checkpoint, model)), prefix=prefix, names=names,
        matched=tuple(k for k in common if found[k].shape == model[k].shape),
        shapes=tuple(Differs(k, found[k], model[k], other_shape(k, sides))
                     for k in shapes),
        missing=tuple(Differs(k, None, v, missing(k, v, back, tied or {}, sides))
                      for k, v in lacking.items()),
        unexpected=tuple(Differs(k, v, None, unexpected(k, pairs, sides))
                         for k, v in further.items()),
        dtypes=tuple(Differs(k, found[k], model[k]) for k in common
                     if found[k].dtype != model[k].dtype and "unknown" not in found[k].dtype))
