"""The series that the prompt has seen: what it needs to draw them, in bounded memory.

Where several values share a place on the screen or in memory, the largest stands for them, never their
mean: a single violation must stay visible.  A NaN stands for all.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from threading import Lock
from typing import Any, TypeAlias

from sxi.guards import metadata_text

# Values that are kept as they were; the whole course is kept in at most `_BUCKETS` maxima.
RECENT = 1_024
_BUCKETS = 2_048

Identity: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]


def larger(a: float, b: float) -> float:
    """The larger of two values; NaN where one is."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)


@dataclass(slots=True, eq=False)
class Track:
    """One series as it was seen.

    recent:   the last (step, value)
    course:   (number of the bucket, its largest value) from the beginning on; a bucket is `width` steps
    first:    the step of its first value; failed: the step at which it failed last, or None
    """

    name: str
    meta: dict[str, Any]
    kind: str
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT))
    course: list[tuple[int, float]] = field(default_factory=list)
    width: int = 1
    first: int = 0
    failed: int | None = None

    @property
    def label(self) -> str:
        """`guard/geometry/off-manifold layer=3`."""
        return " ".join([self.name, *[f"{k}={metadata_text(v)}" for k, v in self.meta.items()]])

    @property
    def last(self) -> float:
        return self.recent[-1][1]

    @property
    def last_step(self) -> int:
        return self.recent[-1][0]

    def add(self, step: int, value: float) -> None:
        """One more value; a step that is taken again replaces what it had given."""
        while self.recent and self.recent[-1][0] >= step:
            self.recent.pop()
        if not self.course:
            self.first = step
        self.recent.append((step, value))
        number = step // self.width
        if self.course and self.course[-1][0] >= number:
            self.course[-1] = self.course[-1][0], larger(self.course[-1][1], value)
        else:
            self.course.append((number, value))
        if len(self.course) > _BUCKETS:
            self.width *= 2
            self.course = _merged(self.course)

    def stride(self, window: int) -> int:
        """How many steps lie between its values, by the last `window` of them."""
        steps = [s for s, _ in list(self.recent)[-window - 1 :]]
        return min([b - a for a, b in pairwise(steps)], default=1)


def _merged(course: list[tuple[int, float]]) -> list[tuple[int, float]]:
    made: list[tuple[int, float]] = []
    for number, value in course:
        if made and made[-1][0] == number // 2:
            made[-1] = number // 2, larger(made[-1][1], value)
        else:
            made.append((number // 2, value))
    return made


@dataclass(slots=True, eq=False)
class SeriesLog:
    """All series of a run, or of the prompt's own inputs.

    step:     the last step that reported; version: how often anything was added
    """

    tracks: dict[Identity, Track] = field(default_factory=dict)
    step: int = 0
    version: int = 0
    lock: Lock = field(default_factory=Lock)

    def add(self, step: int, values: Iterable[tuple[str, dict[str, Any], str, float]]) -> None:
        """The values of one step or pass: (name, metadata, kind, value)."""
        with self.lock:
            self.step = step
            self.version += 1
            for name, meta, kind, value in values:
                key = identity(name, meta)
                track = self.tracks.get(key)
                if track is None:
                    track = self.tracks[key] = Track(name, meta, kind)
                if track.failed is not None and track.failed != step and value == 0:
                    track.failed = None
                track.add(step, value)

    def fail(self, step: int, name: str, meta: dict[str, Any]) -> None:
        """Mark a guard's series as failed at `step`, until it reports a zero again."""
        with self.lock:
            self.version += 1
            track = self.tracks.get(identity(name, meta))
            if track is not None:
                track.failed = step

    def in_order(self) -> list[Track]:
        """The series: failed ones first, then guards, then the rest, each in the order of the walk."""
        with self.lock:
            tracks = [t for t in self.tracks.values() if t.recent]
        return sorted(tracks, key=lambda t: (t.failed is None, t.kind != "guard"))


def identity(name: str, meta: dict[str, Any]) -> Identity:
    """What makes two series one, whatever the order of their metadata."""
    return name, tuple(sorted(meta.items(), key=lambda pair: pair[0]))
