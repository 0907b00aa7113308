"""The part that lives inside the user's process.

Standard library and the user's own torch only; Python 3.8 syntax; nothing of the rest of
torchmedic is imported here, because the user's interpreter may not have it. The boot file loads
this folder under a private name; our own tests and `torchmedic.watch()` import it by its real one.
"""
