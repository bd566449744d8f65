"""The random primitives: what they draw, where their parameters are numbers or arrays, and their gradients."""

import math
from typing import Any

import numpy as np
import pytest

from sxi import codes
from sxi.codes import Refusal
from sxi.primitives import random as r
from sxi.primitives.declare import Primitive
from sxi.random import Draws
from tests.eager import Eager, call, compute


def f32(*xs: float) -> Any:
    return np.array(xs, np.float32)


def i32(*xs: int) -> Any:
    return np.array(xs if len(xs) > 1 else xs[0], np.int32)


def test_a_normal_is_its_mean_plus_its_scale_times_a_standard_one() -> None:
    z = Draws(0, np.array).normal("t", (4, 3))
    assert np.array_equal(compute(r.normal, shape=(4, 3)), z)
    assert np.array_equal(compute(r.normal, 2.0, 0.5, shape=(4, 3)), z * np.float32(0.5) + np.float32(2))
    mean, scale = f32(1, 2, 3), np.ones((4, 1), np.float32) * 7
    assert np.array_equal(compute(r.normal, mean, scale, shape=(4, 3)), z * scale + mean)


def test_a_uniform_lies_between_its_bounds() -> None:
    u = Draws(0, np.array).uniform("t", (1000,))
    assert np.array_equal(compute(r.uniform, shape=(1000,)), u)
    assert np.array_equal(compute(r.uniform, -2.0, 3.0, shape=(1000,)), u * np.float32(5) - np.float32(2))
    assert np.array_equal(
        compute(r.uniform, 0.0, np.float32(3) * np.ones(1, np.float32), shape=(1000,)), u * np.float32(3)
    )
    low, high = f32(-1), f32(4)
    assert np.array_equal(compute(r.uniform, low, high, shape=(1000,)), u * (high - low) + low)
    assert np.array_equal(compute(r.uniform, low, 4.0, shape=(1000,)), u * (high - low) + low)


@pytest.mark.parametrize("high", [1.0, 1.5, 0.1, 3.0, 1 + 2**-23, 1e30, 1e-30])
def test_no_uniform_from_zero_reaches_its_upper_bound(high: float) -> None:
    largest = np.float32(1 - 2**-24)
    assert largest * np.float32(high) < np.float32(high)


def test_a_draw_has_the_gradient_of_its_arithmetic() -> None:
    eager = Eager()
    mean, scale = eager.value(np.zeros(3, np.float32)), eager.value(np.ones((), np.float32))
    by_mean, by_scale = eager.gradients(call(r.normal, eager, [mean, scale], shape=(4, 3)), [mean, scale])
    z = Draws(0, np.array).normal("t", (4, 3)).astype(np.float64)
    assert by_mean.array.tolist() == [4, 4, 4]
    assert float(by_scale.array) == pytest.approx(z.sum(), rel=1e-5)
    low, high = eager.value(f32(-1)), eager.value(f32(2))
    by_low, by_high = eager.gradients(call(r.uniform, eager, [low, high], shape=(50,)), [low, high])
    u = float(Draws(0, np.array).uniform("t", (50,)).sum())
    assert by_high.array.tolist() == pytest.approx([u])
    assert by_low.array.tolist() == pytest.approx([50 - u])


def test_integers_are_i32_unless_a_bound_is_past_it() -> None:
    for low, high, dtype in [
        (0, 2**31, "int32"),
        (-(2**31), 5, "int32"),
        (0, 2**31 + 1, "int64"),
        (-(2**63), 0, "int64"),
    ]:
        got = compute(r.integers, low, high, shape=(500,))
        assert got.dtype == dtype
        assert np.array_equal(got, Draws(0, np.array).integers("t", (500,), low, high))
    assert set(compute(r.integers, 0, 6, shape=(500,)).tolist()) == set(range(6))


