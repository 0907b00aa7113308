"""How the tensors of a checkpoint fit those of a model, and why they do not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from torchmedic.data.reasons import missing, other_shape, renamed, unexpected
from torchmedic.observed.weights import Comparison, Differs, Prefix, Stored

DEEPEST = 4
"""Components of a prefix at most."""
TRIED = 12
Tensors = Mapping[str, Stored]


def compare(checkpoint: Tensors, model: Tensors, name: str,
            tied: Mapping[str, str] | None = None) -> Comparison:
    """tied: keys of the model that share memory with an earlier key."""
    plain = _fitting(checkpoint, model)
    prefix, repaired = best_prefix(checkpoint, model)
    common = [key for key in model if key in repaired]
    shapes = [key for key in common if repaired[key].shape != model[key].shape]
    lacking = {k: v for k, v in model.items() if k not in repaired}
    further = {k: v for k, v in repaired.items() if k not in model}
    pairs = renamed(lacking, further)
    back = {new: old for old, new in pairs.items()}
    return Comparison(
        model=name, plain=plain, prefix=prefix,
        matched=tuple(k for k in common if repaired[k].shape == model[k].shape),
        shapes=tuple(Differs(k, repaired[k], model[k], other_shape(k, repaired, model))
                     for k in shapes),
        missing=tuple(Differs(k, None, v, missing(k, v, back, tied or {}, repaired, model))
                      for k, v in lacking.items()),
        unexpected=tuple(Differs(k, v, None, unexpected(k, pairs, repaired, model))
                         for k, v in further.items()),
        dtypes=tuple(Differs(k, repaired[k], model[k]) for k in common
                     if repaired[k].dtype != model[k].dtype and "unknown" not in repaired[k].dtype))


def _fitting(checkpoint: Tensors, model: Tensors) -> int:
    return sum(key in model and model[key].shape == tensor.shape
               for key, tensor in checkpoint.items())


def best_prefix(checkpoint: Tensors, model: Tensors) -> tuple[Prefix | None, dict[str, Stored]]:
    """The one change of prefix with which most tensors fit, and the keys as it makes them."""
    best: tuple[int, Prefix | None, dict[str, Stored]] = (
        _fitting(checkpoint, model), None, dict(checkpoint))
    for removed, added in _candidates(checkpoint, model):
        keys = {key: with_prefix(key, removed, added) for key in checkpoint}
        changed = {new: checkpoint[old] for old, new in keys.items()}
        if len(changed) < len(keys):
            continue  # two keys would become one
        count = _fitting(changed, model)
        if count > best[0]:
            number = sum(old != new for old, new in keys.items())
            best = count, Prefix(removed, added, number), changed
    return best[1], best[2]


def with_prefix(key: str, removed: str, added: str) -> str:
    """The key with one prefix in the place of another, where it has that one."""
    return added + key[len(removed):] if key.startswith(removed) else key


def _candidates(checkpoint: Tensors, model: Tensors) -> Iterable[tuple[str, str]]:
    """Pairs of prefixes by how many keys have the same rest and shape, simplest first."""
    rests: dict[tuple[str, tuple[int, ...]], list[str]] = defaultdict(list)
    for key, tensor in model.items():
        for prefix, rest in _splits(key):
            rests[rest, tensor.shape].append(prefix)
    counts: Counter[tuple[str, str]] = Counter()
    for key, tensor in checkpoint.items():
        for removed, rest in _splits(key):
            for added in rests.get((rest, tensor.shape), ())[:TRIED]:
                if removed != added:
                    counts[removed, added] += 1
    order = sorted(counts, key=lambda pair: (-counts[pair], len(pair[0]) + len(pair[1])))
    return order[:TRIED]


def _splits(key: str) -> Iterable[tuple[str, str]]:
    parts = key.split(".")
    for count in range(min(DEEPEST, len(parts))):
        head = "".join(f"{part}." for part in parts[:count])
        yield head, key[len(head):]
