"""Schedules and initializers against their formulas worked out in Python, in a graph and at the top level."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sxi.backends import open_backend
from sxi.program import load_source
from sxi.source import Source
from tests.library.running import begun


def cosine(s: int, peak: float, start: int, total: int, end: float) -> float:
    if s >= total:
        return end
    return end + (peak - end) * (1 + math.cos(math.pi * (s - start) / (total - start))) / 2


STEPS = range(1, 13)
SCHEDULES = {
    "(constant 0.25)": [0.25] * 12,
    "(linear-warmup :peak 0.5 :warmup 4)": [0.125, 0.25, 0.375] + [0.5] * 9,
    "(linear-warmup :peak 0.5 :warmup 0)": [0.5] * 12,
    "(cosine :peak 0.3 :total 10)": [cosine(s, 0.3, 0, 10, 0.0) for s in STEPS],
    "(cosine :peak 0.3 :total 10 :end 0.1)": [cosine(s, 0.3, 0, 10, 0.1) for s in STEPS],
    "(warmup-cosine :peak 0.6 :warmup 3 :total 9)": [0.2, 0.4] + [cosine(s, 0.6, 3, 9, 0.0) for s in range(3, 13)],
    "(warmup-cosine :peak 0.6 :warmup 3 :total 9 :end 0.2)": [0.2, 0.4]
    + [cosine(s, 0.6, 3, 9, 0.2) for s in range(3, 13)],
    "(warmup-cosine :peak 0.6 :warmup 0 :total 9)": [cosine(s, 0.6, 0, 9, 0.0) for s in STEPS],
    "(warmup-cosine :peak 0.6 :warmup 3 :total 3 :end 0.1)": [0.2, 0.4] + [0.1] * 10,
    "(warmup-cosine :peak 0.6 :warmup 0 :total 0 :end 0.1)": [0.1] * 12,
    "(step-decay :peak 0.8 :every 5 :factor 0.5)": [0.8] * 5 + [0.4] * 5 + [0.2] * 2,
    "(step-decay :peak 1 :every 1)": [10.0**-k for k in range(12)],
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_in_a_graph(schedule: str, tmp_path: Path) -> None:
    text = f"""
        (define rate {schedule})
        (objective (batch)
          (metric "rate" (rate (step)))
          (mean (square (linear "l" (:x batch) 1))))
        (optimizer still (p g :lr required) (metric "lr" lr) (update (- p (* 0.0 lr g))))
        (run r :data points :batch 2 :steps 12 :optimizer (still :lr rate))"""
    ours = begun(tmp_path, text, {"x": np.ones((4, 2), dtype=np.float32)}).to_the_end()
    expected = SCHEDULES[schedule]
    for series in ("rate", "lr"):
        np.testing.assert_allclose(ours.points[series, None], expected, rtol=1e-6, atol=1e-8, err_msg=series)
    if ":end" in schedule:  # reached and kept to the bit
        assert {ours.points["lr", None][-1], ours.points["lr", None][-2]} == {float(np.float32(expected[-1]))}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_takes_a_number_too(schedule: str) -> None:
    loaded = load_source(Source("s.sx", f"(define rate {schedule})\n(print (map rate (range 1 13)))"))
    printed = loaded.evaluate(open_backend("cpu"), {}).declared.printed
    np.testing.assert_allclose([float(x) for x in printed[0].strip("[]").split()], SCHEDULES[schedule], rtol=1e-12)


def initialized(tmp_path: Path, shape: str, initializer: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    text = f"""
        (objective (batch) (+ (mean (:x batch)) (mean (param "w" {shape} :init {initializer}))))
        (run r :data points :batch 2 :steps 1 :seed 3 :optimizer (sgd :lr 0.1))"""
    return np.asarray(begun(tmp_path, text, {"x": np.ones((2, 1), dtype=np.float32)}).params["w"])


@pytest.mark.parametrize(
    ("shape", "into", "out"),
    [
        ("[300 200]", 300, 200),
        ("[3 5 40 60]", 15 * 40, 15 * 60),
        ("[7 50 60]", 7 * 50, 7 * 60),
        ("[20000]", 20000, 20000),
        ("[]", 1, 1),
        ("[0 4]", 0, 4),
        ("[4 0]", 4, 0),
        ("[0]", 0, 0),
    ],
)
def test_glorot_and_he_count_the_paths(shape: str, into: int, out: int, tmp_path: Path) -> None:
    limit = math.sqrt(6 / max(into + out, 1))
    w = initialized(tmp_path, shape, "glorot")
    assert np.all(np.abs(w) <= limit * (1 + 1e-6))
    h = initialized(tmp_path, shape, "he")
    assert np.all(np.isfinite(h))
    if w.size > 1000:
        assert np.std(w) == pytest.approx(limit / math.sqrt(3), rel=0.03)
        assert np.abs(w).max() == pytest.approx(limit, rel=0.01)
        assert np.std(h) == pytest.approx(math.sqrt(2 / into), rel=0.03)
        assert np.mean(h) == pytest.approx(0.0, abs=0.05 * math.sqrt(2 / into))


def test_the_plain_initializers(tmp_path: Path) -> None:
    np.testing.assert_array_equal(initialized(tmp_path, "[2 3]", "zeros-init"), np.zeros((2, 3)))
    np.testing.assert_array_equal(initialized(tmp_path, "[2 3]", "ones-init"), np.ones((2, 3)))
    np.testing.assert_array_equal(initialized(tmp_path, "[2]", "(constant-init :value 0.5)"), [0.5, 0.5])
    u = initialized(tmp_path, "[9999]", "(uniform-init :low 2 :high 3)")
    assert u.min() >= 2
    assert u.max() <= 3
    assert np.mean(u) == pytest.approx(2.5, abs=0.01)
    n = initialized(tmp_path, "[9999]", "(normal-init :scale 0.1 :mean 7)")
    assert np.mean(n) == pytest.approx(7, abs=0.01)
    assert np.std(n) == pytest.approx(0.1, rel=0.03)
