"""What encloses a line: nesting, functions, forms of `try`; and files that are no Python."""

import os
from pathlib import Path

import pytest

from torchmedic.source.script import Script
from torchmedic.source.text import decode, source_line

PROGRAM = '''\
import contextlib

def train(loader):
    try:
        for epoch in range(3):
            for images, labels in loader:
                try:
                    step(images)
                except (ValueError, OSError) as error:
                    print(error)
                    continue
                except KeyError:
                    raise
                else:
                    report()
    except Exception:
        pass
    finally:
        close()

class Net:
    @staticmethod
    @cached(
        size=3)
    def forward(x):
        with contextlib.suppress(RuntimeError):
            x = call(
                x,
            )
        while x > 0: x -= 1
        return x

try:
    def nested():
        crash()
    nested()
except:
    ...

if True: print(1); pass
match command:
    case "go":
        go()
'''


@pytest.fixture
def script():
    parsed = Script.parse(PROGRAM, "train.py")
    assert parsed is not None
    return parsed


def at(text):
    return next(n for n, line in enumerate(PROGRAM.split("\n"), 1) if text in line)


def test_handlers_innermost_first(script):
    handlers = script.handlers_around(at("step(images)"))
    assert [h.types for h in handlers] == [("ValueError", "OSError"), ("KeyError",), ("Exception",)]
    assert [h.kind for h in handlers] == ["continue", "other", "pass"]
    assert [h.reraises for h in handlers] == [False, True, False]
    assert handlers[0].line == at("except (ValueError")
    assert handlers[0].try_line == at("step(images)") - 1
    assert handlers[0].text == "except (ValueError, OSError) as error"


def test_else_and_finally_are_not_guarded(script):
    assert [h.text for h in script.handlers_around(at("report()"))] == ["except Exception"]
    assert script.handlers_around(at("close()")) == ()


def test_a_def_inside_try_is_not_guarded_when_called(script):
    assert script.handlers_around(at("crash()")) == ()
    bare, = script.handlers_around(at("    nested()"))
    assert (bare.types, bare.kind, bare.text) == ((), "pass", "except")


def test_suppress_counts_as_handler(script):
    handler, = script.handlers_around(at("x,"))
    assert handler.types == ("RuntimeError",)
    assert handler.text == "with suppress(RuntimeError)"


def test_handler_at(script):
    handler = script.handler_at(at("print(error)"))
    assert handler is not None and handler.types == ("ValueError", "OSError")
    assert script.handler_at(at("step(images)")) is None


def test_loops(script):
    inner, outer = script.loops_around(at("step(images)"))
    assert (inner.kind, inner.target, inner.over) == ("for", "images, labels", "loader")
    assert (outer.target, outer.over) == ("epoch", "range(3)")
    assert script.loops_around(at("for images")) == (inner, outer)
    loop, = script.loops_around(at("while"))
    assert (loop.kind, loop.target, loop.over) == ("while", None, "x > 0")


def test_statements(script):
    assert script.statement_at(at("continue")).kind == "continue"
    assert script.statement_at(at("return x")).text == "return x"
    assert script.statement_at(at("raise")).kind == "raise"
    call = script.statement_at(at("x,"))
    assert (call.kind, call.line, call.end_line) == ("assign", at("x = call("), at("x = call(") + 2)
    assert script.statement_at(at("if True")).kind == "pass"
    assert script.statement_at(at("go()")).kind == "expr"
    assert script.statement_at(at("for epoch")).text == "for epoch in range(3):"
    assert script.statement_at(10_000) is None


def test_functions(script):
    assert [f.name for f in script.functions] == ["train", "Net.forward", "nested"]
    assert script.function_at(at("return x")).name == "Net.forward"
    assert script.function_at(1) is None
    assert script.line(1) == "import contextlib"
    assert script.line(0) == script.line(9999) == ""


@pytest.mark.parametrize("text", ["def f(:", "x = '\0'", "(" * 5000, "print 'python 2'"])
def test_no_python_is_none(text):
    assert Script.parse(text) is None


def test_read_follows_the_file(tmp_path: Path):
    file = tmp_path / "train.py"
    file.write_text("x = 1\n")
    first = Script.read(str(file))
    assert first is Script.read(str(file))
    file.write_text("x = 22\n")
    again = Script.read(str(file))
    assert again is not None and again.line(1) == "x = 22"


def test_unreadable_is_none(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for name in (tmp_path, tmp_path / "pipe", tmp_path / "absent", "<stdin>", "a\0b"):
        assert Script.read(str(name)) is None
        assert source_line(str(name), 1) is None


def test_encodings(tmp_path: Path):
    file = tmp_path / "gbk.py"
    file.write_bytes("# -*- coding: gbk -*-\ns = '显存'\n".encode("gbk"))
    script = Script.read(str(file))
    assert script is not None and script.line(2) == "s = '显存'"
    assert source_line(str(file), 2) == "s = '显存'"
    assert decode(b"# coding: nonsense\nx = 1\r\n") == "# coding: nonsense\nx = 1\n"
    assert decode(b"x = '\xff'") == "x = 'ÿ'"
    assert source_line(str(file), 99) is None


def test_reading_prints_no_warning(recwarn):
    assert Script.parse("x = '\\d'\nif x is 3: pass\n") is not None
    assert not recwarn.list
