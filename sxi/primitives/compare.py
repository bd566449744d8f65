"""Comparisons, masks, and what chooses or converts elements without computing on them."""

from __future__ import annotations

import operator
from typing import Any

from sxi import codes
from sxi.arraytype import CARRIERS, ArrayType
from sxi.codes import Refusal
from sxi.primitives import host
from sxi.primitives.declare import INTEGER, MASK, REAL, Array, case, primitive
from sxi.primitives.rules import broadcast_shape, comparison, numeric


def is_real(x: Array) -> bool:
    """Whether the array `x` holds reals."""
    return bool(x.dtype.kind == "f")


def masks(*types: ArrayType, **static: Any) -> ArrayType:
    """The type rule of a mask computed from masks."""
    for i, t in enumerate(types):
        if t.dtype != "bool":
            raise Refusal(codes.NOT_BOOL, i, type=t)
    return ArrayType("bool", broadcast_shape(*types))


def _test(x: ArrayType) -> ArrayType:
    numeric(x)
    return x.with_dtype("bool")


# Comparisons.  Each is false where an operand is NaN, but for `/=`, which is true there.


@primitive(
    "<", "a b", promote="s", type=comparison, vjp=None, sample=(REAL, REAL), elementwise=True,
    host=operator.lt, cuda="({0} < {1})",
)  # fmt: skip
def lt(xp: Any, a: Array, b: Array) -> Array:
    """True where `a` is below `b`; false where either is NaN.

    a:      f32[*n]
    b:      f32[*n]
    gives:  bool[*n]

    (< 1.0 2.0) ; => true
    """
    return a < b


@primitive(
    "<=", "a b", promote="s", type=comparison, vjp=None, sample=(REAL, REAL), elementwise=True,
    host=operator.le, cuda="({0} <= {1})",
)  # fmt: skip
def le(xp: Any, a: Array, b: Array) -> Array:
    """True where `a` is at most `b`; false where either is NaN.

    a:      f32[*n]
    b:      f32[*n]
    gives:  bool[*n]

    (<= 2.0 2.0) ; => true
    """
    return a <= b


@primitive(
    ">", "a b", promote="s", type=comparison, vjp=None, sample=(REAL, REAL), elementwise=True,
    host=operator.gt, cuda="({0} > {1})",
)  # fmt: skip
def gt(xp: Any, a: Array, b: Array) -> Array:
    """True where `a` is above `b`; false where either is NaN.

    a:      f32[*n]
    b:      f32[*n]
    gives:  bool[*n]

    (> 2.0 1.0) ; => true
    """
    return a > b


@primitive(
    ">=", "a b", promote="s", type=comparison, vjp=None, sample=(REAL, REAL), elementwise=True,
    host=operator.ge, cuda="({0} >= {1})",
)  # fmt: skip
def ge(xp: Any, a: Array, b: Array) -> Array:
    """True where `a` is at least `b`; false where either is NaN.

    a:      f32[*n]
    b:      f32[*n]
    gives:  bool[*n]

    (>= nan 1.0) ; => false
    """
    return a >= b


@primitive(
    "=", "a b", promote="s", type=comparison, vjp=None, sample=(INTEGER, INTEGER), elementwise=True,
    host=host.equal, cuda="({0} == {1})",
)  # fmt: skip
def eq(xp: Any, a: Array, b: Array) -> Array:
    """True where `a` equals `b`; NaN equals nothing, and 0.0 equals -0.0.

    a:      f32[*n]
    b:      f32[*n]
    gives:  bool[*n]

    (= (array [1 2 3]) 2) ; => bool[3] [false true false]
    """
    return a == b


@primitive(
    "/=", "a b", promote="s", type=comparison, vjp=None, sample=(INTEGER, INTEGER), elementwise=True,
    host=host.different, cuda="({0} != {1})",
)  # fmt: skip
def ne(xp: Any, a: Array, b: Array) -> Array:
    """True where `a` differs from `b`; NaN differs from everything, itself included.

    a:      f32[*n]
    b:      f32[*n]
    gives:  bool[*n]

    (/= nan nan) ; => true
    """
    return a != b


