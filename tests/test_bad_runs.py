"""Bad input: numbers that are not finite are data until a guard stops the run; the rest is an error with its repair."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from tests import running
from tests.running import Program, column, training

program = running.program
device_program = running.device_program

NAN, INF = math.nan, math.inf
GENERATOR = "(generator made (n) {:x (ones [n])})"
DATA = '(data d (npz "d.npz"))'
W = '(param "w" [] :init ones-init)'
OBJECTIVE = f"(objective (batch) {W})"


def run_of(options: str = ":steps 1", *, data: str = "made", optimizer: str = "(sgd :lr 1.0)") -> str:
    return f"(run r :data {data} :optimizer {optimizer} {options})"


# Numbers that are not finite


def test_nan_and_infinities_are_data_until_a_guard_stops_the_run(device_program: Program) -> None:
    rows = [1.0, NAN, INF, -INF, 2.0]
    seen = f'(metric "x" {column("x")}) (metric "max" (max (:x batch)) :reduce :max)'
    done = device_program.run(training(f"{seen} still", steps=5), x=rows)
    assert (done.status, done.state["state"]) == (0, "done")
    for name in ("x", "max"):
        assert [str(v) for v in done.values(name)] == ["1.0", "nan", "inf", "-inf", "2.0"]
    assert done.saved(5)["param/w"].tolist() == [1.0, 1.0]
    done = device_program.run(training(f'{seen} (assert-finite "x" (:x batch)) still', steps=5), x=rows)
    assert (done.status, done.error["step"]) == (3, 2)
    assert done.message.startswith("E-GUARD-001: guard x counted 1 at step 2, expected 0;")
    assert [str(v) for v in done.values("x")] == ["1.0", "nan"]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_what_reaches_the_loss_is_stopped_by_the_finite_guard_and_changes_nothing(
    device_program: Program, bad: float
) -> None:
    text = training(f"(+ still (sum w) {column('x')})", steps=3)
    done = device_program.run(text, x=[0.0, bad, 0.0])
    assert done.message == "E-GUARD-002: the loss has 1 values that are not finite at step 2"
    assert done.held_bytes["param/w"] == np.full(2, 0.5, np.float32).tobytes()
    # without it the run goes on: the gradient is 1 all the same
    done = device_program.run(text.replace(":steps", ":guard-finite off :steps"), x=[0.0, bad, 0.0])
    assert done.status == 0
    assert done.saved(3)["param/w"].tolist() == [-0.5, -0.5]


@pytest.mark.parametrize("label", [3, -1, 2**31 - 1, -(2**31)])
def test_a_label_out_of_range_is_a_nan_that_the_finite_guard_stops(device_program: Program, label: int) -> None:
    text = f"""{DATA}
    (objective (batch)
      (metric "loss" (cross-entropy (* (:x batch) (param "w" [3] :init ones-init)) (:y batch))))
    {run_of(":steps 3 :batch 2 :shuffle off", data="d")}"""
    x = np.zeros((6, 3), np.float32)
    done = device_program.run(text, x=x, y=[0, 1, 2, 0, 1, label])
    assert (done.status, done.error["step"]) == (3, 3)
    assert done.message == "E-GUARD-002: the loss has 1 values that are not finite at step 3"
    assert done.values("loss")[:2] == [pytest.approx(math.log(3), rel=1e-6)] * 2
    assert math.isnan(done.values("loss")[2])
    # a guard over the labels names the cause first
    named = text.replace(
        "(metric", '(guard "labels" (count-where (logical-or (< (:y batch) 0) (>= (:y batch) 3)))) (metric'
    )
    done = device_program.run(named, x=x, y=[0, 1, 2, 0, 1, label])
    assert done.message.startswith("E-GUARD-001: guard labels counted 1 at step 3,")
    assert done.error["also"][0]["code"] == "E-GUARD-002"


def test_an_index_out_of_range_reads_nan_and_is_never_an_error(device_program: Program) -> None:
    body = """(let ((i (:i batch)))
      (metric "at" (sum (at w i))) (metric "taken" (sum (take w i)))
      (metric "whole" (sum (cast (at (arange 2) i) :f32)))
      still)"""
    done = device_program.run(training(body, steps=4), i=[0, -1, 2, -3])
    for name in ("at", "taken"):
        assert [str(v) for v in done.values(name)] == ["1.0", "1.0", "nan", "nan"]
    assert done.values("whole") == [0.0, 1.0, 0.0, 0.0]


# loss, optimizer -> (what is not finite, how many values, at which step), in powers worked out by hand
RATES = {
    # w² with gradient 2 w: w is 1, then about -2e10, then 4e20, whose square no f32 holds
    "the loss in the middle": (f"(square {W})", "(sgd :lr 1e10)", "the loss", 1, 3),
    # 1e20 · (1e20 · (w - 1)) is 0 at w = 1, its gradient 1e40
    "a gradient": (f"(* 1e20 (* 1e20 (- {W} 1.0)))", "(sgd :lr 1e-3)", "the gradient of w", 1, 1),
    # 1e20 · w at a rate of 1e30
    "an update": ('(sum (* 1e20 (param "w" [2] :init ones-init)))', "(sgd :lr 1e30)", "the update of w", 2, 1),
    # v is a mean of squares of 1e20; the new w is none either
    "an optimizer's state": (f"(* 1e20 {W})", "(rmsprop :lr 1e-3)", "the update of w", 1, 1),
    "a rate that is NaN": (W, "(sgd :lr nan)", "the update of w", 1, 1),
    "a schedule that ends in a division by zero": (
        W, "(sgd :lr (lambda (s) (/ 1.0 (- 4.0 s))))", "the update of w", 1, 4
    ),
    "a root below zero": (f"(* (sqrt {W}) (sqrt {W}))", "(sgd :lr 1.5)", "the loss", 1, 2),
}  # fmt: skip


@pytest.mark.parametrize("case", RATES)
def test_a_rate_too_large_stops_where_the_first_number_is_not_finite(device_program: Program, case: str) -> None:
    loss, optimizer, what, count, step = RATES[case]
    text = f"{GENERATOR} (objective (batch) {loss}) {run_of(':steps 9 :batch 1', optimizer=optimizer)}"
    done = device_program.run(text)
    assert (done.status, done.error["step"], done.error["what"]) == (3, step, what.removeprefix("the "))
    assert done.message == f"E-GUARD-002: {what} has {count} values that are not finite at step {step}"
    assert (done.state["step"], done.names) == (step - 1, [])
    assert done.texts == [f"failed: {done.message}"]
    off = device_program.run(text.replace(":steps", ":guard-finite off :steps"))
    assert off.status == 0
    assert not np.isfinite(off.saved(9)["param/w"]).all() or case == "a gradient"


# Refused before any step

MANY = "(range 1_000_000)"
# What the programs of the table share; `<run-d …>` is a run over the data.
SHORT = {"<made>": GENERATOR, "<data>": DATA, "<objective>": OBJECTIVE, "<w>": W}
# case -> (program, shapes of the columns of its data, exit status, code, what the error says, in parts)
REFUSED: dict[str, tuple[str, dict[str, tuple[int, ...]], int, str, str]] = {
    "an empty data set": (
        "<data> <objective> <run-d>",
        {"x": (0, 2)}, 1, "E-RUN-013", "give a source that has rows",
    ),
    "an empty data set of a pass": (
        "<made> <data> <objective> (evaluate look (batch) 0) <run :steps 1 :evaluate [(look :data d)]>",
        {"x": (0, 2)}, 1, "E-RUN-013", "give a source that has rows",
    ),
    "an empty split": (
        '(data d (npz "d.npz") :split {:train 0.99 :held 0.01}) <objective> <run-d :steps 1 :batch 1>',
        {"x": (9,)}, 1, "E-RUN-012", "give held a larger fraction, or the source more rows",
    ),
    "a training split smaller than the batch": (
        '(data d (npz "d.npz") :split {:train 0.5 :held 0.5}) <objective> <run-d :steps 1 :batch 8>',
        {"x": (10,)}, 4, "E-CONTRACT-025",
        ":batch 8 is more than the 5 examples of split :train of d ¶ help: :batch 5",
    ),
    "epochs of a split smaller than the batch": (
        "<data> <objective> <run-d :epochs 3>",
        {"x": (10,)}, 4, "E-CONTRACT-025", "help: :batch 10",
    ),
    "arrays of different lengths": (
        "<data> <objective> <run-d :steps 1 :batch 1>",
        {"x": (10,), "y": (9,)}, 4, "E-CONTRACT-014",
        ":x has 10, :y has 9 ¶ give every array one row for each example",
    ),
    "a column that is not there": (
        "<data> (objective (batch) (* <w> (sum (:z batch)))) <run-d :steps 1 :batch 1>",
        {"x": (4,)}, 4, "E-EVAL-011", "no :z ¶ it has :x",
    ),
    "a split that is not there": (
        '(data d (npz "d.npz") :split {:train 0.5 :held 0.5}) <objective><run-d :steps 1 :batch 1 :split :hold>',
        {"x": (4,)}, 4, "E-CONTRACT-025", "its splits: :train, :held ¶ did you mean :held?",
    ),
    "a file that is not there": (
        '(data d (npz "e.npz")) <objective> <run-d>',
        {"x": (4,)}, 1, "E-RUN-001", "there is no file e.npz ¶ did you mean d.npz?",
    ),
    "labels that are reals": (
        "<data> (objective (batch) (* <w> (cross-entropy (:x batch) (:y batch)))) <run-d :steps 1 :batch 1>",
        {"x": (4, 2), "y": (4,)}, 4, "E-DTYPE-002", "(cast (:y batch) :i32)",
    ),
    "a group whose glob matches nothing": (
        """<made> <objective> (run r :data made :steps 1
          :optimizer [(group "a" "net/*" (sgd :lr 1.0)) (group "b" "*" (sgd :lr 1.0))])""",
        {}, 4, "E-CONTRACT-026", "the glob net/* of group a matches no parameter ¶ the parameters are w",
    ),
    "a parameter that no group takes": (
        '<made> <objective> (run r :data made :steps 1 :optimizer [(group "a" "v*" (sgd :lr 1.0))])',
        {}, 4, "E-CONTRACT-026", 'no group takes the parameter w ¶ (group "rest" "*" …)',
    ),
    "diagnostics whose glob matches nothing": (
        '<made> (objective (batch) (diagnostic "geometry/radius" <w>))<run :steps 1 :diagnostics ["geomtry/*"]>',
        {}, 4, "E-CONTRACT-025", 'the diagnostics are geometry/radius ¶ did you mean "geometry/*"?',
    ),
    "parameters to start from whose glob matches nothing": (
        '<made> <objective> <run :steps 1 :start-from [("v*" "x")]>',
        {}, 4, "E-CONTRACT-025", "the glob v* matches no parameter; the parameters are w",
    ),
    "a stage without :until that is not the last": (
        '<made> <objective> (curriculum (stage "a") (stage "b")) <run>',
        {}, 4, "E-CONTRACT-025", "the stage a has no :until, and it is not the last ¶ help: :until",
    ),
    "two stages of one name": (
        '<made> <objective> (curriculum (stage "a" :until true) (stage "a")) <run>',
        {}, 4, "E-CONTRACT-025", "two stages are named a",
    ),
    "a curriculum that reads what is no metric": (
        '<made> (objective (batch) (metric "loss" <w>)) (curriculum (stage "a" :until (reported "los"))) <run>',
        {}, 4, "E-CONTRACT-024", 'reads los, which is not a metric ¶ did you mean "loss"?',
    ),
    "a source without arrays": (
        '(data d (npz "d.npz" :columns [])) <objective> <run-d :steps 1>',
        {"x": (4,)}, 1, "E-RUN-013", "give a source that has rows",
    ),
    "a setting that is an array": (
        "<made> (setting s (zeros [2])) <objective> <run>",
        {}, 4, "E-EVAL-016", "setting s: it is f32[2], and a setting is a constant",
    ),
    "recursion without end in a graph": (
        "<made> (define (f x) (* x (f (+ x 1.0)))) (objective (batch) (f <w>)) <run>",
        {}, 4, "E-EVAL-009", "calls nest deeper than 10,000 ¶ f is called here ¶ end the recursion by a host value",
    ),
    "models that call each other without end": (
        "<made> (model f (x) (g x)) (model g (x) (f x)) (objective (batch) (f <w>)) <run>",
        {}, 4, "E-EVAL-009", "end the recursion by a host value",
    ),
    "a list that no machine holds": (
        "<made> (objective (batch) (fold (a <w>) (i (range 1_000_000_000)) a)) <run>",
        {}, 4, "E-EVAL-005", "expected one of at most 10,000,000",
    ),
    "a metric whose name is an array": (
        "<made> (objective (batch) (metric <w> 1.0)) <run>",
        {}, 4, "E-CONTRACT-001", 'metric cannot be named f32[] ¶ known before the first step, as (str "layer" 3)',
    ),
    "a metric whose name depends on an array": (
        '<made> (objective (batch) (metric (str "loss" (argmax (:x batch))) <w>)) <run>',
        {}, 4, "E-EVAL-005", "an operand of str is i32[], expected a host value ¶ make names of host values",
    ),
    "metadata that depends on an array": (
        '<made> (objective (batch) (metric "m" <w> :k (size (:x batch)) :at (argmax (:x batch)))) <run>',
        {}, 4, "E-CONTRACT-003", ":at of metric is i32[] ¶ known before the first step",
    ),
    "a test of an array": (
        "<made> (objective (batch) (if (> <w> 0.0) <w> 0.0)) <run>",
        {}, 4, "E-CONTRACT-009", "choose by an array with (where test a b)",
    ),
    "a shape that depends on an array": (
        "<made> (objective (batch) (sum (* <w> (zeros [(argmax (:x batch))])))) <run>",
        {}, 4, "E-CONTRACT-010", "take it from a host value",
    ),
    "microbatches that do not divide the batch": (
        "<made> <objective> <run :steps 1 :batch 10 :microbatches 4>",
        {}, 4, "E-CONTRACT-025", ":microbatches 4 does not divide :batch 10 ¶ take :batch 12",
    ),
    "epochs of what has no end": (
        "<made> <objective> <run :epochs 1>",
        {}, 4, "E-CONTRACT-025", "made is a generator ¶ use :steps",
    ),
    "steps and epochs": (
        "<data> <objective> <run-d :steps 3 :epochs 1 :batch 2>",
        {"x": (4,)}, 4, "E-CONTRACT-025", "a run has :steps or :epochs, not both ¶ leave one out",
    ),
    "a first value that is an array for a scalar": (
        '(initializer bad (shape) (ones [1])) <made> (objective (batch) (param "w" [] :init bad)) <run :steps 1>',
        {}, 4, "E-CONTRACT-012", "parameter w is f32[], and its first value is f32[1] ¶ help: make it f32[]",
    ),
    "a first value that is a number for an array": (
        '(initializer bad (shape) 1.0) <made> (objective (batch) (sum (param "w" [3] :init bad))) <run :steps 1>',
        {}, 4, "E-CONTRACT-012", "parameter w is f32[3], and its first value is the number 1.0 ¶ help: make it f32[3]",
    ),
    "a first value that is of another shape": (
        '(initializer bad (shape) (eye 3)) <made> (objective (batch) (sum (param "w" [3] :init bad))) <run :steps 1>',
        {}, 4, "E-CONTRACT-012", "parameter w is f32[3], and its first value is f32[3 3] ¶ help: make it f32[3]",
    ),
    "a first value that is none": (
        '(initializer bad (shape) nil) <made> (objective (batch) (sum (param "w" [3] :init bad))) <run :steps 1>',
        {}, 4, "E-CONTRACT-012", "parameter w is f32[3], and its first value is nil ¶ help: make it f32[3]",
    ),
    "a pass over what has no end": (
        "<made> <objective> (evaluate look (batch) 0) <run :steps 1 :evaluate [(look :data made)]>",
        {}, 4, "E-CONTRACT-025", "has no :examples ¶ :examples 1000",
    ),
    "no steps": (
        "<made> <objective> (run r :data made :optimizer (sgd :lr 1.0))",
        {}, 4, "E-CONTRACT-025", "add :steps 1000",
    ),
    "steps below zero": (
        "<made> <objective> <run :steps -1>",
        {}, 4, "E-CONTRACT-025", "a whole number from 1",
    ),
    "an option that is none": (
        "<made> <objective> <run :step 1>",
        {}, 4, "E-CONTRACT-025", ":step is not an option ¶ did you mean :steps?",
    ),
    "no objective": (
        "<made> <run>",
        {}, 4, "E-CONTRACT-025", "(objective (batch) …)",
    ),
    "no run": (
        "<made> <objective>",
        {}, 4, "E-CONTRACT-025", "the file has no run ¶ (run NAME",
    ),
    "two runs": (
        "<made> <objective> <run> (run q :data made :steps 1 :optimizer (sgd :lr 1.0))",
        {}, 4, "E-CONTRACT-025", "more than one run",
    ),
    "two objectives": (
        "<made> <objective> <objective> <run>",
        {}, 4, "E-CONTRACT-025", "a second objective",
    ),
    "nothing to train": (
        "<made> (objective (batch) (sum (:x batch))) <run>",
        {}, 4, "E-CONTRACT-025", "nothing to train ¶ (param",
    ),
    "a loss that is an array": (
        "<made> (objective (batch) (* <w> (:x batch))) <run>",
        {}, 4, "E-CONTRACT-008", "f32[32] ¶ (mean …)",
    ),
    "an optimizer without its rate": (
        "<made> <objective> (run r :data made :optimizer sgd :steps 1)",
        {}, 4, "E-EVAL-013", "sgd needs :lr ¶ add :lr",
    ),
    "a generator of the wrong size": (
        "(generator made (n) {:x (ones [3])}) <objective> <run>",
        {}, 4, "E-CONTRACT-014", "32 examples were asked for",
    ),
    "a generator of no record": (
        "(generator made (n) (ones [n])) <objective> <run>",
        {}, 4, "E-EVAL-005", "expected a record of arrays",
    ),
    "a parameter of two shapes": (
        '<made> (objective (batch) (+ <w> (sum (param "w" [2] :init ones-init)))) <run>',
        {}, 4, "E-CONTRACT-012", "first declared here ¶ give the two different names",
    ),
    "an average that is not kept": (
        '<made> (objective (batch) (+ <w> (reading "ema" (param "w")))) <run>',
        {}, 4, "E-EVAL-024", "no state ema",
    ),
}  # fmt: skip


def expanded(text: str) -> str:
    for short, long in SHORT.items():
        text = text.replace(short, long)
    return re.sub(r"<run(-d)?([^>]*)>", lambda m: run_of(m[2] or ":steps 1", data="d" if m[1] else "made"), text)


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_an_error_that_says_what_to_do(program: Program, case: str) -> None:
    text, shapes, status, code, said = REFUSED[case]
    columns: Any = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    done = program.run(expanded(text), **columns)
    shown = " ".join(done.err.removeprefix("sxi run: ").split())
    assert (done.status, shown[: len(code) + 1]) == (status, f"{code}:")
    for part in said.split(" ¶ "):
        assert " ".join(part.split()) in shown
    assert "Traceback" not in done.err
    assert not done.folder.exists(), "nothing was begun"


def test_a_fold_of_a_million_turns_in_a_graph_is_refused_where_it_stands(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sxi.graph.MOST_OPS", 1_000)  # the first 200,000 take seconds
    done = program.run(f"""{GENERATOR}
    (objective (batch)
      (fold (outer {W}) (i (range 3))
        (fold (a outer) (i {MANY}) (* a 0.5))))
    {run_of()}""")
    assert (done.status, done.err.split(":")[0]) == (4, "E-EVAL-015")
    for said in (
        "more than 1,000 operations",
        "program.sx:4:9",
        "unrolled: 1,000,000 turns",
        "help: make the turns fewer",
    ):
        assert said in done.err


def test_a_fold_of_a_million_turns_over_host_values_is_free(program: Program) -> None:
    done = program.run(f"""{GENERATOR} (define n (fold (n 0) (i {MANY}) (+ n i)))
    (objective (batch) (metric "n" (fold (n 0) (i (range 1000)) (+ n i))) {W}) (print n) {run_of()}""")
    assert done.values("n") == [499500.0]
    assert "499999500000" in done.out + done.err


# What the curriculum does between steps


def curriculum_of(until: str, *, before: str = "") -> str:
    """A program of five steps whose last stage ends as `until` says, with a pass every three."""
    return f"""{GENERATOR} (objective (batch) (metric "loss" {W}))
    (evaluate look (batch) (metric "held" 1.0))
    (curriculum {before} (stage "a" :until {until}))
    {run_of(":steps 5 :evaluate [(look :data made :examples 1 :every 3)]")}"""


@pytest.mark.parametrize(
    ("until", "code", "said"),
    [
        ('(< (reported "held") 0.5)', "E-EVAL-014", "not nil"),
        ('(= (nth (reported "loss" :all true) 2) 7.0)', "E-EVAL-012", "none at 2"),
        ("(> (zeros [2]) 0.0)", "E-CONTRACT-009", "never reads an array's numbers"),
    ],
)
def test_a_curriculum_that_cannot_be_computed_after_step_1_is_refused(
    program: Program, until: str, code: str, said: str
) -> None:
    done = program.run(curriculum_of(until))
    assert (done.status, done.folder.exists()) == (4, False)
    assert done.err.startswith(f"{code}:")
    assert said in " ".join(done.err.split())


@pytest.mark.parametrize(
    ("until", "code"),
    [
        ('(< "b" 0.5)', "E-EVAL-014"),
        ('(< (reported "held") "a")', "E-EVAL-014"),
        ('(< (reported "held") 0.5)', None),  # it may have been reported by then
        ('(and (reported "held") (< (reported "held") 0.5))', None),
        ("(nth [false true] (- (stage-step) 1))", None),
    ],
)
def test_a_later_stages_test_is_refused_where_nothing_reported_makes_it_right(
    program: Program, until: str, code: str | None
) -> None:
    text = curriculum_of(until, before='(stage "first" :until (> (step) 2))')
    done = program.run(text)
    assert done.status == (4 if code else 0), done.err
    if code:
        assert (done.err.split(":")[0], done.folder.exists()) == (code, False)


def test_a_curriculum_that_cannot_be_computed_later_ends_the_run_behind_what_was_reported(program: Program) -> None:
    done = program.run(curriculum_of("(> (/ 1 (quotient 1 (- 2 (step)))) 5)"))
    assert done.status == 4
    assert "divided by zero" in " ".join(done.err.split())
    assert done.points("loss") == [(1, 1.0), (2, 0.0)]
    assert done.state["state"] == "failed"
    assert done.texts[-1].startswith("failed: E-EVAL-010:")
