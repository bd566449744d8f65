"""Roots, exponentials, logarithms, trigonometric and hyperbolic functions of reals, element by element.

Each takes integers too, as f32.  Outside its domain a function is NaN, at a pole infinite; neither is an error.
"""

from __future__ import annotations

import math
from typing import Any

from sxi.primitives import host
from sxi.primitives.compare import eq, is_real, where
from sxi.primitives.declare import ABOVE_ONE, POSITIVE, REAL, UNIT, Array, Domain, Value, primitive
from sxi.primitives.elementwise import add, div, is_array, mul, neg, square, sub
from sxi.primitives.rules import elementwise

# The largest exponent that is multiplied out: NumPy's power takes a hundred times as long as a product.
_LARGEST_MULTIPLIED = 8

ABOVE_MINUS_ONE = Domain("f32", -0.9, 3)


# Roots


@primitive(
    "sqrt", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: div(mul(0.5, g), out),), sample=(POSITIVE,),
    elementwise=True, cuda="sqrtf({0})",
)  # fmt: skip
def sqrt(xp: Any, x: Array) -> Array:
    """The square root of each element.  Its gradient at 0 is infinite.

    x:      f32[*n]
    gives:  f32[*n]

    (sqrt 9.0) ; => 3.0
    """
    return xp.sqrt(x)


@primitive(
    "rsqrt", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(-0.5, mul(g, mul(out, square(out)))),),
    sample=(POSITIVE,), elementwise=True, cuda="(1.0f / sqrtf({0}))",
)  # fmt: skip
def rsqrt(xp: Any, x: Array) -> Array:
    """One over the square root of each element; infinite at 0, and so is its gradient.

    x:      f32[*n]
    gives:  f32[*n]

    (rsqrt 4.0) ; => 0.5
    """
    return 1.0 / xp.sqrt(x)


# Exponentials and logarithms


@primitive(
    "exp", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, out),), sample=(REAL,),
    elementwise=True, cuda="expf({0})",
)  # fmt: skip
def exp(xp: Any, x: Array) -> Array:
    """e to the power of each element.

    x:      f32[*n]
    gives:  f32[*n]

    (exp 0.0) ; => 1.0
    """
    return xp.exp(x)


@primitive(
    "expm1", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, add(out, 1.0)),), sample=(REAL,),
    elementwise=True, cuda="expm1f({0})",
)  # fmt: skip
def expm1(xp: Any, x: Array) -> Array:
    """e to the power of each element, less 1: exact where the element is near 0.

    x:      f32[*n]
    gives:  f32[*n]

    (expm1 0.0) ; => 0.0
    """
    return xp.expm1(x)


@primitive(
    "log", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: div(g, x),), sample=(POSITIVE,),
    elementwise=True, cuda="logf({0})",
)  # fmt: skip
def log(xp: Any, x: Array) -> Array:
    """The natural logarithm of each element: -inf at 0, NaN below.

    Its gradient at 0 is infinite; `where` says how to guard it.

    x:      f32[*n]
    gives:  f32[*n]

    (log 1.0) ; => 0.0
    """
    return xp.log(x)


@primitive(
    "log1p", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: div(g, add(x, 1.0)),),
    sample=(ABOVE_MINUS_ONE,), elementwise=True, cuda="log1pf({0})",
)  # fmt: skip
def log1p(xp: Any, x: Array) -> Array:
    """The natural logarithm of 1 plus each element: exact where the element is near 0.  Its gradient at -1 is infinite.

    x:      f32[*n]
    gives:  f32[*n]

    (log1p 0.0) ; => 0.0
    """
    return xp.log1p(x)


def _pow_to_base(g: Any, out: Any, a: Any, b: Any) -> Any:
    if isinstance(b, Value):
        # Where b is 0 the result is 1 whatever the base: no 0 times infinity at a base of 0.
        zero = eq(b, 0.0)
        return mul(g, where(zero, 0.0, mul(b, pow_(a, where(zero, 1.0, sub(b, 1.0))))))
    if b in (0, 1):
        return mul(g, float(b))
    return mul(g, mul(b, pow_(a, b - 1)))


