"""Arithmetic, element by element; `transcendental.py` and `special.py` have the functions of reals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from sxi.primitives import host
from sxi.primitives.compare import cast, eq, ge, is_real, le, logical_and, logical_or, lt, where
from sxi.primitives.declare import POSITIVE, REAL, Array, Domain, primitive
from sxi.primitives.rules import elementwise

BELOW_MINUS_ONE, ABOVE_ONE = Domain("f32", -2, -1), Domain("f32", 1, 2)


def is_array(x: Any) -> bool:
    """Whether `x` is an array, not a host number that takes the arrays' type."""
    return hasattr(x, "dtype")


def fold(xp: Any, step: Callable[[Any, Any], Array], xs: Sequence[Any]) -> Array:
    """`step` over `xs` from the left."""
    if len(xs) > 2 and not is_array(xs[0]) and not is_array(xs[1]):
        # Two host numbers: Python's arithmetic raises where an array's gives infinity or wraps.
        dtype = next(x.dtype for x in xs if is_array(x))
        xs = [xp.asarray(xs[0], dtype=dtype), *xs[1:]]
    return functools.reduce(step, xs)


# Each takes as many operands as it is given, from the left.


@primitive(
    "+", "a...", promote="s", type=elementwise, vjp=lambda g, out, *operands, index: g, sample=(REAL, REAL),
    elementwise=True, host=host.folded(host.added), cuda="({0} + {1})",
)  # fmt: skip
def add(xp: Any, *xs: Array) -> Array:
    """The sum of its operands, added from the left.

    a:      f32[*n], one or more
    gives:  f32[*n]

    (+ 1.0 2.0) ; => 3.0
    (+ (array [1 2]) 10 100) ; => i32[2] [111 112]
    """
    return fold(xp, lambda a, b: a + b, xs)


def _neg_back(g: Any, out: Any, x: Any) -> Any:
    return neg(g)


@primitive(
    "neg", "x", promote="-", type=elementwise, vjp=(_neg_back,), sample=(REAL,),
    elementwise=True, host=host.negated, cuda="(-{0})",
)  # fmt: skip
def neg(xp: Any, x: Array) -> Array:
    """Minus each element.

    x:      f32[*n]
    gives:  f32[*n]

    (neg 2.0) ; => -2.0
    """
    return -x


def _sub_back(g: Any, out: Any, *operands: Any, index: int) -> Any:
    return g if index == 0 and len(operands) > 1 else neg(g)


@primitive(
    "-", "a...", promote="s", type=elementwise, vjp=_sub_back, sample=(REAL, REAL), elementwise=True,
    host=host.subtracted, cuda="({0} - {1})",
)  # fmt: skip
def sub(xp: Any, *xs: Array) -> Array:
    """The first operand less all others; of one operand alone, its negative.

    a:      f32[*n], one or more
    gives:  f32[*n]

    (- 5.0 2.0) ; => 3.0
    (- (array [1.0 2.0])) ; => f32[2] [-1.0 -2.0]
    """
    return -xs[0] if len(xs) == 1 else fold(xp, lambda a, b: a - b, xs)


def _mul_back(g: Any, out: Any, *operands: Any, index: int) -> Any:
    return mul(g, *operands[:index], *operands[index + 1 :])


@primitive(
    "*", "a...", promote="s", type=elementwise, vjp=_mul_back, sample=(REAL, REAL), elementwise=True,
    host=host.folded(host.multiplied), cuda="({0} * {1})",
)  # fmt: skip
def mul(xp: Any, *xs: Array) -> Array:
    """The product of its operands, multiplied from the left.

    a:      f32[*n], one or more
    gives:  f32[*n]

    (* 2.0 3.0) ; => 6.0
    (* (array [1 2]) 0.5) ; => f32[2] [0.5 1.0]
    """
    return fold(xp, lambda a, b: a * b, xs)


def _div_back(g: Any, out: Any, *operands: Any, index: int) -> Any:
    if index == 0:
        return div(g, *operands[1:])
    return neg(div(mul(g, out), operands[index]))


@primitive(
    "/", "a b...", promote="f", type=elementwise, vjp=_div_back, sample=(REAL, POSITIVE), elementwise=True,
    host=host.folded(host.divided), cuda="({0} / {1})",
)  # fmt: skip
def div(xp: Any, *xs: Array) -> Array:
    """The first operand over all others: the true quotient, of integers too.  By zero it is infinite or NaN.

    a:      f32[*n]
    b:      f32[*n], one or more
    gives:  f32[*n]

    (/ 1 4) ; => 0.25
    (/ (array [1.0 -1.0]) 0.0) ; => f32[2] [inf -inf]
    """
    return fold(xp, lambda a, b: a / b, xs)


