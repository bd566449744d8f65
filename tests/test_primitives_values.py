"""What the elementwise, comparing, reducing and ordering primitives give, against other ways of computing it."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import mpmath  # type: ignore[import-untyped]  # mpmath has no types
import numpy as np
import pytest

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives import PRIMITIVES
from sxi.primitives.host import evaluate
from tests.eager import Eager, compute, gradient

INF, NAN = math.inf, math.nan


def f32(*xs: float) -> Any:
    return np.array(xs, np.float32)


def f64(*xs: float) -> Any:
    return np.array(xs, np.float64)


def give(name: str, *operands: Any, **static: Any) -> Any:
    return compute(PRIMITIVES[name], *operands, **static)


def slope(name: str, *operands: Any, **static: Any) -> list[Any]:
    return [g.tolist() for g in gradient(PRIMITIVES[name], *operands, **static)]


def on_host(name: str, *numbers: Any, **static: Any) -> Any:
    return evaluate(PRIMITIVES[name], numbers, **static)


def same(a: Any, b: Any) -> bool:
    """Equal, in type and sign of zero too, or both NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


# Functions of reals, against mpmath at 40 digits

REALS = [0.0, 1e-30, -1e-30, 1e-6, -1e-3, 0.1, -0.3, 0.5, -0.7, 0.9, 1.0, -1.5, 2.0, 3.7, -4.2, 6.0, 8.5, -9.0]
UNITS = [x for x in REALS if abs(x) < 1]
POSITIVES = [x for x in REALS if x > 0]
ABOVE_ONES = [1.0, 1.0 + 2**-20, 1.5, 3.0, 100.0]
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "sqrt": (mpmath.sqrt, POSITIVES),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), POSITIVES),
    "exp": (mpmath.exp, REALS),
    "expm1": (mpmath.expm1, REALS),
    "log": (mpmath.log, POSITIVES),
    "log1p": (mpmath.log1p, [x for x in REALS if x > -1]),
    "sin": (mpmath.sin, REALS),
    "cos": (mpmath.cos, REALS),
    "tan": (mpmath.tan, REALS),
    "tanh": (mpmath.tanh, REALS),
    "sinh": (mpmath.sinh, REALS),
    "cosh": (mpmath.cosh, REALS),
    "asinh": (mpmath.asinh, REALS),
    "acosh": (mpmath.acosh, ABOVE_ONES),
    "atanh": (mpmath.atanh, UNITS),
    "atan": (mpmath.atan, REALS),
    "erf": (mpmath.erf, REALS),
    "lgamma": (lambda x: mpmath.log(abs(mpmath.gamma(x))), [*POSITIVES, -0.5, -1.5, -4.2, 171.5, 1e5]),
    "sigmoid": (lambda x: 1 / (1 + mpmath.exp(-x)), [*REALS, -80.0, 30.0]),
    "softplus": (lambda x: mpmath.log(1 + mpmath.exp(x)), [*REALS, -80.0, 300.0]),
    "silu": (lambda x: x / (1 + mpmath.exp(-x)), [*REALS, -80.0]),
    "gelu": (
        lambda x: x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))),
        [x for x in REALS if x > -2],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_of_reals_is_within_a_few_places_of_the_true_one(name: str, dtype: str) -> None:
    function, points = FUNCTIONS[name]
    x = np.array(points, dtype)
    out = give(name, x)
    assert out.dtype == x.dtype
    with mpmath.workdps(40):
        expected = [float(mpmath.mpf(function(mpmath.mpf(float(v))))) for v in x]
    epsilon = float(np.finfo(dtype).eps)
    # log Γ is computed in f64 with an absolute error; the others within ulps.
    np.testing.assert_allclose(out, expected, rtol=8 * epsilon, atol=2e-14 if name == "lgamma" else 1e-40)
    for v, e in zip(points, expected, strict=True):
        if float(np.float32(v)) == v:
            assert on_host(name, v) == pytest.approx(e, rel=1e-14, abs=2e-14)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_the_derivatives_of_log_gamma_against_mpmath(n: int) -> None:
    points = [1e-3, 0.1, 0.5, 1.0, 2.5, 10.0, 1e4, *([-0.5, -1.25, -7.75] if n < 2 else [])]
    with mpmath.workdps(40):
        expected = [float(mpmath.psi(n, mpmath.mpf(x))) for x in points]
    np.testing.assert_allclose(give("polygamma", f64(*points), n=n), expected, rtol=1e-12)
    assert np.isnan(give("polygamma", f64(-0.5), n=2)).all()


