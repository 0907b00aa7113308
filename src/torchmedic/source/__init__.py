"""Source files as facts: what encloses a line. Knows no failure."""
