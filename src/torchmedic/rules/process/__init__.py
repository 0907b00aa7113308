"""How a process ended."""