@pytest.mark.parametrize("x", [-1e-40, -1e-12, -1 + 1e-7, -2 - 1e-6, -7.0000005, 1e-40])
def test_log_gamma_and_its_derivative_beside_a_pole(x: float) -> None:
    x = float(np.float32(x))
    with mpmath.workdps(60):
        size, slope = float(mpmath.log(abs(mpmath.gamma(x)))), float(mpmath.digamma(x))
    assert compute(PRIMITIVES["lgamma"], f64(x))[0] == pytest.approx(size, rel=1e-10)
    assert compute(PRIMITIVES["polygamma"], f64(x), n=0)[0] == pytest.approx(slope, rel=1e-7)


def test_reals_at_the_edges_of_their_domains() -> None:
    table: list[tuple[str, float, float]] = [
        ("sqrt", -1.0, NAN), ("sqrt", -0.0, -0.0), ("rsqrt", 0.0, INF), ("exp", 1e4, INF), ("exp", -INF, 0.0),
        ("log", 0.0, -INF), ("log", -1.0, NAN), ("log1p", -1.0, -INF), ("acosh", 0.5, NAN), ("atanh", 1.0, INF),
        ("atanh", 2.0, NAN), ("sinh", 1e4, INF), ("erf", INF, 1.0), ("erf", -INF, -1.0), ("erf", NAN, NAN),
        ("lgamma", 0.0, INF), ("lgamma", -3.0, INF), ("lgamma", INF, INF), ("lgamma", -INF, INF), ("lgamma", NAN, NAN),
        ("sigmoid", -INF, 0.0), ("sigmoid", INF, 1.0), ("sigmoid", NAN, NAN), ("softplus", -INF, 0.0),
        ("softplus", INF, INF), ("relu", NAN, NAN), ("relu", -INF, 0.0), ("tanh", INF, 1.0), ("expm1", 1e-30, 1e-30),
        ("sign", NAN, NAN), ("sign", -INF, -1.0), ("round", 2.5, 2.0), ("round", 3.5, 4.0), ("round", INF, INF),
        ("floor", -1.5, -2.0), ("floor", NAN, NAN), ("silu", INF, INF), ("gelu", INF, INF),
    ]  # fmt: skip
    for name, x, expected in table:
        for dtype in (np.float32, np.float64, np.float16):
            out = give(name, np.array(x, dtype))
            assert out.dtype == dtype
            assert same(float(out), float(dtype(expected))), (name, x, dtype)
        assert same(on_host(name, x), expected), (name, x)


def test_subnormal_tails_are_kept() -> None:
    assert float(give("sigmoid", f32(-95.0))[0]) == pytest.approx(math.exp(-95.0), rel=1e-3)
    assert float(give("softplus", f32(-95.0))[0]) == pytest.approx(math.exp(-95.0), rel=1e-3)
    assert float(give("*", f32(1e-20), f32(1e-20))[0]) == pytest.approx(1e-40, rel=1e-4)


def test_logaddexp_of_infinities() -> None:
    for a, b, expected in [
        (INF, INF, INF), (INF, -INF, INF), (-INF, -INF, -INF), (-INF, 2.0, 2.0), (NAN, 1.0, NAN), (1e4, 1e4, 1e4),
    ]:  # fmt: skip
        assert float(give("logaddexp", f64(a), f64(b))[0]) == pytest.approx(expected, rel=1e-4, nan_ok=True)
        assert on_host("logaddexp", a, b) == pytest.approx(expected, rel=1e-4, nan_ok=True)
    assert slope("logaddexp", f64(-INF, 3.0), f64(-INF, 3.0)) == [[0.5, 0.5], [0.5, 0.5]]


