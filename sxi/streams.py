"""The streams of the process, whatever they are connected to: a pipe, a full disk, nothing, ASCII."""

from __future__ import annotations

import codecs
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sxi.errors import SxiError


def prepare() -> None:
    """Give a stream that is closed one that leads nowhere, and show what a stream's encoding lacks as frames do."""
    codecs.register_error("shown", _shown)
    # in the order of their numbers, so that each gets its own and no file of a run gets one of them
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # open as long as the process
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="shown")


def _shown(error: UnicodeError) -> tuple[str, int]:
    from sxi.render import in_ascii  # noqa: PLC0415  # nearly every terminal has every character

    assert isinstance(error, UnicodeEncodeError), "streams are written to"
    return in_ascii(error.object[error.start : error.end]), error.end


def forget_output() -> None:
    """Let what is still to be written to stdout go nowhere: whoever read it has gone, or there is no room for it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refusal(error: OSError) -> SxiError | None:
    """The error that stdout cannot be written, where that is what `error` says; else None."""
    from sxi import codes  # noqa: PLC0415  # only where something went wrong

    if error.filename is not None:  # what writes a file says itself that it cannot
        return None
    forget_output()
    return codes.OUTPUT_REFUSED.at(None, reason=error.strerror or str(error))


def is_unicode(stream: Any) -> bool:
    """Whether a stream takes every character."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") in ("utf8", "utf16", "utf32")
