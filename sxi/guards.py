"""What a guard is: its slots, what it counts, the verdict over a step's totals, and the messages.

Array-module agnostic: it sees counts only when they are on the host, as f64 totals.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sxi import codes
from sxi.errors import SxiError
from sxi.source import Span

Metadata: TypeAlias = tuple[tuple[str, bool | int | float | str], ...]
Identity: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def series_identity(name: str, metadata: Metadata) -> Identity:
    """What tells series apart: the same name and metadata in another order are one; 1, 1.0 and true are three."""
    return name, tuple(sorted([(key, repr(value)) for key, value in metadata]))


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """One guard as written, with one set of metadata, in one graph: a slot of the counters.

    form:     `guard`, `assert-finite`, `:below` or `:above`
    param:    for an optimizer's guard, the parameter whose update it looks at
    group:    and the group of that parameter, as its series is labelled
    operand:  the op that is looked at, for `failure/` and for `explain`
    calls:    (what was called, where) from the form outwards
    """

    form: str
    name: str
    metadata: Metadata
    span: Span
    graph: str
    calls: Sequence[tuple[str, Span]] = ()
    operand: Any = None
    param: str | None = None
    group: str | None = None
    bound: float | None = None

    @property
    def series(self) -> Identity:
        """What makes two guards one series."""
        return series_identity(self.name, self.metadata)

    @property
    def label(self) -> str:
        """`geometry/off-manifold layer=3`; an optimizer's ends in its parameter."""
        shown = self.metadata if self.param is None else (*self.metadata, ("param", self.param))
        return " ".join([self.name, *[f"{k}={metadata_text(v)}" for k, v in shown]])


# A message is one line.
_ESCAPES = str.maketrans({'"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


def metadata_text(value: bool | int | float | str) -> str:
    """A metadata value in a message: bare, quoted only where it holds white space, `=` or `"`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = value == "" or any(c.isspace() or c in '="' for c in value)
        return f'"{value.translate(_ESCAPES)}"' if quoted else value
    return repr(value)


def count_text(total: float) -> str:
    """A total in a message: whole ones as integers, whatever their size; others in the shortest form, as the series."""
    if math.isnan(total):
        return "NaN"
    if math.isinf(total):
        return "Infinity" if total > 0 else "-Infinity"
    if total == int(total):
        return str(int(total))
    if series_value(total) != total:
        return repr(total)
    # a sum of f32 counts: the fewest digits that give this f32
    return next(text for digits in range(1, 18) if series_value(float(text := f"{total:.{digits}g}")) == total)


def series_value(total: float) -> float | None:
    """A total as its series reports it, an f32; None where f32 cannot hold it.

    Left out are a whole total that f32 would round and any total past its range.
    """
    if not math.isfinite(total):
        return total
    rounded = nearest_f32(total)
    return None if total == int(total) and rounded != total else rounded


def nearest_f32(value: float) -> float | None:
    """The f32 nearest to a finite number; None past the range of f32."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return None
    return rounded


@dataclass(slots=True)
class GuardTable:
    """The guards of a graph in the order of the walk, each with the number of its slot."""

    guards: list[Guard] = field(default_factory=list)
    _slots: dict[Any, int] = field(default_factory=dict)

    def slot(self, guard: Guard) -> int:
        """The slot of `guard`: a form that the same body walks again with the same metadata counts into the same."""
        key = (guard.span, guard.form, guard.bound, *guard.series, guard.graph, guard.param)
        if key not in self._slots:
            self._slots[key] = len(self.guards)
            self.guards.append(guard)
        return self._slots[key]


@dataclass(frozen=True, slots=True)
class Total:
    """A series' total in one step or pass.

    source:  the first guard of the series, in the order of the walk, whose own total is not zero
    """

    guard: Guard
    count: float
    source: Guard


def totals_by_series(guards: Sequence[Guard], counts: Sequence[float]) -> list[Total]:
    """Each series' total over its forms and bounds, in the order of the walk."""
    sums: dict[Any, float] = {}
    first: dict[Any, Guard] = {}
    source: dict[Any, Guard] = {}
    for guard, count in zip(guards, counts, strict=True):
        key = guard.series
        sums[key] = sums.get(key, 0.0) + float(count)
        first.setdefault(key, guard)
        if count != 0:
            source.setdefault(key, guard)
    return [Total(first[k], total, source.get(k, first[k])) for k, total in sums.items()]


def failures(guards: Sequence[Guard], counts: Sequence[float]) -> list[Total]:
    """The series whose total is not equal to zero, the first failing form in the walk's order first."""
    if not any(counts):  # as in every step but the last
        return []
    failing = [t for t in totals_by_series(guards, counts) if t.count != 0]
    order = {id(g): i for i, g in enumerate(guards)}
    return sorted(failing, key=lambda t: order[id(t.source)])


def optimizer_failures(guards: Sequence[Guard], counts: Sequence[float]) -> list[Total]:
    """An optimizer's guards that counted: one parameter's update at a time, in the order of parameters.

    `guards` are in the order of the walk: the first form of each parameter in the order of parameters.  Each
    count is that of its form, both of its bounds where it has two, and its parameter.
    """
    order: dict[str | None, int] = {}
    first: dict[Any, Guard] = {}
    source: dict[Any, Guard] = {}  # of two bounds the one that counted
    sums: dict[Any, float] = {}
    for guard, count in zip(guards, counts, strict=True):
        key = guard.param, guard.span, guard.series
        order.setdefault(guard.param, len(order))
        first.setdefault(key, guard)
        if count != 0:
            source.setdefault(key, guard)
        sums[key] = sums.get(key, 0.0) + float(count)
    failing = [Total(first[key], total, source[key]) for key, total in sums.items() if total != 0]
    return sorted(failing, key=lambda t: order[t.guard.param])  # `total` walks for every parameter at once


def guard_error(total: Total, step: int, pass_name: str | None = None) -> SxiError:
    """The error of a guard that counted."""
    where = f"at step {step}" if pass_name is None else f"in pass {pass_name} at step {step}"
    source = total.source
    error = codes.GUARD_FAILED.at(
        source.span, guard=source.label, count=count_text(total.count), where=where, source=source.span
    )
    error.data = failure_data(error, total, step)
    error.chain = list(source.calls)
    return error


def failure_data(error: SxiError, total: Total, step: int) -> dict[str, Any]:
    """What the status file and the annotation say of a failure, JSON values only."""
    meta = dict(total.source.metadata)
    if total.source.param is not None:
        meta["param"] = total.source.param
    return {
        "code": error.code,
        "message": error.message,
        "guard": total.source.name,
        "meta": meta,
        "count": json_count(total.count),
        "step": step,
        "source": str(total.source.span),
    }


def json_count(total: float) -> int | float | str:
    """A total as strict JSON holds it, whole ones whole."""
    if math.isfinite(total):
        return int(total) if total == int(total) else total
    return count_text(total)


def finite_error(what: str, count: float, step: int) -> SxiError:
    """The finite guard's error: `what` is `loss`, `gradient of NAME` or `update of NAME`."""
    error = codes.NOT_FINITE.at(None, what=what, count=count_text(count), step=step)
    error.data = {
        "code": error.code, "message": error.message, "guard": None, "what": what, "meta": {},
        "count": json_count(count), "step": step, "source": None,
    }  # fmt: skip
    return error


def first_not_finite(labels: Iterable[str], counts: Iterable[float]) -> tuple[str, float] | None:
    """The first label whose count is not zero: the loss, then gradients, then updates."""
    for label, count in zip(labels, counts, strict=True):
        if count != 0:
            return label, float(count)
    return None