# Integers


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integer_arithmetic_is_that_of_python_and_by_zero_it_is_zero(dtype: Any) -> None:
    pairs = list(itertools.product(range(-7, 8), repeat=2))
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))
    expected = {
        "mod": [x % y if y else 0 for x, y in pairs],
        "quotient": [x // y if y else 0 for x, y in pairs],
        "pow": [int(Fraction(x) ** y) if x or y >= 0 else 0 for x, y in pairs],
    }
    for name, values in expected.items():
        out = give(name, a, b)
        assert out.dtype == dtype
        assert out.tolist() == values
        for y in range(-7, 8):
            column = [v for v, (_, by) in zip(values, pairs, strict=True) if by == y]
            assert give(name, np.arange(-7, 8, dtype=dtype), y).tolist() == column, (name, y)


def test_integers_keep_their_type_or_become_f32() -> None:
    i = np.array([1, 2, 3], np.int32)
    assert give("/", i, 2).dtype == np.float32
    assert give("+", i, 0.5).tolist() == [1.5, 2.5, 3.5]
    assert give("sqrt", i).dtype == np.float32
    for name in ("abs", "sign", "square", "floor", "round", "relu", "neg"):
        assert give(name, i).dtype == np.int32
    assert give("mean", i) == np.float32(2)
    assert give("mean", i).dtype == np.float32


def test_operands_are_folded_from_the_left() -> None:
    x = f32(1e30)
    assert give("-", 5.0, 1.0, x).tolist() == [-np.float32(1e30)]
    assert give("*", 1e30, 1e30, f32(0.0)).tolist() == [pytest.approx(NAN, nan_ok=True)]  # infinite in f32 before the 0
    assert give("/", 1.0, 0.0, f32(2.0)).tolist() == [INF]
    assert give("+", 2**31 - 1, 1, np.array([0], np.int32)).tolist() == [-(2**31)]
    assert give("-", f32(2.0)).tolist() == [-2.0]
    assert give("+", f32(2.0)).tolist() == [2.0]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8])
def test_a_small_power_is_multiplied_out(n: int) -> None:
    x = f64(-1.5, 0.0, 2.0, INF, -INF)
    for exponent in (n, float(n)):
        np.testing.assert_allclose(give("pow", x, exponent), [v**n for v in x.tolist()], rtol=1e-15)


# Host numbers


