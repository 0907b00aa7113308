"""The CUDA runtime, its libraries and its driver."""
