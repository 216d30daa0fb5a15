"""TODO charter."""
