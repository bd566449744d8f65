"""Activations, and functions of reals that array modules lack, from published approximations.

The references in full: S. Moshier, Cephes Mathematical Library, ndtr.c; C. Lanczos, "A precision
approximation of the gamma function", SIAM J. Numer. Anal. B 1 (1964), with the coefficients for g = 7 and
nine terms by P. Godfrey; Abramowitz & Stegun, "Handbook of Mathematical Functions", 6.4 for the
polygamma functions; the Eigen library's `erf` for f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sxi.arraytype import ArrayType
from sxi.primitives import host
from sxi.primitives.compare import eq, gt, where
from sxi.primitives.declare import POSITIVE, REAL, Array, case, composite, primitive
from sxi.primitives.elementwise import add, is_array, mul, neg, square, sub
from sxi.primitives.rules import elementwise, numeric
from sxi.primitives.transcendental import exp, tanh

# Activations


def _sigmoid_back(g: Any, out: Any, x: Any) -> Any:
    return mul(g, mul(out, sub(1.0, out)))


@primitive(
    "sigmoid", "x", promote="f", type=elementwise, vjp=(_sigmoid_back,), sample=(REAL,), elementwise=True,
    cuda="(expf(fminf({0}, 0.0f)) / (1.0f + expf(-fabsf({0}))))",
)  # fmt: skip
def sigmoid(xp: Any, x: Array) -> Array:
    """1 / (1 + exp(-x)) of each element, exact in its tails: 0 at -inf and 1 at inf.

    x:      f32[*n]
    gives:  f32[*n]

    (sigmoid 0.0) ; => 0.5
    """
    return xp.exp(xp.minimum(x, 0.0)) / (xp.exp(-xp.abs(x)) + 1.0)


@primitive(
    "softplus", "x", promote="f", type=elementwise, vjp=(lambda g, out, x: mul(g, sigmoid(x)),), sample=(REAL,),
    elementwise=True, cuda="(fmaxf({0}, 0.0f) + log1pf(expf(-fabsf({0}))))",
)  # fmt: skip
def softplus(xp: Any, x: Array) -> Array:
    """log(1 + exp(x)) of each element, without overflow: 0 at -inf and inf at inf.

    x:      f32[*n]
    gives:  f32[*n]

    (softplus -inf) ; => 0.0
    """
    return xp.maximum(x, 0.0) + xp.log1p(xp.exp(-xp.abs(x)))


@primitive(
    "logaddexp", "a b", promote="f", type=elementwise,
    vjp=(
        lambda g, out, a, b: mul(g, sigmoid(where(eq(a, b), 0.0, sub(a, b)))),
        lambda g, out, a, b: mul(g, sigmoid(where(eq(a, b), 0.0, sub(b, a)))),
    ),
    sample=(REAL, REAL), elementwise=True,
    cuda="(fmaxf({0}, {1}) + log1pf(expf(-fabsf({0} == {1} ? 0.0f : {0} - {1}))))",
)  # fmt: skip
def logaddexp(xp: Any, a: Array, b: Array) -> Array:
    """log(exp(a) + exp(b)) without overflow: -inf of two -inf.  Equal operands take half the gradient each.

    a:      f32[*n]
    b:      f32[*n]
    gives:  f32[*n]

    (logaddexp -inf 1.0) ; => 1.0
    """
    # The difference of equal infinities would be NaN.
    apart = xp.where(a == b, 0.0, a - b).astype((a if is_array(a) else b).dtype)
    return xp.maximum(a, b) + xp.log1p(xp.exp(-xp.abs(apart)))


@primitive(
    "relu", "x", promote="-", type=elementwise, vjp=(lambda g, out, x: where(gt(out, 0), g, 0.0),), sample=(REAL,),
    elementwise=True, host=lambda x: host.folded(host.greatest)(x, 0), cuda="({0} != {0} ? {0} : fmaxf({0}, 0.0f))",
)  # fmt: skip
def relu(xp: Any, x: Array) -> Array:
    """Each element where it is above 0, otherwise 0; NaN of NaN.  Its gradient at 0 is 0.

    x:      f32[*n]
    gives:  f32[*n]

    (relu (array [-1.0 2.0])) ; => f32[2] [0.0 2.0]
    """
    return xp.maximum(x, 0)


def _silu_host(x: host.Number) -> float:
    return float(host.real(x) * host.evaluate(sigmoid, [x]))


@composite("silu", "x", promote="f", sample=(REAL,), elementwise=True, host=_silu_host)
def silu(x: Any) -> Any:
    """x times its sigmoid, also known as swish; NaN at -inf.

    x:      f32[*n]
    gives:  f32[*n]

    (silu 0.0) ; => 0.0
    """
    return mul(x, sigmoid(x))


_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)


def _gelu_host(x: host.Number) -> float:
    x = host.real(x)
    return 0.5 * x * (1.0 + math.tanh(_SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)))


@composite("gelu", "x", promote="f", sample=(REAL,), elementwise=True, host=_gelu_host)
def gelu(x: Any) -> Any:
    """The Gaussian error linear unit by its usual approximation, 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))).

    D. Hendrycks and K. Gimpel, "Gaussian Error Linear Units", 2016.  `(* 0.5 x (+ 1.0 (erf (/ x (sqrt 2.0)))))`
    is the exact one.  NaN at -inf.

    x:      f32[*n]
    gives:  f32[*n]

    (gelu 0.0) ; => 0.0
    """
    inner = mul(x, add(mul(square(x), 0.044715 * _SQRT_2_OVER_PI), _SQRT_2_OVER_PI))
    return mul(mul(x, 0.5), add(tanh(inner), 1.0))


# The error function


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """The polynomial at x by Horner's rule, the highest power first."""
    value = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        value = value * x + c
    return value


