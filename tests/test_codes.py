"""The table of codes: each broken program gives exactly its code at its caret, each repaired one none."""

from __future__ import annotations

import inspect
import re

import pytest

from sxi.checking import check_text
from sxi.errors import CODES, Code

SHOWN = [code for code in CODES.values() if code.breaks and not code.code.startswith("E-CONTRACT-")]
EACH_SHOWN = pytest.mark.parametrize("code", SHOWN, ids=lambda code: code.code)
# What a text of a program alone cannot give.
WITHOUT_A_PROGRAM = re.compile(r"E-(RUN|GUARD|USE)-\d+")
# The rest need bytes, a file, memory, or another setting than the file's own.
UNSHOWN = {"E-READ-001", "E-READ-006", "E-DTYPE-006", "E-EVAL-017", "E-EVAL-021", "E-EVAL-022"}
# Only the curriculum's steps give these.
OF_THE_CURRICULUM = {"E-EVAL-025", "E-EVAL-026"}


def marked(text: str) -> list[tuple[int, int, str]]:
    """Line, column and code of each caret in a comment: the line above it."""
    found = [(n, re.fullmatch(r"\s*; *\^ (E-[A-Z]+-\d{3})", line)) for n, line in enumerate(text.splitlines())]
    return [(n, m.start(1) - 1, m[1]) for n, m in found if m]


@EACH_SHOWN
def test_the_broken_program_gives_this_code_at_its_caret(code: Code) -> None:
    text = inspect.cleandoc(code.breaks) + "\n"
    assert [m[2] for m in marked(text)] == [code.code]
    assert [(e.span.line, e.span.column, e.code) for e in check_text(text)] == marked(text)


@EACH_SHOWN
def test_the_repaired_program_is_accepted(code: Code) -> None:
    assert code.fixed
    assert [str(e) for e in check_text(inspect.cleandoc(code.fixed) + "\n")] == []


def test_every_code_that_a_program_can_give_shows_one() -> None:
    without = {code.code for code in CODES.values() if not code.breaks}
    assert {c for c in without if not WITHOUT_A_PROGRAM.fullmatch(c)} == UNSHOWN | OF_THE_CURRICULUM
