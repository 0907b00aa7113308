"""Starts the user's command, follows it without touching it, and reads what it left behind."""
