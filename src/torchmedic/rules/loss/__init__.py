"""Losses and their targets."""
