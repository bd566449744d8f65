"""The backends against the protocol: what they count, what they read, what the strict one refuses, how CUDA fails."""

from __future__ import annotations

import copy
import inspect
import math
import platform
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sxi.backends import Backend, as_f64, lacking, open_backend
from sxi.backends.strict import HostRead, StrictBackend
from sxi.errors import SxiError
from sxi.primitives import PRIMITIVES
from tests.parts import require

NAN, INF = math.nan, math.inf
HERE = Path(__file__).name

# What is counted: the array, how many elements are not finite as f32, and how many in their own type.
COUNTED: dict[str, tuple[Callable[[], np.ndarray[Any, Any]], int, int]] = {
    "clean f32": (lambda: np.arange(12, dtype="f4").reshape(3, 4), 0, 0),
    "NaN": (lambda: np.array([1, NAN, 3], "f4"), 1, 1),
    "a negative NaN": (lambda: np.array([0x00000000, 0xFFC00001], "u4").view("f4"), 1, 1),
    "inf": (lambda: np.array([INF, 2, INF], "f4"), 2, 2),
    "-inf alone": (lambda: np.array([-INF, 0, 5], "f4"), 1, 1),
    "inf with -inf": (lambda: np.array([-INF, INF], "f4"), 2, 2),
    "squares that overflow": (lambda: np.full(100, 3e38, "f4"), 0, 0),
    "squares that overflow, and a NaN": (lambda: np.array([3e38] * 9 + [NAN], "f4"), 1, 1),
    "subnormals": (lambda: np.array([1e-45, -1e-45, 1e-40], "f4"), 0, 0),
    "f64 past f32": (lambda: np.array([1e300, -1e39, 3e38, 0.0]), 2, 0),
    "f64 past f32, and inf": (lambda: np.array([1e300, INF, NAN]), 3, 2),
    "f64 whose squares overflow": (lambda: np.full(10, 1e200), 10, 0),
    "f64 at f32's edge": (
        lambda: np.array([2.0**128 - 2.0**103, np.nextafter(2.0**128 - 2.0**103, 0), -(2.0**128)]),
        2,
        0,
    ),
    "f64 subnormals": (lambda: np.array([5e-324, -5e-324]), 0, 0),
    "f16": (lambda: np.array([65504, -65504, 6e-8, 0], "f2"), 0, 0),
    "f16 with all three": (lambda: np.array([INF, -INF, NAN, 1], "f2"), 3, 3),
    "f16 with a negative NaN": (lambda: np.array([0xFE01, 0x3C00], "u2").view("f2"), 1, 1),
    "f16 with -inf alone": (lambda: np.array([1, -INF], "f2"), 1, 1),
    "strided f16": (lambda: np.array([NAN, 1, 2, -INF, INF, 5], "f2")[::2], 2, 2),
    "i32": (lambda: np.array([2**31 - 1, -(2**31)], "i4"), 0, 0),
    "i64": (lambda: np.array([2**63 - 1], "i8"), 0, 0),
    "bool": (lambda: np.array([True, False]), 0, 0),
    "empty": (lambda: np.zeros((0, 3), "f4"), 0, 0),
    "empty f16": (lambda: np.zeros(0, "f2"), 0, 0),
    "empty f64": (lambda: np.zeros(0, "f8"), 0, 0),
    "no axes": (lambda: np.array(NAN, "f4"), 1, 1),
    "no axes, clean": (lambda: np.array(7.0, "f4"), 0, 0),
    "no axes, f64 past f32": (lambda: np.array(1e300), 1, 0),
    "strided": (lambda: np.array([[NAN, 1, NAN], [2, INF, 3]], "f4")[:, ::2], 2, 2),
    "reversed": (lambda: np.array([1, 2, NAN], "f4")[::-1], 1, 1),
    "transposed": (lambda: np.array([[1, -INF, 3], [4, 5, 6]], "f4").T, 1, 1),
    "broadcast": (lambda: np.broadcast_to(np.array([NAN, 1], "f4"), (5, 2)), 5, 5),
    "many blocks": (lambda: _planted("f4"), 5, 5),
    "many blocks of f64": (lambda: _planted("f8"), 5, 5),
    "many blocks of f16": (lambda: _planted("f2"), 5, 5),
}


