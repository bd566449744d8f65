"""What people reported of other tools, and what happens here: the scenarios that no clause's test shows already."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from sxi import checkpoint
from tests.clauses.programs import passing
from tests.running import Program, column, only, training

NAN, INF = math.nan, math.inf
TESTS = Path(__file__).parent.parent
GOLDEN = TESTS / "golden"
# Shown by tests of several processes.
BY_RANKS = {"clause": {21}, "scenario": {5, 6}}
CLAUSES = set(range(1, 39))
SCENARIOS = {
    *(1, 2, 3, 4, 5, 6, 8, 10, 11, 12, 13, 14, 15, 17, 18, 20, 21, 23, 24, 25, 27, 28, 29, 30, 33, 34, 36, 38, 39),
    *(40, 41, 42, 43, 44),
}


@pytest.mark.parametrize(("kind", "numbers"), [("clause", CLAUSES), ("scenario", SCENARIOS)])
def test_every_clause_and_scenario_has_a_test(kind: str, numbers: set[int]) -> None:
    texts = [p.read_text() for p in TESTS.rglob("*.py")] + [p.read_text() for p in TESTS.rglob("*.sx")]
    found = {int(n) for text in texts for n in re.findall(rf"\b{kind}\((\d+)\)", text)}
    assert numbers - found <= BY_RANKS[kind]
    assert found <= numbers


def test_every_scenario_of_one_process_is_a_golden_program_by_its_number() -> None:
    named = {p.name: re.findall(r"; scenario\((\d+)\) ", p.read_text()) for p in (GOLDEN / "scenarios").iterdir()}
    assert {int(name[1:3]) for name in named} == SCENARIOS - BY_RANKS["scenario"]
    assert [name for name, numbers in named.items() if [f"s{int(n):02}-" for n in numbers] != [name[:4]]] == []


@pytest.mark.scenario(2)
@pytest.mark.scenario(21)
def test_s02_s21_a_step_of_nan_is_seen_in_its_series_and_its_guard(device_program: Program) -> None:
    # a logger that leaves NaN out, or averages over a window, shows nothing of step 2
    body = f'(metric "loss" (+ {column("x")} still) :below 20.0)'
    done = device_program.run(training(body, batch=4, steps=3), x=[1.0] * 4 + [1.0, NAN, 1.0, NAN] + [1.0] * 4)
    assert [str(v) for v in done.values("loss")] == ["1.0", "nan"]
    assert done.points("guard/loss") == [(1, 0.0), (2, 2.0)]
    assert '"value":"NaN"' in (done.folder / "stream.jsonl").read_text()


@pytest.mark.scenario(3)
def test_s03_a_ceiling_stops_a_loss_of_nan(device_program: Program) -> None:
    # `if loss > 100: exit` is false of NaN and goes on for ever
    body = f'(metric "loss" (+ {column("x")} still) :below 100.0)'
    done = device_program.run(training(body, run=":guard-finite off"), x=[1.0, NAN, 1.0])
    assert (done.status, done.error["count"], done.error["step"]) == (3, 1, 2)


@pytest.mark.scenario(13)
def test_s13_a_failing_pass_is_never_the_best(device_program: Program) -> None:
    evaluate = f'(metric "error" (* (sum w) {column("x")})) (guard "step" (where (= (step) 3) 1.0 0.0))'
    # the pass finds the parameter by its name; each step takes 1 off it, so each pass is better than the last
    evaluate = evaluate.replace("(sum w)", '(sum (param "w"))')
    text = passing(evaluate, every=1, batch=9, body="(* 0.5 (sum w))", steps=5, checkpoints=True)
    text = text.replace(":checkpoint-every", ':keep-best ["error" :min] :checkpoint-every')
    done = device_program.run(text, x=[1.0])
    assert done.values("error") == [1.5, 1.0, 0.5]
    assert done.error["step"] == 3
    assert done.checkpoints == [1, 2]
    best = checkpoint.load(done.folder / "checkpoints" / "best")
    assert best[1]["step"] == 2
    assert best[0]["param/w"].tolist() == [0.5, 0.5]


@pytest.mark.scenario(17)
@pytest.mark.parametrize("microbatches", [1, 2, 4, 8])
def test_s17_a_count_does_not_depend_on_how_the_step_is_cut(device_program: Program, microbatches: int) -> None:
    body = f"""
    (guard "bad" (count-where (> (:x batch) 0.5)))
    (assert-finite "x" (:x batch))
    (metric "bad/mean" (mean (cast (> (:x batch) 0.5) :f32)))
    (* 0.001 {column("x")} (sum w))"""
    text = training(body, batch=8, steps=1).replace(":microbatches 8", f":microbatches {microbatches}")
    done = device_program.run(text, x=[1.0, 0.0, NAN, 1.0, INF, 0.0, -INF, 1.0])
    assert done.values("guard/bad") == [4.0]
    assert done.values("guard/x") == [3.0]
    assert done.values("bad/mean") == [0.5]


CHAIN = """
(define (chain x)
  (fold (x x) (i (range 6))
    (let ((y (+ (* 1.5 (tanh x)) (* 0.25 (square x)))))
      (guard "chain/large" (count-where (> (abs y) 2.0)) :i i)
      (assert-finite "chain" y :i i)
      (metric "chain/max" (max y) :reduce :max :below 40.0 :i i)
      y)))
