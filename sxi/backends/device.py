"""What the backends with a memory of their own share: everything by `xp`, nothing read until the one copy.

The host never branches on an array's numbers here, so there is no screen before a count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from sxi.backends import Array, HostArray, as_f64
from sxi.primitives.declare import Primitive


class DeviceBackend:
    """A backend of a device whose arrays have CuPy's interface.

    stream:  where work is queued, passed to an array's `get`; None is the device's current one
    """

    name: str
    xp: Any
    stream: Any = None

    def __init__(self) -> None:
        self._pinned: dict[int, HostArray] = {}

    def _pinned_buffer(self, n: int) -> HostArray:
        """A page-locked host array f64[n], which an asynchronous copy can be made into."""
        raise NotImplementedError

    def _wait_for_copy(self) -> None:
        """Return when the copy that was queued last has arrived."""
        raise NotImplementedError

    def asarray(self, host: HostArray) -> Array:
        return self.xp.array(host, order="C")

    def to_host(self, x: Array) -> HostArray:
        return x.get(stream=self.stream)

    def counters(self, n: int) -> Array:
        self._landing(n)  # now rather than in the first step
        return self.xp.zeros(n, dtype="float64")

    def _landing(self, n: int) -> HostArray:
        if n not in self._pinned:
            self._pinned[n] = self._pinned_buffer(n)
        return self._pinned[n]

    def tally(self, counters: Array, slots: Sequence[int], values: Sequence[Array]) -> None:
        # One value after the other, as on the host: the order of a sum is part of its bits.
        for slot, value in zip(slots, values, strict=True):
            cell = counters[slot : slot + 1]
            cell += _operand(value)

    def tally_maximum(self, extremes: Array, slots: Sequence[int], values: Sequence[Array]) -> None:
        for slot, value in zip(slots, values, strict=True):
            cell = extremes[slot : slot + 1]
            self.xp.maximum(cell, _operand(value), out=cell)

    def read(self, counters: Array) -> HostArray:
        pinned = self._landing(counters.size)
        counters.get(stream=self.stream, out=pinned, blocking=False)
        self._wait_for_copy()
        return pinned.copy()

    def count_nonfinite(self, x: Array) -> Array:
        x = self.xp.asarray(x)
        return self.count_nonfinite_own(x.astype("float32") if x.dtype == "float64" else x)

    def count_nonfinite_own(self, x: Array) -> Array:
        x = self.xp.asarray(x)
        if x.dtype.kind != "f" or x.size == 0:
            return 0
        return (x.size - self.xp.count_nonzero(self.xp.isfinite(x))).astype("float64")

    def count_true(self, mask: Array) -> Array:
        return self.xp.count_nonzero(mask).astype("float64")

    def aside(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def computing(self) -> AbstractContextManager[Any]:
        return nullcontext()  # a device has no floating-point flags

    def function(self, primitive: Primitive) -> Callable[..., Array]:
        assert primitive.forward is not None, f"{primitive.name} is a composite"
        return primitive.forward


def _operand(value: Any) -> Any:
    """A tallied value as an operand of f64 arithmetic: a host number as a float, an array as it is."""
    return value if hasattr(value, "dtype") else as_f64(value)