def test_host_numbers_are_exact_or_binary64_and_raise_nothing() -> None:
    table: list[tuple[str, tuple[Any, ...], Any]] = [
        ("+", (2**80, 1), 2**80 + 1), ("+", (1, 2.5, 3), 6.5), ("+", (3**700, 0.5), INF),
        ("-", (5,), -5), ("-", (2**80, 1, 1), 2**80 - 2), ("*", (2**40, 2**40), 2**80), ("*", (1e308, 10.0), INF),
        ("/", (1, 4), 0.25), ("/", (1.0, 0.0), INF), ("/", (-1, 0), -INF), ("/", (0, 0), NAN), ("/", (10**400, 1), INF),
        ("/", (-(10**400), 3), -INF), ("/", (10**400, 10**399), 10.0), ("/", (1.0, -0.0), -INF),
        ("mod", (-7, 3), 2), ("mod", (5.5, -2.0), -0.5), ("mod", (1.0, 0.0), NAN), ("mod", (-1.0, INF), INF),
        ("quotient", (-7, 2), -4), ("quotient", (2**80 + 1, 2), 2**79), ("quotient", (7.5, 2), 3.0),
        ("pow", (2, 100), 2**100), ("pow", (2, -1), 0.5), ("pow", (-8.0, 0.5), NAN), ("pow", (10, 100_000_000), INF),
        ("pow", (-10, 99_999_999), -INF), ("pow", (1, 10**18), 1), ("pow", (-1, 10**18 + 1), -1), ("pow", (0, -1), INF),
        ("pow", (0.0, -1), INF), ("pow", (10.0, 400), INF), ("pow", (2, 0.5), math.sqrt(2)), ("pow", (2.0, 3), 8.0),
        ("minimum", (3, 1, 2), 1), ("minimum", (1, 2.0), 1.0), ("minimum", (NAN, 1.0), NAN),
        ("minimum", (1.0, NAN), NAN),
        ("maximum", (2**80, 1), 2**80), ("maximum", (1.0, NAN, 3.0), NAN), ("clip", (5, 0, 3), 3),
        ("clip", (5, 0, 1.5), 1.5),
        ("abs", (-(2**80),), 2**80), ("abs", (-INF,), INF), ("neg", (0.0,), -0.0), ("sign", (-(2**80),), -1),
        ("sign", (-2.5,), -1.0), ("square", (2**40,), 2**80), ("square", (1e200,), INF), ("floor", (2**80,), 2**80),
        ("floor", (-0.0,), -0.0), ("round", (-0.4,), -0.0), ("round", (0.5,), 0.0), ("round", (2**80,), 2**80),
        ("exp", (1e4,), INF), ("exp", (10**400,), INF), ("log", (-1.0,), NAN), ("log", (2,), math.log(2)),
        ("sqrt", (4,), 2.0), ("relu", (-3,), 0), ("relu", (2.5,), 2.5), ("where", (True, 1, 2), 1),
        ("where", (False, 1, 2.5), 2.5),
        ("where", (True, 1, 2.5), 1.0), ("<", (2**53, 2**53 + 1), True), ("=", (2**53, float(2**53)), True),
        (">", (10**400, 1.0), True), ("<=", (NAN, 1.0), False), ("/=", (NAN, NAN), True), (">=", (1, 1), True),
        ("finite?", (10**400,), False), ("finite?", (3,), True), ("nan?", (NAN,), True), ("inf?", (-INF,), True),
        ("logical-and", (True, False), False), ("logical-or", (True, False), True), ("logical-not", (True,), False),
        ("stop-gradient", (2**80,), 2**80),
    ]  # fmt: skip
    for name, numbers, expected in table:
        assert same(on_host(name, *numbers), expected), (name, numbers, on_host(name, *numbers))


