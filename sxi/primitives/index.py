"""Reading and writing by index: `at take gather scatter scatter-add one-hot embedding`, and the primitives
that their gradients are made of.

An index may be negative and may lie outside: nothing is refused and nothing is read on the host.  Reading
outside gives NaN, or 0 where there is none; writing outside does nothing.  So the cotangent of what was
read outside is dropped, and a value that was written nowhere has the cotangent 0: the `-or-zero` twins
of the reading primitives, which differentiate the adding ones.

The cotangent of an indexed array is as large as the array, so it is added into (`into`) by `add-at`,
`add-take` and `add-gather`, never made anew for each use.
"""

from __future__ import annotations

from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType, broadcast
from sxi.codes import Refusal
from sxi.primitives.compare import where
from sxi.primitives.declare import INDEX, REAL, Array, case, composite, primitive
from sxi.primitives.rows import (
    add_rows,
    as_rows,
    brought_inside,
    flat_positions,
    is_host,
    last_writes,
    missing,
    set_rows,
    target_of,
)
from sxi.primitives.rules import axis_of, broadcast_shape, numeric
from sxi.primitives.shape import check_broadcasts, reshape, shape_of, sized, unbroadcast

# Rules


def _integers(ids: tuple[ArrayType, ...], first: int = 1) -> None:
    """Refuse the first of `ids`, which are the operands from `first` on, that holds no integers."""
    for i, t in enumerate(ids, first):
        if not t.is_integer:
            raise Refusal(codes.NOT_INTEGER, i, type=t)


def _at_type(x: ArrayType, *ids: ArrayType) -> ArrayType:
    _integers(ids)
    if x.ndim < len(ids):
        raise Refusal(codes.WRONG_NDIM, 0, wanted=f"{len(ids)} or more", ndim=x.ndim)
    try:
        shape = broadcast_shape(*ids)
    except Refusal as refusal:
        if isinstance(refusal.operand, int):
            refusal.operand += 1  # it counted among the indices
        raise
    return x.with_shape(sized((*shape, *x.shape[len(ids) :])))


def _take_type(x: ArrayType, ids: ArrayType, *, axis: int) -> ArrayType:
    _integers((ids,))
    at = axis_of(axis, x.ndim)
    return x.with_shape(sized((*x.shape[:at], *ids.shape, *x.shape[at + 1 :])))


def _gather_type(x: ArrayType, ids: ArrayType, *, axis: int) -> ArrayType:
    _integers((ids,))
    at = axis_of(axis, x.ndim)
    if ids.ndim != x.ndim:
        raise Refusal(codes.WRONG_NDIM, 1, wanted=x.ndim, ndim=ids.ndim)
    for a in range(x.ndim):
        if a != at and ids.shape[a] != x.shape[a]:
            raise Refusal(codes.SHAPES_DIFFER, 1, left=x.shape[a], right=ids.shape[a])
    return x.with_shape(ids.shape)


def _first(acc: ArrayType, *rest: ArrayType, **static: Any) -> ArrayType:
    return acc


# At leading indices


def _read_at(xp: Any, x: Array, ids: tuple[Array, ...], outside: Any) -> Array:
    """`x` at leading indices, `outside` where there is nothing."""
    if is_host(xp) and len(ids) == 1:
        try:
            return xp.take(x, ids[0], axis=0)  # checks and counts from the end while it copies
        except IndexError:
            pass
    lengths = x.shape[: len(ids)]
    inner = x.shape[len(ids) :]
    if 0 in lengths:
        return xp.full(broadcast(*[i.shape for i in ids]) + inner, outside, dtype=x.dtype)
    places, inside = brought_inside(xp, ids, lengths)
    read = x[tuple(places)] if len(ids) > 1 else xp.take(x, places[0], axis=0)
    if inside is None:
        return read
    return xp.where(xp.reshape(inside, inside.shape + (1,) * len(inner)), read, outside)


def _at_into(acc: Any, g: Any, out: Any, x: Any, *ids: Any) -> Any:
    return add_at(acc, g, *ids)


