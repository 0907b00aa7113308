"""How serious it is that a loader gives nothing."""

import pytest

from torchmedic.observed import Ending, Frame, Iteration, Loader, Process, Run
from torchmedic.rules.loading.empty_loader import in_run
from torchmedic.source.script import Script

EMPTY = Loader(1, 0, 4, 0, False, 0, "Clips")
FULL = Loader(2, 3, 4, 12, False, 0, "Clips")
DROPS = Loader(1, 0, 4, 3, True, 0, "Clips")
ENDLESS = Loader(1, None, 4, None, False, 0, "Stream")


@pytest.mark.parametrize(("loader", "body", "steps", "others", "severity"), [
    (EMPTY, "check(x)", 3, True, "info"), (EMPTY, "check(x)", 0, True, "info"),
    (EMPTY, "check(x)", 0, False, "error"), (EMPTY, "loss(x).backward()", 0, True, "error"),
    (EMPTY, "train_step(x)", 3, True, "warning"), (DROPS, "check(x)", 3, True, "warning"),
    (ENDLESS, "check(x)", 3, True, "warning"),
])
def test_severity(loader, body, steps, others, severity):
    empty = Iteration(loader, 1, 0, True, started=(Frame("x.py", 1, "<module>"),), time=2.0)
    full = (Iteration(FULL, 1, 3, True, time=1.0),) if others else ()
    process = Process(1, 0, ("x.py",), "main", step=steps, iterations=(*full, empty))
    text = f"for x in loader:\n    {body}\n"
    run = Run((), Ending(0, None), (process,), script=lambda file: Script.parse(text, file))
    problem, = in_run(run)
    assert problem.severity == severity
