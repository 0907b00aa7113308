"""torchmedic: why a PyTorch training run died, hung or stopped, and the smallest fix."""

__version__ = "0.1.0"
