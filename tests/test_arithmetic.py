"""A node with the operator, the names and the numbers written into it gives what the frame gives, refusals included."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from sxi import arithmetic
from sxi.backends import open_backend
from sxi.eager import EagerArray
from sxi.errors import SxiError
from sxi.program import load_source
from sxi.source import Source

# Whole numbers about the bounds that the node and Python's integers have, reals, what is neither.
VALUES = [
    "0", "1", "-3", str(2**30 - 1), str(2**30), str(-(2**30)), str(2**61), str(-(10**400)), str(2**9_999),
    "0.5", "-0.0", "1e308", "inf", "nan", "true", "nil", '"text"', "[1 2]", "(ones [2])",
]  # fmt: skip
LITERALS = [v for v in VALUES if v.lstrip("-")[0].isdigit()]
# How an operand is written -> what it is then, its value being bound to the name
WRITTEN = {"as a name": "{name}", "as a call": "(nth [{name}] 0)", "as a number": "{value}"}


def outcomes(texts: list[str]) -> list[tuple[Any, ...]]:
    """Of each expression the type and the value, or the refusal's code, text and place."""
    definitions = [f"(define y{i} {text})" for i, text in enumerate(texts)]
    loaded = load_source(Source("text.sx", "\n".join(definitions)))
    assert not loaded.errors
    failures: list[tuple[int | None, SxiError]] = []
    program = loaded.evaluate(open_backend("cpu"), failures=failures)
    refused = dict(failures)
    found: list[tuple[Any, ...]] = []
    for i in range(len(texts)):
        error = refused.get(program.module.lookup(f"y{i}"))
        value = program.value(f"y{i}")
        if error is not None:
            assert error.span
            # both calls are errors of the same text, but for how the operator is written
            found.append((error.code, re.sub(r"^\([^ ]+ ", "(", error.message), error.span.text))
        elif isinstance(value, EagerArray):
            found.append((str(value.type), value.data.tobytes()))
        else:
            found.append((type(value), repr(value)))
    return found


@pytest.mark.parametrize("operator", [*arithmetic.ARITHMETIC, *arithmetic.COMPARISONS])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(WRITTEN, WRITTEN)))
def test_as_the_frame_does_it(operator: str, first: str, second: str) -> None:
    cases = list(itertools.product(*[LITERALS if way == "as a number" else VALUES for way in (first, second)]))
    texts = []
    for a, b in cases:
        operands = f"{WRITTEN[first].format(name='a', value=a)} {WRITTEN[second].format(name='b', value=b)}"
        # the second function takes the operator as a value, which always goes the general way
        texts += [f"((lambda (a b) ({operator} {operands})) {a} {b})"]
        texts += [f"((lambda (a b call) (call {operands})) {a} {b} {operator})"]
    found = outcomes(texts)
    for case, quick, general in zip(cases, found[::2], found[1::2], strict=True):
        assert quick == general, case
    assert len(set(found)) > 1
