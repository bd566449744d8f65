"""The picture of series in text: sparklines, plots in braille, and the panel of a run.

Everything here is a function of values and of the room there is, so that a redraw is cheap and a test
needs no terminal.  A gap (no value where one would be), a NaN and infinities have marks of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from sxi.guards import count_text
from sxi.history import Track, larger
from sxi.render import cells as columns

# A style and a text; the styles are `title failed mark name value spark dim`.
Fragment: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Fragment]


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What a terminal can draw.  `levels` go from the least to the most; the first is a flat zero's."""

    levels: str
    gap: str
    nan: str
    above: str
    below: str
    more: str
    failed: str


UNICODE = Glyphs("▁▂▃▄▅▆▇█", "·", "×", "▲", "▼", "…", "✗")
ASCII = Glyphs("_.-~=+*#", " ", "N", "^", "v", "~", "!")

# Narrower than this the panel leaves the sparkline out.
_NARROW = 32
_WIDEST_SPARK = 60


def glyphs(unicode: bool) -> Glyphs:
    """The marks of a terminal."""
    return UNICODE if unicode else ASCII


# Sparklines


def spark_cells(track: Track, now: int, width: int) -> list[float | None]:
    """The last values, one for each of at most `width` places: None where a value is missing.

    A place is as many steps as usually lie between two values of the series.
    """
    recent = list(track.recent)[-2 * width - 2 :]
    if not recent:
        return []
    stride = track.stride(width)
    last = recent[-1][0]
    end = last + max(0, now - last) // stride * stride
    found: dict[int, float] = {}
    for step, value in recent:
        place = -((step - end) // stride)
        if 0 <= place < width:
            found[place] = larger(found[place], value) if place in found else value
    first = min(width - 1, -((track.first - end) // stride))
    return [found.get(place) for place in range(first, -1, -1)]


def sparkline(values: Sequence[float | None], marks: Glyphs, *, from_zero: bool = False) -> str:
    """A value a character: its height between the least and the greatest, or from zero on.

    A flat zero lies at the bottom, another flat line in the middle.
    """
    finite = [v for v in values if v is not None and math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    if from_zero:
        low = min(low, 0.0)
    return "".join([_level(v, low, high, marks) for v in values])


def _level(value: float | None, low: float, high: float, marks: Glyphs) -> str:
    if value is None:
        return marks.gap
    if math.isnan(value):
        return marks.nan
    if math.isinf(value):
        return marks.above if value > 0 else marks.below
    top = len(marks.levels) - 1
    if low == high:
        return marks.levels[top // 2 if value else 0]
    if value <= low:
        return marks.levels[0]
    # what is above the bottom is seen to be above it; halves, since a difference may be past the range of f64
    share = (value / 2 - low / 2) / (high / 2 - low / 2)
    return marks.levels[max(1, min(top, round(share * top)))]


# The panel


def panel_lines(
    tracks: Sequence[Track], title: str, now: int, *, width: int, height: int, unicode: bool = True
) -> list[Line]:
    """The panel of a run: a title, then a series a line, as many as there is room for.

    tracks:  in the order they are shown; failed ones are marked
    """
    if height < 1 or width < 4:
        return []
    marks = glyphs(unicode)
    while columns(title) > width and "  " in title:  # its last parts are the least
        title = title.rpartition("  ")[0]
    lines: list[Line] = [[("title", fitted(title, width, marks))]]
    room = height - 1
    shown = list(tracks) if len(tracks) <= room else list(tracks)[: max(0, room - 1)]
    values = [value_text(t.last) for t in shown]
    value_width = max([len(v) for v in values], default=0)
    longest = max([columns(t.label) for t in shown], default=1)
    # names that lose their middle may look the same, so the sparkline gives way, but not all of it
    wanted = min(width // 2 - value_width, width - 4 - value_width - longest)
    spark_width = 0 if width < _NARROW else min(_WIDEST_SPARK, max(8, wanted))
    name_width = width - 2 - value_width - 1 - (spark_width + 1 if spark_width else 0)
    name_width = max(1, min(name_width, longest))
    for track, value in zip(shown, values, strict=True):
        lines.append(_series_line(track, value, now, name_width, value_width, spark_width, marks))
    if len(shown) < len(tracks) and room > 0:
        lines.append([("dim", fitted(f"  {marks.more} {len(tracks) - len(shown)} more: ,series", width, marks))])
    return [_cut(line, width) for line in lines]


def _series_line(
    track: Track, value: str, now: int, name_width: int, value_width: int, spark_width: int, marks: Glyphs
) -> Line:
    bad = track.failed is not None
    name = fitted(track.label, name_width, marks)
    line: Line = [
        ("failed" if bad else "mark", f"{marks.failed} " if bad else "  "),
        ("failed" if bad else "name", name + " " * (name_width - columns(name))),
        ("failed" if bad or track.last != track.last else "value", f" {value.rjust(value_width)}"),
    ]
    if spark_width:
        drawn = sparkline(spark_cells(track, now, spark_width), marks, from_zero=track.kind == "guard")
        line.append(("failed" if bad else "spark", f" {drawn.rjust(spark_width)}"))
    return line


def _cut(line: Line, width: int) -> Line:
    """`line` without what goes past `width` columns."""
    made: Line = []
    for style, text in line:
        text = text[:width]
        while text and columns(text) > width:
            text = text[:-1]
        width -= columns(text)
        made.append((style, text))
    return made


def fitted(text: str, width: int, marks: Glyphs) -> str:
    """`text` in at most `width` columns: without its middle where it is longer."""
    if columns(text) <= width:
        return text
    if width <= 2:
        return text[:1] if columns(text[:1]) <= width else ""
    left = (width - 1) // 2
    head, tail = text[:left], text[len(text) - (width - 1 - left) :]
    while columns(head) + columns(tail) + 1 > width and (head or tail):
        head, tail = (head[:-1], tail) if columns(head) >= columns(tail) else (head, tail[1:])
    return f"{head}{marks.more}{tail}"


def value_text(value: float) -> str:
    """A value in a table: whole ones whole, others in six digits."""
    if not math.isfinite(value) or (value == int(value) and abs(value) < 1e15):
        return count_text(value)
    return f"{value:.6g}"


# Plots

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def plot_lines(track: Track, *, width: int, height: int, unicode: bool = True) -> list[str]:
    """The whole course of a series: its largest values, a dot each, in braille; stars where there is only ASCII."""
    marks = glyphs(unicode)
    course = list(track.course)
    finite = [v for _, v in course if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    labels = [value_text(high), value_text(low)]
    margin = max([len(text) for text in labels])
    across = 2 if unicode else 1
    places = max(1, min(width - margin - 1, 100)) * across
    values = _course(course, places)
    rows = max(1, min(height - 2, 12))
    drawn = _braille(values, low, high, rows) if unicode else _stars(values, low, high, rows)
    lines = []
    middle = rows - 1 - _height(low, low, high, rows)
    for number, row in enumerate(drawn):
        label = labels[0] if number == (middle if low == high else 0) else labels[1] if number == rows - 1 else ""
        label = "" if low == high and number != middle else label
        lines.append(f"{label.rjust(margin)} {row}".rstrip())
    lines += _odd_values(values, across, margin, marks)
    first, last = str(track.first), str(track.last_step)
    drawn_width = -(-len(values) // across)
    lines.append(" " * (margin + 1) + first + last.rjust(max(drawn_width - len(first), len(last) + 1)))
    return [f"{track.label}"[:width], *lines]


def _course(course: list[tuple[int, float]], places: int) -> list[float | None]:
    """The course in at most `places` maxima, None where there is no value."""
    if not course:
        return []
    first, last = course[0][0], course[-1][0]
    width = -(-(last - first + 1) // places)
    # a series with a value each k steps has a place for each of its values, and no gaps between them
    gaps = [b - a for (a, _), (b, _) in pairwise(course)]
    width = max(width, min(gaps, default=1))
    values: list[float | None] = [None] * ((last - first) // width + 1)
    for number, value in course:
        place = (number - first) // width
        known = values[place]
        values[place] = value if known is None else larger(known, value)
    return values


def _height(value: float, low: float, high: float, dots: int) -> int:
    """How many dots above the lowest a value lies, of `dots` in all."""
    if high <= low:
        return 0 if value == 0 else (dots - 1) // 2
    share = (value / 2 - low / 2) / (high / 2 - low / 2)
    return max(0, min(dots - 1, round(share * (dots - 1))))


def _braille(values: list[float | None], low: float, high: float, rows: int) -> list[str]:
    across = -(-len(values) // 2)
    grid = [[0] * across for _ in range(rows)]
    for place, value in enumerate(values):
        if value is not None and math.isfinite(value):
            dot = 4 * rows - 1 - _height(value, low, high, 4 * rows)
            grid[dot // 4][place // 2] |= _DOTS[place % 2][dot % 4]
    return ["".join([chr(0x2800 + cell) if cell else " " for cell in row]) for row in grid]


def _stars(values: list[float | None], low: float, high: float, rows: int) -> list[str]:
    grid = [[" "] * len(values) for _ in range(rows)]
    for place, value in enumerate(values):
        if value is not None and math.isfinite(value):
            grid[rows - 1 - _height(value, low, high, rows)][place] = "*"
    return ["".join(row) for row in grid]


def _odd_values(values: list[float | None], across: int, margin: int, marks: Glyphs) -> list[str]:
    """A line that marks the places of NaN and infinities, where there are any."""
    places = [" "] * -(-len(values) // across)
    for number, value in enumerate(values):
        if value is not None and not math.isfinite(value):
            places[number // across] = marks.nan if math.isnan(value) else marks.above if value > 0 else marks.below
    line = "".join(places).rstrip()
    return [" " * (margin + 1) + line] if line else []