@primitive(
    "at", "x ids...", type=_at_type, promote="-", moves=True, vjp=(None,), into=(_at_into,), sample=(REAL, INDEX),
    cases=(
        case((3,), ()),
        case((3, 4), (2, 2)),
        case((2, 3, 4), (2,), ()),
        case((2, 3), (3, 1), (2,)),
        case((0, 3), (2,)),
        case((3, 2), (0,)),
    ),
)  # fmt: skip
def at(xp: Any, x: Array, *ids: Array) -> Array:
    """An array at indices of its leading axes.

    x:      t[*k *n], an axis of `k` for each of the indices
    ids:    i32[*b] each, which broadcast together; a negative one counts from the end
    gives:  t[*b *n]; NaN where an index is outside, 0 of integers, false of bools

    (at (array [10 20 30]) -1) ; => i32[] 30
    (at (array [[1 2] [3 4]]) (array [1 0])) ; => i32[2 2] [[3 4] [1 2]]
    (at (array [10 20 30]) 7) ; => i32[] 0
    """
    return _read_at(xp, x, ids, missing(x))


@primitive(
    "at-or-zero", "x ids...", type=_at_type, promote="-", moves=True, internal=True, vjp=(None,), into=(_at_into,),
    sample=(REAL, INDEX), cases=(case((3, 4), (2, 2)), case((2, 3, 4), (2,), ())),
)  # fmt: skip
def at_or_zero(xp: Any, x: Array, *ids: Array) -> Array:
    """`at`, but 0 where an index is outside.

    x:      t[*k *n]
    ids:    i32[*b] each
    gives:  t[*b *n]
    """
    return _read_at(xp, x, ids, x.dtype.type(0))


def _add_at(xp: Any, target: Array, v: Array, ids: tuple[Array, ...]) -> Array:
    """`target` with `v` added at leading indices, in place."""
    lengths = target.shape[: len(ids)]
    places, inside = brought_inside(xp, ids, lengths)
    flat = flat_positions(places, lengths)
    contiguous = xp.ascontiguousarray(target)
    rows = as_rows(xp, contiguous, len(ids))
    values = xp.reshape(v, (flat.size, rows.shape[1]))
    add_rows(xp, rows, xp.reshape(flat, -1), None if inside is None else xp.reshape(inside, -1), values)
    if contiguous is not target:
        target[...] = contiguous
    return target


def _keep(g: Any, out: Any, acc: Any, v: Any, *ids: Any, **static: Any) -> Any:
    return g


@primitive(
    "add-at", "acc v ids...", type=_first, promote="ss-", internal=True, in_place=0,
    vjp=(_keep, lambda g, out, acc, v, *ids: at_or_zero(g, *ids)),
    sample=(REAL, REAL, INDEX),
    cases=(case((3, 4), (2, 2, 4), (2, 2)), case((3, 4), (5,), (5,), ()), case((3,), (), ())),
)  # fmt: skip
def add_at(xp: Any, acc: Array, v: Array, *ids: Array, out: Array = None) -> Array:
    """`acc` with `v` added at indices of its leading axes; an index that repeats adds again.

    acc:    t[*k *n]
    v:      t[*b *n]
    ids:    i32[*b] each
    gives:  t[*k *n]
    """
    return _add_at(xp, target_of(xp, acc, out), v, ids)


# Writing


def _scatter_type(x: ArrayType, ids: ArrayType, v: ArrayType) -> ArrayType:
    check_broadcasts(v, _at_type(x, ids).shape, 2)
    return x


def _scatter_add_type(x: ArrayType, ids: ArrayType, v: ArrayType) -> ArrayType:
    numeric(x)
    return _scatter_type(x, ids, v)


def _scatter_back_x(g: Any, out: Any, x: Any, ids: Any, v: Any) -> Any:
    return scatter(g, ids, 0.0)


def _scatter_back_v(g: Any, out: Any, x: Any, ids: Any, v: Any) -> Any:
    stays = written(ids, length=x.shape[0])
    stays = reshape(stays, shape=(*ids.shape, *[1] * (x.ndim - 1)))
    return unbroadcast(where(stays, at_or_zero(g, ids), 0.0), v)


