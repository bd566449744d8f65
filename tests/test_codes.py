"""The table of codes: each broken program gives exactly its code at its caret, each repaired one none."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

from sxi import codes
from sxi.checking import check_text
from sxi.errors import CODES, Code

SHOWN = [code for code in CODES.values() if code.breaks and not code.code.startswith("E-CONTRACT-")]
EACH_SHOWN = pytest.mark.parametrize("code", SHOWN, ids=lambda code: code.code)
# Why a program alone cannot give the rest: a family, or one code.
UNSHOWN = {
    "E-RUN": "it takes data, a disk, a device or a saved run",
    "E-GUARD": "it takes a step",
    "E-USE": "it takes a command",
    "E-READ-001": "a text has no bytes",
    "E-READ-006": "it takes a thousand brackets",
    "E-EVAL-021": "no program is known whose array leaves its graph",
    "E-EVAL-022": "how much memory there is depends on the machine",
}
SXI = Path(__file__).parents[1] / "sxi"


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


def test_every_code_shows_a_program_or_there_is_a_reason() -> None:
    without = [code.code for code in CODES.values() if not code.breaks]
    assert [c for c in without if c not in UNSHOWN and c[:-4] not in UNSHOWN] == []
    assert [c for c in UNSHOWN if c in CODES and c not in without] == []


def test_no_error_is_made_but_from_the_table() -> None:
    made = []
    for path in sorted(SXI.rglob("*.py")):
        calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        names = [n.func.id for n in calls if isinstance(n.func, ast.Name)]
        made += [f"{path.name}: {name}" for name in names if name in ("SxiError", "Incomplete", "Code")]
    assert made == ["entry.py: Code", "rule.py: Code"]


def test_every_code_of_the_table_is_raised_somewhere() -> None:
    raised = set()
    for path in sorted(SXI.rglob("*.py")):
        if path.parent.name != "codes":
            raised |= set(re.findall(r"\bcodes\.([A-Z][A-Z_0-9]+)\b", path.read_text(encoding="utf-8")))
    entered = {name for name, code in vars(codes).items() if isinstance(code, Code)}
    assert entered - raised == set()
    assert raised - entered == set()
