"""The elements of one array laid out anew, or repeated, and the adjoint of repeating, `sum-to`.

Imports no other group, so that the gradients of every other group may use these.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from sxi import codes
from sxi.arraytype import FLOATS, ArrayType, fits
from sxi.codes import Refusal
from sxi.primitives.declare import REAL, Array, Value, case, primitive
from sxi.primitives.rules import axes_of, axis_of, words

# The largest number of elements an array may be asked to have, so that a slip is told and not a crash.
MOST_ELEMENTS = 2**31
# The most axes an array may have: CuPy's limit, below NumPy's.
MOST_AXES = 25


def sized(shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` as a tuple.  Refused where a length is negative or no machine could hold the array."""
    lengths = tuple(shape)
    if len(lengths) > MOST_AXES:
        raise Refusal(codes.WRONG_NDIM, wanted=f"{MOST_AXES} or fewer", ndim=len(lengths))
    for length in lengths:
        if length < 0:
            raise Refusal(codes.OUT_OF_BOUNDS, what="a length", given=length, low=0, high=MOST_ELEMENTS)
    if (size := prod(lengths)) > MOST_ELEMENTS:
        raise Refusal(codes.OUT_OF_BOUNDS, what="the number of elements", given=size, low=0, high=MOST_ELEMENTS)
    return lengths


def can_hold(dtype: str, x: bool | int | float) -> bool:
    """Whether an array of `dtype` can hold the host number `x` itself; one of reals takes any, rounded."""
    whole = dtype in FLOATS or isinstance(x, int) or x.is_integer()
    return whole and fits(x, dtype) and (dtype != "bool" or x in (0, 1))


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of a value in a gradient, where an operand may be a host number."""
    return x.shape if isinstance(x, Value) else ()


def type_of(x: Any) -> ArrayType:
    """The type of a composite's operand, which may be a host number: a scalar."""
    return x.type if isinstance(x, Value) else ArrayType("f32")


# Reshaping


def _reshaped(x: ArrayType, shape: Sequence[int]) -> tuple[int, ...]:
    """`shape` with its -1 worked out."""
    free = [i for i, length in enumerate(shape) if length == -1]
    known = sized([length for length in shape if length != -1])
    lengths = list(shape)
    if len(free) == 1 and prod(known) > 0:
        lengths[free[0]] = x.size // prod(known)
    if len(free) > 1 or -1 in lengths or prod(lengths) != x.size:
        raise Refusal(codes.WRONG_SIZE, 0, given=x.size, wanted=words(shape))
    return tuple(lengths)


def _reshape_type(x: ArrayType, *, shape: Sequence[int]) -> ArrayType:
    return x.with_shape(_reshaped(x, shape))


def _reshape_back(g: Any, out: Any, x: Any, *, shape: Sequence[int]) -> Any:
    return reshape(g, shape=shape_of(x))


@primitive(
    "reshape", "x shape:shape", type=_reshape_type, promote="-", moves=True,
    vjp=(_reshape_back,),
    sample=(REAL,),
    cases=(
        case((6,), shape=(2, 3)),
        case((2, 3), shape=(-1,)),
        case((), shape=(1, 1)),
        case((0, 3), shape=(0,)),
    ),
)  # fmt: skip
def reshape(xp: Any, x: Array, *, shape: Sequence[int]) -> Array:
    """The elements of an array in the order of its last axis first, in another shape.

    x:      t[*n]
    shape:  the new lengths; one of them may be -1, which takes what is left
    gives:  t[*shape]

    (reshape (arange 6) [2 -1]) ; => i32[2 3] [[0 1 2] [3 4 5]]
    """
    return xp.reshape(x, shape)


def _expand_type(x: ArrayType, *, axis: int) -> ArrayType:
    at = axis_of(axis, x.ndim + 1)
    return x.with_shape(sized((*x.shape[:at], 1, *x.shape[at:])))


def _expand_back(g: Any, out: Any, x: Any, *, axis: int) -> Any:
    return squeeze(g, axis=axis)


@primitive(
    "expand", "x axis:int", type=_expand_type, promote="-", moves=True,
    vjp=(_expand_back,),
    sample=(REAL,), cases=(case((3,), axis=0), case((2, 3), axis=-1), case((), axis=0), case((0,), axis=1)),
)  # fmt: skip
def expand(xp: Any, x: Array, *, axis: int) -> Array:
    """An array with a new axis of length 1.

    x:      t[*n]
    axis:   where the new axis stands in the result; -1 is last
    gives:  t[*n] with a 1 at `axis`

    (shape (expand (zeros [2 3]) 1)) ; => [2 1 3]
    """
    return xp.expand_dims(x, axis)


def _squeeze_type(x: ArrayType, *, axis: int) -> ArrayType:
    at = axis_of(axis, x.ndim)
    if x.shape[at] != 1:
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what=f"the length of axis {axis},", given=x.shape[at], low=1, high=1)
    return x.with_shape((*x.shape[:at], *x.shape[at + 1 :]))