"""


@pytest.mark.scenario(25)
def test_s25_the_counts_are_the_same_planned_or_not_and_on_every_backend(program: Program) -> None:
    x = np.random.default_rng(0).normal(size=(8, 50)).astype(np.float32) * 2
    x[3, 7], x[5, 1] = NAN, 100.0
    text = training("(+ still (sum (* 0.0 (chain (:x batch)))))", before=CHAIN, batch=8, steps=1)
    runs = [program.run(text, *arguments, x=x) for arguments in ([], ["--no-plan"], ["--device", "strict"])]
    counted = [[(n, m["i"], str(done.values(n, **m))) for n in done.names for m in done.metas(n)] for done in runs]
    assert counted[0] == counted[1] == counted[2]
    assert len(counted[0]) == 4 * 6
    assert len({done.message for done in runs}) == 1
    # worked out in f64, where no element is near a threshold
    y = x.astype(np.float64)
    for i in range(6):
        with np.errstate(all="ignore"):
            y = 1.5 * np.tanh(y) + 0.25 * np.square(y)
            large = int((np.abs(y) > 2.0).sum())
            lost = int((~np.isfinite(y.astype(np.float32))).sum())
        assert only(runs[0].values("guard/chain/large", i=i)) == large
        assert only(runs[0].values("guard/chain", i=i)) == lost


MASKED = """
(let ((scores (where (> (:mask batch) 0.5) (:x batch) -inf))
      (shares (softmax scores)))
  {guard}
  (metric "share" (max shares))
  still)
"""


@pytest.mark.scenario(38)
def test_s38_only_the_named_value_is_tested(device_program: Program) -> None:
    x, mask = [[1.0, 2.0, 3.0]], [[1.0, 1.0, 0.0]]
    shares = device_program.run(
        training(MASKED.format(guard='(assert-finite "shares" shares)'), steps=1), x=x, mask=mask
    )
    assert (shares.status, shares.values("guard/shares")) == (0, [0.0])
    # the intended −inf of a mask counts where the scores themselves are named
    scores = device_program.run(training(MASKED.format(guard='(assert-finite "scores" scores)'), steps=1))
    assert scores.error["count"] == 1


@pytest.mark.scenario(38)
def test_s38_what_where_did_not_choose_does_not_count(device_program: Program) -> None:
    body = '(assert-finite "safe" (where (> (:x batch) 0.0) (/ 1.0 (:x batch)) 0.0)) still'
    done = device_program.run(training(body, steps=1), x=[[0.0, 2.0, 0.0]])
    assert (done.status, done.values("guard/safe")) == (0, [0.0])


@pytest.mark.scenario(39)
def test_s39_a_guard_costs_its_count_and_nothing_else(program: Program) -> None:
    def instructions(body: str) -> int:
        done = program.run(training(f"{body} (sum (square w))", steps=1), x=[0.0])
        return len(done.runner.compiled.steps[False].plan.instructions)

    bare = instructions("")
    assert instructions('(assert-finite "w" w)') == bare + 1
    assert instructions('(guard "w" (count-where (> w 9.0)))') == bare + 2
    assert instructions('(metric "x" 0.5 :below 9.0)') <= bare + 1
    # what is counted already is not computed again
    both = '(guard "w" (count-where (> w 9.0)))' * 3
    assert instructions(both) == bare + 2


FADING = """
(optimizer fading (p g :lr required)
  (metric "lr/effective" lr :above 0.0)
  (update (- p (* lr g))))
