"""Every error that a user may see: a code from a table, a message, the places it is about, the repair.

A `Code` is one row of a table (`codes` for reading, evaluating, shapes, types, guards and runs;
`contracts` for the contract rules) and says everything about itself once.  `code.at(span, ...)`
makes the error.  How an error prints is `render.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sxi.source import Span

# The exit status of `sxi` for an error of each family of codes.
EXIT_STATUS = {"READ": 4, "EVAL": 4, "SHAPE": 4, "DTYPE": 4, "CONTRACT": 4, "GUARD": 3, "RUN": 1, "USE": 2}


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that an error points at, and what is said there."""

    span: Span
    text: str


class SxiError(Exception):
    """An error of the user's program, data or command.  Anything else that escapes is a bug in sxi.

    code:     `E-FAMILY-nnn`
    message:  one line, without the code and without the place
    span:     the innermost form at fault, or None (a missing file has no place)
    label:    what is said under the caret, often the type found there
    labels:   second places: the opener, the first definition
    chain:    the calls that led here, innermost first: (what was called, where)
    notes:    further facts, a line each
    help:     the one repair, or ""
    data:     what a program may want to know, JSON values only
    others:   further errors of the same text, in its order, where all are told at once
    """

    def __init__(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        label: str = "",
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        help: str = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code, self.message, self.span = code, message, span
        self.label, self.labels, self.help = label, labels, help
        self.notes = list(notes)
        self.chain: list[tuple[str, Span]] = []
        self.data = data or {}
        self.others: list[SxiError] = []

    @property
    def family(self) -> str:
        return self.code.split("-")[1]

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.family]

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Incomplete(SxiError):
    """The text ends inside a form: the REPL asks for another line."""


@dataclass(frozen=True, slots=True)
class Code:
    """One row of a table of errors.

    message:  a template of one line; `at` fills it from its facts
    why:      what is wrong and why that is an error, in the reader's terms
    breaks:   a program that gives exactly this code, a caret in a comment under the place; "" where
              no program alone can (a full disk)
    fixed:    that program repaired
    help:     a template of the repair
    """

    code: str
    message: str
    why: str
    breaks: str = ""
    fixed: str = ""
    help: str = ""
    kind: type[SxiError] = field(default=SxiError)

    def at(
        self,
        span: Span | None,
        *,
        label: str = "",
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        help: str | None = None,
        data: dict[str, Any] | None = None,
        **facts: object,
    ) -> SxiError:
        """The error of this code at `span`, its message filled from `facts`."""
        repair = self.help.format(**facts) if help is None else help
        message = _one_line(self.message.format(**facts))
        return self.kind(self.code, message, span, label=label, labels=labels, notes=notes, help=repair, data=data)


def _one_line(text: str) -> str:
    """`text` with white space as spaces and other characters without a glyph as their code points."""
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else " " if c.isspace() else f"\\u{{{ord(c):X}}}" for c in text])


CODES: dict[str, Code] = {}


def register(code: Code) -> Code:
    """Enter `code` into the one table that explains, completes and tests all codes."""
    if code.code in CODES:
        raise ValueError(f"{code.code} is already taken by: {CODES[code.code].message}")
    CODES[code.code] = code
    return code
