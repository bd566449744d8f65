"""Metrics and diagnostics: what makes a series, how the values of one step become one.

The values of a step are gathered on the device in f64: sums in one part of the counters, maxima (a
minimum as a negated maximum) in another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sxi.guards import Identity, Metadata, nearest_f32, series_identity
from sxi.source import Span

REDUCES = ("mean", "sum", "min", "max", "last")


@dataclass(slots=True, eq=False)
class Series:
    """One metric or diagnostic with one set of metadata in one graph.

    values:  what is reported in one run of the graph, in the order of the walk: ops or host numbers
    group:   for an optimizer's, the group's name
    """

    kind: str
    name: str
    metadata: Metadata
    reduce: str
    span: Span
    graph: str
    group: str | None = None
    values: list[Any] = field(default_factory=list)

    @property
    def key(self) -> Identity:
        return series_identity(self.name, self.metadata)

    @property
    def is_extreme(self) -> bool:
        return self.reduce in ("min", "max")


@dataclass(slots=True)
class SeriesTable:
    """The series of a graph in the order of the walk."""

    series: dict[Any, Series] = field(default_factory=dict)

    def add(self, made: Series, value: Any) -> None:
        """Report one more value of a series."""
        known = self.series.setdefault((*made.key, made.group), made)
        known.values.append(value)

    def all(self) -> list[Series]:
        return list(self.series.values())


def reduced(series: Series, total: float, evaluations: float) -> float:
    """The value of one step from what was gathered: `evaluations` is the weight that a mean divides by."""
    if series.reduce == "mean":
        return total / evaluations if evaluations else math.nan
    return 0.0 - total if series.reduce == "min" else total  # 0.0 - 0.0 is 0.0, and -0.0 is written so


def as_f32(value: float) -> float:
    """A value as a series holds it: rounded to f32, past its range an infinity."""
    if not math.isfinite(value):
        return value
    rounded = nearest_f32(value)
    return math.copysign(math.inf, value) if rounded is None else rounded


def matches(globs: Sequence[str], name: str) -> bool:
    """Whether one of `globs` takes `name`; `*` is any run of characters, `/` too."""
    return any([matches_glob(g, name) for g in globs])


def matches_glob(glob: str, name: str) -> bool:
    """Whether `glob` takes the whole of `name`."""
    parts = glob.split("*")
    if len(parts) == 1:
        return glob == name
    if not name.startswith(parts[0]) or not name[len(parts[0]) :].endswith(parts[-1]):
        return False
    at = len(parts[0])
    end = len(name) - len(parts[-1])
    for part in parts[1:-1]:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return at <= end
