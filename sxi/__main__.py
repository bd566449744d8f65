"""`sxi`: the prompt where no command is given, else the command line."""

from __future__ import annotations

import sys

from sxi import streams
from sxi.threads import take_threads

# Nested calls of the language nest Python's frames, several for each; its own limit is the language's.
DEEPEST = 400_000
INTERRUPTED = 130


def main() -> None:
    """Run the command and leave with its exit status."""
    take_threads()
    streams.prepare()
    sys.setrecursionlimit(DEEPEST)
    try:
        sys.exit(_status(sys.argv[1:]))
    except KeyboardInterrupt:  # before the command was there to answer it
        sys.exit(INTERRUPTED)


def _status(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-", "-e", "repl"):
        from sxi.prompt import main as prompt  # noqa: PLC0415  # the prompt is there before click could be imported

        return prompt(arguments)
    from sxi.cli import main as command  # noqa: PLC0415  # likewise

    return command(arguments)


if __name__ == "__main__":
    main()
