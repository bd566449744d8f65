"""Primitives that change no number: they mark places in a graph for gradients and taps."""

from __future__ import annotations

from typing import Any

from sxi.arraytype import ArrayType
from sxi.primitives.declare import REAL, Array, case, primitive


def _same(x: ArrayType, **static: Any) -> ArrayType:
    return x


@primitive(
    "identity", "x", promote="-", type=_same, vjp=(lambda g, out, x: g,), sample=(REAL,), moves=True, internal=True,
    cases=(case((2, 3)), case(()), case((0,))),
)  # fmt: skip
def identity(xp: Any, x: Array) -> Array:
    """The array itself, as another op: what a gradient is taken by.

    x:      f32[*n]
    gives:  f32[*n]
    """
    return x


@primitive(
    "tap", "x tap:int", promote="-", type=_same, vjp=(lambda g, out, x, tap: g,), sample=(REAL,), moves=True,
    internal=True, cases=(case((2, 3), tap=0), case((), tap=0), case((0,), tap=0)),
)  # fmt: skip
def tap(xp: Any, x: Array, *, tap: int) -> Array:
    """The array itself; the cotangent that flows back through it is given to the lambda of number `tap`.

    x:      f32[*n]
    gives:  f32[*n]
    """
    return x
