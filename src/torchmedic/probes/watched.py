"""Everything that looks at a training step: importing a part adds it to the looks."""

from . import coverage, graphs, kept, nonfinite, updates  # noqa: F401
