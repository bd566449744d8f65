"""Laws of random programs: a naive evaluator agrees, totals are sums over any cut, guards change no number."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from sxi.backends import open_backend
from sxi.errors import SxiError
from sxi.program import load_source
from sxi.run import Failure, Report, Runner
from sxi.source import Source
from sxi.stages import check_run
from tests.drawn import COLUMN, NUMBER, ROWS, WATCHING, Case, anything, cases, of_a_row
from tests.naive import Inexact, Naive, Series, Step, series_of

FEW = settings(
    phases=[Phase.generate, Phase.shrink],
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


def runner_of(folder: Path, text: str, **columns: Any) -> Runner:
    """A run that has begun, over these columns."""
    np.savez(folder / "d.npz", **columns)
    loaded = load_source(Source(str(folder / "law.sx"), text))
    assert not loaded.errors, loaded.errors
    host = open_backend("cpu")
    made = Runner(check_run(loaded, host), host, host)
    made.begin()
    return made


def taken(made: Runner) -> list[Report]:
    """The reports of the run, each once, the failing one last."""
    found: list[Report] = []
    for r in made.reports():
        if not found or found[-1] is not r:
            found.append(r)
    return found


def shown(report: Report) -> dict[Series, float]:
    return {series_of(p.label.name, p.label.meta): p.value for p in report.points}


def same(a: dict[Series, float], b: dict[Series, float]) -> bool:
    return a.keys() == b.keys() and all(a[k] == b[k] or (math.isnan(a[k]) and math.isnan(b[k])) for k in a)


def naively(case: Case) -> list[Step]:
    """What the naive evaluator says of each step, to the first whose verdict is not good."""
    found = []
    for step in range(case.steps):
        try:
            found.append(Naive(case.text()).evaluate(list(case.batches(step))))
        except Inexact:
            assume(False)
        if found[-1].verdict() is not None:
            break
    return found


def failure_of(failure: Failure | None) -> tuple[Series, float, int] | None:
    if failure is None:
        return None
    error = failure.error
    assert error.code == "E-GUARD-001"
    assert failure.guard is not None
    count = failure.error.data["count"]
    assert error.span is not None
    return series_of(failure.guard.name, dict(failure.guard.metadata)), float(count), error.span.start


@FEW
@given(case=cases())
def test_a_naive_evaluator_agrees(folder: Path, case: Case) -> None:
    expected = naively(case)
    found = taken(runner_of(folder, case.text(), x=case.x, y=case.y))
    assert len(found) == len(expected)
    for i, (step, mine) in enumerate(zip(expected, found, strict=True)):
        assert mine.step == i + 1
        assert same(shown(mine), step.points()), (shown(mine), step.points())
    assert repr(failure_of(found[-1].failure)) == repr(expected[-1].verdict())


# Guards change no number


def held(made: Runner, steps: int = 0) -> dict[str, bytes]:
    """The bytes of what the run holds after so many steps more."""
    end = made.step + steps
    for report in made.reports() if steps else ():
        if report.ends_step and report.step == end:
            break
    assert made.step == end
    return {name: x.tobytes() for name, x in made.state.to_host(made.backend).items()}


def gradients(made: Runner, steps: int) -> list[bytes]:
    """The bytes of the gradients of each step where the run has begun, whatever its verdict would be."""
    with made.backend.computing():
        return [made.backend.to_host(g).tobytes() for step in range(steps) for g in made.gradients(step + 1)[0]]


def test_guards_change_no_number_of_the_program(folder: Path) -> None:
    moved, went_on = [0], [0]

    @settings(FEW, max_examples=80)
    @given(case=cases())
    def law(case: Case) -> None:
        def begun(reports: bool) -> Runner:
            text = case.text(reports=reports, optimizer="(momentum :lr 0.5)")
            return runner_of(folder, text, x=case.x, y=case.y)

        guarded, bare = begun(True), begun(False)
        found = gradients(guarded, case.steps)
        assert found == gradients(bare, case.steps)
        moved[0] += any([any(g) for g in found])
        # a step that fails changes nothing
        last = taken(guarded)[-1]
        assert guarded.step == last.step - (last.failure is not None)
        assert held(guarded) == held(bare, guarded.step)
        went_on[0] += guarded.step > 0

    law()
    assert min(moved[0], went_on[0]) >= 10, (moved, went_on)


# Totals are sums over any cut


LOOK = """
  (guard "rows" (count-where (> {a} 0.5)))
  (guard "columns" (count-where (logical-or (nan? {b}) (< {b} -0.25))) :k 1)
  (assert-finite "finite" {a})
  (metric "sum" (sum (where (> {b} 0.0) 1.0 0.0)) :reduce :sum)"""
CUT = """(data d (npz "d.npz"))
(define (look x y) {look})
(objective (batch) {objective} (* 0.0 (param "w" [] :init ones-init)))
(evaluate held (batch) {evaluate})
(run r :data d :shuffle off :steps 1 :batch 12 :microbatches {microbatches} :optimizer (sgd :lr 1.0)
  :evaluate [(held :data d :batch {batch})])