def _planted(dtype: str) -> np.ndarray[Any, Any]:
    x = np.ones(200_003, dtype)
    x[[0, 65535, 65536, 131072, 200_002]] = [NAN, INF, -INF, NAN, -INF]
    return x


@pytest.fixture(params=["cpu", "strict"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return open_backend(request.param)


@pytest.fixture
def strict() -> StrictBackend:
    return StrictBackend()


def number(backend: Backend, x: Any) -> float:
    """A count on the host, by the one way that every backend has."""
    counters = backend.counters(1)
    backend.tally(counters, [0], [x])
    return float(backend.read(counters)[0])


@pytest.mark.parametrize("name", COUNTED)
def test_what_is_not_finite_is_counted(backend: Backend, name: str) -> None:
    make, as_f32, own = COUNTED[name]
    x = backend.asarray(make()) if backend.name == "strict" else make()
    assert number(backend, backend.count_nonfinite(x)) == as_f32
    assert number(backend, backend.count_nonfinite_own(x)) == own


def not_finite_as_f32(value: float) -> bool:
    try:
        return not math.isfinite(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:  # struct refuses what would round to infinity
        return True


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_counts_agree_with_counting_one_by_one(backend: Backend, dtype: str) -> None:
    rng = np.random.default_rng(7)
    specials = np.array([0, -0.0, NAN, INF, -INF, 6e4, 3.4e38, 3.5e38, -3.5e38, 1e300, 1e-40, 5e-324])
    with np.errstate(over="ignore"):
        x = rng.choice(specials, (37, 11), p=[0.45] + [0.05] * 11).astype(dtype)
    for view in (x, x.T, x[::3, ::-2], x[5], x[0, 0]):
        elements = [float(e) for e in np.asarray(view).flat]
        here = backend.asarray(view)
        assert number(backend, backend.count_nonfinite(here)) == sum(map(not_finite_as_f32, elements))
        assert number(backend, backend.count_nonfinite_own(here)) == sum(not math.isfinite(e) for e in elements)


def test_results_of_operations_on_arrays_of_no_axes_are_counted(backend: Backend) -> None:
    one = backend.asarray(np.array(1.0, "f4"))
    with np.errstate(divide="ignore"):
        assert number(backend, backend.count_nonfinite(one / (one - one))) == 1
    assert number(backend, backend.count_nonfinite(one + one)) == 0
    assert number(backend, backend.count_true(one > 0)) == 1


@pytest.mark.parametrize(("given", "expected"), [(1.0, 0), (NAN, 1), (1e300, 1), (3, 0), (True, 0)])
def test_host_numbers_are_counted_too(backend: Backend, given: float, expected: int) -> None:
    assert number(backend, backend.count_nonfinite(given)) == expected


def test_true_is_counted_past_what_f32_can_count(backend: Backend) -> None:
    n = 2**24 + 5
    assert number(backend, backend.count_true(backend.asarray(np.ones(n, bool)))) == n


@pytest.mark.parametrize(
    ("mask", "expected"),
    [([], 0), ([True, False, True], 2), ([[True, True], [False, True]], 3), (True, 1), (False, 0)],
)
def test_true_is_counted(backend: Backend, mask: Any, expected: int) -> None:
    assert number(backend, backend.count_true(backend.asarray(np.array(mask, bool)))) == expected


def test_true_is_counted_in_a_strided_mask(backend: Backend) -> None:
    mask = backend.asarray(np.array([[True, False], [True, True], [False, False]]))
    assert number(backend, backend.count_true(mask.T[:, ::2])) == 1


def test_a_tally_takes_all_kinds_of_numbers(backend: Backend) -> None:
    counters = backend.counters(4)
    third = np.float32(1) / np.float32(3)
    values = [backend.asarray(np.array(v)) for v in (third, np.int32(-2), np.int64(2**53 - 1), np.bool_(True))]
    backend.tally(counters, [0, 1, 2, 3], values)
    backend.tally(counters, [1, 1, 3, 0], [5, 0.25, np.float32(0.5), np.float16(2)])
    assert backend.read(counters).tolist() == [float(third) + 2, 3.25, 2.0**53 - 1, 1.5]


def test_a_tally_is_in_f64(backend: Backend) -> None:
    counters = backend.counters(1)
    backend.tally(counters, [0, 0, 0], [backend.asarray(np.array(v, "f4")) for v in (2.0**24, 1, 1)])
    assert backend.read(counters).tolist() == [2.0**24 + 2]


def test_a_tally_of_infinities_is_a_nan_without_a_warning(backend: Backend) -> None:
    counters = backend.counters(3)
    backend.tally(counters, [0, 0, 1, 2], [INF, -INF, 10**400, -(10**400)])
    assert repr(backend.read(counters).tolist()) == "[nan, inf, -inf]"


def test_slots_and_values_are_pairs(backend: Backend) -> None:
    with pytest.raises(ValueError, match="zip"):
        backend.tally(backend.counters(2), [0, 1], [1.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1.0, 3.0, 2.0], 3.0), ([NAN, 1.0], NAN), ([1.0, NAN, 5.0], NAN), ([-INF], -INF), ([-5, -7], -5.0), ([INF], INF)],
)
def test_a_maximum_keeps_a_nan(backend: Backend, values: list[float], expected: float) -> None:
    for of_arrays in (False, True):
        extremes = backend.counters(2)
        extremes[...] = -INF
        given = [backend.asarray(np.array(v, "f4")) for v in values] if of_arrays else values
        backend.tally_maximum(extremes, [1] * len(values), given)
        assert repr(backend.read(extremes).tolist()) == repr([-INF, expected])


def test_a_read_is_a_copy(backend: Backend) -> None:
    counters = backend.counters(2)
    first = backend.read(counters)
    backend.tally(counters, [0], [1.0])
    second = backend.read(counters)
    assert (first.tolist(), second.tolist()) == ([0, 0], [1, 0])
    assert first.dtype == np.float64


def test_computing_is_without_warnings(backend: Backend) -> None:
    x = backend.asarray(np.array([-1.0, 0.0, 1e300]))
    with backend.computing():
        results = backend.xp.sqrt(x), 1 / x, x * x, x.astype("f4")
    assert [number(backend, backend.count_nonfinite_own(r)) for r in results] == [1, 1, 1, 1]


def test_a_primitive_is_computed_by_its_function(backend: Backend) -> None:
    x = backend.asarray(np.array([4.0, 9.0]))
    assert backend.to_host(backend.function(PRIMITIVES["square"])(backend.xp, x)).tolist() == [16, 81]


def test_reading_no_counters(backend: Backend) -> None:
    assert backend.read(backend.counters(0)).shape == (0,)


def test_arrays_are_copied_in_and_out(backend: Backend) -> None:
    host = np.arange(6, dtype="i4").reshape(2, 3)
    there = backend.asarray(host.T)
    host[...] = 0
    back = backend.to_host(there)
    assert back.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert back.flags.c_contiguous
    back[...] = 9
    assert backend.to_host(there).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_as_f64() -> None:
    assert [as_f64(v) for v in (True, 3, 0.5, np.float32(2), np.array(4), 10**400, -(10**400))] == [
        1, 3, 0.5, 2, 4, INF, -INF,
    ]  # fmt: skip


# The strict backend.

READS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "get": ("get", lambda xp, x: x.get()),
    "asnumpy": ("get", lambda xp, x: xp.asnumpy(x)),
    "get-async": ("get-async", lambda xp, x: x.get(blocking=False)),
    "item": ("item", lambda xp, x: x[0].item()),
    "tolist": ("tolist", lambda xp, x: x.tolist()),
    "tobytes": ("tobytes", lambda xp, x: x.tobytes()),
    "float": ("float", lambda xp, x: float(x[0])),
    "int": ("int", lambda xp, x: int(x[0])),
    "bool": ("bool", lambda xp, x: bool(x[0])),
    "if": ("bool", lambda xp, x: 1 if x[0] > 0 else 2),
    "in": ("bool", lambda xp, x: 5 in x),
    "repr": ("repr", lambda xp, x: repr(x)),
    "str": ("repr", lambda xp, x: str(x)),
    "format": ("format", lambda xp, x: f"{x[0]:.1f}"),
    "a mask as an index": ("boolean-index", lambda xp, x: x[x > 1]),
    "a list as a mask": ("boolean-index", lambda xp, x: x[[True, False, True]]),
    "nonzero": ("nonzero", lambda xp, x: xp.nonzero(x)),
    "the method nonzero": ("nonzero", lambda xp, x: x.nonzero()),
    "where of one": ("where", lambda xp, x: xp.where(x)),
    "unique": ("unique", lambda xp, x: xp.unique(x)),
    "bincount": ("bincount", lambda xp, x: xp.bincount(x.astype("i4"))),
    "arange to an array": ("arange", lambda xp, x: xp.arange(x[2])),
}


