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
    """

    def __init__(self, code: Code, operand: int | None = None, **facts: object) -> None:
        super().__init__(code.code, facts)
        self.code, self.operand = code, operand
        self.facts: dict[str, Any] = facts

    def error(self) -> SxiError:
        """The error without its place."""
        return self.code.at(None, **self.facts)
