"""Order along an axis: running sums, sorting, the largest elements."""

from __future__ import annotations

from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives.declare import REAL, Array, Domain, case, composite, primitive
from sxi.primitives.elementwise import neg, sub
from sxi.primitives.join import slice_
from sxi.primitives.rules import axis_of, numeric
from sxi.primitives.shape import flip

_CASES = (case((4,), axis=-1), case((3, 2), axis=0), case((2, 3, 2), axis=1), case((0,), axis=0), case((2, 0), axis=-1))


def _running(x: ArrayType, *, axis: int) -> ArrayType:
    axis_of(axis, x.ndim)
    return x.with_dtype("i32") if x.dtype == "bool" else x


def _cumsum_back(g: Any, out: Any, x: Any, *, axis: int) -> Any:
    return flip(cumsum(flip(g, axis=axis), axis=axis), axis=axis)


@primitive(
    "cumsum", "x :axis int=-1", promote="-", type=_running, vjp=(_cumsum_back,), sample=(REAL,), cases=_CASES
)  # fmt: skip
def cumsum(xp: Any, x: Array, *, axis: int) -> Array:
    """The sum of each element and all before it along an axis.  Bools are counted as i32, and i32 wraps around.

    x:      f32[*n]
    axis:   an axis
    gives:  f32[*n]

    (cumsum (array [1.0 2.0 3.0])) ; => f32[3] [1.0 3.0 6.0]
    """
    if x.dtype == xp.float16:
        return xp.cumsum(x, axis=axis, dtype=xp.float32).astype(xp.float16)
    return xp.cumsum(x, axis=axis, dtype=xp.int32 if x.dtype == xp.bool_ else x.dtype)


# Sorting.  It is stable on every array module; a NaN is the largest.


def _sorted(x: ArrayType, *, axis: int) -> ArrayType:
    axis_of(axis, x.ndim)
    return x


def _sorted_places(x: ArrayType, *, axis: int) -> ArrayType:
    axis_of(axis, x.ndim)
    return x.with_dtype("i32")


@primitive("argsort", "x :axis int=-1", promote="-", type=_sorted_places, vjp=None, sample=(REAL,), cases=_CASES)
def argsort(xp: Any, x: Array, *, axis: int) -> Array:
    """The places of the elements in rising order along an axis, of equal ones in theirs; a NaN is the largest.

    x:      f32[*n]
    axis:   an axis
    gives:  i32[*n]

    (argsort (array [3.0 1.0 2.0])) ; => i32[3] [1 2 0]
    """
    return xp.argsort(x, axis=axis, kind="stable").astype("int32")


def _reordered(x: ArrayType, places: ArrayType, *, axis: int) -> ArrayType:
    axis_of(axis, x.ndim)
    if places.shape != x.shape:
        raise Refusal(codes.TYPES_DIFFER, 1, left=x, right=places)
    return x


def _reorder_back(g: Any, out: Any, x: Any, places: Any, *, axis: int) -> Any:
    # The places are a permutation, whose inverse is its argsort.
    return reorder(g, argsort(places, axis=axis), axis=axis)


@primitive(
    "reorder", "x places axis:int", promote="--", type=_reordered, vjp=(_reorder_back, None),
    sample=(REAL, Domain("i32", 0, 1)), cases=(case((1,), (1,), axis=0), case((0, 3), (0, 3), axis=0)),
    internal=True, moves=True,
)  # fmt: skip
def reorder(xp: Any, x: Array, places: Array, *, axis: int) -> Array:
    """`x` in another order along an axis.

    x:       f32[*n]
    places:  i32[*n], along the axis a permutation
    gives:   f32[*n]
    """
    return xp.take_along_axis(x, places, axis=axis)


def _sort_back(g: Any, out: Any, x: Any, *, axis: int) -> Any:
    return reorder(g, argsort(argsort(x, axis=axis), axis=axis), axis=axis)


@primitive(
    "sort", "x :axis int=-1", promote="-", type=_sorted, vjp=(_sort_back,), sample=(REAL,), cases=_CASES, moves=True
)
def sort(xp: Any, x: Array, *, axis: int) -> Array:
    """The elements in rising order along an axis, a NaN last.  Each keeps its gradient; of equal ones, in their order.

    x:      f32[*n]
    axis:   an axis
    gives:  f32[*n]

    (sort (array [3.0 1.0 2.0])) ; => f32[3] [1.0 2.0 3.0]
    """
    return xp.sort(x, axis=axis, kind="stable")


@composite(
    "top-k", "x k:int", promote="-", sample=(REAL,),
    cases=(case((4,), k=2), case((3, 4), k=4), case((2, 3), k=0), case((0,), k=0)),
)  # fmt: skip
def top_k(x: Any, *, k: int) -> list[Any]:
    """The k largest elements along the last axis and their places, in falling order; of equal ones the first first.

    A NaN counts as smaller than every number here: it comes last.

    x:      f32[*n m]
    k:      at most m
    gives:  a list of the values, f32[*n k], and the places, i32[*n k]

    (nth (top-k (array [1.0 3.0 2.0]) 2) 0) ; => f32[2] [3.0 2.0]
    (nth (top-k (array [1.0 3.0 2.0]) 2) 1) ; => i32[2] [1 2]
    """
    numeric(x.type)
    axis = axis_of(-1, x.ndim)
    if not 0 <= k <= x.shape[axis]:
        raise Refusal(codes.OUT_OF_BOUNDS, "k", what="the number of elements", given=k, low=0, high=x.shape[axis])
    # The least integer has no negative; -1 less it is the largest.
    places = argsort(neg(x) if x.type.is_float else sub(-1, x), axis=axis)
    both = (reorder(x, places, axis=axis), places)
    return [slice_(v, axis=axis, from_=0, to=k) for v in both]
