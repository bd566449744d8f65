"""Reductions of numbers over axes: sums, extremes, moments.  `count.py` has those of masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives.compare import cast, eq, where
from sxi.primitives.declare import REAL, Array, Domain, case, composite, primitive
from sxi.primitives.elementwise import div, mul, square, sub
from sxi.primitives.rules import axes_of, axis_of, numeric
from sxi.primitives.shape import broadcast_to, reshape
from sxi.primitives.transcendental import exp, sqrt

Axes: TypeAlias = int | Sequence[int] | None

# Over all axes, one of several, two of three, one counted from the end; nothing to reduce; an empty result.
CASES = (
    case((), axis=None, keep=False),
    case((3,), axis=None, keep=True),
    case((2, 3), axis=None, keep=False),
    case((2, 3), axis=0, keep=False),
    case((2, 3, 4), axis=(0, -1), keep=False),
    case((2, 3, 4), axis=[1], keep=True),
    case((2, 3), axis=(), keep=False),
    case((0, 3), axis=1, keep=False),
)
EMPTY_CASES = (
    case((0,), axis=None, keep=False),
    case((2, 0), axis=1, keep=True),
    case((0, 3), axis=0, keep=False),
)
ONE_AXIS_CASES = (
    case((), axis=None, keep=False),
    case((3,), axis=None, keep=True),
    case((2, 3), axis=None, keep=False),
    case((2, 3), axis=0, keep=False),
    case((2, 3), axis=-1, keep=True),
    case((0, 3), axis=1, keep=False),
)


def reduced_shape(shape: tuple[int, ...], axis: Axes, keep: bool) -> tuple[int, ...]:
    """The shape that is left of `shape`, with 1 for each reduced axis where `keep`."""
    axes = axes_of(axis, len(shape))
    return tuple(1 if a in axes else n for a, n in enumerate(shape) if keep or a not in axes)


def reduce_over(xp: Any, function: Callable[..., Array], x: Array, axis: Axes, keep: bool, **more: Any) -> Array:
    """`function` of `x` over axes; over none, each element is reduced alone."""
    axes = axes_of(axis, x.ndim)
    if not axes:
        # Array modules do not agree on what an empty tuple of axes means.
        return function(x[..., None], axis=-1, **more)
    return function(x, axis=axes, keepdims=keep, **more)


def _kept(v: Any, x: Any, axis: Axes) -> Any:
    """A reduction's result, or its cotangent, with the reduced axes of `x` as axes of length 1."""
    return reshape(v, shape=reduced_shape(x.shape, axis, True))


def _spread(g: Any, x: Any, axis: Axes) -> Any:
    """A cotangent for each element of `x`."""
    return broadcast_to(_kept(g, x, axis), shape=x.shape)


def _number_of(shape: tuple[int, ...], axis: Axes) -> int:
    return math.prod(shape[a] for a in axes_of(axis, len(shape)))


# Sums.  An f16 sum is accumulated in f32 on every array module.


def _accumulator(x: Array) -> str:
    return {"float16": "float32", "bool": "int32"}.get(str(x.dtype), str(x.dtype))


def _summed(x: ArrayType, *, axis: Axes, keep: bool) -> ArrayType:
    return ArrayType("i32" if x.dtype == "bool" else x.dtype, reduced_shape(x.shape, axis, keep))


def _add_up(xp: Any, function: Callable[..., Array], x: Array, axis: Axes, keep: bool) -> Array:
    total = reduce_over(xp, function, x, axis, keep, dtype=_accumulator(x))
    return total.astype(x.dtype) if x.dtype == xp.float16 else total


@primitive(
    "sum", "x :axis axes=nil :keep bool=false", promote="-", type=_summed, sample=(REAL,), cases=CASES + EMPTY_CASES,
    vjp=(lambda g, out, x, axis, keep: _spread(g, x, axis),),
)  # fmt: skip
def sum_(xp: Any, x: Array, *, axis: Axes, keep: bool) -> Array:
    """The sum over axes, all by default; 0 of nothing.  Bools are counted as i32, and i32 wraps around.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (sum (array [1.0 2.0])) ; => f32[] 3.0
    (sum (array [[1 2] [3 4]]) :axis 0) ; => i32[2] [4 6]
    """
    return _add_up(xp, xp.sum, x, axis, keep)


def _prod_back(g: Any, out: Any, x: Any, *, axis: Axes, keep: bool) -> Any:
    # Each element's cotangent is the product of the others.  With one 0 among them it is that of the
    # others for the 0 itself, and 0 for these; with two it is 0 everywhere.
    zero = eq(x, 0.0)
    zeros = sum_(cast(zero, dtype=x.dtype), axis=axis, keep=True)
    filled = where(zero, 1.0, x)
    others = div(prod(filled, axis=axis, keep=True), filled)
    alone = where(eq(zeros, where(zero, 1.0, 0.0)), others, 0.0)
    return mul(_kept(g, x, axis), alone)