@pytest.mark.parametrize("name", READS)
def test_a_host_read_is_written_down_with_its_place(strict: StrictBackend, name: str) -> None:
    kind, act = READS[name]
    x = strict.asarray(np.array([1, 2, 3], "f4"))
    act(strict.xp, x)
    assert {(r.kind, Path(r.path).name, r.line) for r in strict.reads} == {(kind, HERE, act.__code__.co_firstlineno)}


@pytest.mark.parametrize("name", READS)
def test_a_host_read_can_be_forbidden(strict: StrictBackend, name: str) -> None:
    kind, act = READS[name]
    x = strict.asarray(np.array([1, 2, 3], "f4"))
    with strict.forbid_reads(), pytest.raises(HostRead, match=f"^{kind} at .*{HERE}:"):
        act(strict.xp, x)
    act(strict.xp, x)


def test_an_assignment_by_a_mask_is_a_read(strict: StrictBackend) -> None:
    x = strict.asarray(np.array([1.0, -1.0]))
    x[x < 0] = 0.0
    assert [r.kind for r in strict.reads] == ["boolean-index"]
    assert x.tolist() == [1, 0]


def test_one_read_of_counters_is_one_read(strict: StrictBackend) -> None:
    counters = strict.counters(2)
    with strict.forbid_reads():
        x = strict.asarray(np.array([NAN, 1], "f4"))
        strict.tally(counters, [0, 1, 1], [strict.count_nonfinite(x), strict.count_true(x > 0), 0.5])
        strict.tally_maximum(counters, [1], [x[1]])
    assert strict.reads == []
    assert strict.read(counters).tolist() == [1, 1.5]
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # there is a frame in CPython
    assert [(r.kind, Path(r.path).name, r.line) for r in strict.reads] == [("get-async", HERE, line)]


