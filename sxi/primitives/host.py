"""Elementwise primitives of host numbers: exact integers, IEEE binary64 reals, never a Python exception.

The one exception that the functions here raise is ZeroDivisionError, for whole-number division by zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from sxi.primitives.declare import Primitive

Number: TypeAlias = bool | int | float

# Past this many bits an integer becomes a real: `(pow 10 100000000)` and a number squared again and again in a
# loop must not take the machine, and Python writes no more than 4,300 digits.
_LONGEST = 10_000


def evaluate(primitive: Primitive, operands: Sequence[Number], **static: Any) -> Number:
    """What `primitive`, an elementwise one, gives for host numbers: a host number.

    Raises ZeroDivisionError for a whole-number division by zero, nothing else.
    """
    if primitive.host is not None:
        return primitive.host(*operands, **static)  # type: ignore[no-any-return]  # `host` is declared as any callable
    assert primitive.forward is not None, f"{primitive.name} has neither a function nor a host function"
    with np.errstate(all="ignore"):
        return primitive.forward(np, *[np.float64(real(x)) for x in operands], **static).item()  # type: ignore[no-any-return]  # an array's `item` is untyped


def real(x: Number) -> float:
    """`x` in binary64: an integer out of its range is infinite."""
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf


def alike(*xs: Number) -> tuple[Number, ...]:
    """`xs` as integers where all of them are, otherwise all as reals."""
    return tuple(map(real, xs)) if any(isinstance(x, float) for x in xs) else xs


def folded(step: Callable[[Any, Any], Number]) -> Callable[..., Number]:
    """`step` over all operands from the left, each pair made alike."""

    def fold(*xs: Number) -> Number:
        first, *rest = xs
        for x in rest:
            first = step(*alike(first, x))
        return first

    return fold


def bounded(x: Number) -> Number:
    """`x`, a whole number of more than 10,000 bits as a real: infinite."""
    return real(x) if not isinstance(x, float) and x.bit_length() > _LONGEST else x


def added(a: Number, b: Number) -> Number:
    return bounded(a + b)


def multiplied(a: Number, b: Number) -> Number:
    return bounded(a * b)


def negated(x: Number) -> Number:
    return -x


def subtracted(*xs: Number) -> Number:
    return -xs[0] if len(xs) == 1 else folded(lambda a, b: bounded(a - b))(*xs)


def equal(a: Any, b: Any) -> bool:
    """Whether two host values are equal, lists and records through and through.

    Python's own comparison of lists recurses on the C stack, which nested lists would overflow.
    """
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all([equal(x, y) for x, y in zip(a, b, strict=True)])
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all([equal(x, b[k]) for k, x in a.items()])
    return bool(a == b)


def different(a: Any, b: Any) -> bool:
    return not equal(a, b)


def divided(a: Number, b: Number) -> float:
    """True division: of integers too, correctly rounded; by zero it is infinite or NaN."""
    if not b:
        with np.errstate(all="ignore"):
            return float(np.float64(real(a)) / np.float64(real(b)))
    try:
        return a / b
    except OverflowError:
        return math.inf if (a > 0) == (b > 0) else -math.inf


def _is_nan(x: Number) -> bool:
    # math.isnan would take a large integer to a real.
    return isinstance(x, float) and math.isnan(x)


def least(a: Number, b: Number) -> Number:
    """The smaller of two numbers that are alike, NaN where one is."""
    return a if _is_nan(a) or a < b else b


def greatest(a: Number, b: Number) -> Number:
    """The larger of two numbers that are alike, NaN where one is."""
    return a if _is_nan(a) or a > b else b


def powered(base: Number, exponent: Number) -> Number:
    """Exact for whole numbers of up to about 10,000 bits, otherwise binary64."""
    whole = not isinstance(base, float) and not isinstance(exponent, float) and exponent >= 0
    if whole and (abs(base) < 2 or (exponent <= _LONGEST and math.log2(abs(base)) * exponent <= _LONGEST)):
        return base**exponent
    if whole:
        return -math.inf if base < 0 and exponent % 2 else math.inf
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(real(base)), np.float64(real(exponent))))


def remainder(a: Number, b: Number) -> Number:
    """`a` modulo `b`, of the sign of `b`.  Raises ZeroDivisionError for whole numbers where `b` is 0."""
    a, b = alike(a, b)
    if not isinstance(a, float):
        return a % b
    with np.errstate(all="ignore"):
        return float(np.mod(np.float64(a), np.float64(b)))


def quotient(a: Number, b: Number) -> Number:
    """The floor of `a` by `b`.  Raises ZeroDivisionError for whole numbers where `b` is 0."""
    a, b = alike(a, b)
    if not isinstance(a, float):
        return a // b
    with np.errstate(all="ignore"):
        return float(np.floor_divide(np.float64(a), np.float64(b)))


def sign(x: Number) -> Number:
    if x == 0 or _is_nan(x):
        return x
    one = 1 if x > 0 else -1
    return float(one) if isinstance(x, float) else one


def floored(x: Number) -> Number:
    """The largest whole number not above `x`, in the type of `x`."""
    return float(np.floor(x)) if isinstance(x, float) else x


def rounded(x: Number) -> Number:
    """The nearest whole number, the even one of two, in the type of `x`."""
    return float(np.rint(x)) if isinstance(x, float) else x


def log_gamma(x: Number) -> float:
    """log |Γ(x)|, infinite at its poles."""
    try:
        return math.lgamma(real(x))
    except (ValueError, OverflowError):
        return math.inf