"""


@settings(FEW, max_examples=40)
@given(
    a=of_a_row(ROWS, 2), b=of_a_row(COLUMN, 2), flat=st.lists(NUMBER, min_size=36, max_size=36),
    microbatches=st.sampled_from([1, 2, 3, 4, 6, 12]), batch=st.integers(1, 13),
)  # fmt: skip
def test_totals_are_sums_of_counts_over_any_cut(
    folder: Path, a: str, b: str, flat: list[float], microbatches: int, batch: int
) -> None:
    x, y = np.array(flat[:24], np.float32).reshape(12, 2), np.array(flat[24:], np.float32)
    look, call = LOOK.format(a=a, b=b), "(look (:x batch) (:y batch))"
    alone = Naive(f"(objective (batch) (let ((x (:x batch)) (y (:y batch))) {look}))")
    expected: dict[Series, float] = {}
    for row in range(12):
        try:
            step = alone.evaluate([{"x": x[row : row + 1], "y": y[row : row + 1]}])
        except Inexact:
            assume(False)
        for series, value in step.points().items():
            expected[series] = expected.get(series, 0.0) + value
    for objective, evaluate in ((call, "0.0"), ("0.0", call)):
        text = CUT.format(look=look, objective=objective, evaluate=evaluate, microbatches=microbatches, batch=batch)
        points: dict[Series, float] = {}
        for report in taken(runner_of(folder, text, x=x, y=y)):
            for p in report.points:
                points[series_of(p.label.name, {k: v for k, v in p.label.meta.items() if k != "pass"})] = p.value
        assert same(points, expected)


# What check accepts raises verdicts only


ANYTHING = """(data d (npz "d.npz"))
(setting shift 0.5)
(define (twice v) (+ v v))
(define (watched v) {watching})
(optimizer own (p g :lr 0.1)
  (guard "update" (count-where (> (abs g) 1e6)))
  (diagnostic "d" (norm g))
  (update (- p (* lr g))))
(define (all batch)
  (let ((x (:x batch)) (y (:y batch)) (w (param "w" [] :init ones-init)) (s (state "s" [] :init zeros-init)))
    {reports}
    (+ (* shift w) (mean {loss}))))
(objective (batch) (all batch))
(evaluate held (batch) (all batch))
(curriculum (stage "a" :until (= (step) 1)) (stage "b" :set {{:shift 0.25}}))
(run r :data d :steps {steps} :batch {batch} :microbatches {microbatches} :guard-finite {finite} :optimizer (own)
  :diagnostics {diagnostics} :sample-every 2 :evaluate [(held :data d :batch 2 :every 1)])
"""


def test_what_check_accepts_raises_verdicts_only(folder: Path) -> None:
    outcomes: dict[str, int] = {}

    @settings(FEW, max_examples=160)
    @given(case=anything(), finite=st.sampled_from(["on", "off"]), sampled=st.booleans())
    def law(case: Case, finite: str, sampled: bool) -> None:
        text = ANYTHING.format(
            watching=WATCHING, reports=" ".join([t for t, _ in case.forms]), loss=case.loss[0], steps=case.steps,
            batch=case.n * case.microbatches, microbatches=case.microbatches, finite=finite,
            diagnostics='["*"]' if sampled else "[]",
        )  # fmt: skip
        try:
            made = runner_of(folder, text, x=case.x, y=case.y)
        except SxiError as refused:
            outcome = refused.code.split("-")[1]
        else:
            failure = taken(made)[-1].failure
            outcome = "done" if failure is None else failure.error.code
            assert outcome in ("done", "E-GUARD-001", "E-GUARD-002")
        assert outcome not in ("READ", "RUN", "USE")
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    law()
    assert min([outcomes.get(o, 0) for o in ("done", "E-GUARD-001")]) >= 20, outcomes
    assert {"EVAL", "SHAPE", "DTYPE", "CONTRACT"} <= outcomes.keys(), outcomes