# Eigen: erf(x) = x P(x²) / Q(x²) for |x| ≤ 4, past which it is ±1 in f32.
_ERF32_P = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF32_Q = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
    -1.42647390514189e-02,
)  # fmt: skip


def _erf32(xp: Any, x: Array) -> Array:
    x = xp.minimum(xp.maximum(x, -4.0), 4.0)
    square_of_x = x * x
    value = x * _polynomial(square_of_x, _ERF32_P) / _polynomial(square_of_x, _ERF32_Q)
    # Near 4 the quotient rounds to the next f32 above 1.
    return xp.minimum(xp.maximum(value, -1.0), 1.0)


# Cephes: erf(x) = x T(x²) / U(x²) for |x| ≤ 1, erfc(x) = exp(-x²) P(x) / Q(x) for 1 < x < 8.
_ERF64_T = (
    9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3, 7.00332514112805075473e3,
    5.55923013010394962768e4,
)  # fmt: skip
_ERF64_U = (
    1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3, 2.26290000613890934246e4,
    4.92673942608635921086e4,
)  # fmt: skip
_ERFC64_P = (
    2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0, 4.86371970985681366614e1,
    1.96520832956077098242e2, 5.26445194995477358631e2, 9.34528527171957607540e2, 1.02755188689515710272e3,
    5.57535335369399327526e2,
)  # fmt: skip
_ERFC64_Q = (
    1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
    1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2,
)  # fmt: skip


def _erf64(xp: Any, x: Array) -> Array:
    inner = xp.minimum(xp.maximum(x, -1.0), 1.0)
    squared = inner * inner
    near = inner * _polynomial(squared, _ERF64_T) / _polynomial(squared, _ERF64_U)
    outer = xp.minimum(xp.abs(x), 8.0)
    tail = xp.exp(-outer * outer) * _polynomial(outer, _ERFC64_P) / _polynomial(outer, _ERFC64_Q)
    return xp.where(xp.abs(x) <= 1.0, near, xp.copysign(1.0 - tail, x))


@primitive(
    "erf", "x", promote="f", type=elementwise, sample=(REAL,), elementwise=True, cuda="erff({0})",
    vjp=(lambda g, out, x: mul(g, mul(2 / math.sqrt(math.pi), exp(neg(square(x))))),),
    host=lambda x: math.erf(host.real(x)),
)  # fmt: skip
def erf(xp: Any, x: Array) -> Array:
    """The error function of each element, within a few units of its last place.

    x:      f32[*n]
    gives:  f32[*n]

    (erf 0.0) ; => 0.0
    """
    if x.dtype == xp.float64:
        return _erf64(xp, x)
    return _erf32(xp, x.astype(xp.float32)).astype(x.dtype)