@primitive(
    "prod", "x :axis axes=nil :keep bool=false", promote="-", type=_summed, vjp=(_prod_back,),
    sample=(Domain("f32", 0.5, 2),), cases=CASES + EMPTY_CASES,
)  # fmt: skip
def prod(xp: Any, x: Array, *, axis: Axes, keep: bool) -> Array:
    """The product over axes, all by default; 1 of nothing.  Bools are multiplied as i32, and i32 wraps around.

    Its gradient is right where elements are 0; its second derivative is so only where none is.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (prod (array [2.0 3.0])) ; => f32[] 6.0
    """
    return _add_up(xp, xp.prod, x, axis, keep)


def _averaged(x: ArrayType, *, axis: Axes, keep: bool) -> ArrayType:
    return ArrayType(x.dtype if x.is_float else "f32", reduced_shape(x.shape, axis, keep))


@primitive(
    "mean", "x :axis axes=nil :keep bool=false", promote="f", type=_averaged, sample=(REAL,), cases=CASES + EMPTY_CASES,
    vjp=(lambda g, out, x, axis, keep: _spread(div(g, float(max(_number_of(x.shape, axis), 1))), x, axis),),
)  # fmt: skip
def mean(xp: Any, x: Array, *, axis: Axes, keep: bool) -> Array:
    """The mean over axes, all by default; NaN of nothing.  That of a mask is the share of trues, in f32.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (mean (array [1.0 2.0 6.0])) ; => f32[] 3.0
    """
    n = _number_of(x.shape, axis)
    if x.dtype == xp.bool_:
        return (reduce_over(xp, xp.sum, x, axis, keep, dtype="int64") / n).astype("float32")
    return (reduce_over(xp, xp.sum, x, axis, keep, dtype=_accumulator(x)) / n).astype(x.dtype)


# Extremes


def not_empty(x: ArrayType, axis: Axes, what: str) -> None:
    """Refuse a reduction that has no value for an empty array."""
    if _number_of(x.shape, axis) == 0:
        raise Refusal(codes.NOTHING_TO_REDUCE, 0, what=what)


def _chosen(what: str) -> Callable[..., ArrayType]:
    def rule(x: ArrayType, *, axis: Axes, keep: bool) -> ArrayType:
        numeric(x)
        shape = reduced_shape(x.shape, axis, keep)
        not_empty(x, axis, what)
        return x.with_shape(shape)

    return rule


def _extreme(xp: Any, function: Callable[..., Array], x: Array, axis: Axes, keep: bool) -> Array:
    if x.size == 0:
        return xp.zeros(reduced_shape(x.shape, axis, keep), dtype=x.dtype)
    return reduce_over(xp, function, x, axis, keep)


def _extreme_back(g: Any, out: Any, x: Any, *, axis: Axes, keep: bool) -> Any:
    chosen = eq(x, _kept(out, x, axis))
    ties = sum_(cast(chosen, dtype=g.dtype), axis=axis, keep=True)
    return where(chosen, div(_kept(g, x, axis), ties), 0.0)


@primitive(
    "max", "x :axis axes=nil :keep bool=false", promote="-", type=_chosen("maximum"), vjp=(_extreme_back,),
    sample=(REAL,), cases=CASES, moves=True,
)  # fmt: skip
def max_(xp: Any, x: Array, *, axis: Axes, keep: bool) -> Array:
    """The largest element over axes, all by default; NaN where one is.  Refused of nothing.

    Equal largest elements share the gradient equally; where the result is NaN it is 0.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (max (array [1.0 3.0 2.0])) ; => f32[] 3.0
    """
    return _extreme(xp, xp.max, x, axis, keep)


@primitive(
    "min", "x :axis axes=nil :keep bool=false", promote="-", type=_chosen("minimum"), vjp=(_extreme_back,),
    sample=(REAL,), cases=CASES, moves=True,
)  # fmt: skip
def min_(xp: Any, x: Array, *, axis: Axes, keep: bool) -> Array:
    """The smallest element over axes, all by default; NaN where one is.  Refused of nothing.

    Equal smallest elements share the gradient equally; where the result is NaN it is 0.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (min (array [1.0 3.0 2.0])) ; => f32[] 1.0
    """
    return _extreme(xp, xp.min, x, axis, keep)


def _place(x: ArrayType, *, axis: int | None, keep: bool) -> ArrayType:
    shape = reduced_shape(x.shape, axis, keep)
    not_empty(x, axis, "largest or smallest element")
    return ArrayType("i32", shape)


def _find(xp: Any, function: Callable[..., Array], x: Array, axis: int | None, keep: bool) -> Array:
    if x.size == 0:
        return xp.zeros(reduced_shape(x.shape, axis, keep), dtype="int32")
    return function(x, axis=None if axis is None else axis_of(axis, x.ndim), keepdims=keep).astype("int32")


