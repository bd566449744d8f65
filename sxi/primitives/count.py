"""What a mask comes to, and the tests that guards are made of.

A count is taken in integers and rounded once to f32: an f32 that is counted up by ones stops at 2^24.
"""

from __future__ import annotations

import struct
from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives import host
from sxi.primitives.declare import MASK, REAL, Array, case, primitive
from sxi.primitives.reduce import CASES, EMPTY_CASES, Axes, reduce_over, reduced_shape
from sxi.primitives.rules import numeric


def _of_mask(dtype: str) -> Any:
    def rule(mask: ArrayType, *, axis: Axes, keep: bool) -> ArrayType:
        if mask.dtype != "bool":
            raise Refusal(codes.NOT_BOOL, 0, type=mask)
        return ArrayType(dtype, reduced_shape(mask.shape, axis, keep))

    return rule


@primitive(
    "any", "mask :axis axes=nil :keep bool=false", promote="-", type=_of_mask("bool"), vjp=None, sample=(MASK,),
    cases=CASES + EMPTY_CASES,
)  # fmt: skip
def any_(xp: Any, mask: Array, *, axis: Axes, keep: bool) -> Array:
    """Whether some element of the mask is true over axes, all by default; false of nothing.

    mask:   bool[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  bool[*m]

    (any (> (array [1.0 3.0]) 2.0)) ; => bool[] true
    """
    return reduce_over(xp, xp.any, mask, axis, keep)


@primitive(
    "all", "mask :axis axes=nil :keep bool=false", promote="-", type=_of_mask("bool"), vjp=None, sample=(MASK,),
    cases=CASES + EMPTY_CASES,
)  # fmt: skip
def all_(xp: Any, mask: Array, *, axis: Axes, keep: bool) -> Array:
    """Whether every element of the mask is true over axes, all by default; true of nothing.

    mask:   bool[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  bool[*m]

    (all (> (array [1.0 3.0]) 2.0)) ; => bool[] false
    """
    return reduce_over(xp, xp.all, mask, axis, keep)


@primitive(
    "count-where", "mask :axis axes=nil :keep bool=false", promote="-", type=_of_mask("f32"), vjp=None, sample=(MASK,),
    cases=CASES + EMPTY_CASES,
)  # fmt: skip
def count_where(xp: Any, mask: Array, *, axis: Axes, keep: bool) -> Array:
    """How many elements of the mask are true over axes, all by default: counted exactly, then rounded to f32.

    mask:   bool[*n]
    axis:   an axis or a list of axes
    keep:   whether a reduced axis stays, with length 1
    gives:  f32[*m]

    (count-where (> (array [1.0 3.0]) 2.0)) ; => f32[] 1.0
    """
    return reduce_over(xp, xp.sum, mask, axis, keep, dtype="int64").astype("float32")


# The tests of guards


def _to_count(x: ArrayType) -> ArrayType:
    numeric(x)
    return ArrayType("f32")


@primitive(
    "count-nonfinite", "x", promote="-", type=_to_count, vjp=None, sample=(REAL,),
    cases=(case(()), case((0,)), case((2, 3))), internal=True,
)  # fmt: skip
def count_nonfinite(xp: Any, x: Array) -> Array:
    """How many elements are NaN or infinite when taken to f32, counted exactly, then rounded to f32.

    An f64 that f32 cannot hold counts; an integer never does.

    x:      f32[*n]
    gives:  f32[]
    """
    if x.dtype.kind != "f":
        return xp.zeros((), dtype="float32")
    return xp.sum(xp.logical_not(xp.isfinite(x.astype("float32"))), dtype="int64").astype("float32")


def _violation(v: ArrayType, *, bound: float) -> ArrayType:
    numeric(v)
    return v.with_dtype("f32")


_SIGN = -(2**31)
_INFINITY = 0x7F800000


def _bits(bound: host.Number) -> int:
    """The bits of `bound` in f32, as a signed integer; a bound out of its range is infinite."""
    try:
        packed = struct.pack("<f", host.real(bound))
    except OverflowError:
        packed = struct.pack("<f", float("inf") if bound > 0 else float("-inf"))
    return int(struct.unpack("<i", packed)[0])


def _ordered_number(bits: int) -> int:
    """An integer that orders as the f32 of these bits does, and is 0 for both zeros."""
    return bits if bits >= 0 else _SIGN - bits


def _ordered(xp: Any, v: Array) -> tuple[Array, Array]:
    """`v` in f32 as integers of the same order, and where it is a NaN.

    An array module that takes subnormals for 0 compares them wrongly as reals; their bits it compares right.
    """
    bits = v.astype("float32").view("int32")
    magnitude = bits & 0x7FFFFFFF
    return xp.where(bits < 0, -magnitude, magnitude), magnitude > _INFINITY


_BOUNDS = (case((), bound=0.5), case((0,), bound=0), case((2, 3), bound=-1e300))


@primitive(
    "not-below", "v bound:number", promote="-", type=_violation, vjp=None, sample=(REAL,), cases=_BOUNDS, internal=True
)
def not_below(xp: Any, v: Array, *, bound: host.Number) -> Array:
    """1 where a value is not below a bound, a NaN included, else 0; both are rounded to f32 and compared there.

    v:      f32[*n]
    bound:  a number
    gives:  f32[*n]
    """
    value, nan = _ordered(xp, v)
    return xp.logical_or(nan, value >= _ordered_number(_bits(bound))).astype("float32")


@primitive(
    "not-above", "v bound:number", promote="-", type=_violation, vjp=None, sample=(REAL,), cases=_BOUNDS, internal=True
)
def not_above(xp: Any, v: Array, *, bound: host.Number) -> Array:
    """1 where a value is not above a bound, a NaN included, else 0; both are rounded to f32 and compared there.

    v:      f32[*n]
    bound:  a number
    gives:  f32[*n]
    """
    value, nan = _ordered(xp, v)
    return xp.logical_or(nan, value <= _ordered_number(_bits(bound))).astype("float32")
