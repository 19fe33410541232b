"""The similarity graph."""
