"""The samples themselves."""