def _pow_to_exponent(g: Any, out: Any, a: Any, b: Any) -> Any:
    if isinstance(a, Value):
        # log 0 is taken for 0: at a base of 0 the result is 0 for every exponent above 0.
        return mul(g, mul(out, log(where(eq(a, 0.0), 1.0, a))))
    return mul(g, mul(out, math.log(a) if a > 0 else 0.0 if a == 0 else math.nan))


def _multiplied_out(x: Array, n: int) -> Array:
    """x to the power of n, at least 1, by products."""
    if n == 1:
        return x
    half = _multiplied_out(x, n // 2)
    return half * half * x if n % 2 else half * half


def _pow_of_integers(xp: Any, a: Array, b: Array) -> Array:
    """The power of integers, cut towards zero where the exponent is negative."""
    dtype = a.dtype if is_array(a) else b.dtype
    a, b = (x if is_array(x) else xp.asarray(x, dtype=dtype) for x in (a, b))
    below = xp.where(a == 1, 1, xp.where(a == -1, 1 - 2 * (b % 2), 0))
    return xp.where(b < 0, below, xp.power(a, xp.maximum(b, 0)))


@primitive(
    "pow", "a b", promote="s", type=elementwise, vjp=(_pow_to_base, _pow_to_exponent), sample=(POSITIVE, REAL),
    elementwise=True, host=host.powered, cuda="powf({0}, {1})",
)  # fmt: skip
def pow_(xp: Any, a: Array, b: Array) -> Array:
    """`a` to the power of `b`: NaN where `a` is negative and `b` no whole number.

    Integers stay integers, and one to a negative power is cut towards zero.  Host numbers are exact up
    to about 10,000 bits and real past them; a negative power of them is real.  The gradient by `b` is 0
    where `a` is 0.

    a:      f32[*n]
    b:      f32[*n]
    gives:  f32[*n]

    (pow 2 10) ; => 1024
    (pow 2 -1) ; => 0.5
    (pow (array [1.0 2.0 3.0]) 2) ; => f32[3] [1.0 4.0 9.0]
    """
    if not is_array(b) and 1 <= b <= _LARGEST_MULTIPLIED and b == int(b):
        return _multiplied_out(a, int(b))
    if is_real(a if is_array(a) else b):
        return xp.power(a, b)
    return _pow_of_integers(xp, a, b)


# Trigonometric functions, in radians


def _sin_back(g: Any, out: Any, x: Any) -> Any:
    return mul(g, cos(x))


@primitive(
    "sin", "x", promote="f", type=elementwise, vjp=(_sin_back,), sample=(REAL,),
    elementwise=True, cuda="sinf({0})",
)  # fmt: skip
def sin(xp: Any, x: Array) -> Array:
    """The sine of each element, an angle in radians.

    x:      f32[*n]
    gives:  f32[*n]

    (sin 0.0) ; => 0.0
    """
    return xp.sin(x)


@primitive(
    "cos", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: neg(mul(g, sin(x))),), sample=(REAL,),
    elementwise=True, cuda="cosf({0})",
)  # fmt: skip
def cos(xp: Any, x: Array) -> Array:
    """The cosine of each element, an angle in radians.

    x:      f32[*n]
    gives:  f32[*n]

    (cos 0.0) ; => 1.0
    """
    return xp.cos(x)


@primitive(
    "tan", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, add(square(out), 1.0)),), sample=(UNIT,),
    elementwise=True, cuda="tanf({0})",
)  # fmt: skip
def tan(xp: Any, x: Array) -> Array:
    """The tangent of each element, an angle in radians.

    x:      f32[*n]
    gives:  f32[*n]

    (tan 0.0) ; => 0.0
    """
    return xp.tan(x)


@primitive(
    "atan", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: div(g, add(square(x), 1.0)),), sample=(REAL,),
    elementwise=True, cuda="atanf({0})",
)  # fmt: skip
def atan(xp: Any, x: Array) -> Array:
    """The angle in radians, within a half turn about 0, whose tangent each element is.

    x:      f32[*n]
    gives:  f32[*n]

    (atan 0.0) ; => 0.0
    """
    return xp.arctan(x)