"""


@pytest.mark.scenario(42)
@pytest.mark.parametrize(
    ("schedule", "stops_at"),
    [
        ("(cosine :peak 0.1 :total 4)", 4),  # a cosine that ends at zero is there at its last step
        ("(cosine :peak 0.1 :total 4 :end 1e-9)", None),
        ("(lambda (s) (- 0.2 (* 0.1 s)))", 2),  # 0.1, then 0 at step 2
        ("(lambda (s) (- 0.25 (* 0.1 s)))", 3),  # and here negative
        ("0.0", 1),
        ("-0.1", 1),
        ("1e-30", None),
    ],
)
def test_s42_a_learning_rate_that_fades_to_zero_stops_the_run(
    device_program: Program, schedule: str, stops_at: int | None
) -> None:
    text = training("(sum w)", before=FADING, optimizer=f"(fading :lr {schedule})", steps=4)
    done = device_program.run(text, x=[0.0])
    assert done.status == (0 if stops_at is None else 3)
    if stops_at is not None:
        assert done.message.startswith(f"E-GUARD-001: guard lr/effective param=w counted 1 at step {stops_at},")
    assert len(done.points("lr/effective")) == (stops_at or 4)


@pytest.mark.scenario(44)
def test_s44_nothing_is_carried_from_step_to_step_or_pass_to_pass(device_program: Program) -> None:
    body = f"""
    (metric "sum" {column("x")} :reduce :sum) (metric "max" {column("x")} :reduce :max)
    (metric "min" {column("x")} :reduce :min)
    (guard "cancels" {column("c")}) still"""
    evaluate = '(metric "total" (* (step) (mean (:x batch))) :reduce :sum) (guard "none" (sum (* 0.0 (:x batch))))'
    text = training(
        body, batch=2, steps=3, before=f"(evaluate held (batch) {evaluate})",
        run=":evaluate [(held :data d :batch 6 :every 1)]",
    )  # fmt: skip
    done = device_program.run(text, x=[5.0, 1.0, 3.0, 2.0, 0.0, 1.0], c=[1.0, -1.0, 2.0, -2.0, 0.0, 0.0])
    assert done.status == 0
    assert done.values("sum") == [6.0, 5.0, 1.0]
    assert done.values("max") == [5.0, 3.0, 1.0]
    assert done.values("min") == [1.0, 2.0, 0.0]
    assert done.values("total") == [2.0, 4.0, 6.0]
    assert done.values("guard/cancels") == done.values("guard/none") == [0.0, 0.0, 0.0]


@pytest.mark.scenario(44)
def test_s44_a_guard_does_not_give_up(device_program: Program) -> None:
    # each attempt at the step fails; no number of them is taken for good enough
    text = training(f'(guard "x" {column("x")}) still', steps=3, run=":checkpoint-every 1")
    done = device_program.run(text, x=[0.0, 1.0, 0.0])
    for _ in range(3):
        again = device_program.run(text, resume=done)
        assert (again.status, again.error["count"], again.error["step"]) == (3, 1, 2)
        assert again.checkpoints == [1]
