"""How the values of a step become one, and what a series' metadata says: metrics beside the guards."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.clauses.programs import optimized, passing
from tests.running import Program, column, only, training

NAN, INF = math.nan, math.inf
REDUCES = ("mean", "sum", "min", "max", "last")


def metrics(value: str) -> str:
    """The value under each reduction, each a series of its own name."""
    return " ".join(f'(metric "{r}" {value} :reduce :{r})' for r in REDUCES)


def reduced(values: list[float]) -> list[float]:
    """What the reductions give, worked out as they are described."""
    return [sum(values) / len(values), sum(values), min(values), max(values), values[-1]]


@pytest.mark.parametrize("rows", [[3.0, -1.0, 7.0, 2.0], [-1.0, -2.0, -8.0, -4.0], [0.0, 0.0, 0.0, 0.0]])
def test_over_the_microbatches_of_a_step(device_program: Program, rows: list[float]) -> None:
    done = device_program.run(training(f"{metrics(column('x'))} still", batch=4, steps=2), x=[*rows, *rows[::-1]])
    for name, first, second in zip(REDUCES, reduced(rows), reduced(rows[::-1]), strict=True):
        assert done.points(name) == [(1, first), (2, second)]


def test_the_smallest_whole_number_is_the_smallest(device_program: Program) -> None:
    for dtype, rows in (("i32", [-(2.0**31), 3.0]), ("i64", [-(2.0**63), 3.0])):
        value = f"(cast {column('x')} :{dtype})"
        done = device_program.run(training(f"{metrics(value)} still", batch=2, steps=1), x=rows)
        # the stream has the shortest digits that are the f32
        assert [np.float32(only(done.values(name))) for name in ("min", "max")] == [rows[0], 3.0]


def test_over_the_evaluations_in_a_microbatch_and_its_microbatches(device_program: Program) -> None:
    body = f"(fold (acc still) (i (range 3)) (begin {metrics('(+ i (sum (:x batch)))')} acc))"
    done = device_program.run(training(body, batch=2, steps=1), x=[10.0, 5.0])
    values = [10.0, 11.0, 12.0, 5.0, 6.0, 7.0]
    assert [only(done.values(name)) for name in REDUCES] == reduced(values)


def test_over_the_parameters_of_a_group(device_program: Program) -> None:
    optimizer = '[(group "both" "*" (guarded))]'
    done = device_program.run(optimized(metrics("(size p)"), steps=1, optimizer=optimizer), a=[1.0], b=[1.0])
    assert [only(done.values(name)) for name in REDUCES] == reduced([2.0, 3.0])
    assert done.metas("sum") == [{"param": "both"}]
    optimizer = '[(group "first" "one" (guarded)) (group "second" "two" (guarded))]'
    done = device_program.run(optimized(metrics("(size p)"), steps=1, optimizer=optimizer), a=[1.0], b=[1.0])
    assert [done.values(name) for name in REDUCES] == [[2.0, 3.0]] * 5
    assert done.metas("mean") == [{"param": "first"}, {"param": "second"}]


def test_over_the_batches_of_a_pass_a_mean_weights_by_examples(device_program: Program) -> None:
    # batches [1 2 3] and [10]: their means 2 and 10, weighted 3 : 1
    done = device_program.run(passing(metrics("(mean (:x batch))"), batch=3, steps=1), x=[1.0, 2.0, 3.0, 10.0])
    assert [only(done.values(name)) for name in REDUCES] == [4.0, 12.0, 2.0, 10.0, 10.0]
    assert done.metas("mean") == [{"pass": "held"}]


@pytest.mark.scenario(2)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_s02_a_nan_stays_a_nan_under_each_reduction(device_program: Program, place: int) -> None:
    rows = [1.0, 2.0, 3.0]
    rows[place] = NAN
    done = device_program.run(training(f"{metrics(column('x'))} still", batch=3, steps=1), x=rows)
    for name in REDUCES:
        value = only(done.values(name))
        assert math.isnan(value) == (name != "last" or place == 2), name
    # in a pass too
    done = device_program.run(passing(metrics("(sum (:x batch))"), batch=1, steps=1), x=rows)
    for name in REDUCES:
        assert math.isnan(only(done.values(name))) == (name != "last" or place == 2), name


def test_infinities_are_values(device_program: Program) -> None:
    done = device_program.run(training(f"{metrics(column('x'))} still", batch=2, steps=1), x=[INF, 1.0])
    assert [only(done.values(name)) for name in REDUCES] == [INF, INF, 1.0, INF, 1.0]
    done = device_program.run(training(f"{metrics(column('x'))} still", batch=2, steps=1), x=[-INF, 1.0])
    assert [only(done.values(name)) for name in REDUCES] == [-INF, -INF, -INF, 1.0, 1.0]


def test_sums_are_kept_in_f64(device_program: Program) -> None:
    # in f32, 1 is lost beside 2^24, twice
    done = device_program.run(
        training(f"{metrics(column('x'))} still", batch=4, steps=1), x=[16777216.0, 1.0, 1.0, -16777216.0]
    )
    assert done.values("sum") == [2.0]
    assert done.values("mean") == [0.5]


@pytest.mark.parametrize(("value", "reported"), [("3", 3.0), ("2.5", 2.5), (column("i"), 7.0), ("(- 4)", -4.0)])
def test_a_value_may_be_a_host_number_or_an_integer(device_program: Program, value: str, reported: float) -> None:
    done = device_program.run(training(f"{metrics(value)} still", batch=1, steps=1), i=[7])
    assert [done.values(name) for name in REDUCES] == [[reported]] * 5


def test_a_forms_value_is_its_operand_with_its_gradient(program: Program) -> None:
    done = program.run(training('(metric "loss" (sum w) :below 9.0 :reduce :min)', steps=1), x=[0.0])
    assert done.saved(1)["param/w"].tolist() == [0.5, 0.5]


def test_what_the_runtime_adds(device_program: Program) -> None:
    text = """
    (data d (npz "d.npz") :split {:train 0.5 :held-out 0.5})
    (setting rate 0.5)
    (objective (batch) (metric "m" (+ rate (sum (* 0.0 (param "w" [1] :init ones-init)))) :at "o"))
    (optimizer plain (p g) (metric "o" rate :at "u") (update p))
    (evaluate held (batch) (metric "e" rate :at "p"))
    (curriculum (stage "one" :until (>= (step) 1)) (stage "two" :set {:rate 0.25}))
    (run r :data d :batch 1 :steps 2 :optimizer (plain)
      :evaluate [(held :data d :split :held-out :every 1)])"""
    done = device_program.run(text, x=[1.0, 2.0])
    stages = ("one", "two")
    assert done.metas("m") == [{"at": "o", "split": "train", "stage": s} for s in stages]
    assert done.metas("o") == [{"at": "u", "split": "train", "stage": s, "param": "plain"} for s in stages]
    assert done.metas("e") == [{"at": "p", "split": "held-out", "stage": s, "pass": "held"} for s in stages]
    assert done.points("m") == [(1, 0.5), (2, 0.25)]


@pytest.mark.parametrize("key", ["split", "pass", "stage", "param", "step", "rank"])
@pytest.mark.parametrize("form", ['(guard "g" 0 :{} 1)', '(metric "g" 0 :{} 1)', '(assert-finite "g" 0 :{} 1)'])
def test_the_runtimes_metadata_is_not_a_programs(program: Program, form: str, key: str) -> None:
    found = only(program.refused(training(f"{form.format(key)} still"), x=[0.0]))
    assert found["code"] == "E-CONTRACT-007"


def test_a_pass_after_the_last_step_is_reported_once(device_program: Program) -> None:
    done = device_program.run(passing(f'(metric "x" {column("x")})', every=2, steps=4, batch=9), x=[0.0])
    assert [s for s, _ in done.points("x")] == [2, 4]
    done = device_program.run(passing(f'(metric "x" {column("x")})', every=2, steps=3, batch=9), x=[0.0])
    assert [s for s, _ in done.points("x")] == [2, 3]


@pytest.mark.parametrize(
    ("forms", "code"),
    [
        ('(metric "a" 0) (diagnostic "a" 0)', "E-CONTRACT-006"),
        ('(metric "a" 0) (metric "a" 0 :reduce :sum)', "E-CONTRACT-006"),
        ('(metric "guard/a" 0)', "E-CONTRACT-001"),
        ('(guard "" 0)', "E-CONTRACT-001"),
        ('(guard "white space" 0)', "E-CONTRACT-001"),
        ('(guard "a" 0 :k 1 :k 2)', "E-CONTRACT-002"),
        ('(guard "a" 0 :k)', "E-CONTRACT-002"),
        ('(guard "a" 0 :k (sum w))', "E-CONTRACT-003"),
        ('(guard "a" 0 :k nil)', "E-CONTRACT-003"),
        ("(guard (sum w) 0)", "E-CONTRACT-001"),
        ('(metric "a" w)', "E-CONTRACT-004"),
        ('(metric "a" true)', "E-CONTRACT-004"),
        ('(metric "a" 0 :reduce :median)', "E-CONTRACT-005"),
        ('(metric "a" 0 :below (sum w))', "E-CONTRACT-022"),
        ('(metric "a" 0 :below nan)', "E-CONTRACT-022"),
        ('(guard "a" 0 :below 1.0)', "E-CONTRACT-022"),
        ('(assert-finite "a" w :above 1.0)', "E-CONTRACT-022"),
        ('(guard "a" 0 :reduce :max)', "E-CONTRACT-022"),
        ('(assert-finite "a" (> w 0.0))', "E-CONTRACT-021"),
        ("(count-where w)", "E-CONTRACT-021"),
    ],
)
def test_what_is_refused_before_any_step(program: Program, forms: str, code: str) -> None:
    found = only(program.refused(training(f"{forms} still"), x=[0.0]))
    assert found["code"] == code


def test_guards_and_bounds_of_one_name_share_a_series(program: Program) -> None:
    body = '(metric "a" 0 :below 1.0) (guard "a" 0) (assert-finite "a" w) still'
    assert program.run(training(body, steps=1), x=[0.0]).names == ["a", "guard/a"]