@primitive(
    "squeeze", "x axis:int", type=_squeeze_type, promote="-", moves=True,
    vjp=(lambda g, out, x, *, axis: expand(g, axis=axis),),
    sample=(REAL,), cases=(case((1, 3), axis=0), case((2, 1), axis=-1), case((1,), axis=0), case((0, 1), axis=1)),
)  # fmt: skip
def squeeze(xp: Any, x: Array, *, axis: int) -> Array:
    """An array without one of its axes, whose length must be 1.

    x:      t[*n]
    axis:   the axis of length 1 to drop
    gives:  t[*n] without it

    (shape (squeeze (zeros [2 1 3]) 1)) ; => [2 3]
    """
    return xp.squeeze(x, axis)


def _order(x: ArrayType, axes: int | Sequence[int] | None) -> tuple[int, ...]:
    """The axes of the result of a transposition, as axes of `x`."""
    if axes is None:
        if x.ndim < 2:
            raise Refusal(codes.WRONG_NDIM, 0, wanted="2 or more", ndim=x.ndim)
        return (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    order = axes_of(axes, x.ndim, "axes")
    if len(order) != x.ndim:
        raise Refusal(codes.WRONG_NDIM, 0, wanted=len(order), ndim=x.ndim)
    return order


def _transpose_type(x: ArrayType, *, axes: int | Sequence[int] | None) -> ArrayType:
    return x.with_shape(tuple(x.shape[a] for a in _order(x, axes)))


def _transpose_back(g: Any, out: Any, x: Any, *, axes: int | Sequence[int] | None) -> Any:
    order = _order(x.type, axes)
    return transpose(g, axes=tuple(order.index(i) for i in range(len(order))))


@primitive(
    "transpose", "x :axes axes=nil", type=_transpose_type, promote="-", moves=True, vjp=(_transpose_back,),
    sample=(REAL,),
    cases=(
        case((2, 3), axes=None),
        case((2, 3, 4), axes=(2, 0, 1)),
        case((2, 1, 3), axes=(-1, 1, 0)),
        case((0, 2), axes=None),
    ),
)  # fmt: skip
def transpose(xp: Any, x: Array, *, axes: int | Sequence[int] | None) -> Array:
    """An array with its last two axes swapped, or all of its axes in another order.

    x:      t[*n]
    axes:   for each axis of the result the axis of `x` that it is, each once; nil swaps the last two
    gives:  t[*n] with its axes in that order

    (transpose (reshape (arange 6) [2 3])) ; => i32[3 2] [[0 3] [1 4] [2 5]]
    (shape (transpose (zeros [2 3 4]) :axes [2 0 1])) ; => [4 2 3]
    """
    return xp.swapaxes(x, -1, -2) if axes is None else xp.transpose(x, axes)


def _flip_type(x: ArrayType, *, axis: int | Sequence[int] | None) -> ArrayType:
    axes_of(axis, x.ndim)
    return x


def _flip_back(g: Any, out: Any, x: Any, *, axis: int | Sequence[int] | None) -> Any:
    return flip(g, axis=axis)


@primitive(
    "flip", "x :axis axes=0", type=_flip_type, promote="-", moves=True,
    vjp=(_flip_back,),
    sample=(REAL,),
    cases=(
        case((3,), axis=0),
        case((2, 3), axis=-1),
        case((2, 3), axis=None),
        case((2, 3, 2), axis=(0, 2)),
        case((0,), axis=0),
    ),
)  # fmt: skip
def flip(xp: Any, x: Array, *, axis: int | Sequence[int] | None) -> Array:
    """An array in the opposite order along an axis.

    x:      t[*n]
    axis:   the axis, a list of axes, or nil for all
    gives:  t[*n]

    (flip (array [1 2 3])) ; => i32[3] [3 2 1]
    """
    return xp.flip(x, axis)


def _roll_type(x: ArrayType, *, n: int, axis: int) -> ArrayType:
    axis_of(axis, x.ndim)
    return x


def _roll_back(g: Any, out: Any, x: Any, *, n: int, axis: int) -> Any:
    return roll(g, n=-n, axis=axis)


@primitive(
    "roll", "x n:int :axis int=0", type=_roll_type, promote="-", moves=True,
    vjp=(_roll_back,),
    sample=(REAL,), cases=(case((4,), n=1, axis=0), case((2, 3), n=-5, axis=-1), case((0,), n=2, axis=0)),
)  # fmt: skip
def roll(xp: Any, x: Array, *, n: int, axis: int) -> Array:
    """An array moved on by `n` places along an axis; what leaves at one end comes in at the other.

    x:      t[*n]
    n:      places, to the front where negative
    gives:  t[*n]

    (roll (array [1 2 3 4]) 1) ; => i32[4] [4 1 2 3]
    """
    return xp.roll(x, n, axis)


# Repeating and its adjoint


def _sum_to_type(x: ArrayType, *, shape: Sequence[int]) -> ArrayType:
    return x.with_shape(tuple(shape))


def _sum_to_back(g: Any, out: Any, x: Any, *, shape: Sequence[int]) -> Any:
    return broadcast_to(g, shape=shape_of(x))


@primitive(
    "sum-to", "x shape:shape", type=_sum_to_type, promote="-", internal=True,
    vjp=(_sum_to_back,),
    sample=(REAL,),
    cases=(
        case((2, 3), shape=(3,)),
        case((2, 3), shape=(2, 1)),
        case((2, 3), shape=()),
        case((0, 3), shape=(1, 3)),
    ),
)  # fmt: skip
def sum_to(xp: Any, x: Array, *, shape: Sequence[int]) -> Array:
    """The adjoint of broadcasting: `x` summed over the axes along which `shape` was repeated.

    x:      t[*n]
    shape:  lengths that broadcast to those of `x`
    gives:  t[*shape]
    """
    new = x.ndim - len(shape)
    axes = (*range(new), *(a for a, n in enumerate(shape, new) if n == 1 and x.shape[a] != 1))
    if not axes:
        return x if x.shape == tuple(shape) else xp.reshape(x, shape)
    # binary16 would be summed in binary16; its carrier for sums is f32
    wide = xp.float32 if x.dtype == xp.float16 else x.dtype
    return xp.reshape(xp.sum(x, axis=axes, dtype=wide), shape).astype(x.dtype, copy=False)


def unbroadcast(g: Any, x: Any) -> Any:
    """The cotangent of an operand `x` that was broadcast to the shape of `g`."""
    return g if g.shape == shape_of(x) else sum_to(g, shape=shape_of(x))


def check_broadcasts(x: ArrayType, shape: tuple[int, ...], operand: int = 0) -> None:
    """Refuse the operand `x` where it does not broadcast to `shape`."""
    if x.ndim > len(shape):
        raise Refusal(codes.WRONG_NDIM, operand, wanted=f"{len(shape)} or fewer", ndim=x.ndim)
    for have, want in zip(reversed(x.shape), reversed(shape), strict=False):
        if have not in (1, want):
            raise Refusal(codes.SHAPES_DIFFER, operand, left=have, right=want)


def _broadcast_type(x: ArrayType, *, shape: Sequence[int]) -> ArrayType:
    wanted = sized(shape)
    check_broadcasts(x, wanted)
    return x.with_shape(wanted)


@primitive(
    "broadcast-to", "x shape:shape", type=_broadcast_type, promote="-", moves=True,
    vjp=(lambda g, out, x, *, shape: unbroadcast(g, x),),
    sample=(REAL,),
    cases=(
        case((3,), shape=(2, 3)),
        case((2, 1), shape=(2, 3)),
        case((), shape=(2,)),
        case((1,), shape=(0,)),
    ),
)  # fmt: skip
def broadcast_to(xp: Any, x: Array, *, shape: Sequence[int]) -> Array:
    """An array repeated along new leading axes and axes of length 1 until it has a shape.

    x:      t[*n]
    shape:  lengths that `n` broadcasts to
    gives:  t[*shape]

    (broadcast-to (array [1 2]) [2 2]) ; => i32[2 2] [[1 2] [1 2]]
    """
    return xp.broadcast_to(x, shape)


def _tile_type(x: ArrayType, *, repeats: int | Sequence[int]) -> ArrayType:
    shape, times = _tiling(x.shape, repeats)
    return x.with_shape(sized([n * r for n, r in zip(shape, times, strict=True)]))


def _tiling(shape: tuple[int, ...], repeats: int | Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The lengths and the repeats, both as long as the longer, 1 where the shorter has nothing."""
    times = sized((repeats,) if isinstance(repeats, int) else repeats)
    ndim = max(len(shape), len(times))
    return (1,) * (ndim - len(shape)) + shape, (1,) * (ndim - len(times)) + times


def _tile_back(g: Any, out: Any, x: Any, *, repeats: int | Sequence[int]) -> Any:
    shape, times = _tiling(x.shape, repeats)
    apart = tuple(n for pair in zip(times, shape, strict=True) for n in pair)
    once = tuple(n for length in shape for n in (1, length))
    return reshape(sum_to(reshape(g, shape=apart), shape=once), shape=x.shape)


@primitive(
    "tile", "x repeats:ints", type=_tile_type, promote="-", moves=True, vjp=(_tile_back,),
    sample=(REAL,),
    cases=(
        case((2, 3), repeats=(2, 1)),
        case((3,), repeats=(2, 2)),
        case((2, 3), repeats=2),
        case((), repeats=(3,)),
        case((2,), repeats=(0,)),
    ),
)  # fmt: skip
def tile(xp: Any, x: Array, *, repeats: int | Sequence[int]) -> Array:
    """An array laid side by side with itself.

    x:        t[*n]
    repeats:  how often along each of the last axes, or along new leading ones
    gives:    t[*m], each length times its repeats

    (tile (array [1 2]) [3]) ; => i32[6] [1 2 1 2 1 2]
    """
    return xp.tile(x, repeats)