def _squared_distance(x: Any, y: Any) -> Any:
    """x² + y², where one of them may be a host number."""
    return add(*[square(v) if is_array(v) else host.evaluate(square, [v]) for v in (x, y)])


@primitive(
    "atan2", "y x", promote="f", type=elementwise,
    vjp=(
        lambda g, out, y, x: mul(g, div(x, _squared_distance(x, y))),
        lambda g, out, y, x: neg(mul(g, div(y, _squared_distance(x, y)))),
    ),
    sample=(REAL, POSITIVE), elementwise=True, cuda="atan2f({0}, {1})",
)  # fmt: skip
def atan2(xp: Any, y: Array, x: Array) -> Array:
    """The angle in radians of the point (x, y), from -pi to pi.  Its gradient at (0, 0) is NaN.

    y:      f32[*n]
    x:      f32[*n]
    gives:  f32[*n]

    (atan2 0.0 1.0) ; => 0.0
    """
    return xp.arctan2(y, x)


# Hyperbolic functions


@primitive(
    "tanh", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, sub(1.0, square(out))),), sample=(REAL,),
    elementwise=True, cuda="tanhf({0})",
)  # fmt: skip
def tanh(xp: Any, x: Array) -> Array:
    """The hyperbolic tangent of each element.

    x:      f32[*n]
    gives:  f32[*n]

    (tanh 0.0) ; => 0.0
    """
    return xp.tanh(x)


def _sinh_back(g: Any, out: Any, x: Any) -> Any:
    return mul(g, cosh(x))


@primitive(
    "sinh", "x", promote="f", type=elementwise, vjp=(_sinh_back,), sample=(REAL,),
    elementwise=True, cuda="sinhf({0})",
)  # fmt: skip
def sinh(xp: Any, x: Array) -> Array:
    """The hyperbolic sine of each element.

    x:      f32[*n]
    gives:  f32[*n]

    (sinh 0.0) ; => 0.0
    """
    return xp.sinh(x)


@primitive(
    "cosh", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, sinh(x)),), sample=(REAL,),
    elementwise=True, cuda="coshf({0})",
)  # fmt: skip
def cosh(xp: Any, x: Array) -> Array:
    """The hyperbolic cosine of each element.

    x:      f32[*n]
    gives:  f32[*n]

    (cosh 0.0) ; => 1.0
    """
    return xp.cosh(x)


@primitive(
    "asinh", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, rsqrt(add(square(x), 1.0))),),
    sample=(REAL,), elementwise=True, cuda="asinhf({0})",
)  # fmt: skip
def asinh(xp: Any, x: Array) -> Array:
    """The number whose hyperbolic sine each element is.

    x:      f32[*n]
    gives:  f32[*n]

    (asinh 0.0) ; => 0.0
    """
    return xp.arcsinh(x)


@primitive(
    "acosh", "x", promote="f", type=elementwise,
    # The roots apart: x² - 1 would lose the digits of an x near 1, and overflow for a large one.
    vjp=(lambda g, out, x: div(g, mul(sqrt(sub(x, 1.0)), sqrt(add(x, 1.0)))),),
    sample=(ABOVE_ONE,), elementwise=True, cuda="acoshf({0})",
)  # fmt: skip
def acosh(xp: Any, x: Array) -> Array:
    """The number, not negative, whose hyperbolic cosine each element is: NaN below 1.

    Its gradient at 1 is infinite.

    x:      f32[*n]
    gives:  f32[*n]

    (acosh 1.0) ; => 0.0
    """
    return xp.arccosh(x)


@primitive(
    "atanh", "x", promote="f", type=elementwise,
    vjp=(lambda g, out, x: div(g, mul(sub(1.0, x), add(x, 1.0))),),
    sample=(UNIT,), elementwise=True, cuda="atanhf({0})",
)  # fmt: skip
def atanh(xp: Any, x: Array) -> Array:
    """The number whose hyperbolic tangent each element is: infinite at -1 and 1, with its gradient, NaN outside.

    x:      f32[*n]
    gives:  f32[*n]

    (atanh 0.0) ; => 0.0
    """
    return xp.arctanh(x)
