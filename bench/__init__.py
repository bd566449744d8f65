"""Measurements of speed and of what the tutorials reach: `python -m bench.NAME` from the top of the repository."""
