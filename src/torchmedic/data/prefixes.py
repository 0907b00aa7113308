"""The change of prefix that makes a checkpoint's keys those of a model, where there is one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from torchmedic.observed.weights import Prefix, Stored

DEEPEST = 4
"""Components of a prefix at most."""
TRIED = 12
INSIDE = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""What torch.compile, FSDP and activation checkpointing put before the keys of what they wrap."""
COUNTER = "num_batches_tracked"
Tensors = Mapping[str, Stored]
Names = dict[str, str]


def repaired(checkpoint: Tensors, model: Tensors) -> tuple[Prefix | None, Names]:
    """The change with which most tensors fit, and the checkpoint's keys as it makes them."""
    prefix, names = best_prefix(checkpoint, model)
    inside = tuple(part for part in INSIDE if any(
        f".{part}." in key for side in (checkpoint, model) for key in side))
    if not inside:
        return prefix, names
    bare, own = (_without(side, inside) for side in (checkpoint, model))
    if len(set(bare.values())) < len(bare) or len(set(own.values())) < len(own):
        return prefix, names
    outer, changed = best_prefix({bare[k]: v for k, v in checkpoint.items()},
                                 {own[k]: v for k, v in model.items()})
    spelled = {short: key for key, short in own.items()}
    through = {k: spelled.get(changed[bare[k]], changed[bare[k]]) for k in checkpoint}
    count = len(fitting({through[k]: v for k, v in checkpoint.items()}, model))
    if count <= len(fitting({names[k]: v for k, v in checkpoint.items()}, model)):
        return prefix, names
    number = sum(old != new for old, new in through.items())
    return Prefix(outer.removed if outer else "", outer.added if outer else "", number,
                  inside), through


def _without(side: Iterable[str], inside: tuple[str, ...]) -> Names:
    return {key: ".".join(p for p in key.split(".") if p not in inside) for key in side}


def fitting(checkpoint: Tensors, model: Tensors) -> set[str]:
    """Keys that both have, in one shape."""
    return {key for key, tensor in checkpoint.items()
            if key in model and model[key].shape == tensor.shape}


def best_prefix(checkpoint: Tensors, model: Tensors) -> tuple[Prefix | None, Names]:
    """The one change of prefix with which most tensors fit, and the keys as it makes them."""
    plain = fitting(checkpoint, model)
    best: tuple[int, Prefix | None, Names] = len(plain), None, {key: key for key in checkpoint}
    for removed, added in _candidates(checkpoint, model):
        keys = {key: with_prefix(key, removed, added) for key in checkpoint}
        changed = {new: checkpoint[old] for old, new in keys.items()}
        if len(changed) < len(keys):
            continue  # two keys would become one
        fits = fitting(changed, model)
        if len(fits) > best[0] and _telling(removed, added, changed, fits - plain, model):
            number = sum(old != new for old, new in keys.items())
            best = len(fits), Prefix(removed, added, number), keys
    return best[1], best[2]


def _telling(removed: str, added: str, changed: Tensors, gained: set[str], model: Tensors) -> bool:
    """More than a coincidence of sizes: most names agree then, in several layers.

    One layer of another name is renamed, not prefixed.
    """
    agree = sum(key in model and not key.endswith(COUNTER) for key in changed)
    sides = [sum(not key.endswith(COUNTER) for key in side) for side in (changed, model)]
    layers = {key.rpartition(".")[0] for key in gained}
    return agree * 2 >= min(sides) and (len(layers) > 1 or not removed or not added)


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


def _splits(key: str) -> Iterator[tuple[str, str]]:
    parts = key.split(".")
    for count in range(min(DEEPEST, len(parts) - 1) + 1):
        head = "".join(f"{part}." for part in parts[:count])
        yield head, key[len(head):]