@primitive(
    "argmax", "x :axis int=nil :keep bool=false", promote="-", type=_place, vjp=None, sample=(REAL,),
    cases=ONE_AXIS_CASES,
)  # fmt: skip
def argmax(xp: Any, x: Array, *, axis: int | None, keep: bool) -> Array:
    """Where the largest element along an axis stands, the first of equal ones; a NaN is the largest.

    x:      f32[*n]
    axis:   an axis; nil counts through the whole array, its last axis first
    keep:   whether the reduced axis stays, with length 1
    gives:  i32[*m]

    (argmax (array [1.0 3.0 2.0])) ; => i32[] 1
    """
    return _find(xp, xp.argmax, x, axis, keep)


@primitive(
    "argmin", "x :axis int=nil :keep bool=false", promote="-", type=_place, vjp=None, sample=(REAL,),
    cases=ONE_AXIS_CASES,
)  # fmt: skip
def argmin(xp: Any, x: Array, *, axis: int | None, keep: bool) -> Array:
    """Where the smallest element along an axis stands, the first of equal ones; a NaN is the smallest.

    x:      f32[*n]
    axis:   an axis; nil counts through the whole array, its last axis first
    keep:   whether the reduced axis stays, with length 1
    gives:  i32[*m]

    (argmin (array [3.0 1.0 2.0])) ; => i32[] 1
    """
    return _find(xp, xp.argmin, x, axis, keep)


# Moments


def _in_f32(x: Any, compute: Callable[[Any], Any]) -> Any:
    """`compute` of an f16 in f32: its squares would overflow past 255."""
    return cast(compute(cast(x, dtype="f32")), dtype="f16") if x.dtype == "f16" else compute(x)


def _root(v: Any) -> Any:
    # The root's own gradient at 0 is infinite, and times the 0 of a square it would be NaN.
    zero = eq(v, 0.0)
    return where(zero, 0.0, sqrt(where(zero, 1.0, v)))


def _spread_about_mean(x: Any, axis: Axes, keep: bool) -> Any:
    return mean(square(sub(x, mean(x, axis=axis, keep=True))), axis=axis, keep=keep)


@composite("var", "x :axis axes=nil :keep bool=false", promote="f", sample=(REAL,), cases=CASES + EMPTY_CASES)
def var(x: Any, *, axis: Axes, keep: bool) -> Any:
    """The variance over axes, all by default: the mean square of what an element differs from the mean by.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (var (array [1.0 3.0])) ; => f32[] 1.0
    """
    return _in_f32(x, lambda x: _spread_about_mean(x, axis, keep))


@composite("std", "x :axis axes=nil :keep bool=false", promote="f", sample=(REAL,), cases=CASES + EMPTY_CASES)
def std(x: Any, *, axis: Axes, keep: bool) -> Any:
    """The standard deviation over axes, all by default: the root of `var`.  Its gradient at 0 is 0.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (std (array [1.0 5.0])) ; => f32[] 2.0
    """
    return _in_f32(x, lambda x: _root(_spread_about_mean(x, axis, keep)))


@composite("norm", "x :axis axes=nil :keep bool=false", promote="f", sample=(REAL,), cases=CASES + EMPTY_CASES)
def norm(x: Any, *, axis: Axes, keep: bool) -> Any:
    """The Euclidean norm over axes, all by default: the root of the sum of squares, taken in the type of `x`.

    Its gradient at 0 is 0, one of its subgradients there.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (norm (array [3.0 4.0])) ; => f32[] 5.0
    """
    return _in_f32(x, lambda x: _root(sum_(square(x), axis=axis, keep=keep)))


def _real_reduction(x: ArrayType, *, axis: Axes, keep: bool) -> ArrayType:
    numeric(x)
    return x.with_shape(reduced_shape(x.shape, axis, keep))


def _logsumexp_back(g: Any, out: Any, x: Any, *, axis: Axes, keep: bool) -> Any:
    # Where all are -inf the difference would be NaN; each takes 0.
    kept = _kept(out, x, axis)
    return mul(_kept(g, x, axis), exp(sub(x, where(eq(kept, -math.inf), 0.0, kept))))


@primitive(
    "logsumexp", "x :axis axes=nil :keep bool=false", promote="f", type=_real_reduction, vjp=(_logsumexp_back,),
    sample=(REAL,), cases=CASES + EMPTY_CASES,
)  # fmt: skip
def logsumexp(xp: Any, x: Array, *, axis: Axes, keep: bool) -> Array:
    """log(sum(exp(x))) over axes, all by default, without overflow; -inf of nothing, and of -inf alone.

    x:      f32[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (logsumexp (array [1000.0 1000.0]) :axis 0) ; => f32[] 1000.6932
    """
    shape = reduced_shape(x.shape, axis, keep)
    if x.size == 0:
        return xp.full(shape, -math.inf, dtype=x.dtype)
    kept = reduced_shape(x.shape, axis, True)
    # What is subtracted need only be near the largest: 0 stands in for one that is not finite.
    top = xp.reshape(reduce_over(xp, xp.max, x, axis, False), kept)
    top = xp.where(xp.isfinite(top), top, 0.0).astype(x.dtype)
    total = reduce_over(xp, xp.sum, xp.exp(x - top), axis, False, dtype=_accumulator(x))
    return (xp.log(total) + xp.reshape(top, total.shape)).astype(x.dtype).reshape(shape)
