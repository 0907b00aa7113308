"""Where tensors are, and of what type."""
