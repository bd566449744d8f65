"""Arrays joined and cut: `concat stack slice split pad`, and `add-slice`, the adjoint of a slice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from sxi import codes
from sxi.arraytype import CARRIERS, ArrayType, promote
from sxi.codes import Refusal
from sxi.primitives.declare import REAL, Array, case, composite, primitive
from sxi.primitives.host import real
from sxi.primitives.rules import axis_of
from sxi.primitives.shape import MOST_ELEMENTS, can_hold, sized, squeeze


def _same_but(axis: int | None, types: Sequence[ArrayType]) -> None:
    """Refuse arrays whose lengths differ along an axis other than `axis`."""
    if not types:
        raise Refusal(codes.WRONG_KIND, what="the list of arrays", given="empty", wanted="one array or more")
    first = types[0]
    for i, t in enumerate(types):
        if t.ndim != first.ndim:
            raise Refusal(codes.WRONG_NDIM, i, wanted=first.ndim, ndim=t.ndim)
        for a in range(t.ndim):
            if a != axis and t.shape[a] != first.shape[a]:
                raise Refusal(codes.SHAPES_DIFFER, i, left=first.shape[a], right=t.shape[a])


def _concat_type(*types: ArrayType, axis: int) -> ArrayType:
    if types and types[0].ndim == 0:
        raise Refusal(codes.WRONG_NDIM, 0, wanted="1 or more", ndim=0)
    at = axis_of(axis, types[0].ndim) if types else None
    _same_but(at, types)
    total = sum(t.shape[at] for t in types) if at is not None else 0
    return types[0].with_shape(tuple(total if a == at else n for a, n in enumerate(types[0].shape)))


def _concat_back(g: Any, out: Any, *xs: Any, index: int, axis: int) -> Any:
    at = axis % g.ndim
    before = sum(x.shape[at] for x in xs[:index])
    return slice_(g, axis=at, from_=before, to=before + xs[index].shape[at])


@primitive(
    "concat", "[x...] :axis int=0", type=_concat_type, promote="s", moves=True, vjp=_concat_back,
    sample=(REAL,),
    cases=(
        case((2,), (3,), axis=0),
        case((2, 1), (2, 3), (2, 2), axis=-1),
        case((0, 2), (1, 2), axis=0),
        case((3,), axis=0),
    ),
)  # fmt: skip
def concat(xp: Any, *xs: Array, axis: int) -> Array:
    """Arrays one after the other along an axis.

    x:      t[*n] each, alike but along `axis`
    gives:  t[*n] with the sum of their lengths along `axis`

    (concat [(array [1 2]) (array [3])]) ; => i32[3] [1 2 3]
    """
    return xp.concatenate(xs, axis=axis)


def _stack_type(*types: ArrayType, axis: int) -> ArrayType:
    _same_but(None, types)
    at = axis_of(axis, types[0].ndim + 1)
    dtype = reduce(promote, [t.dtype for t in types])
    return ArrayType(dtype, sized((*types[0].shape[:at], len(types), *types[0].shape[at:])))


def _stack_back(g: Any, out: Any, *xs: Any, index: int, axis: int) -> Any:
    return squeeze(slice_(g, axis=axis, from_=index, to=index + 1), axis=axis)


def _as_arrays(xp: Any, xs: Sequence[Any]) -> list[Array]:
    """`xs` as arrays of one type: host numbers among them take that of the arrays."""
    types = [ArrayType.of(x).dtype for x in xs if hasattr(x, "dtype")]
    carrier = CARRIERS[reduce(promote, types)]
    return [x.astype(carrier, copy=False) if hasattr(x, "dtype") else xp.asarray(x, dtype=carrier) for x in xs]


@primitive(
    "stack", "[x...] :axis int=0", type=_stack_type, promote="s", moves=True, vjp=_stack_back,
    sample=(REAL,),
    cases=(
        case((2,), (2,), axis=0),
        case((2, 3), (2, 3), (2, 3), axis=-1),
        case((), (), axis=0),
        case((0,), (0,), axis=1),
    ),
)  # fmt: skip
def stack(xp: Any, *xs: Array, axis: int) -> Array:
    """Arrays of one shape along a new axis.

    x:      t[*n] each; host numbers too
    axis:   where the new axis stands in the result
    gives:  t[*n] with the number of arrays at `axis`

    (stack [(array [1 2]) (array [3 4])] :axis 1) ; => i32[2 2] [[1 3] [2 4]]
    """
    return xp.stack(_as_arrays(xp, xs), axis=axis)


def _ends(x: ArrayType, axis: int, from_: int, to: int) -> tuple[int, int, int]:
    """The axis and the ends of a slice, counted from 0.  Refused where the array does not reach them."""
    at = axis_of(axis, x.ndim)
    length = x.shape[at]
    for what, end in (("from", from_), ("to", to)):
        if not -length <= end <= length:
            raise Refusal(codes.OUT_OF_BOUNDS, 0, what=what, given=end, low=-length, high=length)
    low, high = (end + length if end < 0 else end for end in (from_, to))
    if low > high:
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what="to", given=to, low=from_, high=length)
    return at, low, high


def _slice_type(x: ArrayType, *, axis: int, from_: int, to: int) -> ArrayType:
    at, low, high = _ends(x, axis, from_, to)
    return x.with_shape((*x.shape[:at], high - low, *x.shape[at + 1 :]))


def _cut(x: Any, axis: int, from_: int, to: int) -> tuple[Any, ...]:
    """The index of a slice that the rule has accepted."""
    at, length = axis % x.ndim, x.shape[axis]
    low, high = (end + length if end < 0 else end for end in (from_, to))
    return (*[slice(None)] * at, slice(low, high))


def _slice_into(acc: Any, g: Any, out: Any, x: Any, *, axis: int, from_: int, to: int) -> Any:
    return add_slice(acc, g, axis=axis, from_=from_, to=to)


@primitive(
    "slice", "x axis:int from:int to:int", type=_slice_type, promote="-", moves=True, vjp=(None,),
    into=(_slice_into,),
    sample=(REAL,),
    cases=(
        case((4,), axis=0, from_=1, to=3),
        case((2, 5), axis=-1, from_=-4, to=-1),
        case((3,), axis=0, from_=2, to=2),
        case((0,), axis=0, from_=0, to=0),
    ),
)  # fmt: skip
def slice_(xp: Any, x: Array, *, axis: int, from_: int, to: int) -> Array:
    """The part of an array from one place to before another along an axis.

    x:        t[*n]
    from to:  places along `axis`, counted from the end where negative; nothing outside the array
    gives:    t[*n] with `to` - `from` along `axis`

    (slice (arange 5) 0 1 3) ; => i32[2] [1 2]
    (slice (arange 5) 0 -2 5) ; => i32[2] [3 4]
    """
    return x[_cut(x, axis, from_, to)]


def _add_slice_type(acc: ArrayType, v: ArrayType, *, axis: int, from_: int, to: int) -> ArrayType:
    return acc


@primitive(
    "add-slice", "acc v axis:int from:int to:int", type=_add_slice_type, promote="s", internal=True, in_place=0,
    vjp=(
        lambda g, out, acc, v, *, axis, from_, to: g,
        lambda g, out, acc, v, *, axis, from_, to: slice_(g, axis=axis, from_=from_, to=to),
    ),
    sample=(REAL, REAL),
    cases=(
        case((4,), (2,), axis=0, from_=1, to=3),
        case((2, 5), (2, 3), axis=-1, from_=-4, to=-1),
    ),
)  # fmt: skip
def add_slice(xp: Any, acc: Array, v: Array, *, axis: int, from_: int, to: int, out: Array = None) -> Array:
    """`acc` with `v` added to its part from one place to before another along an axis.

    acc:    t[*n]
    v:      t[*m], the shape of that part
    gives:  t[*n]
    """
    target = xp.array(acc, copy=True) if out is None else out
    part = target[_cut(acc, axis, from_, to)]
    xp.add(part, v, out=part)
    return target


@composite(
    "split", "x n:int :axis int=0", promote="-", sample=(REAL,),
    cases=(
        case((4, 3), n=2, axis=0),
        case((2, 6), n=3, axis=-1),
    ),
)  # fmt: skip
def split(x: Any, *, n: int, axis: int) -> list[Any]:
    """An array cut into equal parts along an axis.

    x:      t[*n]
    n:      the number of parts, which divides the length
    gives:  a list of n arrays t[*m]

    (nth (split (arange 6) 3) 1) ; => i32[2] [2 3]
    """
    at = axis_of(axis, x.ndim)
    length = x.shape[at]
    if not 1 <= n <= max(length, 1):
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what="the number of parts", given=n, low=1, high=max(length, 1))
    if length % n:
        raise Refusal(codes.WRONG_SIZE, 0, given=length, wanted=f"{n} equal parts")
    part = length // n
    return [slice_(x, axis=at, from_=i * part, to=(i + 1) * part) for i in range(n)]


def _widths(x: ArrayType, widths: Any) -> tuple[tuple[int, int], ...]:
    """The widths of a padding, a pair an axis.  Refused where they are no such list."""
    if len(widths) != x.ndim:
        raise Refusal(codes.WRONG_NDIM, 0, wanted=len(widths), ndim=x.ndim)
    for width in [n for pair in widths for n in pair]:
        if not 0 <= width <= MOST_ELEMENTS:
            raise Refusal(codes.OUT_OF_BOUNDS, "widths", what="a width", given=width, low=0, high=MOST_ELEMENTS)
    return tuple((before, after) for before, after in widths)


def _pad_type(x: ArrayType, *, widths: Any, value: float) -> ArrayType:
    if not can_hold(x.dtype, value):
        raise Refusal(codes.DOES_NOT_FIT, "value", value=value, dtype=x.dtype)
    pairs = _widths(x, widths)
    return x.with_shape(sized([n + before + after for n, (before, after) in zip(x.shape, pairs, strict=True)]))


def _pad_back(g: Any, out: Any, x: Any, *, widths: Any, value: float) -> Any:
    for axis, (before, after) in enumerate(_widths(x.type, widths)):
        if before or after:
            g = slice_(g, axis=axis, from_=before, to=g.shape[axis] - after)
    return g


@primitive(
    "pad", "x widths:pairs :value number=0.0", type=_pad_type, promote="-", vjp=(_pad_back,),
    sample=(REAL,),
    cases=(
        case((2, 3), widths=((1, 0), (0, 2)), value=0.0),
        case((3,), widths=((1, 1),), value=1.5),
        case((0,), widths=((1, 2),), value=0.0),
        case((), widths=(), value=0.0),
    ),
)  # fmt: skip
def pad(xp: Any, x: Array, *, widths: Any, value: float) -> Array:
    """An array with a border of one number.

    x:       t[*n]
    widths:  for each axis the places [before after] to add
    value:   what stands there
    gives:   t[*m]

    (pad (array [1 2]) [[1 2]]) ; => i32[5] [0 1 2 0 0]
    """
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, widths, strict=True))
    padded = xp.full(shape, real(value) if x.dtype.kind == "f" else value, dtype=x.dtype)
    inside = tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, widths, strict=True))
    padded[inside] = x
    return padded
