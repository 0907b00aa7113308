"""A check of source files: what is read, which rules, what is left out, and what was known."""
