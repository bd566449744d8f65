"""Where each count and each sum of a step stands in the counter vector, and what is reported of it.

One f64 vector holds, for one graph: the guards' slots, then the sums of series, then their extremes.
Its places are fixed when the graph is traced, so that nothing is allocated in a microbatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sxi.backends import Array, Backend
from sxi.guards import Guard, series_value
from sxi.series import Series, as_f32, reduced
from sxi.trace import Recording


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """A series as the stream names it.

    kind:  "metric", "diagnostic" or "guard"
    """

    name: str
    meta: dict[str, Any]
    kind: str


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a series in one step."""

    label: Label
    value: float


@dataclass(slots=True, eq=False)
class Layout:
    """The places of one graph's counts and sums, from `start` on.

    guards:    in the order of the walk, the first slots
    series:    with the place of each: sums behind the guards, extremes behind the sums
    weights:   sizes of batches that are gathered apart, since a mean weights them: [n] for a step
    evaluations:  for each size of batch, which has its own set of sums, how often it evaluates each series
    """

    recording: Recording
    start: int
    runtime: dict[str, Any]
    evaluations: list[list[int]] = field(default_factory=list)
    guards: list[Guard] = field(init=False)
    series: list[Series] = field(init=False)
    sums: dict[int, int] = field(init=False)
    extremes: dict[int, int] = field(init=False)
    guard_labels: dict[Any, Label] = field(init=False)
    labels: list[Label] = field(init=False)
    _guard_slots: list[tuple[Label, list[int]]] = field(init=False)

    def __post_init__(self) -> None:
        self.guards = self.recording.guards.guards
        self.series = self.recording.series.all()
        self.evaluations = self.evaluations or [[len(s.values) for s in self.series]]
        self.sums = {i: n for n, i in enumerate([i for i, s in enumerate(self.series) if not s.is_extreme])}
        self.extremes = {i: n for n, i in enumerate([i for i, s in enumerate(self.series) if s.is_extreme])}
        self.labels = [Label(s.name, self._meta(s.metadata, s.group), s.kind) for s in self.series]
        self.guard_labels = {}
        slots: dict[Any, list[int]] = {}
        for i, g in enumerate(self.guards):
            key = (*g.series, g.group)
            self.guard_labels.setdefault(key, Label(f"guard/{g.name}", self._meta(g.metadata, g.group), "guard"))
            slots.setdefault(key, []).append(self.start + i)
        self._guard_slots = [(self.guard_labels[key], own) for key, own in slots.items()]

    def _meta(self, metadata: Sequence[tuple[str, Any]], group: str | None) -> dict[str, Any]:
        extra = {"param": group} if group is not None else {}
        return {**dict(metadata), **self.runtime, **extra}

    @property
    def variants(self) -> int:
        return len(self.evaluations)

    @property
    def size(self) -> int:
        return len(self.guards) + self.variants * len(self.sums) + len(self.extremes)

    @property
    def first_extreme(self) -> int:
        return self.start + len(self.guards) + self.variants * len(self.sums)

    @property
    def end(self) -> int:
        return self.start + self.size

    def values(self) -> tuple[list[Any], list[int], list[Any], list[int], list[Any], list[int]]:
        """What a run of the graph adds: guards' counts, sums and extremes, each with its slots (variant 0)."""
        tallies = self.recording.tallies
        sums: list[Any] = []
        sum_slots: list[int] = []
        extremes: list[Any] = []
        extreme_slots: list[int] = []
        for i, s in enumerate(self.series):
            if s.is_extreme:
                extremes += s.values
                extreme_slots += [self.first_extreme + self.extremes[i]] * len(s.values)
            else:
                given = s.values[-1:] if s.reduce == "last" else s.values
                sums += given
                sum_slots += [self.start + len(self.guards) + self.sums[i]] * len(given)
        return (
            [c for _, c in tallies],
            [self.start + slot for slot, _ in tallies],
            sums,
            sum_slots,
            extremes,
            extreme_slots,
        )

    # Reading

    def counts(self, totals: Sequence[float]) -> Sequence[float]:
        """Each guard's total."""
        return totals[self.start : self.start + len(self.guards)]

    def guard_points(self, totals: Sequence[float]) -> list[Point]:
        """The guards' series: one value for each name, metadata and group; none where f32 cannot hold it."""
        points = []
        for label, slots in self._guard_slots:
            total = totals[slots[0]] if len(slots) == 1 else sum([totals[slot] for slot in slots])
            value = series_value(total) if total else 0.0
            if value is not None:
                points.append(Point(label, value))
        return points

    def series_points(self, totals: Sequence[float], runs: Sequence[float], weights: Sequence[float]) -> list[Point]:
        """The series' values.

        runs:     how often the graph was run for each size of batch
        weights:  of one run, for each size
        """
        points = []
        for i, s in enumerate(self.series):
            if s.is_extreme:
                value = totals[self.first_extreme + self.extremes[i]]
                points.append(Point(self.labels[i], as_f32(reduced(s, value, 1))))
                continue
            first = self.start + len(self.guards) + self.sums[i]
            values = [totals[first + v * len(self.sums)] for v in range(self.variants)]
            each = [own[i] for own in self.evaluations]
            if s.reduce == "mean":
                sum_ = sum([w * x for w, x in zip(weights, values, strict=True) if w])
                weight = sum([w * n * k for w, n, k in zip(weights, runs, each, strict=True)])
                points.append(Point(self.labels[i], as_f32(reduced(s, sum_, weight))))
            elif s.reduce == "sum" or each[-1]:  # the last batch, the ragged one, may have no value to be the last
                points.append(Point(self.labels[i], as_f32(sum(values))))
        return points


