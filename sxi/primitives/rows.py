"""How indices are followed: brought inside, made positions of rows, and rows added or set, in a fixed order.

One code for every array module, without a host read.  NumPy has a second way wherever looking at the
numbers is cheaper than computing on all of them: `is_host` alone asks, and both ways give the same sums
but for the order in which the rows of one position are added.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from sxi.primitives.declare import Array

# Up to so many columns NumPy's one-dimensional `add.at` is faster column by column than on flat positions.
_FEW_COLUMNS = 32


def is_host(xp: Any) -> bool:
    """Whether arrays live where branching on their numbers is free: NumPy alone.

    A device would wait for its queue, and the strict backend tells every such read.
    """
    return bool(xp.__name__ == "numpy")


def missing(x: Array) -> Any:
    """What is read outside of `x`: NaN in its type, 0 where the type has none."""
    return x.dtype.type("nan" if x.dtype.kind == "f" else 0)


def brought_inside(xp: Any, ids: Sequence[Array], lengths: Sequence[int]) -> tuple[list[Array], Array | None]:
    """Indices counted from 0 and within `lengths`, and a mask of those that were inside; None for all.

    ids:  i32 or i64, one array an axis, which broadcast together
    """
    pairs = list(zip(ids, lengths, strict=True))
    if is_host(xp) and all(i.size == 0 or (i.min() >= 0 and i.max() < n) for i, n in pairs):
        return list(ids), None
    clipped, inside = [], None
    for i, n in pairs:
        from_start = xp.where(i < 0, i.astype("int64") + n, i)
        within = (from_start >= 0) & (from_start < n)
        inside = within if inside is None else inside & within
        clipped.append(xp.clip(from_start, 0, max(n - 1, 0)))
    return clipped, inside


def flat_positions(ids: Sequence[Array], lengths: Sequence[int]) -> Array:
    """The position of each index among the rows of the leading axes, i64[*n]; `ids` lie inside."""
    flat = ids[0].astype("int64")
    for i, n in zip(ids[1:], lengths[1:], strict=True):
        flat = flat * n + i
    return flat


def target_of(xp: Any, acc: Array, out: Array | None) -> Array:
    """The array to add into: `out` where it is given, holding what `acc` holds, or a copy of `acc`."""
    if out is None:
        return xp.array(acc, copy=True, order="C")
    if out is not acc:
        out[...] = acc
    return out


def add_rows(xp: Any, rows: Array, at: Array, inside: Array | None, values: Array) -> None:
    """Add `values` to `rows` at the positions `at`, in their order, in place; outside nothing.

    rows:    t[k r], contiguous
    at:      i64[m]
    values:  t[m r]
    """
    if at.shape[0] == 0 or rows.size == 0:
        return
    if not is_host(xp):
        _add_sorted(xp, rows, at, inside, values)
        return
    if inside is not None:
        at, values = at[inside], values[inside]
    if at.shape[0] == 1:
        rows[at] += values
        return
    width = rows.shape[1]
    if width <= _FEW_COLUMNS:
        for c in range(width):
            xp.add.at(rows[:, c], at, values[:, c])
    else:
        places = at[:, None] * width + xp.arange(width)
        xp.add.at(rows.reshape(-1), places.reshape(-1), values.reshape(-1))


def _add_sorted(xp: Any, rows: Array, at: Array, inside: Array | None, values: Array) -> None:
    """`add_rows` by a sorted segment sum: the same bits each time, which atomic additions are not."""
    order, at, last = _segments(xp, at, inside, rows.shape[0])
    sums = xp.take(values, order, axis=0)
    # An inclusive scan within each segment: after the turn of `k`, a row holds the sum of its 2k nearest.
    k = 1
    while k < sums.shape[0]:
        before = xp.where((at[k:] == at[:-k])[:, None], sums[:-k], sums.dtype.type(0))
        sums = xp.concatenate([sums[:k], sums[k:] + before])
        k *= 2
    _write_last(xp, rows, xp.where(last, at, rows.shape[0]), lambda held: held + sums)


def _segments(xp: Any, at: Array, inside: Array | None, k: int) -> tuple[Array, Array, Array]:
    """A stable order of `at`, `at` in that order (`k` for what is outside), and the last of each position."""
    if inside is not None:
        at = xp.where(inside, at, k)
    order = xp.argsort(at, kind="stable")
    at = xp.take(at, order)
    last = xp.concatenate([at[1:] != at[:-1], xp.ones(1, dtype="bool")])
    return order, at, last


def _write_last(xp: Any, rows: Array, to: Array, new: Any) -> None:
    """Set the rows at the positions `to` to `new` of what they hold; one past the end takes what is not kept.

    Each position but that one occurs once, so the order of the writes does not matter.
    """
    longer = xp.concatenate([rows, xp.zeros((1, rows.shape[1]), dtype=rows.dtype)])
    longer[to] = new(xp.take(longer, to, axis=0))
    rows[...] = longer[: rows.shape[0]]


def set_rows(xp: Any, rows: Array, at: Array, inside: Array | None, values: Array) -> None:
    """Set `rows` at the positions `at` to `values`, in place; the last of several, outside nothing.

    rows:    t[k r], contiguous
    at:      i64[m]
    values:  t[m r]
    """
    if at.shape[0] == 0 or rows.size == 0:
        return
    if is_host(xp):
        if inside is not None:
            at, values = at[inside], values[inside]
        rows[at] = values  # NumPy assigns in order, so the last one stays
        return
    order, at, last = _segments(xp, at, inside, rows.shape[0])
    _write_last(xp, rows, xp.where(last, at, rows.shape[0]), lambda held: xp.take(values, order, axis=0))


def last_writes(xp: Any, at: Array, inside: Array | None, k: int) -> Array:
    """Which of the writes at the positions `at` stay: bool[m], the last of each position inside."""
    if at.shape[0] == 0:
        return xp.zeros(0, dtype="bool")
    order, at, last = _segments(xp, at, inside, k)
    stays = xp.zeros(at.shape, dtype="bool")
    stays[order] = last & (at < k)
    return stays


def as_rows(xp: Any, x: Array, n: int) -> Array:
    """`x` as rows of its first `n` axes, t[k r], contiguous; the array's own memory where that is contiguous."""
    k = prod(x.shape[:n])
    return xp.reshape(xp.ascontiguousarray(x), (k, prod(x.shape[n:])))