@primitive(
    "scatter", "x ids v", type=_scatter_type, promote="s-s", moves=True, in_place=0,
    vjp=(_scatter_back_x, None, _scatter_back_v), sample=(REAL, INDEX, REAL),
    cases=(case((3,), (2,), (2,)), case((3, 2), (4,), (2,)), case((2, 3), (), ()), case((3, 2), (0,), (0, 2))),
)  # fmt: skip
def scatter(xp: Any, x: Array, ids: Array, v: Array, *, out: Array = None) -> Array:
    """An array with rows set; of several writes to one row the last stays.

    x:      t[k *n]
    ids:    i32[*b]; a negative one counts from the end, one outside writes nothing
    v:      t[*m], which broadcasts to [*b *n]
    gives:  t[k *n]

    (scatter (array [1 2 3]) (array [0 2 9]) (array [10 30 90])) ; => i32[3] [10 2 30]
    """
    target = target_of(xp, x, out)
    (place,), inside = brought_inside(xp, (ids,), x.shape[:1])
    contiguous = xp.ascontiguousarray(target)
    rows = as_rows(xp, contiguous, 1)
    v = _spread(xp, v, ids.shape + x.shape[1:], x.dtype)
    flat = xp.reshape(flat_positions((place,), x.shape[:1]), -1)
    mask = None if inside is None else xp.reshape(inside, -1)
    set_rows(xp, rows, flat, mask, xp.reshape(v, (flat.size, rows.shape[1])))
    if contiguous is not target:
        target[...] = contiguous
    return target


