"""What makes an entry of the table of codes, and what a type rule raises."""

from __future__ import annotations

from typing import Any

from sxi.errors import Code, SxiError, register


def entry(number: str, message: str, why: str, *, kind: type[SxiError] = SxiError, **rest: str) -> Code:
    """Enter `E-NUMBER` into the table; the rest are the fields of `Code`."""
    return register(Code(f"E-{number}", message, why, kind=kind, **rest))


class Refusal(Exception):
    """What a type rule raises: `code` with its facts, about one operand or the whole call.

    The evaluator knows the call, its span and the names of its operands, and turns it into the
    error the user sees; so a type rule needs to know none of these.

    operand:  the number of an array operand, the name of a static one, or None for the whole call
    subject:  the array that it is about, where a primitive refused that others are made of
    """

    def __init__(self, code: Code, operand: int | str | None = None, **facts: object) -> None:
        super().__init__(code.code, facts)
        self.code, self.operand = code, operand
        self.facts: dict[str, Any] = facts
        self.subject: object = None

    def error(self) -> SxiError:
        """The error without its place."""
        return self.code.at(None, **{name: _in_words(fact) for name, fact in self.facts.items()})


# A whole number of more digits is cut.
_LONGEST = 40


def _in_words(fact: Any) -> Any:
    """A fact as the language writes it: static operands are Python's values."""
    if fact is None or isinstance(fact, bool):
        return {None: "nil", True: "true", False: "false"}[fact]
    if isinstance(fact, list | tuple):
        return f"[{' '.join([str(_in_words(e)) for e in fact])}]"
    if isinstance(fact, int) and abs(fact) >= 10**_LONGEST:
        return f"{str(fact)[: _LONGEST // 2]}…"
    return fact
