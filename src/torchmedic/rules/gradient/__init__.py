"""What backward does."""