BOUNDS = [(0, 6), (-(2**31), 2**31 - 1), (-3, -2), (5, 2**31 - 1)]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_integers_between_arrays_are_those_between_numbers(low: int, high: int) -> None:
    expected = compute(r.integers, low, high, shape=(300,))
    for bounds in [(i32(low), i32(high)), (low, i32(high)), (i32(low), high)]:
        got = compute(r.integers, *bounds, shape=(300,))
        assert got.dtype == np.int32
        assert np.array_equal(got, expected)


def test_integers_between_arrays_of_bounds() -> None:
    low, high = np.array([[0], [10], [7]], np.int32), np.array([[3], [13], [2]], np.int32)
    got = compute(r.integers, low, high, shape=(3, 200))
    assert [set(row.tolist()) for row in got] == [{0, 1, 2}, {10, 11, 12}, {7}]


def test_a_bernoulli_is_true_with_its_probability() -> None:
    u = Draws(0, np.array).uniform("t", (2, 5000))
    p = np.array([[0.2], [0.9]], np.float32)
    got = compute(r.bernoulli, p, shape=(2, 5000))
    assert got.dtype == bool
    assert np.array_equal(got, u < p)
    assert np.abs(got.mean(axis=1) - p[:, 0]).max() < 0.02
    assert not compute(r.bernoulli, 0.0, shape=(5000,)).any()
    assert compute(r.bernoulli, 1.0, shape=(5000,)).all()


def test_a_permutation_holds_each_number_once() -> None:
    got = compute(r.permutation, n=100)
    assert got.dtype == np.int32
    assert sorted(got.tolist()) == list(range(100))
    assert compute(r.permutation, n=0).shape == (0,)


def test_a_class_is_drawn_as_often_as_its_share() -> None:
    logits = np.log(np.array([0.5, 0.0, 0.2, 0.3, 0.0], np.float32), where=np.array([1, 0, 1, 1, 0], bool),
                    out=np.full(5, -math.inf, np.float32))  # fmt: skip
    got = compute(r.categorical, np.broadcast_to(logits + 1000, (40_000, 5)).astype(np.float32))
    assert got.dtype == np.int32
    assert np.abs(np.bincount(got, minlength=5) / 40_000 - [0.5, 0, 0.2, 0.3, 0]).max() < 0.01
    assert set(got.tolist()) == {0, 2, 3}


def test_a_class_is_the_first_whose_share_reaches_past_the_draw() -> None:
    logits = np.random.default_rng(0).normal(size=(7, 20, 6))
    u = Draws(0, np.array).uniform_f64("t", (7, 20))
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = [[np.searchsorted(np.cumsum(s), x, side="right") for s, x in zip(*p, strict=True)]
                for p in zip(shares, u, strict=True)]  # fmt: skip
    assert np.array_equal(compute(r.categorical, logits), expected)


def test_logits_that_say_nothing_give_class_0() -> None:
    with np.errstate(invalid="ignore"):
        got = compute(r.categorical, np.array([[math.nan, 1, 2], [-math.inf, -math.inf, -math.inf]], np.float32))
    assert got.tolist() == [0, 0]
    assert compute(r.categorical, f32(3.0)).shape == ()


def test_dropout_zeroes_a_share_and_scales_the_rest() -> None:
    x = np.random.default_rng(0).normal(size=(100, 200)).astype(np.float32)
    got = compute(r.dropout, x, p=0.25)
    dropped = Draws(0, np.array).uniform("t", (100, 200)) < np.float32(0.25)
    assert np.array_equal(got == 0, dropped)
    np.testing.assert_allclose(got, np.where(dropped, 0, x / 0.75), rtol=1e-6)