def _spread(xp: Any, v: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """`v`, an array or a host number, in a shape it broadcasts to."""
    return xp.broadcast_to(v if hasattr(v, "shape") else dtype.type(v), shape)


def _scatter_add_back_v(g: Any, out: Any, x: Any, ids: Any, v: Any) -> Any:
    return unbroadcast(at_or_zero(g, ids), v)


@primitive(
    "scatter-add", "x ids v", type=_scatter_add_type, promote="s-s", in_place=0,
    vjp=(_keep, None, _scatter_add_back_v), sample=(REAL, INDEX, REAL),
    cases=(case((3,), (2,), (2,)), case((3, 2), (4,), (2,)), case((2, 3), (), ()), case((3, 2), (0,), (0, 2))),
)  # fmt: skip
def scatter_add(xp: Any, x: Array, ids: Array, v: Array, *, out: Array = None) -> Array:
    """An array with values added to its rows, in their order: the same bits each time.

    x:      t[k *n]
    ids:    i32[*b]; a negative one counts from the end, one outside adds nothing
    v:      t[*m], which broadcasts to [*b *n]
    gives:  t[k *n]

    (scatter-add (zeros [3]) (array [0 2 0]) 1.0) ; => f32[3] [2.0 0.0 1.0]
    """
    return _add_at(xp, target_of(xp, x, out), _spread(xp, v, ids.shape + x.shape[1:], x.dtype), (ids,))


def _written_type(ids: ArrayType, *, length: int) -> ArrayType:
    _integers((ids,), 0)
    return ids.with_dtype("bool")


@primitive(
    "written", "ids length:int", type=_written_type, promote="-", internal=True, vjp=(None,),
    sample=(INDEX,), cases=(case((5,), length=2), case((2, 2), length=1), case((), length=3), case((0,), length=3)),
)  # fmt: skip
def written(xp: Any, ids: Array, *, length: int) -> Array:
    """Which writes of a `scatter` stay.

    ids:     i32[*b]
    length:  that of the axis written to
    gives:   bool[*b]
    """
    (place,), inside = brought_inside(xp, (ids,), (length,))
    flat = xp.reshape(flat_positions((place,), (length,)), -1)
    mask = None if inside is None else xp.reshape(inside, -1)
    return xp.reshape(last_writes(xp, flat, mask, length), ids.shape)


# Along one axis


def _read_along(xp: Any, x: Array, ids: Array, axis: int, outside: Any) -> Array:
    at_axis = axis % x.ndim
    if is_host(xp):
        try:
            return xp.take(x, ids, axis=at_axis)
        except IndexError:
            pass
    length = x.shape[at_axis]
    before, behind = x.shape[:at_axis], x.shape[at_axis + 1 :]
    if length == 0:
        return xp.full(before + ids.shape + behind, outside, dtype=x.dtype)
    (place,), inside = brought_inside(xp, (ids,), (length,))
    read = xp.take(x, place, axis=at_axis)
    if inside is None:
        return read
    return xp.where(xp.reshape(inside, ids.shape + (1,) * len(behind)), read, outside)


def _take_into(acc: Any, g: Any, out: Any, x: Any, ids: Any, *, axis: int) -> Any:
    return add_take(acc, g, ids, axis=axis)


@primitive(
    "take", "x ids :axis int=0", type=_take_type, promote="-", moves=True, vjp=(None,), into=(_take_into,),
    sample=(REAL, INDEX),
    cases=(
        case((3,), (), axis=0),
        case((3, 4), (2, 2), axis=-1),
        case((2, 3, 4), (2,), axis=1),
        case((3, 0), (2,), axis=1),
        case((3, 2), (0,), axis=0),
    ),
)  # fmt: skip
def take(xp: Any, x: Array, ids: Array, *, axis: int) -> Array:
    """An array at indices of one axis, which stand where the axis stood.

    x:      t[*a k *n]
    ids:    i32[*b]; a negative one counts from the end
    gives:  t[*a *b *n]; NaN where an index is outside, 0 of integers, false of bools

    (take (array [[1 2] [3 4]]) (array [1 1 0]) :axis 1) ; => i32[2 3] [[2 2 1] [4 4 3]]
    """
    return _read_along(xp, x, ids, axis, missing(x))


@primitive(
    "take-or-zero", "x ids :axis int=0", type=_take_type, promote="-", moves=True, internal=True, vjp=(None,),
    into=(_take_into,), sample=(REAL, INDEX), cases=(case((3, 4), (2, 2), axis=-1), case((3,), (), axis=0)),
)  # fmt: skip
def take_or_zero(xp: Any, x: Array, ids: Array, *, axis: int) -> Array:
    """`take`, but 0 where an index is outside.

    x:      t[*a k *n]
    ids:    i32[*b]
    gives:  t[*a *b *n]
    """
    return _read_along(xp, x, ids, axis, x.dtype.type(0))


@primitive(
    "add-take", "acc v ids :axis int=0", type=_first, promote="ss-", internal=True, in_place=0,
    vjp=(_keep, lambda g, out, acc, v, ids, *, axis: take_or_zero(g, ids, axis=axis)),
    sample=(REAL, REAL, INDEX), cases=(case((3, 4), (3, 2, 2), (2, 2), axis=-1), case((3, 2), (2,), (), axis=0)),
)  # fmt: skip
def add_take(xp: Any, acc: Array, v: Array, ids: Array, *, axis: int, out: Array = None) -> Array:
    """`acc` with `v` added at indices of one axis.

    acc:    t[*a k *n]
    v:      t[*a *b *n]
    ids:    i32[*b]
    gives:  t[*a k *n]
    """
    target = target_of(xp, acc, out)
    at_axis = axis % acc.ndim
    if at_axis == 0:
        return _add_at(xp, target, v, (ids,))
    moved = xp.moveaxis(v, tuple(range(at_axis, at_axis + ids.ndim)), tuple(range(ids.ndim))) if ids.ndim else v
    _add_at(xp, xp.moveaxis(target, at_axis, 0), moved, (ids,))
    return target


def _read_each(xp: Any, x: Array, ids: Array, axis: int, outside: Any) -> Array:
    length = x.shape[axis]
    if length == 0 or ids.size == 0:
        return xp.full(ids.shape, outside, dtype=x.dtype)
    (place,), inside = brought_inside(xp, (ids,), (length,))
    read = xp.take_along_axis(x, place, axis)
    return read if inside is None else xp.where(inside, read, outside)


def _gather_into(acc: Any, g: Any, out: Any, x: Any, ids: Any, *, axis: int) -> Any:
    return add_gather(acc, g, ids, axis=axis)


@primitive(
    "gather", "x ids :axis int=-1", type=_gather_type, promote="-", moves=True, vjp=(None,), into=(_gather_into,),
    sample=(REAL, INDEX),
    cases=(
        case((3,), (2,), axis=0),
        case((2, 3), (2, 1), axis=-1),
        case((2, 3, 2), (2, 4, 2), axis=1),
        case((2, 0), (2, 1), axis=1),
        case((0, 3), (0, 2), axis=1),
    ),
)  # fmt: skip
def gather(xp: Any, x: Array, ids: Array, *, axis: int) -> Array:
    """For each place one element along an axis: its own index there.

    x:      t[*a k *n]
    ids:    i32[*a m *n]; a negative one counts from the end
    gives:  t[*a m *n]; NaN where an index is outside, 0 of integers, false of bools

    (gather (array [[1 2] [3 4]]) (array [[1] [0]])) ; => i32[2 1] [[2] [3]]
    """
    return _read_each(xp, x, ids, axis, missing(x))


@primitive(
    "gather-or-zero", "x ids :axis int=-1", type=_gather_type, promote="-", moves=True, internal=True, vjp=(None,),
    into=(_gather_into,), sample=(REAL, INDEX), cases=(case((2, 3), (2, 1), axis=-1),),
)  # fmt: skip
def gather_or_zero(xp: Any, x: Array, ids: Array, *, axis: int) -> Array:
    """`gather`, but 0 where an index is outside.

    x:      t[*a k *n]
    ids:    i32[*a m *n]
    gives:  t[*a m *n]
    """
    return _read_each(xp, x, ids, axis, x.dtype.type(0))


@primitive(
    "add-gather", "acc v ids :axis int=-1", type=_first, promote="ss-", internal=True, in_place=0,
    vjp=(_keep, lambda g, out, acc, v, ids, *, axis: gather_or_zero(g, ids, axis=axis)),
    sample=(REAL, REAL, INDEX), cases=(case((2, 3), (2, 1), (2, 1), axis=-1), case((3, 2), (4, 2), (4, 2), axis=0)),
)  # fmt: skip
def add_gather(xp: Any, acc: Array, v: Array, ids: Array, *, axis: int, out: Array = None) -> Array:
    """`acc` with each element of `v` added at its own index along an axis.

    acc:    t[*a k *n]
    v:      t[*a m *n]
    ids:    i32[*a m *n]
    gives:  t[*a k *n]
    """
    at_axis = axis % acc.ndim
    every = [
        ids if a == at_axis else xp.reshape(xp.arange(n), (-1, *[1] * (acc.ndim - 1 - a)))
        for a, n in enumerate(ids.shape)
    ]
    return _add_at(xp, target_of(xp, acc, out), v, tuple(every))


# Of classes


def _one_hot_type(ids: ArrayType, *, n: int) -> ArrayType:
    _integers((ids,), 0)
    return ArrayType("f32", sized((*ids.shape, n)))


@primitive(
    "one-hot", "ids n:int", type=_one_hot_type, promote="-", moves=True, vjp=None,
    sample=(INDEX,), cases=(case((3,), n=2), case((), n=4), case((2, 2), n=3), case((0,), n=2), case((2,), n=0)),
)  # fmt: skip
def one_hot(xp: Any, ids: Array, *, n: int) -> Array:
    """A 1 at each class among zeros; all zeros for a class outside, a negative one too.

    ids:    i32[*b], classes from 0
    n:      how many classes there are
    gives:  f32[*b n]

    (one-hot (array [1 0]) 2) ; => f32[2 2] [[0.0 1.0] [1.0 0.0]]
    """
    return (xp.expand_dims(ids, -1) == xp.arange(n)).astype("float32")


@composite("embedding", "table ids", promote="-", sample=(REAL, INDEX), cases=(case((3, 2), (2, 2)), case((3, 2), ())))
def embedding(table: Any, ids: Any) -> Any:
    """The rows of a table at indices.

    table:  t[k n]
    ids:    i32[*b]
    gives:  t[*b n]; NaN where an index is outside

    (embedding (array [[1.0 2.0] [3.0 4.0]]) (array [1])) ; => f32[1 2] [[3.0 4.0]]
    """
    if len(shape_of(table)) != 2:
        raise Refusal(codes.WRONG_NDIM, 0, wanted=2, ndim=len(shape_of(table)))
    return at(table, ids)
