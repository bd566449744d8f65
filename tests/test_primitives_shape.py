"""Shape, making and indexing: values against NumPy's own and loops written out, refusals with their codes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sxi.arraytype import ArrayType
from sxi.backends.strict import StrictBackend
from sxi.codes import Refusal
from sxi.primitives import PRIMITIVES
from tests.eager import Eager, completed, compute

F32 = np.float32
X23 = np.arange(6, dtype=F32).reshape(2, 3)
X234 = np.arange(24, dtype=F32).reshape(2, 3, 4)
NAN = float("nan")


def ids(*numbers: Any) -> Any:
    return np.array(numbers, "int32")


def on_strict(name: str, *operands: Any, **static: Any) -> Any:
    """What a device gives, without a host read."""
    strict, p = StrictBackend(), PRIMITIVES[name]
    assert p.forward is not None
    there = [strict.asarray(x) for x in operands]
    with strict.forbid_reads(), np.errstate(all="ignore"):
        out = p.forward(strict.xp, *there, **completed(p, static))
    return strict.to_host(out)


def check(name: str, operands: list[Any], static: dict[str, Any], expected: Any) -> None:
    found = compute(PRIMITIVES[name], *operands, **static)
    expected = np.asarray(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


# Shape

SHAPES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("reshape", [X23], {"shape": (3, -1)}, [[0, 1], [2, 3], [4, 5]]),
    ("reshape", [X23], {"shape": (6,)}, [0, 1, 2, 3, 4, 5]),
    ("reshape", [np.zeros((0, 3), F32)], {"shape": (-1, 3)}, np.zeros((0, 3))),
    ("expand", [X23], {"axis": -1}, X23[:, :, None]),
    ("expand", [X23], {"axis": 0}, X23[None]),
    ("squeeze", [X23[:, None]], {"axis": -2}, X23),
    ("transpose", [X23], {}, [[0, 3], [1, 4], [2, 5]]),
    ("transpose", [X234], {}, [x.T for x in X234]),
    ("transpose", [X234], {"axes": (2, -3, 1)}, np.moveaxis(X234, -1, 0)),
    ("flip", [X23], {}, X23[::-1]),
    ("flip", [X23], {"axis": -1}, X23[:, ::-1]),
    ("flip", [X23], {"axis": None}, X23[::-1, ::-1]),
    ("roll", [X23], {"n": -1, "axis": 1}, [[1, 2, 0], [4, 5, 3]]),
    ("roll", [X23], {"n": 3}, X23[[1, 0]]),
    ("tile", [X23], {"repeats": (2, 1)}, np.vstack([X23, X23])),
    ("tile", [X23[0]], {"repeats": (2, 2)}, np.vstack([[*X23[0], *X23[0]]] * 2)),
    ("tile", [X23], {"repeats": 2}, np.hstack([X23, X23])),
    ("broadcast-to", [X23[:, :1]], {"shape": (2, 2, 3)}, np.zeros((2, 2, 3)) + X23[:, :1]),
    ("sum-to", [X234], {"shape": (3, 1)}, X234.sum((0, 2))[:, None]),
    ("sum-to", [X23], {"shape": ()}, 15),
    ("concat", [X23, X23[:1]], {}, np.vstack([X23, X23[:1]])),
    ("concat", [X23, X23[:, :2]], {"axis": -1}, np.hstack([X23, X23[:, :2]])),
    ("stack", [X23, X23], {"axis": -1}, [[[0, 0], [1, 1], [2, 2]], [[3, 3], [4, 4], [5, 5]]]),
    ("slice", [X23], {"axis": 1, "from_": 1, "to": 3}, X23[:, 1:]),
    ("slice", [X23], {"axis": -1, "from_": -3, "to": -1}, X23[:, :2]),
    ("slice", [X23], {"axis": 0, "from_": 2, "to": 2}, np.zeros((0, 3))),
    ("add-slice", [X23, X23[:, :1]], {"axis": -1, "from_": -1, "to": 3}, [[0, 1, 2], [3, 4, 8]]),
    ("pad", [X23], {"widths": ((0, 1), (2, 0)), "value": 9.0}, [[9, 9, 0, 1, 2], [9, 9, 3, 4, 5], [9] * 5]),
    ("pad", [X23[0]], {"widths": ((1, 0),), "value": -np.inf}, [-np.inf, 0, 1, 2]),
    ("tril", [X23], {}, [[0, 0, 0], [3, 4, 0]]),
    ("tril", [X23], {"offset": 1}, [[0, 1, 0], [3, 4, 5]]),
    ("triu", [X234[:, :, :3]], {}, [[[0, 1, 2], [0, 5, 6], [0, 0, 10]], [[12, 13, 14], [0, 17, 18], [0, 0, 22]]]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "static", "expected"), SHAPES)
def test_shape(name: str, operands: list[Any], static: dict[str, Any], expected: Any) -> None:
    check(name, operands, static, np.asarray(expected, F32))


def test_split_gives_the_parts_in_order() -> None:
    left, right = compute(PRIMITIVES["split"], X234, n=2, axis=2)
    np.testing.assert_array_equal(left, X234[:, :, :2])
    np.testing.assert_array_equal(right, X234[:, :, 2:])
    assert [part.shape for part in compute(PRIMITIVES["split"], np.zeros((0,), F32), n=1)] == [(0,)]


def test_host_numbers_among_stacked_arrays_take_their_type() -> None:
    check("stack", [np.int32(4), 5], {}, ids(4, 5))
    check("stack", [np.asarray(4, "f2"), 0.5], {}, np.array([4, 0.5], "f2"))


def test_a_nan_beside_a_triangle_is_dropped() -> None:
    x = np.array([[1, NAN], [2, 3]], F32)
    check("tril", [x], {}, np.array([[1, 0], [2, 3]], F32))


REFUSED: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("reshape", ["f32[3 4]"], {"shape": (5, 2)}, "E-SHAPE-003"),
    ("reshape", ["f32[3 4]"], {"shape": (-1, 5)}, "E-SHAPE-003"),
    ("reshape", ["f32[3 4]"], {"shape": (-1, -1)}, "E-SHAPE-003"),
    ("reshape", ["f32[0]"], {"shape": (0, -1)}, "E-SHAPE-003"),
    ("reshape", ["f32[3 4]"], {"shape": (-2, 6)}, "E-SHAPE-005"),
    ("reshape", ["f32[1]"], {"shape": (1,) * 26}, "E-SHAPE-004"),
    ("expand", ["f32[3]"], {"axis": 2}, "E-SHAPE-002"),
    ("expand", ["f32[3]"], {"axis": -3}, "E-SHAPE-002"),
    ("squeeze", ["f32[3 1]"], {"axis": 0}, "E-SHAPE-005"),
    ("squeeze", ["f32[]"], {"axis": 0}, "E-SHAPE-002"),
    ("transpose", ["f32[3]"], {}, "E-SHAPE-004"),
    ("transpose", ["f32[3 4]"], {"axes": (0,)}, "E-SHAPE-004"),
    ("transpose", ["f32[3 4]"], {"axes": (0, -2)}, "E-EVAL-005"),
    ("flip", ["f32[3]"], {"axis": 1}, "E-SHAPE-002"),
    ("roll", ["f32[]"], {"n": 1}, "E-SHAPE-002"),
    ("tile", ["f32[3]"], {"repeats": (-1,)}, "E-SHAPE-005"),
    ("tile", ["f32[1024 1024]"], {"repeats": 2**12}, "E-SHAPE-005"),
    ("broadcast-to", ["f32[3]"], {"shape": (4,)}, "E-SHAPE-001"),
    ("broadcast-to", ["f32[2 3]"], {"shape": (3,)}, "E-SHAPE-004"),
    ("broadcast-to", ["f32[1]"], {"shape": (2**20, 2**20)}, "E-SHAPE-005"),
    ("concat", ["f32[2 3]", "f32[3 2]"], {}, "E-SHAPE-001"),
    ("concat", ["f32[2 3]", "f32[3]"], {}, "E-SHAPE-004"),
    ("concat", ["f32[]", "f32[]"], {}, "E-SHAPE-004"),
    ("concat", ["f32[2]"], {"axis": 1}, "E-SHAPE-002"),
    ("concat", [], {}, "E-EVAL-005"),
    ("stack", ["f32[2]", "f32[3]"], {}, "E-SHAPE-001"),
    ("stack", ["f32[2]"], {"axis": 2}, "E-SHAPE-002"),
    ("slice", ["f32[4]"], {"axis": 0, "from_": 0, "to": 5}, "E-SHAPE-005"),
    ("slice", ["f32[4]"], {"axis": 0, "from_": -5, "to": 2}, "E-SHAPE-005"),
    ("slice", ["f32[4]"], {"axis": 0, "from_": 3, "to": 1}, "E-SHAPE-005"),
    ("slice", ["f32[4]"], {"axis": 1, "from_": 0, "to": 1}, "E-SHAPE-002"),
    ("pad", ["f32[4]"], {"widths": ((1, 1), (1, 1))}, "E-SHAPE-004"),
    ("pad", ["f32[4]"], {"widths": ((1, -1),)}, "E-SHAPE-005"),
    ("pad", ["i32[4]"], {"widths": ((1, 1),), "value": 0.5}, "E-DTYPE-005"),
    ("pad", ["i32[4]"], {"widths": ((1, 1),), "value": 2**40}, "E-DTYPE-005"),
    ("pad", ["i32[4]"], {"widths": ((1, 1),), "value": NAN}, "E-DTYPE-005"),
    ("pad", ["bool[4]"], {"widths": ((1, 1),), "value": 2}, "E-DTYPE-005"),
    ("tril", ["f32[3]"], {}, "E-SHAPE-004"),
    ("at", ["f32[3]", "f32[2]"], {}, "E-DTYPE-002"),
    ("at", ["f32[3]", "bool[3]"], {}, "E-DTYPE-002"),
    ("at", ["f32[3]", "i32[2]", "i32[2]"], {}, "E-SHAPE-004"),
    ("at", ["f32[3 3]", "i32[2]", "i32[3]"], {}, "E-SHAPE-001"),
    ("take", ["f32[3]", "i32[2]"], {"axis": 1}, "E-SHAPE-002"),
    ("take", ["f32[3]", "f32[2]"], {}, "E-DTYPE-002"),
    ("gather", ["f32[2 3]", "i32[2]"], {}, "E-SHAPE-004"),
    ("gather", ["f32[2 3]", "i32[3 1]"], {}, "E-SHAPE-001"),
    ("scatter", ["f32[3 2]", "i32[4]", "f32[3]"], {}, "E-SHAPE-001"),
    ("scatter", ["f32[3 2]", "i32[4]", "f32[1 4 2]"], {}, "E-SHAPE-004"),
    ("scatter-add", ["bool[3]", "i32[4]", "bool[]"], {}, "E-DTYPE-001"),
    ("scatter-add", ["f32[3]", "f32[4]", "f32[]"], {}, "E-DTYPE-002"),
    ("one-hot", ["f32[3]"], {"n": 2}, "E-DTYPE-002"),
    ("one-hot", ["i32[3]"], {"n": -1}, "E-SHAPE-005"),
    ("zeros", [], {"shape": (2**16, 2**16)}, "E-SHAPE-005"),
    ("zeros", [], {"shape": (2, -1)}, "E-SHAPE-005"),
    ("eye", [], {"n": 2**17}, "E-SHAPE-005"),
    ("arange", [], {"a": -1}, "E-SHAPE-005"),
    ("arange", [], {"a": 10**12}, "E-SHAPE-005"),
    ("arange", [], {"a": 0, "b": 1, "step": 0}, "E-EVAL-005"),
    ("arange", [], {"a": 0.0, "b": np.inf}, "E-EVAL-005"),
    ("arange", [], {"a": 0, "b": 1, "step": 1e-300}, "E-SHAPE-005"),
    ("arange", [], {"a": 2**31 - 1, "b": 2**31 + 1}, "E-DTYPE-005"),
    ("linspace", [], {"a": 0, "b": NAN, "n": 3}, "E-EVAL-005"),
    ("linspace", [], {"a": 0, "b": 1, "n": -3}, "E-SHAPE-005"),
    ("array", [], {"numbers": ((1, 2), (3,))}, "E-SHAPE-001"),
    ("array", [], {"numbers": ((1, 2), 3)}, "E-EVAL-005"),
    ("array", [], {"numbers": (1, (2, 3))}, "E-EVAL-005"),
    ("array", [], {"numbers": (1, 2**31)}, "E-DTYPE-005"),
    ("array", [], {"numbers": (1.5,), "dtype": "i32"}, "E-DTYPE-005"),
    ("array", [], {"numbers": (np.inf,), "dtype": "i64"}, "E-DTYPE-005"),
    ("array", [], {"numbers": (2,), "dtype": "bool"}, "E-DTYPE-005"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "types", "static", "code"), REFUSED)
def test_refused(name: str, types: list[str], static: dict[str, Any], code: str) -> None:
    p = PRIMITIVES[name]
    assert p.rule is not None
    with pytest.raises(Refusal) as refused:
        p.rule(*map(ArrayType.parse, types), **completed(p, static))
    assert refused.value.code.code == code
    assert refused.value.error().message  # its facts fill the message


@pytest.mark.parametrize(("n", "code"), [(0, "E-SHAPE-005"), (7, "E-SHAPE-005"), (4, "E-SHAPE-003")])
def test_an_uneven_split_is_refused(n: int, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        compute(PRIMITIVES["split"], np.zeros(6, F32), n=n)
    assert refused.value.code.code == code


def test_a_list_nested_past_every_limit_is_refused() -> None:
    nested: Any = 1
    for _ in range(100_000):
        nested = (nested,)
    with pytest.raises(Refusal, match="E-SHAPE-004"):
        compute(PRIMITIVES["array"], numbers=nested)


# Making


@pytest.mark.parametrize(
    ("name", "static", "expected"),
    [
        ("zeros", {"shape": (2, 1)}, np.zeros((2, 1), F32)),
        ("zeros", {"shape": (), "dtype": "bool"}, np.array(False)),
        ("ones", {"shape": (0, 2), "dtype": "i64"}, np.ones((0, 2), "i8")),
        ("eye", {"n": 2, "dtype": "i32"}, ids([1, 0], [0, 1])),
        ("linspace", {"a": 1, "b": 3, "n": 3}, np.array([1, 2, 3], F32)),
        ("linspace", {"a": 1, "b": 3, "n": 1}, np.array([1], F32)),
        ("linspace", {"a": -1e308, "b": 1e308, "n": 1}, np.array([-np.inf], F32)),
        ("array", {"numbers": ((1, 2), (3, 4))}, ids([1, 2], [3, 4])),
        ("array", {"numbers": (1, 2.5)}, np.array([1, 2.5], F32)),
        ("array", {"numbers": (True, False)}, np.array([True, False])),
        ("array", {"numbers": (True, 3)}, ids(1, 3)),
        ("array", {"numbers": 7}, np.array(7, "i4")),
        ("array", {"numbers": ()}, np.zeros(0, F32)),
        ("array", {"numbers": ((), ())}, np.zeros((2, 0), F32)),
        ("array", {"numbers": (1, 0), "dtype": "bool"}, np.array([True, False])),
        ("array", {"numbers": (2**40,), "dtype": "i64"}, np.array([2**40], "i8")),
        ("array", {"numbers": (2.0,), "dtype": "i32"}, ids(2)),
        ("array", {"numbers": (10**400, 0.1), "dtype": "f64"}, np.array([np.inf, 0.1])),
    ],
)
def test_making(name: str, static: dict[str, Any], expected: Any) -> None:
    check(name, [], static, expected)


def test_full_is_of_the_type_of_its_number() -> None:
    check("full", [7], {"shape": (2,)}, ids(7, 7))
    check("full", [True], {"shape": ()}, np.array(True))
    check("full", [7], {"shape": (1,), "dtype": "f16"}, np.array([7], "f2"))
    check("full", [0.1], {"shape": (1,), "dtype": "f64"}, np.array([0.1]))  # rounded once, not by f32 on the way
    check("full", [2**40 + 1], {"shape": (1,), "dtype": "i64"}, np.array([2**40 + 1]))
    check("full", [10**400], {"shape": (1,), "dtype": "f32"}, np.array([np.inf], F32))
    check("full", [F32(0.1)], {"shape": (1,), "dtype": "f64"}, np.array([np.float64(F32(0.1))]))


@pytest.mark.parametrize(
    ("value", "static", "code"),
    [
        (np.zeros(2, F32), {"shape": (2,)}, "E-SHAPE-004"),
        (2**31, {"shape": (2,)}, "E-DTYPE-005"),
        (0.5, {"shape": (2,), "dtype": "i32"}, "E-DTYPE-005"),
        (2, {"shape": (2,), "dtype": "bool"}, "E-DTYPE-005"),
        (1.0, {"shape": (-1,)}, "E-SHAPE-005"),
    ],
)
def test_full_of_what_it_cannot_hold_is_refused(value: Any, static: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        compute(PRIMITIVES["full"], value, **static)
    assert refused.value.code.code == code


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-7, 7).filter(bool))
def test_arange_of_integers_is_the_range(a: int, b: int, step: int) -> None:
    check("arange", [], {"a": a, "b": b, "step": step}, np.array(range(a, b, step), "i4"))


@given(st.floats(-1e3, 1e3), st.integers(0, 40), st.sampled_from([-0.75, 0.5, 3.0]))
def test_arange_of_reals_reaches_to_before_its_end(a: float, n: int, step: float) -> None:
    found = compute(PRIMITIVES["arange"], a=a, b=a + n * step, step=step)
    expected = np.array([a + i * step for i in range(len(found))], F32)
    np.testing.assert_array_equal(found, expected)
    assert abs(len(found) - n) <= (a + n * step != a)


def test_linspace_ends_at_its_end() -> None:
    for n in (2, 3, 7, 1000):
        found = compute(PRIMITIVES["linspace"], a=0.1, b=0.7, n=n)
        assert found[0] == F32(0.1)
        assert found[-1] == F32(0.7)
        assert (np.diff(found) > 0).all()


# Reading by index


def outside_of(dtype: str) -> Any:
    return np.nan if np.dtype(dtype).kind == "f" else 0


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", "?"])
@pytest.mark.parametrize("device", [False, True])
def test_reading_outside_gives_nan_or_zero(dtype: str, device: bool) -> None:
    x = np.ones(3, dtype)
    places = ids(-4, -3, -1, 0, 2, 3, 2**31 - 1, -(2**31))
    expected = [x[i] if -3 <= i < 3 else outside_of(dtype) for i in places.tolist()]
    for name, static in (("at", {}), ("take", {"axis": 0}), ("gather", {"axis": 0})):
        read = on_strict if device else lambda name, *xs, **static: compute(PRIMITIVES[name], *xs, **static)
        found = read(name, x, places, **static)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, np.array(expected, dtype))
    zeros = [0 if np.isnan(v) else v for v in np.array(expected, "f8")]
    for name in ("at-or-zero", "take-or-zero", "gather-or-zero"):
        np.testing.assert_array_equal(
            compute(PRIMITIVES[name], x, places, axis=0) if name[0] != "a" else compute(PRIMITIVES[name], x, places),
            np.array(zeros, dtype),
        )


@pytest.mark.parametrize("device", [False, True])
def test_at_indices_of_several_axes_broadcasts_them(device: bool) -> None:
    i, j = ids([0], [-1], [5]), ids(2, 0, -3, -4)
    found = on_strict("at", X234, i, j) if device else compute(PRIMITIVES["at"], X234, i, j)
    assert found.shape == (3, 4, 4)
    for r, c in itertools.product(range(3), range(4)):
        inside = -2 <= i[r, 0] < 2 and -3 <= j[c] < 3
        np.testing.assert_array_equal(found[r, c], X234[i[r, 0], j[c]] if inside else [NAN] * 4)


def test_an_i64_index_past_every_product_is_outside() -> None:
    far = np.array([2**62, -(2**63), 1], "i8")
    np.testing.assert_array_equal(compute(PRIMITIVES["at"], X23, far, far), [NAN, NAN, X23[1, 1]])
    np.testing.assert_array_equal(compute(PRIMITIVES["at"], X23, far[0], far[2]), NAN)


def test_a_host_number_is_an_index() -> None:
    check("at", [X23, -1], {}, X23[-1])
    check("at", [X23, 1, 2], {}, X23[1, 2])
    check("at", [X23, 1, 3], {}, F32(NAN))


def test_nothing_and_from_nothing() -> None:
    nothing = np.zeros((0, 3), F32)
    for device in (False, True):
        read = on_strict if device else lambda name, *xs, **static: compute(PRIMITIVES[name], *xs, **static)
        np.testing.assert_array_equal(read("at", nothing, ids(0, -1)), np.full((2, 3), NAN))
        assert read("at", X23, ids()).shape == (0, 3)
        np.testing.assert_array_equal(read("take", nothing.T, ids(0), axis=1), np.full((3, 1), NAN))
        np.testing.assert_array_equal(read("gather", nothing, ids([1, 1, 1]).repeat(0, 0), axis=1).shape, (0, 3))
        np.testing.assert_array_equal(read("scatter-add", nothing, ids(0), np.ones((1, 3), F32)), nothing)
        np.testing.assert_array_equal(read("scatter", nothing, ids(0), np.ones((1, 3), F32)), nothing)
        np.testing.assert_array_equal(read("scatter-add", X23, ids(), np.ones((0, 3), F32)), X23)
        np.testing.assert_array_equal(read("one-hot", ids(), n=2), np.zeros((0, 2)))


def test_take_puts_the_indices_where_the_axis_was() -> None:
    places = ids([0, 2], [1, -3])
    found = compute(PRIMITIVES["take"], X234, places, axis=1)
    assert found.shape == (2, 2, 2, 4)
    for a, b in itertools.product(range(2), range(2)):
        np.testing.assert_array_equal(found[:, a, b], X234[:, places[a, b]])


def test_gather_takes_for_each_place_its_own() -> None:
    places = np.random.default_rng(0).integers(-3, 3, (2, 5, 4)).astype("i4")
    found = compute(PRIMITIVES["gather"], X234, places, axis=1)
    for a, b, c in np.ndindex(found.shape):
        assert found[a, b, c] == X234[a, places[a, b, c], c]


def test_one_hot_of_a_class_outside_is_all_zeros() -> None:
    check("one-hot", [ids(1, -1, 3, 0)], {"n": 2}, np.array([[0, 1], [0, 0], [0, 0], [1, 0]], F32))


def test_embedding_takes_rows_and_refuses_what_is_no_table() -> None:
    check("embedding", [X23, ids([1], [0])], {}, X23[[[1], [0]]])
    with pytest.raises(Refusal, match="E-SHAPE-004"):
        compute(PRIMITIVES["embedding"], X23[0], ids(1))


# Writing by index


def added(x: Any, places: Any, v: Any) -> Any:
    """`v` added to rows of `x` one after the other."""
    out = x.copy()
    for i, row in zip(places.ravel().tolist(), v.reshape(places.size, *x.shape[1:]), strict=True):
        if -len(x) <= i < len(x):
            out[i] = out[i] + row
    return out


@pytest.mark.parametrize("width", [1, 3, 32, 33, 70])
@pytest.mark.parametrize("low", [0, -12])
def test_adding_at_indices_is_a_loop_in_their_order(width: int, low: int) -> None:
    rng = np.random.default_rng(width)
    x, v = rng.normal(size=(9, width)).astype(F32), rng.normal(size=(4, 50, width)).astype(F32)
    places = rng.integers(low, 9 if low == 0 else 12, (4, 50)).astype("i4")
    expected = added(x, places, v)
    np.testing.assert_array_equal(compute(PRIMITIVES["scatter-add"], x, places, v), expected)
    np.testing.assert_array_equal(compute(PRIMITIVES["add-at"], x, v, places), expected)
    first, again = (on_strict("scatter-add", x, places, v) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)


def test_adding_whole_numbers_is_exact_on_a_device() -> None:
    rng = np.random.default_rng(1)
    x, places = np.zeros((5, 2), "i4"), rng.integers(-6, 7, 1000).astype("i4")
    v = rng.integers(-9, 9, (1000, 2)).astype("i4")
    np.testing.assert_array_equal(on_strict("scatter-add", x, places, v), added(x, places, v))


@pytest.mark.parametrize("device", [False, True])
def test_a_nan_is_added_to_its_row_only(device: bool) -> None:
    x, places, v = np.zeros(4, F32), ids(2, 0, 0, 1), np.array([1, NAN, np.inf, 2], F32)
    found = on_strict("scatter-add", x, places, v) if device else compute(PRIMITIVES["scatter-add"], x, places, v)
    np.testing.assert_array_equal(found, [NAN, 2, 1, 0])


@pytest.mark.parametrize("name", ["scatter", "scatter-add"])
@pytest.mark.parametrize("device", [False, True])
def test_what_is_not_written_keeps_its_bits(name: str, device: bool) -> None:
    x = np.full((3, 1), -0.0, F32)
    write = on_strict if device else lambda name, *xs: compute(PRIMITIVES[name], *xs)
    found = write(name, x, ids(1, 3, -4), np.ones((3, 1), F32))
    np.testing.assert_array_equal(found, [[0], [1], [0]])
    np.testing.assert_array_equal(np.signbit(found), [[True], [False], [True]])


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "i4", "?"])
def test_the_last_of_several_writes_stays(device: bool, dtype: str) -> None:
    rng = np.random.default_rng(2)
    x, places = np.zeros((4, 3), dtype), rng.integers(-5, 6, 40).astype("i4")
    v = rng.integers(0, 2, (40, 3)).astype(dtype)
    expected = x.copy()
    for i, row in zip(places.tolist(), v, strict=True):
        if -4 <= i < 4:
            expected[i] = row
    write = on_strict if device else lambda name, *xs: compute(PRIMITIVES[name], *xs)
    np.testing.assert_array_equal(write("scatter", x, places, v), expected)


@pytest.mark.parametrize("device", [False, True])
def test_which_writes_stay(device: bool) -> None:
    places = ids([0, 2, -3], [2, 5, -9])
    found = on_strict("written", places, length=3) if device else compute(PRIMITIVES["written"], places, length=3)
    np.testing.assert_array_equal(found, [[False, False, True], [True, False, False]])


def test_a_scalar_is_written_to_every_row() -> None:
    check("scatter", [X23, ids(0), 9.0], {}, np.array([[9, 9, 9], [3, 4, 5]], F32))
    check("scatter-add", [ids(1, 2), ids(0, 0), 3], {}, ids(7, 2))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_adding_along_an_axis_is_the_adjoint_of_taking(axis: int) -> None:
    rng = np.random.default_rng(3)
    x, places = rng.normal(size=(2, 3, 4)), rng.integers(-5, 5, (3, 2)).astype("i4")
    v = rng.normal(size=compute(PRIMITIVES["take"], x, places, axis=axis).shape)
    into = compute(PRIMITIVES["add-take"], np.zeros_like(x), v, places, axis=axis)
    read = compute(PRIMITIVES["take-or-zero"], x, places, axis=axis)
    np.testing.assert_allclose((into * x).sum(), (v * read).sum())
    shape = [2, 3, 4]
    shape[axis] = 6
    each = rng.integers(-5, 5, shape).astype("i4")
    v = rng.normal(size=shape)
    into = compute(PRIMITIVES["add-gather"], np.zeros_like(x), v, each, axis=axis)
    np.testing.assert_allclose((into * x).sum(), (v * compute(PRIMITIVES["gather-or-zero"], x, each, axis=axis)).sum())


IN_PLACE: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("add-at", [X23[:, :1], ids(1, 1)], {}),
    ("add-take", [X23, ids(0, 1, 1)], {"axis": 1}),
    ("add-gather", [X23, ids([0, 1, 1], [2, 2, 9])], {"axis": 1}),
    ("add-slice", [X23[:, :1]], {"axis": 1, "from_": 1, "to": 2}),
]


@pytest.mark.parametrize(("name", "operands", "static"), IN_PLACE)
@pytest.mark.parametrize("layout", ["C", "F"])
def test_accumulating_writes_into_the_buffer_it_is_given_and_no_other(
    name: str, operands: list[Any], static: dict[str, Any], layout: Any
) -> None:
    p = PRIMITIVES[name]
    assert p.forward is not None
    acc = np.asarray(np.ones((2, 1 if name == "add-at" else 3), F32), order=layout)
    apart = p.forward(np, acc, *operands, **static)
    assert (acc == 1).all()
    assert not (apart == 1).all()
    into = p.forward(np, acc, *operands, **static, out=acc)
    assert into is acc
    np.testing.assert_array_equal(acc, apart)


@pytest.mark.parametrize("name", ["scatter", "scatter-add"])
def test_writing_takes_a_buffer_too(name: str) -> None:
    p, x = PRIMITIVES[name], X23.copy()
    assert p.forward is not None
    apart = p.forward(np, x, ids(1), X23[:1] + 1)
    np.testing.assert_array_equal(x, X23)
    assert p.forward(np, x, ids(1), X23[:1] + 1, out=x) is x
    np.testing.assert_array_equal(x, apart)


# Gradients that the general table does not reach: indices outside and repeated, and of the second order


def squares_at(name: str, x: Any, places: Any, **static: Any) -> tuple[Any, Any]:
    """The gradient of the sum of squares of what is read, and that of the sum of this gradient's squares."""
    eager = Eager()
    value = eager.value(x)
    read = PRIMITIVES[name](value, eager.value(places), **static)
    total = PRIMITIVES["sum"](PRIMITIVES["square"](read))
    (g,) = eager.gradients(total, [value])
    (gg,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["square"](g)), [value])
    return g.array, gg.array


