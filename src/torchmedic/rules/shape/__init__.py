"""Sizes that do not fit."""
