"""One package per family, one module per failure kind. `registry.py` walks them."""
