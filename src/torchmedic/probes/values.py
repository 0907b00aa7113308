"""Short summaries of the values a frame holds: shapes, dtypes, numbers. No secrets, no user code.

Only exact, known types are looked into; for anything else the type's name is all that is kept,
so that no `__repr__`, property or `__getattr__` of the user's runs.
"""

from __future__ import annotations

import sys

from .recorder import is_secret

TEXT_LIMIT = 200
STATS_LIMIT = 1_000_000  # elements; more would be felt
PLAIN = (bool, int, float)


def summarise(value):
    """A JSON-able summary, or None when the value says nothing to a reader."""
    kind = type(value)
    if kind in PLAIN:
        return {"kind": "number", "type": kind.__name__, "number": _number(value),
                "text": repr(value)[:40]}
    if kind is str:
        return {"kind": "text", "type": "str", "text": value[:TEXT_LIMIT]}
    if value is None:
        return {"kind": "object", "type": "NoneType", "text": "None"}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "nn"):
        # Not isinstance: it asks a proxy for its __class__, which may run the user's code.
        if issubclass(kind, torch.Tensor):
            return tensor(value, torch)
        if issubclass(kind, torch.nn.Module):
            return module(value)
    if kind in (list, tuple):
        return _sequence(value, kind)
    if kind is dict:
        return _mapping(value)
    return _other(value, kind)


def named(name, value):
    """The summary of a variable. Text under a secret's name is left out; `key` may be a tensor."""
    return None if type(value) is str and is_secret(name) else summarise(value)


def _number(value):
    # NaN and infinity are not JSON.
    if type(value) is float and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value if abs(value) < 2**63 else None


def tensor(value, torch):
    summary = {
        "kind": "tensor", "type": type(value).__name__, "shape": list(value.shape),
        "dtype": str(value.dtype).replace("torch.", ""), "device": str(value.device),
        "requires_grad": bool(value.requires_grad),
    }
    if _cheap_to_read(value, torch):
        summary.update(_statistics(value, torch))
    return summary


def _cheap_to_read(value, torch):
    # A tensor on an accelerator is not touched: after a CUDA fault any read raises again.
    plain = type(value) in (torch.Tensor, torch.nn.Parameter)
    modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)()
    return (
        plain and not modes and value.device.type == "cpu" and value.layout == torch.strided
        and 0 < value.numel() <= STATS_LIMIT and not value.is_quantized
        and not value.is_complex()
    )


def _statistics(value, torch):
    with torch.no_grad():
        data = value.detach()
        if data.dtype == torch.bool:
            return {}
        nans = int(torch.isnan(data).sum()) if data.is_floating_point() else 0
        low, high = float(data.min()), float(data.max())
    return {"minimum": _number(low), "maximum": _number(high), "nans": nans}


def module(value):
    """Class, and for torch's own layers their settings."""
    kind = type(value)
    summary = {"kind": "module", "type": kind.__name__, "text": "",
               "attributes": settings(value)}
    if kind.__module__.startswith("torch.nn."):
        try:
            summary["text"] = value.extra_repr()[:TEXT_LIMIT]
        except Exception:
            pass
    return summary


def settings(value):
    """Plain numbers, flags and short tuples of numbers among an object's own attributes."""
    found = {}
    for name, item in list(vars(value).items()):
        if name.startswith("_") or len(found) >= 60:
            continue
        kind = type(item)
        if kind in PLAIN:
            found[name] = _number(item)
        elif kind is str and not is_secret(name):
            found[name] = item[:TEXT_LIMIT]
        elif kind is tuple and len(item) <= 6 and all(type(i) in PLAIN for i in item):
            found[name] = list(item)
    return found


def _sequence(value, kind):
    summary = {"kind": "sequence", "type": kind.__name__, "number": len(value)}
    items = [summarise(item) for item in value[:4]] if len(value) <= 64 else []
    texts = [_short(item) for item in items if item]
    more = ", …" if len(value) > 4 else ""
    summary["text"] = "%s of %d: %s%s" % (kind.__name__, len(value), ", ".join(texts), more)
    return summary


def _mapping(value):
    texts = []
    for name in list(value)[:8]:
        if type(name) is str:
            item = value[name]
            known = type(item) in PLAIN or hasattr(type(item), "dtype")
            texts.append("%s: %s" % (name[:40], _short(summarise(item)) if known else "…"))
    return {"kind": "sequence", "type": "dict", "number": len(value),
            "text": ("dict of %d: %s" % (len(value), ", ".join(texts)))[:TEXT_LIMIT]}


def _short(item):
    if item is None:
        return "…"
    if item["kind"] == "tensor":
        return "%s%s" % (item["dtype"], tuple(item["shape"]))
    return str(item.get("text") or item["type"])[:60]


def _other(value, kind):
    name = kind.__name__
    if kind.__module__ == "numpy" and name == "ndarray":
        return {"kind": "tensor", "type": "ndarray", "shape": list(value.shape),
                "dtype": str(value.dtype), "device": "cpu"}
    if kind.__module__ == "argparse" and name == "Namespace":
        return {"kind": "object", "type": "Namespace", "attributes": settings(value)}
    if kind.__module__.startswith("pathlib"):
        return {"kind": "text", "type": name, "text": str(value)[:TEXT_LIMIT]}
    if "__dataclass_fields__" in vars(kind) and hasattr(value, "__dict__"):
        return {"kind": "object", "type": name, "attributes": settings(value)}
    return None