@primitive(
    "finite?", "x", promote="-", type=_test, vjp=None, sample=(REAL,), elementwise=True, cuda="isfinite({0})"
)  # fmt: skip
def is_finite(xp: Any, x: Array) -> Array:
    """True where the element is neither NaN nor infinite in its own type; always for integers.

    x:      f32[*n]
    gives:  bool[*n]

    (finite? (/ 1.0 0.0)) ; => false
    """
    return xp.isfinite(x) if is_real(x) else xp.full(x.shape, True)


@primitive("nan?", "x", promote="-", type=_test, vjp=None, sample=(REAL,), elementwise=True, cuda="({0} != {0})")
def is_nan(xp: Any, x: Array) -> Array:
    """True where the element is NaN; never for integers.

    x:      f32[*n]
    gives:  bool[*n]

    (nan? nan) ; => true
    """
    return xp.isnan(x) if is_real(x) else xp.full(x.shape, False)


@primitive("inf?", "x", promote="-", type=_test, vjp=None, sample=(REAL,), elementwise=True, cuda="isinf({0})")
def is_inf(xp: Any, x: Array) -> Array:
    """True where the element is infinite, of either sign; never for integers.

    x:      f32[*n]
    gives:  bool[*n]

    (inf? (log 0.0)) ; => true
    """
    return xp.isinf(x) if is_real(x) else xp.full(x.shape, False)


# Masks


@primitive(
    "logical-and", "a b", promote="-", type=masks, vjp=None, sample=(MASK, MASK), elementwise=True,
    host=lambda a, b: bool(a and b), cuda="({0} && {1})",
)  # fmt: skip
def logical_and(xp: Any, a: Array, b: Array) -> Array:
    """True where both masks are.

    a:      bool[*n]
    b:      bool[*n]
    gives:  bool[*n]

    (logical-and (> 2.0 1.0) (> 1.0 2.0)) ; => false
    """
    return xp.logical_and(a, b)


@primitive(
    "logical-or", "a b", promote="-", type=masks, vjp=None, sample=(MASK, MASK), elementwise=True,
    host=lambda a, b: bool(a or b), cuda="({0} || {1})",
)  # fmt: skip
def logical_or(xp: Any, a: Array, b: Array) -> Array:
    """True where at least one of the masks is.

    a:      bool[*n]
    b:      bool[*n]
    gives:  bool[*n]

    (logical-or (> 2.0 1.0) (> 1.0 2.0)) ; => true
    """
    return xp.logical_or(a, b)


@primitive(
    "logical-not", "a", promote="-", type=masks, vjp=None, sample=(MASK,), elementwise=True,
    host=lambda a: not a, cuda="(!{0})",
)  # fmt: skip
def logical_not(xp: Any, a: Array) -> Array:
    """True where the mask is not.

    a:      bool[*n]
    gives:  bool[*n]

    (logical-not (> 2.0 1.0)) ; => false
    """
    return xp.logical_not(a)


# Choosing and converting


def _chosen(mask: ArrayType, a: ArrayType, b: ArrayType) -> ArrayType:
    masks(mask)
    return ArrayType(a.dtype, broadcast_shape(mask, a, b))


def _to_first(g: Any, out: Any, mask: Any, a: Any, b: Any) -> Any:
    return where(mask, g, 0.0)


def _to_second(g: Any, out: Any, mask: Any, a: Any, b: Any) -> Any:
    return where(mask, 0.0, g)


@primitive(
    "where", "mask a b", promote="-ss", type=_chosen, elementwise=True, moves=True,
    vjp=(None, _to_first, _to_second),
    sample=(MASK, REAL, REAL), host=lambda mask, a, b: host.alike(a, b)[0 if mask else 1],
    cuda="({0} ? {1} : {2})",
)  # fmt: skip
def where(xp: Any, mask: Array, a: Array, b: Array) -> Array:
    """The element of `a` where the mask is true, that of `b` elsewhere.

    The gradient goes to the one that was chosen; the other takes 0.  That 0 is still multiplied by what
    the other was computed with: for `(where (> x 0.0) (log x) 0.0)` at 0 it is 0 times infinity, a NaN.
    So choose the logarithm's operand as well: `(where m (log (where m x 1.0)) 0.0)` has the gradient 0 there.

    mask:   bool[*n]
    a:      f32[*n]
    b:      f32[*n]
    gives:  f32[*n]

    (where (> 2.0 1.0) 5.0 6.0) ; => 5.0
    """
    return xp.where(mask, a, b)