@pytest.mark.parametrize("name", ["mod", "quotient"])
def test_a_whole_number_by_zero_is_the_one_error(name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        on_host(name, 7, 0)


def test_a_cast_of_a_host_number() -> None:
    for x, dtype, expected in [
        (1.9, "i32", 1), (-1.9, "i64", -1), (INF, "i32", 0), (NAN, "i64", 0), (3, "f32", 3.0), (0.5, "bool", True),
        (0, "bool", False), (True, "f32", 1.0), (10**400, "f64", INF),
    ]:  # fmt: skip
        assert same(on_host("cast", x, dtype=dtype), expected)


# Comparing, choosing, converting


def test_comparisons_with_nan_and_zeros() -> None:
    a, b = f32(1.0, NAN, 0.0, -INF), f32(2.0, NAN, -0.0, INF)
    assert give("<", a, b).tolist() == [True, False, False, True]
    assert give("<=", a, b).tolist() == [True, False, True, True]
    assert give(">", a, b).tolist() == [False, False, False, False]
    assert give(">=", a, b).tolist() == [False, False, True, False]
    assert give("=", a, b).tolist() == [False, False, True, False]
    assert give("/=", a, b).tolist() == [True, True, False, True]
    assert give("finite?", a).tolist() == [True, False, True, False]
    assert give("nan?", a).tolist() == [False, True, False, False]
    assert give("inf?", a).tolist() == [False, False, False, True]
    whole = np.array([0, 5], np.int32)
    assert give("finite?", whole).tolist() == [True, True]
    assert give("nan?", whole).tolist() == give("inf?", whole).tolist() == [False, False]


def test_where_chooses_in_the_common_type() -> None:
    mask = np.array([True, False])
    assert give("where", mask, 1.0, 0.0).dtype == np.float32
    assert give("where", mask, 1, 0).tolist() == [1, 0]
    assert give("where", mask, np.array([1, 2], np.int32), 0.5).tolist() == [1.0, 0.5]
    with pytest.raises(Refusal) as refused:
        give("where", f32(1.0), 1.0, 2.0)
    assert refused.value.code is codes.NOT_BOOL


def test_masks_are_not_numbers_and_numbers_no_masks() -> None:
    mask = np.array([True])
    for name in ("+", "sqrt", "abs", "max", "logsumexp", "finite?", "count-nonfinite"):
        with pytest.raises(Refusal) as refused:
            give(name, mask)
        assert refused.value.code is codes.NOT_NUMERIC, name
    for name in ("any", "all", "count-where", "logical-not"):
        with pytest.raises(Refusal) as refused:
            give(name, f32(1.0))
        assert refused.value.code is codes.NOT_BOOL, name


def test_a_cast_of_an_array_and_its_gradient() -> None:
    assert give("cast", f32(1.5, -1.5, 0.0), dtype="i32").tolist() == [1, -1, 0]
    assert give("cast", f32(NAN, -0.0, 2.0), dtype="bool").tolist() == [True, False, True]
    assert give("cast", f64(1e300), dtype="f32").tolist() == [INF]
    (g,) = gradient(PRIMITIVES["cast"], f64(1.0), dtype="f32")
    assert g.dtype == np.float64


# bf16


def patterns() -> Any:
    """Every bf16, and beside each the f32 that lie just around the places where rounding turns."""
    high = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (high | low).reshape(-1).view(np.float32)


def test_rounding_to_bf16_is_that_of_ml_dtypes_on_every_pattern() -> None:
    x = patterns()
    out = give("round-bf16", x)
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    number = ~np.isnan(x)
    assert np.array_equal(out[number].view(np.uint32), expected[number].view(np.uint32))
    assert np.isnan(out[~number]).all()
    assert not (out.view(np.uint32) & 0xFFFF).any()
    assert np.array_equal(np.signbit(out), np.signbit(x))
    assert np.array_equal(give("round-bf16", out), out, equal_nan=True)


def test_the_gradient_of_rounding_to_bf16_is_rounded() -> None:
    (g,) = gradient(PRIMITIVES["round-bf16"], f32(1.0, 2.0), g=f32(1.001, -3.01))
    assert g.tolist() == f32(1.001, -3.01).astype(ml_dtypes.bfloat16).tolist()


# Gradients at corners


@pytest.mark.parametrize(
    ("name", "operands", "static", "expected"),
    [
        ("sqrt", (f32(0.0),), {}, [[INF]]),
        ("acosh", (f32(1.0),), {}, [[INF]]),
        ("log", (f32(0.0),), {}, [[INF]]),
        ("log1p", (f32(-1.0),), {}, [[INF]]),
        ("rsqrt", (f32(0.0),), {}, [[-INF]]),
        ("atanh", (f32(1.0, -1.0),), {}, [[INF, INF]]),
        ("atan2", (f32(0.0), f32(0.0)), {}, [[pytest.approx(NAN, nan_ok=True)]] * 2),
        ("abs", (f32(0.0, -2.0),), {}, [[0.0, -1.0]]),
        ("relu", (f32(0.0, 1.0, -1.0, NAN),), {}, [[0.0, 1.0, 0.0, 0.0]]),
        ("norm", (f32(0.0, 0.0),), {}, [[0.0, 0.0]]),
        ("norm", (f32(3.0, 4.0),), {}, [[pytest.approx(0.6), pytest.approx(0.8)]]),
        ("std", (f32(2.0, 2.0),), {}, [[0.0, 0.0]]),
        ("max", (f32(1.0, 3.0, 3.0),), {}, [[0.0, 0.5, 0.5]]),
        ("max", (f32(1.0, NAN),), {}, [[0.0, 0.0]]),
        ("min", (f32(1.0, 1.0, 1.0, 2.0),), {}, [[pytest.approx(1 / 3)] * 3 + [0.0]]),
        ("maximum", (f32(1.0, 2.0), f32(1.0, 0.0)), {}, [[0.5, 1.0], [0.5, 0.0]]),
        ("minimum", (f32(1.0), f32(1.0), f32(1.0), f32(2.0)), {}, [[pytest.approx(1 / 3)]] * 3 + [[0.0]]),
        ("clip", (f32(0.0, 1.0, 2.0, -1.0), f32(0.0), f32(1.0)), {}, [[1.0, 1.0, 0.0, 0.0], [1.0], [1.0]]),
        ("clip", (f32(5.0), f32(3.0), f32(1.0)), {}, [[0.0], [0.0], [1.0]]),
        ("prod", (f32(2.0, 0.0, 3.0),), {}, [[0.0, 6.0, 0.0]]),
        ("prod", (f32(2.0, 0.0, 0.0),), {}, [[0.0, 0.0, 0.0]]),
        ("logsumexp", (f32(-INF, -INF),), {}, [[0.0, 0.0]]),
        ("logsumexp", (f32(-INF, 2.0),), {}, [[0.0, 1.0]]),
        ("pow", (f32(0.0), 0), {}, [[0.0]]),
        ("pow", (f32(0.0), 2), {}, [[0.0]]),
        ("pow", (f32(0.0), f32(0.0)), {}, [[0.0], [0.0]]),
        ("pow", (f32(0.0), f32(2.0)), {}, [[0.0], [0.0]]),
        ("pow", (2.0, f32(3.0)), {}, [[pytest.approx(8 * math.log(2))]]),
        ("pow", (0.0, f32(3.0)), {}, [[0.0]]),
        ("lgamma", (f64(-1.5),), {}, [[pytest.approx(float(mpmath.digamma(-1.5)))]]),
        ("sort", (f32(2.0, 1.0),), {"axis": 0}, [[1.0, 1.0]]),
        ("floor", (f32(1.5),), {}, [[0.0]]),
        ("stop-gradient", (f32(1.5),), {}, [[0.0]]),
    ],
)
def test_a_gradient_at_a_corner(name: str, operands: Any, static: Any, expected: Any) -> None:
    assert slope(name, *operands, **static) == expected


def test_a_logarithm_guarded_within_has_the_gradient_zero() -> None:
    where, log, total = PRIMITIVES["where"], PRIMITIVES["log"], PRIMITIVES["sum"]
    eager = Eager()
    x = eager.value(f32(0.0, 2.0))
    above = PRIMITIVES[">"](x, 0.0)
    guarded = where(above, log(where(above, x, 1.0)), 0.0)
    assert eager.gradients(total(guarded), [x])[0].array.tolist() == [0.0, 0.5]
    careless = where(above, log(x), 0.0)
    assert np.isnan(eager.gradients(total(careless), [x])[0].array[0])


# Reductions


def test_sums_keep_their_types() -> None:
    mask = np.array([True, True, False])
    for name in ("sum", "cumsum", "prod"):
        assert give(name, mask).dtype == np.int32
        assert give(name, np.array([3], np.int32)).dtype == np.int32
        assert give(name, np.array([3], np.int64)).dtype == np.int64
        assert give(name, np.array([3], np.float16)).dtype == np.float16
    assert give("sum", mask) == 2
    assert give("sum", np.array([2**31 - 1, 1], np.int32)) == -(2**31)
    assert give("mean", mask) == np.float32(2 / 3)


def test_an_f16_is_accumulated_in_f32() -> None:
    ones = np.ones((4096, 1), np.float16)
    assert give("sum", ones, axis=0).tolist() == [4096.0]
    assert give("cumsum", ones, axis=0)[-1].tolist() == [4096.0]
    assert give("norm", np.full(4, 300.0, np.float16)) == np.float16(600)
    assert give("var", np.array([-300.0, 300.0], np.float16)) == np.float16(INF)
    assert give("std", np.array([-300.0, 300.0], np.float16)) == np.float16(300)


def test_reductions_against_python() -> None:
    rows = [[1.5, -2.0, 0.25], [4.0, 3.0, -1.0]]
    x = f64(*rows[0], *rows[1]).reshape(2, 3)
    columns = list(zip(*rows, strict=True))
    mean = [math.fsum(c) / 2 for c in columns]
    expected = {
        "sum": [math.fsum(c) for c in columns],
        "mean": mean,
        "max": [max(c) for c in columns],
        "min": [min(c) for c in columns],
        "prod": [math.prod(c) for c in columns],
        "var": [math.fsum((v - m) ** 2 for v in c) / 2 for c, m in zip(columns, mean, strict=True)],
        "norm": [math.hypot(*c) for c in columns],
        "logsumexp": [math.log(math.fsum(map(math.exp, c))) for c in columns],
        "argmax": [c.index(max(c)) for c in columns],
        "argmin": [c.index(min(c)) for c in columns],
    }
    expected["std"] = [math.sqrt(v) for v in expected["var"]]
    for name, values in expected.items():
        assert give(name, x, axis=0).tolist() == pytest.approx(values, rel=1e-14), name
        assert give(name, x, axis=-2, keep=True).shape == (1, 3), name
    assert give("argmax", x) == 3
    assert give("sum", x, axis=()).tolist() == rows
    assert give("norm", x, axis=[]).tolist() == np.abs(x).tolist()
    for name in ("norm", "std", "var"):  # a root of nothing is nothing
        assert give(name, f32(0.0, 0.0)) == 0.0
    assert give("std", np.full((2, 3), 5.0, np.float32), axis=1).tolist() == [0.0, 0.0]


def test_reductions_of_nothing() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert give("sum", empty) == 0
    assert give("prod", empty) == 1
    assert give("logsumexp", empty, axis=0).tolist() == [-INF] * 3
    assert np.isnan(give("mean", empty, axis=0)).all()
    assert give("count-where", empty > 0) == 0
    assert not give("any", empty > 0)
    assert give("all", empty > 0)
    for name in ("max", "min", "argmax", "argmin"):
        assert give(name, empty, axis=1).shape == (0,)
        with pytest.raises(Refusal) as refused:
            give(name, empty, axis=0)
        assert refused.value.code is codes.NOTHING_TO_REDUCE


def test_axes_that_are_not_there_or_twice() -> None:
    x = f32(1.0, 2.0)
    for name in ("sum", "max", "norm", "any", "cumsum", "sort", "argmax"):
        with pytest.raises(Refusal) as refused:
            give(name, x > 0 if name == "any" else x, axis=1)
        assert refused.value.code is codes.AXIS_OUT_OF_RANGE, name
    with pytest.raises(Refusal) as refused:
        give("sum", x, axis=[0, -1])
    assert refused.value.code is codes.WRONG_KIND


def test_logsumexp_at_the_edges() -> None:
    assert give("logsumexp", f32(1000.0, 1000.0)) == np.float32(1000 + math.log(2))
    assert give("logsumexp", f32(INF, 1.0)) == INF
    assert give("logsumexp", f32(-INF, -INF)) == -INF
    assert np.isnan(give("logsumexp", f32(NAN, INF)))
    assert give("logsumexp", f32(-1000.0, -1000.0)).dtype == np.float32


def test_extremes_of_nan_and_infinity() -> None:
    assert np.isnan(give("max", f32(1.0, NAN, INF)))
    assert np.isnan(give("min", f32(1.0, NAN, -INF)))
    assert give("max", f32(-INF, -INF)) == -INF
    assert give("argmax", f32(1.0, NAN, INF)) == 1
    assert give("argmin", f32(3.0, 1.0, 1.0)) == 1


# Counts and the tests of guards


def test_a_count_is_exact_past_2_to_the_24() -> None:
    # Counted up by ones in f32 it would stick at 16777216.
    tall = np.broadcast_to(np.bool_(True), (2**24 + 3, 2))
    assert give("count-where", tall, axis=0).tolist() == [16777220.0, 16777220.0]
    mask = np.array([[True, False], [True, True]])
    assert give("count-where", mask, axis=0).tolist() == [2.0, 1.0]
    assert give("count-where", mask).dtype == np.float32


def test_not_finite_is_counted_as_f32() -> None:
    count = give("count-nonfinite", f64(1e300, NAN, INF, -INF, 1.0, 3.4028235e38))
    assert (count, count.dtype) == (4, np.float32)
    assert give("count-nonfinite", np.array([65504.0, INF], np.float16)) == 1
    assert give("count-nonfinite", np.array([2**31 - 1], np.int32)) == 0
    assert give("count-nonfinite", np.zeros(0, np.float32)) == 0


VALUES = [0.0, -0.0, 1e-45, -1e-45, 1e-39, 1.0, -1.0, 1.0000001, 3.4028235e38, -3.4028235e38, INF, -INF, NAN]
BOUNDS = [*VALUES[:-1], 1e-300, -1e-300, 1e300, 0.1, 3, -2, 10**400, -(10**400), 16777217]


def test_a_bound_is_compared_in_f32_with_subnormals_kept() -> None:
    values = f32(*VALUES)
    for bound in BOUNDS:
        with np.errstate(over="ignore"):
            limit = np.float32(float(bound) if abs(bound) <= 10**308 else INF if bound > 0 else -INF)
        below, above = give("not-below", values, bound=bound), give("not-above", values, bound=bound)
        assert below.tolist() == [0.0 if v < limit else 1.0 for v in values], bound
        assert above.tolist() == [0.0 if v > limit else 1.0 for v in values], bound
        assert below.dtype == above.dtype == np.float32
    assert give("not-above", f64(1e-300), bound=0.0).tolist() == [1.0]  # 0 when rounded to f32
    assert give("not-below", np.array(3, np.int32), bound=3) == 1
    assert float(give("not-below", f32(0.1), bound=0.1)[0]) == 1.0


# Order


def test_sorting_is_stable_with_nan_last() -> None:
    x = f32(2.0, NAN, -1.0, 2.0, -INF)
    assert give("argsort", x).tolist() == [4, 2, 0, 3, 1]
    assert give("argsort", x).dtype == np.int32
    assert give("sort", x)[:-1].tolist() == [-INF, -1.0, 2.0, 2.0]
    assert np.isnan(give("sort", x)[-1])
    assert give("sort", np.array([[3, 1], [2, 2]], np.int32), axis=0).tolist() == [[2, 1], [3, 2]]
    (g,) = gradient(PRIMITIVES["sort"], x, g=f32(1.0, 2.0, 3.0, 4.0, 5.0))
    assert g.tolist() == [3.0, 5.0, 2.0, 4.0, 1.0]


def test_top_k_falls_with_the_first_of_equal_ones_first_and_nan_last() -> None:
    values, places = give("top-k", f32(2.0, NAN, 5.0, 2.0), k=3)
    assert (values.tolist(), places.tolist()) == ([5.0, 2.0, 2.0], [2, 0, 3])
    assert places.dtype == np.int32
    least = np.array([-(2**31), 2**31 - 1, 0, -(2**31)], np.int32)
    values, places = give("top-k", least, k=4)
    assert (values.tolist(), places.tolist()) == ([2**31 - 1, 0, -(2**31), -(2**31)], [1, 2, 0, 3])
    with pytest.raises(Refusal) as refused:
        give("top-k", f32(1.0), k=2)
    assert refused.value.code is codes.OUT_OF_BOUNDS


def test_running_sums() -> None:
    assert give("cumsum", np.array([[True, True], [False, True]])).tolist() == [[1, 2], [0, 1]]
    assert give("cumsum", f32(1.0, 2.0, 4.0)).tolist() == [1.0, 3.0, 7.0]
    (g,) = gradient(PRIMITIVES["cumsum"], f32(1.0, 2.0, 4.0), g=f32(1.0, 10.0, 100.0))
    assert g.tolist() == [111.0, 110.0, 100.0]


def test_a_bf16_array_keeps_its_type() -> None:
    rule = PRIMITIVES["+"].rule
    assert rule is not None
    assert str(rule(ArrayType("bf16", (3,)), ArrayType("bf16", (2, 1)))) == "bf16[2 3]"