def test_reads_are_summed_up(strict: StrictBackend) -> None:
    x = strict.asarray(np.array([1.0, 2.0]))
    for i in range(3):
        float(x[i % 2])
    x.tolist()
    floats, lists = strict.reads_summary()
    assert floats.startswith("3 × float at tests")
    assert lists.startswith("1 × tolist at tests")
    strict.reads.clear()
    assert strict.reads_summary() == []


def test_an_asynchronous_copy_is_poison_until_it_is_waited_for(strict: StrictBackend) -> None:
    x = strict.asarray(np.array([1.0, 2.0]))
    out = np.zeros(2)
    x.get(out=out, blocking=False)
    x += 10.0  # later on the queue than the copy
    assert np.isnan(out).all()
    strict.synchronize()
    assert out.tolist() == [1, 2]
    with pytest.raises(ValueError, match="out is"):
        x.get(out=np.zeros(3))


def test_memory_that_was_not_written_is_poison(strict: StrictBackend) -> None:
    assert np.isnan(strict.to_host(strict.xp.empty((2, 2), "f4"))).all()
    assert np.isnan(strict.to_host(strict.xp.empty_like(strict.xp.zeros(3)))).all()
    assert strict.to_host(strict.xp.empty(2, bool)).tolist() == [True, True]


