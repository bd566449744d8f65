"""The picture of series: maxima stay, NaN and gaps are seen, everything fits the room there is."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sxi.history import SeriesLog, Track
from sxi.panel import ASCII, UNICODE, panel_lines, plot_lines, spark_cells, sparkline
from sxi.render import cells


def track(values: dict[int, float], kind: str = "metric", name: str = "m") -> Track:
    made = Track(name, {}, kind)
    for step, value in values.items():
        made.add(step, value)
    return made


@pytest.mark.parametrize(
    ("values", "drawn"),
    [
        ([0.0, 0.0, 0.0], "▁▁▁"),
        ([3.0, 3.0], "▄▄"),
        ([0.0, 1.0, 0.0], "▁█▁"),
        ([0.0, 1e-9, 1.0], "▁▂█"),
        ([1.0, math.nan, 2.0], "▁×█"),
        ([1.0, None, 2.0], "▁·█"),
        ([-math.inf, 0.0, math.inf], "▼▁▲"),
        ([math.nan, math.nan], "××"),
        ([-1e308, 1e308], "▁█"),
        ([], ""),
    ],
)
def test_a_sparkline(values: list[float | None], drawn: str) -> None:
    assert sparkline(values, UNICODE) == drawn
    assert sparkline(values, ASCII).isascii()


def test_a_step_without_a_value_is_a_gap_and_a_sampled_series_has_none() -> None:
    assert spark_cells(track({1: 1.0, 2: 2.0, 4: 4.0}), 5, 10) == [1.0, 2.0, None, 4.0, None]
    assert spark_cells(track({10: 1.0, 20: 2.0, 40: 4.0}), 45, 10) == [1.0, 2.0, None, 4.0]


def test_a_step_that_is_taken_again_replaces_its_value() -> None:
    assert list(track({1: 0.0, 2: 5.0, 3: 1.0}).recent) == [(1, 0.0), (2, 5.0), (3, 1.0)]
    again = track({1: 0.0, 2: 5.0})
    again.add(2, 0.0)
    assert list(again.recent) == [(1, 0.0), (2, 0.0)]


@given(st.integers(3_000, 30_000), st.data())
def test_one_violation_is_seen_however_long_the_run(steps: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, steps))
    made = Track("guard/g", {}, "guard")
    for step in range(1, steps + 1):
        made.add(step, 7.0 if step == at else 0.0)
    assert max([v for _, v in made.course]) == 7.0
    assert len(made.course) <= 2_048
    top = plot_lines(made, width=60, height=10)[1]
    assert top.startswith("7 ")
    assert top.rstrip() != "7"


def test_a_nan_stands_for_the_values_that_share_its_place() -> None:
    made = Track("m", {}, "metric")
    for step in range(1, 10_001):
        made.add(step, math.nan if step == 5_000 else 1.0)
    assert [math.isnan(v) for _, v in made.course].count(True) == 1
    assert "×" in "\n".join(plot_lines(made, width=60, height=10))


def log_of_many() -> SeriesLog:
    log = SeriesLog()
    for step in range(1, 200):
        values = [(f"guard/a-rather-long-name/of-guard-{n}", {"layer": n, "温": "度"}, "guard", 0.0) for n in range(30)]
        log.add(step, [*values, ("train/loss", {}, "metric", 1.0 / step)])
    log.fail(199, "guard/a-rather-long-name/of-guard-17", {"layer": 17, "温": "度"})
    return log


@pytest.mark.parametrize(
    ("width", "title"),
    [
        (80, "line  step 199/200  running  45.5 steps/s"),
        (40, "line  step 199/200  running"),
        (26, "line  step 199/200"),
        (8, "line"),
        (4, "line"),
    ],
)
def test_the_title_is_whole_parts(width: int, title: str) -> None:
    whole = "line  step 199/200  running  45.5 steps/s"
    assert panel_lines([], whole, 199, width=width, height=3)[0] == [("title", title)]


@pytest.mark.parametrize("width", [39, 60, 79])
def test_names_that_differ_are_told_apart(width: int) -> None:
    log = SeriesLog()
    for step in range(1, 100):
        log.add(step, [("guard/hidden/activation", {"layer": n, "split": "train"}, "guard", 0.0) for n in range(2)])
    lines = panel_lines(log.in_order(), "line", 99, width=width, height=9)[1:]
    assert lines[0][1][1] != lines[1][1][1]
    assert all([len(line[-1][1]) >= 8 for line in lines])
    if width == 79:
        assert lines[0][1][1] == "guard/hidden/activation layer=0 split=train"


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("height", [0, 1, 2, 6, 40])
@pytest.mark.parametrize("width", [1, 5, 19, 20, 31, 32, 40, 60, 80, 200])
def test_the_panel_fits_and_shows_the_failed_one_first(width: int, height: int, unicode: bool) -> None:
    lines = panel_lines(
        log_of_many().in_order(), "line  step 199/200", 199, width=width, height=height, unicode=unicode
    )
    assert len(lines) <= height
    assert all([cells("".join([text for _, text in line])) <= width for line in lines])
    if height > 2 and width >= 5:
        assert lines[1][0] == ("failed", "✗ " if unicode else "! ")
        assert lines[1][0] not in [line[0] for line in lines[2:]]
        assert len(lines) == min(height, 32)


def test_a_failure_is_marked_until_the_guard_is_zero_again() -> None:
    log = SeriesLog()
    point = ("guard/g", {}, "guard")
    log.add(3, [(*point, 2.0)])
    log.fail(3, "guard/g", {})
    assert [t.failed for t in log.in_order()] == [3]
    log.add(3, [(*point, 0.0)])
    log.add(4, [(*point, 0.0)])
    assert [t.failed for t in log.in_order()] == [None]


def test_a_panel_is_made_in_milliseconds() -> None:
    log = log_of_many()
    begun = time.process_time()
    for _ in range(20):
        panel_lines(log.in_order(), "title", 199, width=200, height=31)
    # 5 a second at 2 % of a core are 4 ms each; a slow machine is given ten times that
    assert (time.process_time() - begun) / 20 < 0.04


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize(("width", "height"), [(20, 5), (40, 15), (200, 60)])
@pytest.mark.parametrize(
    "values",
    [{1: 0.0}, {1: math.nan}, {1: 1.0, 2: math.inf}, {n: n * 1.5 for n in range(1, 99)}, {5: -1e308, 9: 1e308}],
)
def test_a_plot_fits(values: dict[int, float], width: int, height: int, unicode: bool) -> None:
    lines = plot_lines(track(values), width=width, height=height, unicode=unicode)
    assert len(lines) <= height + 2
    assert all([len(line) <= width for line in lines])
    assert unicode or "".join(lines).isascii()
