"""sxi: an interpreter for training runs whose guards stop the run at the very step, by name and line."""

__version__ = "0.1.0"