REFUSED: dict[str, tuple[type[Exception], str, Callable[[Any, Any], Any]]] = {
    "conversion": (TypeError, "implicitly", lambda xp, x: np.asarray(x)),
    "NumPy's function": (TypeError, "ufunc", lambda xp, x: np.exp(x)),
    "NumPy's reduction": (TypeError, "implicitly|ufunc", lambda xp, x: np.add.reduce(x)),
    "a NumPy operand": (TypeError, "Unsupported type .*ndarray", lambda xp, x: x + np.ones(3)),
    "a NumPy operand first": (TypeError, "Unsupported type .*ndarray", lambda xp, x: np.ones(3) + x),
    "a NumPy argument": (TypeError, "Unsupported type .*ndarray", lambda xp, x: xp.add(x, np.ones(3))),
    "a NumPy argument in a list": (TypeError, "Unsupported type", lambda xp, x: xp.concatenate([x, np.ones(3)])),
    "a NumPy argument by keyword": (TypeError, "Unsupported type", lambda xp, x: xp.add(x, x, out=np.ones(3))),
    "a NumPy index": (TypeError, "Unsupported type", lambda xp, x: x[np.array([0])]),
    "assigning a NumPy array": (TypeError, "Unsupported type", lambda xp, x: x.__setitem__(..., np.ones(3))),
    "a function": (TypeError, "Unsupported type", lambda xp, x: xp.apply_along_axis(lambda v: v, 0, x)),
    "an index": (TypeError, "integer", lambda xp, x: range(3)[x.astype(int)[0]]),
    "a length": (TypeError, "slice indices", lambda xp, x: x[: x.astype(int)[0]]),
    "a name": (AttributeError, "'cupy' has no attribute 'insert'", lambda xp, x: xp.insert),
    "a name of linalg": (AttributeError, "'cupy.linalg' has no attribute", lambda xp, x: xp.linalg.multi_dot),
    "a private name": (AttributeError, "no attribute", lambda xp, x: xp._core),
    "a method": (AttributeError, "no attribute 'resize'", lambda xp, x: x.resize(2)),
    "where=": (TypeError, "where", lambda xp, x: xp.sum(x, where=x > 0)),
    "where= of a ufunc": (TypeError, "Wrong arguments", lambda xp, x: xp.add(x, x, where=x > 0)),
    "initial=": (TypeError, "initial", lambda xp, x: x.max(initial=0)),
    "mode= of take": (TypeError, "mode", lambda xp, x: xp.take(x, x.astype(int), mode="clip")),
    "maximum.reduce": (NotImplementedError, "maximum.reduce", lambda xp, x: xp.maximum.reduce(x)),
    "multiply.at": (NotImplementedError, "multiply.at", lambda xp, x: xp.multiply.at(x, x.astype(int), x)),
    "hash": (TypeError, "unhashable", lambda xp, x: hash(x)),
    "an unknown operand": (TypeError, "unsupported operand", lambda xp, x: x + "1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_device_does_not_do_is_refused(strict: StrictBackend, name: str) -> None:
    kind, message, act = REFUSED[name]
    x = strict.asarray(np.array([1, 2, 3], "f4"))
    with pytest.raises(kind, match=message):
        act(strict.xp, x)


A = np.array([[4.0, 1.0, -2.0], [1.0, 3.0, 0.5], [-2.0, 0.5, 5.0]])
COMPUTED: dict[str, Callable[[Any, Any], Any]] = {
    "arithmetic": lambda xp, a: (2 * a + a / 3 - a % 2) ** 2 // 1.5 - (-a) @ a,
    "reflected": lambda xp, a: (1 - a, 2**a, 6 / (a + 9), np.float32(2) * a, 7 % (a + 9)),
    "comparing": lambda xp, a: (a > 1, a < 1, a == a.T, a != 1, (a >= 0) & (a <= 3) | ~(a < 1)),
    "divmod": lambda xp, a: divmod(a, 2),
    "methods": lambda xp, a: (a.sum(axis=1, keepdims=True), a.T.reshape(-1), a.astype("f2"), a.argmax(), abs(a).max()),
    "reductions": lambda xp, a: (xp.sum(a), xp.any(a > 4, axis=0), xp.logaddexp.outer(a[0], a[1]), xp.add.reduce(a)),
    "concatenate": lambda xp, a: xp.concatenate([a, xp.zeros((1, 3))], axis=0),
    "stack of numbers": lambda xp, a: xp.stack([a[0, 0], a.sum(), xp.asarray(3.0)]),
    "split": lambda xp, a: xp.split(a, 3, axis=1),
    "where": lambda xp, a: xp.where(a > 0, a, xp.float64(-1)),
    "fancy": lambda xp, a: a[xp.asarray([2, 0]), xp.arange(2)],
    "fancy with None": lambda xp, a: a[xp.asarray([[2], [0]]), None, ..., 1:],
    "take along": lambda xp, a: xp.take_along_axis(a, xp.argsort(a, axis=1), 1),
    "sort": lambda xp, a: xp.sort(a, axis=0),
    "einsum": lambda xp, a: xp.einsum("ij,jk->ki", a, a),
    "linalg": lambda xp, a: (xp.linalg.cholesky(a), xp.linalg.solve(a, a[0]), xp.linalg.eigh(a)[0]),
    "as_strided": lambda xp, a: xp.lib.stride_tricks.as_strided(a, (2, 2), (8, 24)),
    "dtypes": lambda xp, a: (a.astype(xp.int32), xp.full((2,), xp.nan, xp.float32), xp.arange(3, dtype="i8")),
    "overflow": lambda xp, a: (a * 1e308 * 1e10, xp.sqrt(-a), a / 0, (a * 1e300).astype("f4")),
    "modf": lambda xp, a: xp.modf(a),
    "tuples": lambda xp, a: xp.meshgrid(a[0], a[1]),
    "count": lambda xp, a: (xp.count_nonzero(a > 1), xp.array_equal(a, a)),
    "rows": lambda xp, a: [row * 2 for row in a],
    "real": lambda xp, a: (a.real, a.mT, a.ravel(), a.cumsum(axis=0), xp.clip(a, 0, 1)),
}


def to_host(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return [to_host(i) for i in x]
    return x.get() if hasattr(x, "get") else np.asarray(x)


def same_bits(a: Any, b: Any) -> None:
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same_bits(x, y)
    else:
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("name", COMPUTED)
def test_a_strict_array_computes_as_numpy_does(strict: StrictBackend, name: str) -> None:
    with np.errstate(all="ignore"):
        expected = to_host(COMPUTED[name](np, A))
    with strict.forbid_reads():
        given = COMPUTED[name](strict.xp, strict.asarray(A))
    same_bits(to_host(given), expected)


def test_a_cholesky_that_fails_is_told_by_its_pivot_alone(strict: StrictBackend) -> None:
    given = np.array([[[4.0, 9.0], [2.0, 5.0]], [[4.0, 9.0], [2.0, -3.0]], [[NAN, 0.0], [0.0, 1.0]]])
    good, negative, nan = strict.to_host(strict.xp.linalg.cholesky(strict.asarray(given)))
    assert good.tolist() == [[2, 0], [1, 2]]
    assert negative.tolist() == [[2, 0], [1, -4]]
    assert np.isnan(nan[0, 0])
    with pytest.raises(np.linalg.LinAlgError):
        strict.xp.linalg.inv(strict.asarray(np.zeros((2, 2))))


def test_results_are_written_into_their_place(strict: StrictBackend) -> None:
    xp, x = strict.xp, strict.asarray(np.array([1.0, 2.0, 3.0]))
    out, alias = xp.zeros(3), x
    assert xp.multiply(x, 2, out=out) is out
    assert xp.add(x, 2, out=(out,)) is out
    assert xp.cumsum(x, out=out) is out
    x += 1
    x *= out
    assert alias is x
    xp.add.at(x, xp.asarray([0, 0, 2]), 1.0)
    x[1:2] = xp.asarray(7.0)
    x[xp.asarray([2])] = 0
    view = x[0]
    x -= 1
    assert view.tolist() == 3.0
    assert x.tolist() == [3, 6, -1]
    assert out.tolist() == [1, 3, 6]


def test_reflection_is_on_the_device(strict: StrictBackend) -> None:
    x = strict.xp.arange(3)
    assert (x.shape, x.ndim, x.size, x.dtype, len(x), x.nbytes) == ((3,), 1, 3, np.int64, 3, 24)
    assert (strict.xp.ndim(x), strict.xp.shape(x), strict.xp.result_type(x, np.float32)) == (1, (3,), np.float64)
    assert isinstance(x.sum(), strict.xp.ndarray)
    assert isinstance(x[0], strict.xp.ndarray)
    assert strict.reads == []


def test_a_copy_has_its_own_memory(strict: StrictBackend) -> None:
    x = strict.xp.arange(3)
    copies = [copy.copy(x), copy.deepcopy(x), x.copy()]
    x[...] = 0
    x.set(np.array([7, 8, 9]))
    assert [c.tolist() for c in copies] == [[0, 1, 2]] * 3
    assert x.tolist() == [7, 8, 9]
    with pytest.raises(ValueError, match="does not replace"):
        x.set(np.zeros(2))


# Opening.


def test_devices_have_names() -> None:
    assert [open_backend(d).name for d in ("cpu", "strict")] == ["numpy", "strict"]
    with pytest.raises(ValueError, match="not a device: 'tpu'"):
        open_backend("tpu")


def refusal_of_cuda() -> SxiError:
    with pytest.raises(SxiError) as caught:
        open_backend("cuda")
    return caught.value


def test_without_cupy_the_error_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    error = refusal_of_cuda()
    assert error.code == "E-RUN-050"
    assert "sxi[cuda12]" in error.help
    assert "sxi[cuda13]" in error.help
    assert open_backend("auto").name == "numpy"


def test_auto_does_not_import_cupy_where_it_is_not_installed() -> None:
    # A folder before all others whose cupy gives itself away, and a finder that says there is none.
    program = (
        "import sys, importlib.util as u\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'cupy': self.asked = getattr(self, 'asked', 0) + 1; raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from sxi.backends import open_backend\n"
        "import sxi.backends.cupy as c; c.find_spec = lambda name: None\n"
        "print(open_backend('auto').name, hasattr(sys.meta_path[0], 'asked'))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "numpy False\n"


def test_the_protocol_alone_imports_no_array_module() -> None:
    program = "import sys, sxi.backends; print([m for m in ('numpy', 'cupy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


class NoDevice(RuntimeError):
    pass


class NoCompiler(Exception):
    pass


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise error

    return fail


class StandIn:
    """A `cupy` made of the strict backend: what the CUDA backend asks of the package, on this machine."""

    def __init__(self) -> None:
        self.strict = StrictBackend()
        self.log: list[str] = []
        self.module = ModuleType("cupy")
        self.module.__spec__ = ModuleSpec("cupy", None)
        self.module.__getattr__ = lambda name: getattr(self.strict.xp, name)  # type: ignore[method-assign]  # PEP 562
        self.module.ElementwiseKernel = lambda *args: lambda x: self.log.append("probe")  # type: ignore[attr-defined]
        self.module.cuda = SimpleNamespace(  # type: ignore[attr-defined]  # a module's names are free
            runtime=SimpleNamespace(getDeviceCount=lambda: 1, CUDARuntimeError=NoDevice),
            nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
            compiler=SimpleNamespace(CompileException=NoCompiler),
            Stream=self._stream,
            Event=self._event,
        )

    def _stream(self, non_blocking: bool) -> Any:
        self.log.append(f"stream non_blocking={non_blocking}")
        return SimpleNamespace(use=lambda: self.log.append("use"), synchronize=self.strict.synchronize)

    def _event(self, disable_timing: bool) -> Any:
        def synchronize() -> None:
            self.log.append("wait")
            self.strict.synchronize()

        return SimpleNamespace(record=lambda stream: self.log.append("record"), synchronize=synchronize)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn()
    monkeypatch.setitem(sys.modules, "cupy", made.module)
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(empty_pinned=np.empty))
    monkeypatch.setattr("sxi.backends._DRIVERS", ("/",))
    return made


def test_auto_does_not_import_cupy_where_there_is_no_driver(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sxi.backends._DRIVERS", ("/no/such/driver",))
    assert open_backend("auto").name == "numpy"
    assert stand_in.log == []


def test_the_cuda_backend_reads_once_by_an_event(stand_in: StandIn) -> None:
    backend = open_backend("auto")
    assert backend.name == "cupy"
    assert stand_in.log == ["probe", "stream non_blocking=True", "use"]
    counters = backend.counters(2)
    x = backend.asarray(np.array([NAN, 1e300, 2]))
    backend.tally(counters, [0, 1], [backend.count_nonfinite(x), backend.count_true(x > 1)])
    assert stand_in.strict.reads == []
    stand_in.log.clear()
    assert backend.read(counters).tolist() == [2, 2]
    assert stand_in.log == ["record", "wait"]
    assert [r.kind for r in stand_in.strict.reads] == ["get-async"]
    backend.synchronize()


FAILURES: dict[str, tuple[str, str, Callable[[ModuleType], None]]] = {
    "a driver that fails": (
        "E-RUN-052",
        "driver is insufficient",
        lambda m: setattr(m.cuda.runtime, "getDeviceCount", raising(NoDevice("driver is insufficient\nat line 3"))),
    ),
    "no device": ("E-RUN-052", "counts none", lambda m: setattr(m.cuda.runtime, "getDeviceCount", lambda: 0)),
    "a device without memory": ("E-RUN-052", "full", lambda m: setattr(m, "zeros", raising(MemoryError("full")))),
    "no compiler": ("E-RUN-053", "nvrtc", lambda m: setattr(m.cuda.nvrtc, "getVersion", raising(OSError("nvrtc")))),
    "a compiler that fails": (
        "E-RUN-053",
        "NoCompiler",
        lambda m: setattr(m, "ElementwiseKernel", raising(NoCompiler())),
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_is_missing_for_cuda_is_told_apart(stand_in: StandIn, name: str) -> None:
    code, reason, spoil = FAILURES[name]
    spoil(stand_in.module)
    error = refusal_of_cuda()
    assert error.code == code
    assert reason in error.message
    assert "\n" not in error.message
    assert "--device cpu" in error.help
    assert open_backend("auto").name == "numpy"


def test_a_cupy_that_does_not_import_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("raise ImportError('libcudart is missing')\n")
    for name in [m for m in sys.modules if m == "cupy" or m.startswith("cupy.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    error = refusal_of_cuda()
    assert (error.code, error.message.rpartition(": ")[2]) == ("E-RUN-051", "libcudart is missing")


def test_cupy_itself_without_a_device() -> None:
    cupy = require("cupy")
    if cupy.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert refusal_of_cuda().code == "E-RUN-052"
    assert open_backend("auto").name == "numpy"


def test_the_tables_of_what_cupy_lacks_name_what_numpy_has() -> None:
    for module, names in lacking.NAMES.items():
        there = sys.modules[module]
        assert {name for name in names if not hasattr(there, name)} <= {"unstack", "matvec", "vecmat", "vecdot"}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps memory as it likes")
def test_memory_that_was_freed_is_used_again() -> None:
    open_backend("cpu")

    def step() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [np.ones(size) for size in (10_000, 200_000, 5_000_000) for _ in range(3)]
        del arrays
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    first, *_, last = [step() for _ in range(4)]
    # 125 MB are 30,000 pages; the first step may have to ask for them
    assert last < 100, (first, last)


def bits_of(x: Any) -> tuple[Any, ...]:
    """The type, the shape and the bits of an array, a NaN being any NaN."""
    x = np.asarray(x)
    number = x.view(f"u{x.dtype.itemsize}") if x.size else x
    return str(x.dtype), x.shape, np.where(np.isnan(x), 0, number).tolist(), np.isnan(x).tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 11, 15, 16, 17, 24, 31, 32, 33, 130])
def test_a_sum_along_a_short_axis_has_the_bits_of_the_primitive(dtype: str, length: int) -> None:
    take = open_backend("cpu").function(PRIMITIVES["sum"])
    plain = PRIMITIVES["sum"].forward
    assert plain is not None
    rng = np.random.default_rng(length)
    rows = 3000 // length
    for shape, axis in (
        ((rows, length), 1),
        ((rows, length), 0),
        ((40, rows // 4 + 2, length), 1),
        ((5, length, 300), 1),
    ):
        x = (rng.normal(size=shape) * 10.0 ** rng.integers(-30, 30, shape)).astype(dtype)
        special = rng.choice(np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42], dtype), shape)
        for given in (x, np.where(rng.random(shape) < 0.1, special, x), np.full(shape, -0.0, dtype), special):
            for view in (given, given[::-1], np.asfortranarray(given)):
                for keep in (False, True):
                    for at in (axis, axis - given.ndim, (axis,)):
                        with np.errstate(all="ignore"):
                            found, wanted = (f(np, view, axis=at, keep=keep) for f in (take, plain))
                        assert bits_of(found) == bits_of(wanted), (shape, at)
