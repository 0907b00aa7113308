"""Memory of the device and of the host."""
