"""`sxi`: the prompt where no command is given, else the command line."""

from __future__ import annotations

import os
import sys

# Nested calls of the language nest Python's frames, several for each; its own limit is the language's.
DEEPEST = 400_000


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


def main() -> None:
    """Run the command and leave with its exit status."""
    take_threads()
    sys.setrecursionlimit(DEEPEST)
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-", "-e", "repl"):
        from sxi.prompt import main as prompt  # noqa: PLC0415  # the prompt is there before click could be imported

        sys.exit(prompt(arguments))
    from sxi.cli import main as command  # noqa: PLC0415  # likewise

    sys.exit(command(arguments))


if __name__ == "__main__":
    main()