# The gamma function: computed in f64 whatever the type, since its terms cancel.

_LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


def _lanczos(xp: Any, x: Array) -> Array:
    """log Γ(x) for x ≥ 0.5."""
    series = 0.99999999999980993 + sum(c / (x + i) for i, c in enumerate(_LANCZOS))
    t = x + 6.5
    return (x - 0.5) * xp.log(t) - t + xp.log(math.sqrt(2 * math.pi) * series)


def _lgamma_back(g: Any, out: Any, x: Any) -> Any:
    return mul(g, polygamma(x, n=0))


@primitive(
    "lgamma", "x", promote="f", type=elementwise, vjp=(_lgamma_back,),
    sample=(POSITIVE,), elementwise=True, host=host.log_gamma, cuda="lgammaf({0})",
)  # fmt: skip
def lgamma(xp: Any, x: Array) -> Array:
    """The natural logarithm of the absolute value of the gamma function of each element; inf at 0, -1, -2, ….

    x:      f32[*n]
    gives:  f32[*n]

    (lgamma 1.0) ; => 0.0
    """
    wide = x.astype(xp.float64)
    low = wide < 0.5
    value = _lanczos(xp, xp.where(low, 1.0 - wide, wide))
    # Reflected: Γ(x) Γ(1 - x) = π / sin(πx).  The sine of what is beyond the nearest whole number is exactly 0
    # at a pole, and right beside it.
    sine = xp.abs(xp.sin(math.pi * (wide - xp.rint(wide))))
    value = xp.where(low, math.log(math.pi) - xp.log(sine) - value, value)
    return xp.where(xp.isinf(wide), math.inf, value).astype(x.dtype)


# B(2k) for k = 1 to 8
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_SHIFT = 10


def _polygamma_right(xp: Any, x: Array, n: int) -> Array:
    """ψ⁽ⁿ⁾(x) for x ≥ 0: A&S 6.3.18 and 6.4.11 at x + 10, brought back by 6.3.5 and 6.4.6."""
    sign = -1.0 if n % 2 == 0 else 1.0
    far = x + _SHIFT
    if n == 0:
        value = xp.log(far) - 0.5 / far
    else:
        value = sign * (math.factorial(n - 1) / far**n + math.factorial(n) / (2 * far ** (n + 1)))
    for k, b in enumerate(_BERNOULLI, 1):
        value = value + sign * (b * math.factorial(2 * k + n - 1) / math.factorial(2 * k)) / far ** (2 * k + n)
    for i in range(_SHIFT):
        value = value + sign * math.factorial(n) / (x + i) ** (n + 1)
    return value


def _polygamma_type(x: ArrayType, *, n: int) -> ArrayType:
    numeric(x)
    return x


def _polygamma_back(g: Any, out: Any, x: Any, *, n: int) -> Any:
    return mul(g, polygamma(x, n=n + 1))


@primitive(
    "polygamma", "x n:int", promote="f", type=_polygamma_type, vjp=(_polygamma_back,),
    sample=(POSITIVE,), cases=(case((3,), n=0), case((), n=1), case((2, 2), n=2), case((0,), n=0)), internal=True,
)  # fmt: skip
def polygamma(xp: Any, x: Array, *, n: int) -> Array:
    """The n-th derivative of the digamma function, itself the derivative of `lgamma`.

    Left of 0 it is computed for n = 0 and 1 only and NaN for more.

    x:      f32[*n]
    n:      how often digamma is differentiated
    gives:  f32[*n]
    """
    wide = x.astype(xp.float64)
    low = wide < 0.0
    value = _polygamma_right(xp, xp.where(low, 1.0 - wide, wide), n)
    angle = math.pi * (wide - xp.rint(wide))
    # Reflected: A&S 6.3.7 and its derivative.
    if n == 0:
        reflected = value - math.pi * xp.cos(angle) / xp.sin(angle)
    elif n == 1:
        reflected = (math.pi / xp.sin(angle)) ** 2 - value
    else:
        reflected = math.nan
    return xp.where(low, reflected, value).astype(x.dtype)
