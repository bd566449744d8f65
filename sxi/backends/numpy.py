"""The host's memory: NumPy, and counts that read clean data once.

No method here warns, so only what computes with `xp` stands in `computing`.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import isfinite, isnan, prod
from typing import Any

import numpy as np

from sxi.backends import Array, HostArray, as_f64
from sxi.primitives.compare import round_bf16
from sxi.primitives.declare import Primitive
from sxi.primitives.reduce import sum_
from sxi.primitives.rules import axes_of

# Halfway from f32's largest number to 2^128: the least magnitude that rounds to f32's infinity.
_F32_LIMIT = 2.0**128 - 2.0**103
# glibc's names for when it gives memory back to the system: what is free at the end, and blocks mapped by themselves.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
# Elements of an exact count at a time, so that its temporaries stay in the second-level cache.
_BLOCK = 65536


def _keep_freed_memory() -> None:
    """Have the C library keep the arrays of one step for the next: otherwise half of a step goes to page faults."""
    try:
        tune = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return
    tune(_M_TRIM_THRESHOLD, 2**31 - 1)
    if not tune(_M_MMAP_THRESHOLD, 2**30):
        tune(_M_MMAP_THRESHOLD, 2**25)  # the most that older releases take


class NumpyBackend:
    """Arrays are `numpy.ndarray`s, or the NumPy scalars that operations on 0-d ones give."""

    name = "numpy"
    xp: Any = np

    def __init__(self) -> None:
        _keep_freed_memory()

    def asarray(self, host: HostArray) -> Array:
        return np.array(host, order="C")

    def to_host(self, x: Array) -> HostArray:
        return np.array(x, order="C")

    def counters(self, n: int) -> Array:
        return np.zeros(n)

    def tally(self, counters: Array, slots: Sequence[int], values: Sequence[Array]) -> None:
        # Python's own f64: it adds inf and -inf without a warning, and a scalar in half the time.
        for slot, value in zip(slots, values, strict=True):
            counters[slot] = counters.item(slot) + as_f64(value)

    def tally_maximum(self, extremes: Array, slots: Sequence[int], values: Sequence[Array]) -> None:
        for slot, value in zip(slots, values, strict=True):
            number = as_f64(value)
            # Where the extreme is a NaN both tests fail, so it stays.
            if number > extremes.item(slot) or isnan(number):
                extremes[slot] = number

    def read(self, counters: Array) -> HostArray:
        return np.array(counters)

    def count_nonfinite(self, x: Array) -> Array:
        x = np.asarray(x)
        if x.dtype != np.float64:
            return self.count_nonfinite_own(x)
        flat = x.ravel(order="K")
        # Rounding is monotonic, so a sum of squares is never below any one of them.
        if _sum_of_squares(flat) < _F32_LIMIT**2:
            return 0
        return _count_failing(_rounds_to_finite_f32, flat)

    def count_nonfinite_own(self, x: Array) -> Array:
        x = np.asarray(x)
        if x.dtype.kind != "f" or x.size == 0:
            return 0
        flat = x.ravel(order="K")  # a view wherever the memory has no gaps
        clean = _has_finite_bits(flat) if x.dtype == np.float16 else isfinite(_sum_of_squares(flat))
        return 0 if clean else _count_failing(np.isfinite, flat)

    def count_true(self, mask: Array) -> Array:
        return int(np.count_nonzero(mask))

    def computing(self) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")

    def function(self, primitive: Primitive) -> Callable[..., Array]:
        if primitive.name == "count-nonfinite":
            return self._count_rounded_once
        if primitive.name == "round-bf16":
            return _round_bf16
        if primitive.name == "sum":
            return _sum
        assert primitive.forward is not None
        return primitive.forward

    def _count_rounded_once(self, xp: Any, x: Array) -> Array:  # noqa: ARG002 - a primitive's function takes its `xp`
        """The primitive's count, f32[], by the screen that reads clean data once."""
        return np.float32(self.count_nonfinite(x))

    def aside(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def synchronize(self) -> None:
        pass


# Elements that are rounded at a time: the bits, their copy and the result stay in the second-level cache.
_ROUNDED = 16384


def _round_bf16(xp: Any, x: Array) -> Array:
    """The primitive's bits, a block at a time in place: half the time of its passes over whole arrays."""
    x = np.asarray(x, dtype=np.float32)
    plain = not (x.flags.c_contiguous or x.flags.f_contiguous) or x.size < _ROUNDED
    flat = x.ravel(order="K")
    if plain or not isfinite(_sum_of_squares(flat)):
        rounded: Array = round_bf16.forward(xp, x)  # type: ignore[misc]  # it has a function
        return rounded
    out = np.empty_like(x)
    bits, target = flat.view(np.uint32), out.ravel(order="K").view(np.uint32)
    for start in range(0, bits.size, _ROUNDED):
        given, t = bits[start : start + _ROUNDED], target[start : start + _ROUNDED]
        np.right_shift(given, 16, out=t)
        np.bitwise_and(t, 1, out=t)
        np.add(t, 0x7FFF, out=t)
        np.add(t, given, out=t)
        np.bitwise_and(t, 0xFFFF0000, out=t)
    return out


# An axis is short where NumPy spends more on beginning its loop than in it.
_SHORT = 32
# Fewer elements than these are added before the way is chosen.
_WORTHWHILE = 2048


def _sum(xp: Any, x: Array, *, axis: Any, keep: bool) -> Array:
    """The primitive's bits: along a short axis whole columns are added, in NumPy's order, a quarter of its time."""
    axes = axes_of(axis, x.ndim)
    if len(axes) == 1 and x.ndim > 1 and x.size >= _WORTHWHILE and x.flags.c_contiguous:
        total = _short_sum(x, axes[0])
        if total is not None:
            return np.expand_dims(total, axes) if keep else total
    return sum_.forward(xp, x, axis=axis, keep=keep)  # type: ignore[misc]  # it has a function


def _short_sum(x: HostArray, at: int) -> HostArray | None:
    """The sum along axis `at` where that, or what lies behind it, is short; None where it is not."""
    if x.dtype not in (np.float32, np.float64):
        return None
    behind = prod(x.shape[at + 1 :])
    if at == x.ndim - 1 and 2 <= x.shape[at] <= _SHORT:
        total = _pairwise([x[..., i] for i in range(x.shape[at])])
        return np.add(total, 0.0, out=total)  # NumPy adds a row's sum to 0.0, which no -0.0 survives
    if 2 <= behind <= _SHORT and x.shape[at] > 1:
        # with the axis in front rows are added one after the other, as they are where they stand
        return np.add.reduce(np.ascontiguousarray(np.moveaxis(x, at, 0)), axis=0)
    return None


def _pairwise(columns: list[HostArray]) -> HostArray:
    """The sum of columns in the order in which NumPy adds up to 128 elements of a row: eight sums, then these."""
    if len(columns) < 8:
        return functools.reduce(np.add, columns)
    whole = len(columns) // 8 * 8
    a, b, c, d, e, f, g, h = (functools.reduce(np.add, columns[i:whole:8]) for i in range(8))
    return functools.reduce(np.add, columns[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


def _sum_of_squares(flat: HostArray) -> float:
    """Finite only where all of `flat` is; it may overflow where all is finite, and then costs an exact count.

    One read of the data by BLAS, and unlike `dot` it does not look at the floating-point flags.
    """
    return float(np.vdot(flat, flat))


def _has_finite_bits(flat: HostArray) -> bool:
    """Whether all of an f16 array is finite: as integers, infinities and NaNs are the largest of either sign."""
    return bool(flat.view(np.int16).max() < 0x7C00 and flat.view(np.uint16).max() < 0xFC00)


def _rounds_to_finite_f32(block: HostArray) -> HostArray:
    return np.abs(block) < _F32_LIMIT


def _count_failing(test: Callable[[HostArray], HostArray], flat: HostArray) -> int:
    """How many elements of `flat` do not pass `test`, exactly."""
    blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
    return int(flat.size) - sum(int(np.count_nonzero(test(block))) for block in blocks)
