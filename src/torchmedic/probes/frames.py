"""Reads tracebacks and stacks into plain data: files, lines, module paths, short values."""

from __future__ import annotations

import sys

from . import values
from .paths import is_ours, is_user_file

MOST_FRAMES = 60
USER_FRAMES_WITH_VALUES = 5
LIBRARY_FRAMES_WITH_VALUES = 4
MOST_VALUES = 40
MESSAGE_LIMIT = 6000
OPTIMIZED = 1  # inspect.CO_OPTIMIZED: a function, whose variables are no dict of their own
LOCALS = frozenset(("locals", "vars", "exec"))  # they hand out the very dict we would read

# Filled by the training probe: the path of an nn.Module from its model's root, by its id.
module_path = {"of": lambda module: None}


def stack(frame, most=MOST_FRAMES, with_values=0):
    """Frames from `frame` outwards, outermost first, without ours."""
    found = []
    user = 0
    while frame is not None and len(found) < most:
        code = frame.f_code
        if not is_ours(code.co_filename) and not code.co_filename.startswith("<frozen"):
            mine = is_user_file(code.co_filename)
            entry = _entry(frame, frame.f_lineno, mine)
            if mine and user < with_values:
                entry["values"] = locals_of(frame)
                user += 1
            found.append(entry)
        frame = frame.f_back
    found.reverse()
    return found


def traceback(trace):
    """Entries of a traceback, outermost first, without ours; values for the innermost ones."""
    pairs = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            pairs.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    if len(pairs) > MOST_FRAMES:
        pairs = pairs[:20] + pairs[20 - MOST_FRAMES:]
    entries = [_entry(frame, line, is_user_file(frame.f_code.co_filename))
               for frame, line in pairs]
    _add_values(pairs, entries)
    return entries


def _add_values(pairs, entries):
    left = {True: USER_FRAMES_WITH_VALUES, False: LIBRARY_FRAMES_WITH_VALUES}
    for (frame, _), entry in zip(reversed(pairs), reversed(entries)):
        if left[entry["user"]] > 0:
            left[entry["user"]] -= 1
            entry["values"] = locals_of(frame)


def _entry(frame, line, user):
    code = frame.f_code
    entry = {"file": code.co_filename, "line": line or 0, "function": code.co_name, "user": user}
    torch = sys.modules.get("torch")
    if code.co_varnames[:1] == ("self",) and torch is not None and hasattr(torch, "nn"):
        owner = variables(frame).get("self")
        if isinstance(owner, torch.nn.Module):
            entry["module_class"] = type(owner).__name__
            entry["module"] = module_path["of"](owner)
    return entry


def variables(frame):
    """A frame's variables, read so that nothing of them stays behind.

    Before 3.13 reading `f_locals` of a function leaves a copy with the frame: a tensor that the
    function deletes would live on, and a dict that it got from `locals()` would change.
    """
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & OPTIMIZED:
        return dict(frame.f_locals)
    if sys.gettrace() is not None or not LOCALS.isdisjoint(code.co_names):
        return {}
    snapshot = frame.f_locals
    found = dict(snapshot)
    if sys.getrefcount(snapshot) <= 3:  # the frame's, ours and the argument: nobody else's
        snapshot.clear()
    return found


def locals_of(frame):
    """Summaries of a frame's variables by name, those that say something."""
    found = {}
    for name, value in variables(frame).items():
        if name.startswith("__"):
            continue
        try:
            summary = values.named(name, value)
        except Exception:
            summary = None
        if summary is not None:
            found[name] = summary
        if len(found) >= MOST_VALUES:
            break
    return found


def scalars_of(frame):
    """Plain numbers among a frame's variables and the settings of a parsed command line."""
    found = {}
    for name, value in variables(frame).items():
        kind = type(value)
        plain = kind in values.PLAIN or (kind.__name__ == "Namespace")
        if plain and not name.startswith("__") and len(found) < MOST_VALUES:
            found[name] = values.summarise(value)
    return found


def error(exception, depth=3):
    """An exception with its frames and, in `during`, the one it came from."""
    kind = type(exception)
    module = "" if kind.__module__ in ("builtins", "__main__") else kind.__module__ + "."
    described = {
        "type": module + kind.__qualname__,
        "message": _message(exception),
        "bases": [base.__name__ for base in kind.__mro__[1:-1]],
        "frames": traceback(exception.__traceback__),
    }
    earlier = exception.__cause__ or (
        None if exception.__suppress_context__ else exception.__context__
    )
    if earlier is not None and depth > 1:
        described["during"] = error(earlier, depth - 1)
    if isinstance(exception, OSError):
        described["errno"] = exception.errno
        described["filename"] = str(exception.filename)[:300] if exception.filename else None
    return described


def _message(exception):
    try:
        return str(exception)[:MESSAGE_LIMIT]
    except BaseException:  # a __str__ may do anything, even sys.exit
        return "<unprintable %s>" % type(exception).__name__