def _same(x: ArrayType) -> ArrayType:
    return x


@primitive(
    "stop-gradient", "x", promote="-", type=_same, vjp=None, sample=(REAL,), elementwise=True, moves=True,
    host=lambda x: x, cuda="{0}",
)  # fmt: skip
def stop_gradient(xp: Any, x: Array) -> Array:
    """`x`, a constant to differentiation.

    x:      f32[*n]
    gives:  f32[*n]

    (stop-gradient 2.0) ; => 2.0
    """
    return x


def _cast_back(g: Any, out: Any, x: Any, dtype: str) -> Any:
    return cast(g, dtype=x.dtype)


def _cast_host(x: host.Number, dtype: str) -> host.Number:
    if dtype == "bool":
        return bool(x)
    if dtype in ("i32", "i64"):
        finite = not isinstance(x, float) or x - x == 0
        return int(x) if finite else 0
    return host.real(x)


@primitive(
    "cast", "x dtype:dtype", promote="-", type=lambda x, dtype: x.with_dtype(dtype), sample=(REAL,),
    vjp=(_cast_back,), host=_cast_host, elementwise=True,
    cases=tuple(case(shape, dtype=dtype) for shape in ((), (0,), (2, 3)) for dtype in CARRIERS),
)  # fmt: skip
def cast(xp: Any, x: Array, *, dtype: str) -> Array:
    """`x` in another type: reals are cut to integers towards zero, rounded to the nearest of a shorter type.

    A NaN, or a real that the integer type cannot hold, becomes some integer, not the same one on every
    machine.  Not zero, NaN included, becomes true.  Only a cast between types of reals has a gradient.

    A host number stays one, a whole number, a real or a bool, and in binary64: `(full [] 0.4 :dtype :f64)` makes
    an array of it.

    x:      f32[*n]
    dtype:  one of :f32 :f64 :f16 :bf16 :i32 :i64 :bool
    gives:  dtype[*n]

    (cast (array [1.5 -1.5]) :i32) ; => i32[2] [1 -1]
    (cast 2 :f32) ; => 2.0
    """
    return x.astype(CARRIERS[dtype])


# Of regions and guards


def _to_f32(x: ArrayType) -> ArrayType:
    if not x.is_float:
        raise Refusal(codes.NOT_FLOAT, 0, type=x)
    return x.with_dtype("f32")


def _round_back(g: Any, out: Any, x: Any) -> Any:
    return round_bf16(g)


@primitive(
    "round-bf16", "x", promote="-", type=_to_f32, vjp=(_round_back,), sample=(REAL,),
    elementwise=True, internal=True,
    cuda="__uint_as_float(({0} != {0}) ? ((__float_as_uint({0}) | 0x400000u) & 0xffff0000u) : "
    "((__float_as_uint({0}) + 0x7fffu + ((__float_as_uint({0}) >> 16) & 1u)) & 0xffff0000u))",
)  # fmt: skip
def round_bf16(xp: Any, x: Array) -> Array:
    """`x` rounded to the nearest bf16, the even one of two, in f32.

    A NaN stays a NaN, what is past bf16's range becomes infinite, and the gradient is rounded too.
    An f64 is first rounded to f32.

    x:      f32[*n]
    gives:  f32[*n]
    """
    # On the bits: half of the last kept place, less one where that place is even, then cut.
    x = x.astype("float32", copy=False)
    bits = x.view("uint32")
    up = bits + (((bits >> 16) & 1) + 0x7FFF)
    return (xp.where(xp.isnan(x), bits | 0x400000, up) & 0xFFFF0000).view("float32")