@dataclass(slots=True, eq=False)
class Gathering:
    """Adds what one run of a graph gave to the counters.

    outputs:  what the plan is asked for, in the order of the slots
    """

    layout: Layout
    outputs: list[Any] = field(init=False)
    _counts: tuple[int, list[int]] = field(init=False)
    _sums: tuple[int, list[int]] = field(init=False)
    _extremes: tuple[int, list[int], list[int]] = field(init=False)

    def __post_init__(self) -> None:
        layout = self.layout
        counts, count_slots, sums, sum_slots, extremes, extreme_slots = layout.values()
        self.outputs = [*counts, *sums, *extremes]
        self._counts = len(counts), count_slots
        self._sums = len(sums), sum_slots
        signs = [-1 if s.reduce == "min" else 1 for s in layout.series if s.is_extreme for _ in s.values]
        self._extremes = len(extremes), extreme_slots, signs

    def add(
        self, backend: Backend, counters: Array, values: Sequence[Array], *, variant: int = 0, is_last: bool = True
    ) -> None:
        """Tally the values of `outputs` into the counter vector; `:last` only where `is_last`."""
        n_counts, count_slots = self._counts
        n_sums, sum_slots = self._sums
        shift = variant * len(self.layout.sums)
        sums = values[n_counts : n_counts + n_sums]
        slots = [s + shift for s in sum_slots] if shift else sum_slots
        if not is_last:
            sums, slots = self._without_last(sums, slots)
        backend.tally(counters, [*count_slots, *slots], [*values[:n_counts], *sums])
        if self._extremes[0]:
            _, extreme_slots, signs = self._extremes
            extremes = values[n_counts + n_sums :]
            signed = [_negated(backend, x) if sign < 0 else x for x, sign in zip(extremes, signs, strict=True)]
            backend.tally_maximum(counters, extreme_slots, signed)

    def _without_last(self, sums: Sequence[Array], slots: Sequence[int]) -> tuple[list[Array], list[int]]:
        kinds = [
            s.reduce
            for s in self.layout.series
            if not s.is_extreme
            for _ in (s.values[-1:] if s.reduce == "last" else s.values)
        ]
        kept = [(x, slot) for x, slot, kind in zip(sums, slots, kinds, strict=True) if kind != "last"]
        return [x for x, _ in kept], [slot for _, slot in kept]


def _negated(backend: Backend, x: Array) -> Array:
    """-x in f64: the smallest whole number of a type has no negative in it."""
    return backend.xp.negative(x, dtype="float64") if hasattr(x, "dtype") else -x


def cleared(backend: Backend, size: int, layouts: Sequence[Layout]) -> Array:
    """A counter vector of zeros, extremes at -inf."""
    counters = backend.counters(size)
    for layout in layouts:
        if layout.extremes:
            counters[layout.first_extreme : layout.end] = float("-inf")
    return counters