@pytest.mark.parametrize(("name", "static"), [("at", {}), ("take", {"axis": 0}), ("gather", {"axis": 0})])
def test_reading_a_place_n_times_gives_n_times_its_gradient(name: str, static: dict[str, Any]) -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    times = np.array([2, 0, 1, 3])
    g, gg = squares_at(name, x, ids(0, -1, 3, 2, 0, 3), **static)
    np.testing.assert_allclose(g, 2 * times * x)
    np.testing.assert_allclose(gg, 8 * times**2 * x)


@pytest.mark.parametrize(("name", "static"), [("at", {}), ("take", {"axis": 0}), ("gather", {"axis": 0})])
def test_what_is_read_outside_has_no_gradient_of_any_order(name: str, static: dict[str, Any]) -> None:
    x = np.array([1.0, 2.0])
    eager = Eager()
    value, weight = eager.value(x), eager.value(np.array([3.0, 5.0]))
    read = PRIMITIVES[name](value, eager.value(ids(1, 7)), **static)
    (g,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["*"](read, weight)), [value])
    np.testing.assert_allclose(g.array, [0, 3])
    (gg,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["*"](g, value)), [weight])
    np.testing.assert_allclose(gg.array, [2, 0])


def test_the_gradient_of_a_scatter_is_that_of_the_writes_that_stay() -> None:
    eager = Eager()
    x, v = eager.value(np.array([1.0, 2.0, 3.0])), eager.value(np.array([10.0, 20.0, 30.0, 40.0]))
    out = PRIMITIVES["scatter"](x, eager.value(ids(0, 0, 2, 9)), v)
    weights = eager.value(np.array([5.0, 7.0, 11.0]))
    by_x, by_v = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["*"](out, weights)), [x, v])
    np.testing.assert_allclose(by_x.array, [0, 7, 0])
    np.testing.assert_allclose(by_v.array, [0, 5, 11, 0])


def test_the_gradient_of_what_is_added_outside_is_zero() -> None:
    eager = Eager()
    x, v = eager.value(np.zeros(2)), eager.value(np.ones(3))
    out = PRIMITIVES["scatter-add"](x, eager.value(ids(1, 1, 5)), v)
    by_x, by_v = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["square"](out)), [x, v])
    np.testing.assert_allclose(by_x.array, [0, 4])
    np.testing.assert_allclose(by_v.array, [4, 4, 0])


def test_the_gradient_of_a_written_scalar_is_the_sum() -> None:
    eager = Eager()
    x, v = eager.value(np.zeros((2, 3))), eager.value(np.array(2.0))
    out = PRIMITIVES["scatter-add"](x, eager.value(ids(1, 1)), v)
    (by_v,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["square"](out)), [v])
    np.testing.assert_allclose(by_v.array, 2 * 4.0 * 3 * 2)
