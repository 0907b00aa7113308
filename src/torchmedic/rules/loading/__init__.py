"""Data loaders and their workers."""