def _extreme_back(g: Any, out: Any, *operands: Any, index: int) -> Any:
    x = operands[index]
    if len(operands) > 2:
        ties = add(*[cast(eq(other, out), dtype=g.dtype) for other in operands])
        return where(eq(x, out), div(g, ties), 0.0)
    return where(eq(x, operands[1 - index]), mul(0.5, g), where(eq(x, out), g, 0.0))


@primitive(
    "minimum", "a b...", promote="s", type=elementwise, vjp=_extreme_back, sample=(REAL, REAL), elementwise=True,
    moves=True, host=host.folded(host.least),
    cuda="({0} != {0} ? {0} : {1} != {1} ? {1} : {0} < {1} ? {0} : {1})",
)  # fmt: skip
def minimum(xp: Any, *xs: Array) -> Array:
    """The smallest of its operands at each element, NaN where one is.  Equal ones share the gradient equally.

    a:      f32[*n]
    b:      f32[*n], one or more
    gives:  f32[*n]

    (minimum 1.0 2.0) ; => 1.0
    (minimum (array [1.0 5.0]) 3.0) ; => f32[2] [1.0 3.0]
    """
    return fold(xp, xp.minimum, xs)


@primitive(
    "maximum", "a b...", promote="s", type=elementwise, vjp=_extreme_back, sample=(REAL, REAL), elementwise=True,
    moves=True, host=host.folded(host.greatest),
    cuda="({0} != {0} ? {0} : {1} != {1} ? {1} : {0} > {1} ? {0} : {1})",
)  # fmt: skip
def maximum(xp: Any, *xs: Array) -> Array:
    """The largest of its operands at each element, NaN where one is.  Equal ones share the gradient equally.

    `(max x)` is the largest element of one array.

    a:      f32[*n]
    b:      f32[*n], one or more
    gives:  f32[*n]

    (maximum 1.0 2.0) ; => 2.0
    (maximum (array [1.0 5.0]) 3.0) ; => f32[2] [3.0 5.0]
    """
    return fold(xp, xp.maximum, xs)


# Of two operands, or three


def _divide_whole(xp: Any, step: Callable[[Any, Any], Array], a: Array, b: Array) -> Array:
    """`step` of integers, 0 where `b` is 0."""
    if not is_array(b):
        return step(a, b) if b else xp.zeros_like(a)
    return xp.where(b == 0, 0, step(a, xp.where(b == 0, 1, b)))


def _holds_reals(a: Array, b: Array) -> bool:
    return is_real(a if is_array(a) else b)


@primitive(
    "quotient", "a b", promote="s", type=elementwise, vjp=None, sample=(REAL, POSITIVE), elementwise=True,
    host=host.quotient,
    cuda="({1} == 0.0f ? {0} / {1} : rintf(({0} - fmodf({0}, {1})) / {1})"
    " - (float)(fmodf({0}, {1}) != 0.0f && (fmodf({0}, {1}) < 0.0f) != ({1} < 0.0f)))",
)  # fmt: skip
def quotient(xp: Any, a: Array, b: Array) -> Array:
    """The floor of a/b, the whole-number quotient.

    Whole host numbers by 0 are an error; in an array an integer by 0 is 0, and a real by 0 is infinite or NaN.

    a:      i32[*n]
    b:      i32[*n]
    gives:  i32[*n]

    (quotient 7 2) ; => 3
    (quotient (array [-7 7]) 0) ; => i32[2] [0 0]
    """
    if _holds_reals(a, b):
        return xp.floor_divide(a, b)
    return _divide_whole(xp, xp.floor_divide, a, b)


@primitive(
    "mod", "a b", promote="s", type=elementwise,
    vjp=(lambda g, out, a, b: g, lambda g, out, a, b: neg(mul(g, quotient(a, b)))),
    sample=(REAL, POSITIVE), elementwise=True, host=host.remainder,
    cuda="(fmodf({0}, {1}) == 0.0f ? copysignf(0.0f, {1}) : (fmodf({0}, {1}) < 0.0f) != ({1} < 0.0f)"
    " ? fmodf({0}, {1}) + {1} : fmodf({0}, {1}))",
)  # fmt: skip
def mod(xp: Any, a: Array, b: Array) -> Array:
    """What the quotient of `a` by `b` leaves, of the sign of `b`.

    Whole host numbers by 0 are an error; in an array an integer by 0 leaves 0, and a real by 0 NaN.

    a:      i32[*n]
    b:      i32[*n]
    gives:  i32[*n]

    (mod -7 3) ; => 2
    (mod (array [5.5 -5.5]) 2.0) ; => f32[2] [1.5 0.5]
    """
    if _holds_reals(a, b):
        return xp.mod(a, b)
    return _divide_whole(xp, xp.mod, a, b)


