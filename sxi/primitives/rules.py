"""Type rules that several primitives share: (*types, **static) -> ArrayType, or a Refusal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType, broadcast
from sxi.codes import Refusal


def words(shape: Sequence[int]) -> str:
    """A shape as a message names it: `[3 4]`."""
    return f"[{' '.join(map(str, shape))}]"


def axis_of(axis: int, ndim: int, operand: int | None = 0) -> int:
    """`axis` counted from 0.  Refused where the array has no such axis."""
    if not -ndim <= axis < ndim:
        raise Refusal(codes.AXIS_OUT_OF_RANGE, operand, axis=axis, ndim=ndim)
    return axis % ndim


def axes_of(axis: int | Sequence[int] | None, ndim: int, operand: str = "axis") -> tuple[int, ...]:
    """The axes that `operand` names, counted from 0, all for None.  Refused where one is named twice."""
    if axis is None:
        return tuple(range(ndim))
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(axis_of(a, ndim) for a in given)
    for a in axes:
        if axes.count(a) > 1:
            raise Refusal(codes.WRONG_KIND, operand, what=f":{operand}", given=words(given), wanted="each axis once")
    return axes


def numeric(*types: ArrayType | None) -> None:
    """Refuse the first operand that is a mask."""
    for i, t in enumerate(types):
        if t is not None and not t.is_numeric:
            raise Refusal(codes.NOT_NUMERIC, i, type=t)


def broadcast_shape(*types: ArrayType) -> tuple[int, ...]:
    """The common shape, or a refusal that names the two lengths that differ."""
    shape = broadcast(*[t.shape for t in types])
    if shape is None:
        raise _lengths_that_differ(types)
    return shape


def _lengths_that_differ(types: Sequence[ArrayType]) -> Refusal:
    seen: dict[int, int] = {}
    for i, t in enumerate(types):
        for back, length in enumerate(reversed(t.shape)):
            if length == 1:
                continue
            if seen.setdefault(back, length) != length:
                return Refusal(codes.SHAPES_DIFFER, i, left=seen[back], right=length)
    raise AssertionError("the shapes broadcast")


def elementwise(*types: ArrayType, **static: Any) -> ArrayType:
    """Numbers of one dtype, broadcast: what arithmetic gives."""
    numeric(*types)
    return ArrayType(types[0].dtype, broadcast_shape(*types))


def comparison(*types: ArrayType, **static: Any) -> ArrayType:
    """The mask of a comparison."""
    return ArrayType("bool", broadcast_shape(*types))