def test_dropout_is_its_input_where_nothing_trains() -> None:
    x = f32(1, 2, 3)
    assert np.array_equal(compute(r.dropout, x, p=0.9, training=False), x)
    assert np.array_equal(compute(r.dropout, x, p=0.0), x)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dropout_keeps_the_type_and_has_its_mask_s_gradient(dtype: str) -> None:
    eager = Eager()
    x = eager.value(np.ones(1000, dtype))
    out = call(r.dropout, eager, [x], p=0.5)
    (back,) = eager.gradients(out, [x])
    assert out.array.dtype == back.array.dtype == dtype
    assert np.array_equal(back.array, out.array)


def test_dropout_hides_no_nan() -> None:
    with np.errstate(invalid="ignore"):
        assert np.isnan(compute(r.dropout, np.full(100, math.inf, np.float32), p=0.5)).any()


REFUSED: list[tuple[Primitive, list[Any], dict[str, Any], Any]] = [
    (r.normal, [f32(0, 0), 1.0], {"shape": (3,)}, codes.SHAPES_DIFFER),
    (r.normal, [0.0, np.ones((2, 1), np.float32)], {"shape": (3,)}, codes.SHAPES_DIFFER),
    (r.normal, [0.0, np.array(True)], {"shape": (3,)}, codes.NOT_FLOAT),
    (r.normal, [True, 1.0], {"shape": (3,)}, codes.NOT_FLOAT),
    (r.normal, [], {"shape": (-1,)}, codes.OUT_OF_BOUNDS),
    (r.uniform, [np.array([True]), 1.0], {"shape": (1,)}, codes.NOT_FLOAT),
    (r.integers, [0, None], {"shape": (3,)}, codes.MISSING_KEYWORD),
    (r.integers, [0, 0], {"shape": (3,)}, codes.OUT_OF_BOUNDS),
    (r.integers, [0, 2**63 + 1], {"shape": (3,)}, codes.OUT_OF_BOUNDS),
    (r.integers, [-(2**63) - 1, 0], {"shape": (3,)}, codes.OUT_OF_BOUNDS),
    (r.integers, [0, 3.0], {"shape": (3,)}, codes.NOT_INTEGER),
    (r.integers, [False, 3], {"shape": (3,)}, codes.NOT_INTEGER),
    (r.integers, [0, f32(3.0)], {"shape": (3,)}, codes.NOT_INTEGER),
    (r.integers, [0, np.array(3, np.int64)], {"shape": (3,)}, codes.TYPES_DIFFER),
    (r.integers, [0, i32(3, 4)], {"shape": (3,)}, codes.SHAPES_DIFFER),
    (r.integers, [i32(3), None], {"shape": (3,)}, codes.MISSING_KEYWORD),
    (r.bernoulli, [1.5], {"shape": (3,)}, codes.OUT_OF_BOUNDS),
    (r.bernoulli, [math.nan], {"shape": (3,)}, codes.OUT_OF_BOUNDS),
    (r.bernoulli, [f32(1, 1)], {"shape": (3,)}, codes.SHAPES_DIFFER),
    (r.permutation, [], {"n": -1}, codes.OUT_OF_BOUNDS),
    (r.categorical, [np.array(1.0)], {}, codes.WRONG_NDIM),
    (r.categorical, [np.ones((3, 0))], {}, codes.OUT_OF_BOUNDS),
    (r.categorical, [np.array([True])], {}, codes.NOT_FLOAT),
    (r.dropout, [f32(1, 2)], {"p": 1}, codes.OUT_OF_BOUNDS),
    (r.dropout, [f32(1, 2)], {"p": -0.5}, codes.OUT_OF_BOUNDS),
    (r.dropout, [np.array([True])], {"p": 0.5}, codes.NOT_FLOAT),
]


@pytest.mark.parametrize(("primitive", "operands", "static", "code"), REFUSED)
def test_what_means_nothing_is_refused(
    primitive: Primitive, operands: list[Any], static: dict[str, Any], code: Any
) -> None:
    with pytest.raises(Refusal) as refused:
        compute(primitive, *operands, **static)
    assert refused.value.code is code
    assert refused.value.error().message