def _clip_to_x(g: Any, out: Any, x: Any, low: Any, high: Any) -> Any:
    return where(logical_and(ge(x, low), le(x, high)), g, 0.0)


def _clip_to_low(g: Any, out: Any, x: Any, low: Any, high: Any) -> Any:
    return where(lt(x, low), where(le(low, high), g, 0.0), 0.0)


def _clip_to_high(g: Any, out: Any, x: Any, low: Any, high: Any) -> Any:
    return where(logical_or(lt(high, x), lt(high, low)), g, 0.0)


@primitive(
    "clip", "x low high", promote="s", type=elementwise, elementwise=True, moves=True,
    vjp=(_clip_to_x, _clip_to_low, _clip_to_high), sample=(REAL, BELOW_MINUS_ONE, ABOVE_ONE),
    host=lambda x, low, high: host.folded(host.least)(host.folded(host.greatest)(x, low), high),
    cuda="({0} != {0} ? {0} : {1} != {1} ? {1} : {2} != {2} ? {2} : fminf(fmaxf({0}, {1}), {2}))",
)  # fmt: skip
def clip(xp: Any, x: Array, low: Array, high: Array) -> Array:
    """Each element, raised to `low` or lowered to `high` where it is outside; `high` where these cross.

    An element exactly at a bound keeps the whole gradient; outside, the bound takes it.

    x:      f32[*n]
    low:    f32[*n]
    high:   f32[*n]
    gives:  f32[*n]

    (clip 5.0 0.0 1.0) ; => 1.0
    (clip (array [-2.0 0.5 2.0]) -1.0 1.0) ; => f32[3] [-1.0 0.5 1.0]
    """
    if not is_array(x) and not is_array(low):
        x = xp.asarray(x, dtype=high.dtype)
    return xp.minimum(xp.maximum(x, low), high)


# Of one operand


@primitive(
    "sign", "x", promote="-", type=elementwise, vjp=None, sample=(REAL,), elementwise=True, host=host.sign,
    cuda="({0} != {0} ? {0} : (float)(({0} > 0.0f) - ({0} < 0.0f)))",
)  # fmt: skip
def sign(xp: Any, x: Array) -> Array:
    """-1, 0 or 1: the sign of each element; NaN of NaN.

    x:      f32[*n]
    gives:  f32[*n]

    (sign -3.0) ; => -1.0
    """
    return xp.sign(x)


@primitive(
    "abs", "x", promote="-", type=elementwise, vjp=(lambda g, out, x: mul(g, sign(x)),), sample=(REAL,),
    elementwise=True, host=abs, cuda="fabsf({0})",
)  # fmt: skip
def abs_(xp: Any, x: Array) -> Array:
    """The absolute value of each element.  Its gradient at 0 is 0.

    x:      f32[*n]
    gives:  f32[*n]

    (abs -3.0) ; => 3.0
    """
    return xp.abs(x)


@primitive(
    "square", "x", promote="-", type=elementwise, vjp=(lambda g, out, x: mul(g, mul(2.0, x)),), sample=(REAL,),
    elementwise=True, host=lambda x: host.multiplied(x, x), cuda="({0} * {0})",
)  # fmt: skip
def square(xp: Any, x: Array) -> Array:
    """The square of each element.

    x:      f32[*n]
    gives:  f32[*n]

    (square 3.0) ; => 9.0
    """
    return x * x


@primitive(
    "floor", "x", promote="-", type=elementwise, vjp=None, sample=(REAL,), elementwise=True, host=host.floored,
    cuda="floorf({0})",
)  # fmt: skip
def floor(xp: Any, x: Array) -> Array:
    """The largest whole number not above each element, in its type.

    x:      f32[*n]
    gives:  f32[*n]

    (floor -1.5) ; => -2.0
    """
    return xp.floor(x) if is_real(x) else x


@primitive(
    "round", "x", promote="-", type=elementwise, vjp=None, sample=(REAL,), elementwise=True, host=host.rounded,
    cuda="rintf({0})",
)  # fmt: skip
def round_(xp: Any, x: Array) -> Array:
    """The whole number nearest to each element, the even one of two, in its type.

    x:      f32[*n]
    gives:  f32[*n]

    (round 2.5) ; => 2.0
    """
    return xp.rint(x) if is_real(x) else x
