"""The ways to the prompt: a terminal, a pipe, or a text on the command line.

Only a terminal imports prompt_toolkit, and there it is imported before the evaluator.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from sxi import streams

USAGE = """\
usage: sxi repl [FILE] [--device auto|cpu|cuda|strict]    the prompt, with FILE loaded
       sxi -e TEXT                                        evaluate a text and print its values
       sxi -                                              evaluate what comes through a pipe
"""
DEVICES = ("auto", "cpu", "cuda", "strict")


def main(arguments: Sequence[str]) -> int:
    """Prompt, or evaluate a text: the exit status.

    arguments:  none, `repl` and what it takes, `-e` and a text, or `-`
    """
    first, *rest = arguments or ["repl"]
    if first == "-e":
        if len(rest) != 1:
            return _misused("-e takes one text")
        return piped(rest[0])
    if first == "-":
        return piped(_read(sys.stdin)) if not rest else _misused("- takes nothing")
    path, device = None, "auto"
    while rest:
        word = rest.pop(0)
        if word in ("--help", "-h"):
            sys.stdout.write(USAGE)
            return 0
        if word == "--device":
            device = rest.pop(0) if rest else ""
        elif word.startswith("--device="):
            device = word.partition("=")[2]
        elif word.startswith("-") or path is not None:
            return _misused(f"{word} means nothing here")
        else:
            path = word
    if device not in DEVICES:
        return _misused(f"--device is one of {', '.join(DEVICES)}")
    if not sys.stdin.isatty():
        return piped((f",load {path}\n" if path else "") + _read(sys.stdin), device)
    from sxi.repl import main as prompt  # noqa: PLC0415  # only a terminal needs prompt_toolkit

    return prompt(path, device=device)


def _misused(what: str) -> int:
    sys.stderr.write(f"sxi: {what}\n{USAGE}")
    return 2


def _read(stream: TextIO) -> str:
    """All of a pipe; bytes that are not UTF-8 become characters that the reader refuses by name."""
    buffer = getattr(stream, "buffer", None)
    return stream.read() if buffer is None else buffer.read().decode("utf-8", "surrogateescape")


def piped(text: str, device: str = "auto") -> int:
    """Evaluate a text, values to stdout and errors to stderr: the exit status."""
    from sxi.session import Screen, run_piped  # noqa: PLC0415  # usage is checked before anything is imported

    screen = Screen(unicode=streams.is_unicode(sys.stdout))
    try:
        return run_piped(text, sys.stdout, sys.stderr, screen=screen, device=device)
    except BrokenPipeError:  # whoever read has gone: there is nobody to tell
        streams.forget_output()
        return 141
    except OSError as error:
        from sxi import render  # noqa: PLC0415  # only where something went wrong

        refused = streams.refusal(error)
        if refused is None:
            raise
        sys.stderr.write(render.frame(refused, unicode=screen.unicode) + "\n")
        return refused.exit_status
