"""Follows training code without running it: what happens in which order to which object.

`trace_of(script)` reads a file once, in the order in which Python would run it, through helper
functions, methods, closures and imported files of the same project. What it can't know stays
unknown. Rules read the `Trace`; none of them follows a name by itself.
"""

from torchmedic.source.flow.trace import Event, Frame, Trace, trace_of
from torchmedic.source.flow.values import Value

__all__ = ["Event", "Frame", "Trace", "Value", "trace_of"]
