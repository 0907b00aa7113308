"""JSON for events. The json package imports re, which alone would cost 10 ms at each start."""

from __future__ import annotations

try:
    from _json import encode_basestring_ascii as _quote
except ImportError:  # PyPy and others without the accelerator
    from json.encoder import py_encode_basestring_ascii as _quote

DEEPEST = 12


def encode(value, depth=0):
    """What `json.loads` reads back; unknown objects become their type's name."""
    kind = type(value)
    if kind is str:
        return _quote(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float:
        return repr(value) if value - value == 0 else "null"  # NaN and infinity are not JSON
    if depth > DEEPEST:
        return '"…"'
    if kind in (list, tuple):
        return "[" + ",".join([encode(item, depth + 1) for item in value]) + "]"
    if kind is dict:
        return "{" + ",".join([_quote(str(name)) + ":" + encode(item, depth + 1)
                               for name, item in value.items()]) + "}"
    return _quote("<%s>" % kind.__name__)
