"""An array module behind a small protocol: what a run asks of the place where its arrays live.

`open_backend("cpu")` gives one.  Primitives' functions take the backend's `xp`; everything that differs
between array modules beyond `xp` is a method here, so no other file asks which one it has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import copysign, inf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from sxi.errors import SxiError

if TYPE_CHECKING:
    from sxi.primitives.declare import Primitive

Array: TypeAlias = Any
HostArray: TypeAlias = Any  # numpy.ndarray


class Backend(Protocol):
    """Where arrays live.

    name:  `numpy`, `strict` or `cupy`
    xp:    the array module that primitives compute with
    """

    name: str
    xp: Any

    def asarray(self, host: HostArray) -> Array:
        """A copy of a NumPy array in this backend's memory; never aliases `host`."""

    def to_host(self, x: Array) -> HostArray:
        """A copy of `x` as a NumPy array.  A host read: for outputs, checkpoints and the prompt, never in a step."""

    def counters(self, n: int) -> Array:
        """`n` zeros, f64[n]: the counter vector of a step or a pass."""

    def tally(self, counters: Array, slots: Sequence[int], values: Sequence[Array]) -> None:
        """Add the 0-d arrays or host numbers `values` to `counters` at `slots` (a slot may repeat), each
        taken to f64 first.  No host read."""

    def tally_maximum(self, extremes: Array, slots: Sequence[int], values: Sequence[Array]) -> None:
        """Raise `extremes[slots]` (f64) to `values` where these are larger; a NaN stays a NaN.  No host read."""

    def read(self, counters: Array) -> HostArray:
        """The counter vector on the host, f64: the one read of a step or a pass."""

    def count_nonfinite(self, x: Array) -> Array:
        """How many elements of `x` are NaN or infinite when taken to f32, a 0-d f64 array or a host number.

        f64 1e300 counts.  Integers and bools never do.  Exact at any size."""

    def count_nonfinite_own(self, x: Array) -> Array:
        """The same in the array's own type (f64 1e300 does not count): the finite guard's test."""

    def count_true(self, mask: Array) -> Array:
        """How many elements of the bool array `mask` are true: counted as integers, exact at any size."""

    def computing(self) -> AbstractContextManager[Any]:
        """What to compute with `xp` in: NaN and infinities are data, so nothing warns of them."""

    def function(self, primitive: Primitive) -> Callable[..., Array]:
        """What computes a primitive here: its own function, or a faster one of the same results."""

    def aside(self) -> AbstractContextManager[Any]:
        """What is read in it belongs to no step: a failure is looked at again."""

    def synchronize(self) -> None:
        """Wait for all that was asked of the device; nothing on a host backend."""


def open_backend(device: str) -> Backend:
    """The backend of `device`: `cpu`, `cuda`, `strict`, or `auto`.

    `auto` is `cuda` where CuPy is installed, finds a device and compiles for it, else `cpu`; CuPy is not
    imported where it is not installed.  `strict` computes on the CPU under a device's rules and keeps a
    list of what the host read.
    Raises E-RUN-050 to E-RUN-053 where `cuda` cannot be had, ValueError for another name.
    """
    if device not in _OPENERS:
        raise ValueError(f"not a device: {device!r}")
    return _OPENERS[device]()


def _cpu() -> Backend:
    from sxi.backends.numpy import NumpyBackend  # noqa: PLC0415 - a command that computes nothing needs no NumPy

    return NumpyBackend()


def _cuda() -> Backend:
    from sxi.backends.cupy import CupyBackend  # noqa: PLC0415 - only a run on a device needs it

    return CupyBackend()


def _strict() -> Backend:
    from sxi.backends.strict import StrictBackend  # noqa: PLC0415 - only a run under strict rules needs it

    return StrictBackend()


# What a driver puts there; without one of them CuPy need not be imported to know that there is no device.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")


def _auto() -> Backend:
    if sys.platform == "linux" and not any(map(os.path.exists, _DRIVERS)):
        return _cpu()
    try:
        return _cuda()
    except SxiError:
        return _cpu()


_OPENERS = {"auto": _auto, "cpu": _cpu, "cuda": _cuda, "strict": _strict}


def as_f64(number: Any) -> float:
    """A host number, or an array of no axes in the host's memory, as f64; infinite where it is past f64's range."""
    try:
        return float(number)
    except OverflowError:
        return copysign(inf, number > 0 or -1)
