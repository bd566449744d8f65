"""`sxi`: the prompt where no command is given, else the command line."""

from __future__ import annotations

import sys

from sxi.threads import take_threads

# Nested calls of the language nest Python's frames, several for each; its own limit is the language's.
DEEPEST = 400_000


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
