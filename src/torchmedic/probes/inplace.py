"""Compiles a function that stands in tracebacks exactly where torch's own `Module.__call__` does.

`nn.Module.__call__` (torch 2.1 and newer) only passes its arguments on. A wrapper round it would
add a frame to every module call: time, and one frame of the recursion limit. So ours takes its
place: it does what torch's function does, and its code has torch's file name and the very
positions of torch's two calls, so that a traceback through it is the one without us.
"""

from __future__ import annotations

import opcode

PASSES_ON = ("_compiled_call_impl", "_call_impl")
ONLY_AST = 0x400  # ast.PyCF_ONLY_AST; importing ast would cost 5 ms

SOURCE = """
def _wrapped_call_impl(self, *args, **kwargs):
    if self._compiled_call_impl is not None:
        return self._compiled_call_impl(*args, **kwargs)
    if compiling():
        return self._call_impl(*args, **kwargs)
    try:
        slots = state.slots
        outer = slots[MODULE]
        try:
            here = index[id(self)]
        except KeyError:
            here = name_module(self, outer)
        slots[MODULE] = here
        if not outer:
            before = slots[PHASE]
            slots[PHASE] = FORWARD
    except Exception as error:
        fail(error)
        slots = None
    if slots is None:
        return self._call_impl(*args, **kwargs)
    try:
        result = self._call_impl(*args, **kwargs)
    except BaseException as error:
        try:
            slots[MODULE] = outer
            seen(error)
        except BaseException as problem:
            fail(problem, RecursionError)
        raise
    try:
        slots[MODULE] = outer
        calls[0] = count = calls[0] + 1
        if type(result) is told[0] and not tracing():
            trail[count & 63] = (here, result.shape)
        if looking[0] is not None:
            looking[0](self, args, result)
        if not outer:
            slots[PHASE] = before
            how = here, self.training, grad_on()
            try:
                tally[how] += 1
            except KeyError:
                new_mode(self, how)
    except Exception as error:
        fail(error)
    return result
"""


def call_around(original, constants, names):
    """The same as a wrapper round any other `Module.__call__`, with a frame of its own."""
    body = SOURCE[SOURCE.index("    if compiling()"):]
    body = body.replace("self._call_impl(*args", "original(self, *args")
    body = body.replace("        raise\n", "        excise(error)\n        raise\n")
    source = "def __call__(self, *args, **kwargs):\n" + body
    module = dict(names, original=original, __name__=__name__)
    exec(compile(_filled(source, constants), __file__, "exec"), module)
    return module["__call__"]


def _filled(source, constants):
    for name, number in constants.items():
        source = source.replace(name, str(number))
    return source


def call_in_place(original, constants, names):
    """The function, or None where torch's own is not the one this is made for.

    constants: numbers written into the code; names: the objects it uses.
    """
    code = getattr(original, "__code__", None)
    if code is None or original.__name__ != "_wrapped_call_impl":
        return None
    if set(code.co_names) != set(PASSES_ON) or code.co_freevars:
        return None
    places = _call_places(code)
    if len(places) != 2:
        return None
    tree = compile(_filled(SOURCE, constants), code.co_filename, "exec", ONLY_AST)
    _put(tree, places[1])
    _put(tree.body[0].body[0].body[0], places[0])
    module = dict(names, __name__=original.__module__, __file__=code.co_filename)
    exec(compile(tree, code.co_filename, "exec"), module)
    return module["_wrapped_call_impl"]


def _call_places(code):
    """(line, end line, column, end column) of each `f(*args, **kwargs)`, in order."""
    call = opcode.opmap["CALL_FUNCTION_EX"]
    if hasattr(code, "co_positions"):
        found = [place for number, place in zip(code.co_code[::2], code.co_positions())
                 if number == call]
        return [place for place in found if None not in place]
    lines = []  # before 3.11 a traceback shows lines only
    for start, end, line in _line_table(code):
        if call in code.co_code[start:end:2]:
            lines.append((line, line, 0, 1))
    return lines


def _line_table(code):
    if hasattr(code, "co_lines"):
        return list(code.co_lines())
    table, address, line = [], 0, code.co_firstlineno  # 3.8, 3.9: co_lnotab
    starts = []
    for step, more in zip(code.co_lnotab[::2], code.co_lnotab[1::2]):
        if step:
            starts.append((address, line))
            address += step
        line += more if more < 128 else more - 256
    starts.append((address, line))
    for number, (start, at) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else len(code.co_code)
        table.append((start, end, at))
    return table


def _put(node, place):
    """Give a tree one position."""
    if hasattr(node, "_fields"):
        for name in node._attributes:
            if name in POSITION:
                setattr(node, name, place[POSITION[name]])
        for name in node._fields:
            _put(getattr(node, name, None), place)
    elif isinstance(node, list):
        for item in node:
            _put(item, place)


POSITION = {"lineno": 0, "end_lineno": 1, "col_offset": 2, "end_col_offset": 3}
