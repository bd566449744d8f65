"""How many threads NumPy's libraries take: settled before NumPy is imported."""

from __future__ import annotations

import os

# What NumPy's libraries read, once, when they are loaded.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def take_threads(count: int | None = None) -> None:
    """Set how many threads a matrix product takes, before NumPy is imported.

    Without a count: what the environment says, else half the cores.  Threads that outnumber the cores that are free
    wait for each other in a loop, which makes a small product a hundred times slower.
    """
    if count is None and any(name in os.environ for name in THREADS):
        return
    for name in THREADS:
        os.environ[name] = str(count or max(1, (os.cpu_count() or 2) // 2))
