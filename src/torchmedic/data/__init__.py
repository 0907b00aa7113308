"""Reads what training reads: checkpoints, by their headers and without torch."""
