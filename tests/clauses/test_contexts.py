"""Where guards run and when they count: the clauses G13 to G20, through `sxi run` and `sxi check`."""

from __future__ import annotations

import math

import pytest

from tests.clauses.programs import LARGE, optimized, passing
from tests.running import Program, column, only, training

BAD = f'(guard "bad" (count-where (> {column("bad")} 0.5)))'
HELPER = '(define (look batch) (guard "bad" (count-where (> (sum (:bad batch)) 0.5))))'
# context -> (what stands before the objective, what stands in it)
IN_A_STEP = {
    "objective": ("", f"{BAD} still"),
    "helper": (HELPER, "(look batch) still"),
    "prepare": (f"(prepare (batch) {BAD} batch)", "still"),
    "model": (f"(model net (batch) {BAD} (sum (* 0.0 (param \"v\" [1] :init ones-init))))", "(+ (net batch) still)"),
}  # fmt: skip


@pytest.mark.clause(13)
@pytest.mark.parametrize("context", IN_A_STEP)
def test_g13_every_microbatch_of_every_step_counts(device_program: Program, context: str) -> None:
    before, body = IN_A_STEP[context]
    rows = [0.0] * 9
    for place in range(9):
        bad = [*rows[:place], 1.0, *rows[place + 1 :]]
        done = device_program.run(training(body, before=before, batch=3, steps=3), bad=bad)
        step = place // 3 + 1
        assert done.status == 3
        assert done.points("guard/bad") == [(s, float(s == step)) for s in range(1, step + 1)]
        assert done.error["step"] == step
    done = device_program.run(training(body, before=before, batch=3, steps=3), bad=rows)
    assert (done.status, done.values("guard/bad")) == (0, [0.0, 0.0, 0.0])


@pytest.mark.clause(13)
def test_g13_a_guard_in_prepare_sees_what_is_prepared_and_one_in_the_objective_what_came_of_it(
    program: Program,
) -> None:
    before = f"""(prepare (batch)
      (guard "raw" {column("x")} :at 1)
      (with batch :x (* 2.0 (:x batch))))"""
    done = program.run(training(f'(guard "made" {column("x")}) still', before=before, steps=1), x=[3.0])
    assert (done.values("guard/raw"), done.values("guard/made")) == ([3.0], [6.0])


@pytest.mark.clause(14)
@pytest.mark.parametrize("context", ["evaluate", "model", "helper"])
def test_g14_every_batch_of_a_pass_counts(device_program: Program, context: str) -> None:
    before, body, evaluate = "", "still", BAD
    if context == "model":
        before, body = f"(model net (batch) {BAD} (sum w)) (define w 1.0)", "still"
        evaluate = "(net batch)"
    elif context == "helper":
        before, evaluate = HELPER, "(look batch)"
    for place in range(5):  # batches of 2, 2 and 1
        bad = [0.0] * place + [1.0] + [0.0] * (4 - place)
        text = passing(evaluate, every=2, before=before, body=body, steps=3)
        done = device_program.run(text, bad=bad)
        assert done.status == 3
        assert done.message.startswith("E-GUARD-001: guard bad counted 1 in pass held at step 2, expected 0;")
        assert done.metas("guard/bad") == [{"pass": "held"}]
        assert done.points("guard/bad") == [(2, 1.0)]


@pytest.mark.clause(14)
def test_g14_a_model_that_both_call_counts_in_training_and_in_the_pass(program: Program) -> None:
    before = f'(model net (batch) {BAD} (sum (* 0.0 (param "v" [1] :init ones-init))))'
    done = program.run(
        passing("(net batch)", before=before, body="(+ (net batch) still)", every=1, steps=1), bad=[0.0, 1.0, 1.0]
    )
    # a training step saw the first row only; the pass sees all, in batches of 2 and 1
    assert done.metas("guard/bad") == [{}, {"pass": "held"}]
    assert done.values("guard/bad") == [0.0, 1.0 + 1.0]


@pytest.mark.clause(15)
def test_g15_every_parameters_update_counts_at_every_step(device_program: Program) -> None:
    done = device_program.run(optimized(LARGE), a=[0.5, 0.5, 0.5], b=[0.5, 0.5, 2.0])
    assert done.points("guard/large") == [(1, 0.0), (2, 0.0), (3, 3.0)]
    assert done.message.startswith("E-GUARD-001: guard large param=two counted 3 at step 3,")
    done = device_program.run(optimized(LARGE), a=[0.5, 2.0, 0.5], b=[0.5, 0.5, 2.0])
    assert done.points("guard/large") == [(1, 0.0), (2, 2.0)]
    assert done.message.startswith("E-GUARD-001: guard large param=one counted 2 at step 2,")


@pytest.mark.clause(16)
@pytest.mark.scenario(41)
@pytest.mark.parametrize(("bad_step", "stops_at"), [(1, None), (2, 2), (3, None), (4, 4)])
def test_g16_s41_a_diagnostics_bound_counts_on_sampled_steps_only(
    device_program: Program, bad_step: int, stops_at: int | None
) -> None:
    body = f'(diagnostic "look/x" {column("x")} :below 1.0) (guard "always" 0) still'
    run = ':diagnostics ["look/*"] :sample-every 2'
    x = [5.0 if step == bad_step else 0.0 for step in range(1, 6)]
    done = device_program.run(training(body, steps=5, run=run), x=x)
    sampled = [2, 4] if stops_at is None else list(range(2, stops_at + 1, 2))
    assert done.points("guard/look/x") == [(s, float(s == stops_at)) for s in sampled]
    assert [s for s, _ in done.points("look/x")] == sampled
    assert [s for s, _ in done.points("guard/always")] == list(range(1, (stops_at or 5) + 1))
    assert done.status == (0 if stops_at is None else 3)


@pytest.mark.clause(16)
@pytest.mark.parametrize("run", ["", ':diagnostics ["other"] :sample-every 1'])
def test_g16_a_diagnostic_that_the_run_does_not_select_has_no_guard(device_program: Program, run: str) -> None:
    body = f'(diagnostic "look/x" {column("x")} :below 1.0) (diagnostic "other" 0.5) still'
    done = device_program.run(training(body, steps=1, run=run), x=[5.0])
    assert done.status == 0
    assert "guard/look/x" not in done.names


@pytest.mark.clause(16)
def test_g16_a_diagnostics_value_is_computed_and_guarded_at_every_step(program: Program) -> None:
    # the form is its value where it is not sampled, so a guard within it counts
    body = f'(diagnostic "look" (guard "inner" {column("x")})) still'
    done = program.run(training(body, steps=2, run=':diagnostics ["look"] :sample-every 7'), x=[0.0, 2.0])
    assert done.points("guard/inner") == [(1, 0.0), (2, 2.0)]
    assert done.points("look") == []


@pytest.mark.clause(16)
def test_g16_in_a_pass_a_diagnostic_runs_where_the_steps_is_sampled(program: Program) -> None:
    text = passing(f'(diagnostic "look" {column("x")} :below 9.0)', every=1, steps=4)
    done = program.run(text.replace(":evaluate", ':diagnostics ["look"] :sample-every 3 :evaluate'), x=[1.0, 2.0, 3.0])
    assert [s for s, _ in done.points("guard/look")] == [3]
    assert done.metas("guard/look") == [{"pass": "held"}]


@pytest.mark.clause(16)
def test_g16_the_contracts_of_a_diagnostic_hold_whether_it_is_selected_or_not(program: Program) -> None:
    found = only(program.refused(training('(diagnostic "look" (:x batch) :below 1.0) still'), x=[0.0]))
    assert found["code"] == "E-CONTRACT-004"


# Where they are refused

FORMS = {
    "guard": '(guard "g" (sum x))',
    "assert-finite": '(assert-finite "g" x)',
    ":below": '(metric "g" (sum x) :below 1.0)',
    ":above": '(metric "g" (sum x) :above 1.0)',
}
# context -> (a program with a hole in it where `x` is bound to an array, and another hole at the top)
WITHOUT_A_STEP = {
    "generator": """{top}
(generator made (n) (let ((x (normal [n]))) {form} {{:x x}}))
(objective (batch) (+ (sum (:x batch)) (sum (param "w" [1] :init zeros-init))))
(run r :data made :steps 1 :batch 2 :optimizer (sgd :lr 0.1))""",
    "initializer": """{top}
(generator made (n) {{:x (normal [n])}})
(initializer mine (shape) (let ((x (normal shape))) {form} x))
(objective (batch) (+ (sum (:x batch)) (sum (param "w" [1] :init mine))))
(run r :data made :steps 1 :batch 2 :optimizer (sgd :lr 0.1))""",
    "curriculum": """{top}
(generator made (n) {{:x (normal [n])}})
(objective (batch) (+ (sum (:x batch)) (sum (param "w" [1] :init zeros-init))))
(curriculum (stage "a" :until (let ((x (zeros [2]))) {form} (> (step) 1))) (stage "b"))
(run r :data made :steps 1 :batch 2 :optimizer (sgd :lr 0.1))""",
}


@pytest.mark.clause(17)
@pytest.mark.parametrize("context", WITHOUT_A_STEP)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("through", ["itself", "a helper"])
def test_g17_a_context_without_a_step_takes_no_guard(program: Program, context: str, form: str, through: str) -> None:
    text = WITHOUT_A_STEP[context]
    if through == "itself":
        whole = text.format(top="", form=FORMS[form])
    else:
        whole = text.format(top=f"(define (look x) {FORMS[form]})", form="(look x)")
    found = only(program.refused(whole))
    assert found["code"] == "E-CONTRACT-019"
    assert f"stands in the {context}, which has no step to stop" in found["message"]
    line = whole.splitlines().index(next(s for s in whole.splitlines() if FORMS[form] in s)) + 1
    assert found["span"]["start"]["line"] == line
    if through == "a helper":
        assert found["chain"][0]["call"] == "look"


@pytest.mark.clause(17)
@pytest.mark.parametrize("context", WITHOUT_A_STEP)
def test_g17_a_metric_without_a_bound_is_018(program: Program, context: str) -> None:
    text = WITHOUT_A_STEP[context]
    form = '(metric "g" (sum x))'
    for whole in (text.format(top="", form=form), text.format(top=f"(define (look x) {form})", form="(look x)")):
        assert only(program.refused(whole))["code"] == "E-CONTRACT-018"


@pytest.mark.clause(17)
@pytest.mark.parametrize("context", ["initializer", "curriculum"])
def test_g17_an_initializer_and_the_curriculum_take_no_diagnostic(program: Program, context: str) -> None:
    text = WITHOUT_A_STEP[context]
    plain = only(program.refused(text.format(top="", form='(diagnostic "g" (sum x))')))
    assert plain["code"] == "E-CONTRACT-018"
    bound = only(program.refused(text.format(top="", form='(diagnostic "g" (sum x) :below 1.0)')))
    assert bound["code"] == "E-CONTRACT-019"


@pytest.mark.clause(17)
def test_g17_a_diagnostics_bound_in_a_generator_is_dropped_with_the_diagnostic(program: Program) -> None:
    form = '(diagnostic "g" (sum (* 0.0 x)) :below -1.0)'  # never below: it would count each time
    text = WITHOUT_A_STEP["generator"].format(top="", form=form)
    text = text.replace(":steps 1", ':steps 2 :diagnostics ["g"] :sample-every 1')
    done = program.run(text)
    assert (done.status, done.names) == (0, [])


@pytest.mark.clause(17)
def test_g17_the_same_helper_is_accepted_in_prepare(program: Program) -> None:
    before = '(define (look x) (guard "g" (count-where (> x 9.0)))) (prepare (batch) (look (:x batch)) batch)'
    assert program.run(training("still", before=before, steps=1), x=[0.0]).values("guard/g") == [0.0]


TAP = "(sum (* (tap-gradient w (lambda (g) {lambda_})) {x}))"


@pytest.mark.clause(18)
@pytest.mark.parametrize(
    "form",
    ['(guard "t" (count-where (> g 1.0)))', '(assert-finite "t" g)', '(metric "t" (norm g))', FORMS[":below"]],
)
@pytest.mark.parametrize("through", ["itself", "a helper", "a diagnostic"])
def test_g18_a_tap_takes_diagnostics_only(program: Program, form: str, through: str) -> None:
    form = form.replace("x)", "g)")
    lambda_ = {"itself": form, "a helper": "(look g)", "a diagnostic": f'(diagnostic "d" (norm (begin {form} g)))'}
    before = f"(define (look g) {form})" if through == "a helper" else ""
    found = only(program.refused(training(TAP.format(lambda_=lambda_[through], x=column("x")), before=before), x=[1.0]))
    assert found["code"] == "E-CONTRACT-017"


@pytest.mark.clause(18)
def test_g18_a_taps_diagnostic_counts_with_its_bound_on_sampled_steps(device_program: Program) -> None:
    # the gradient of w is x in each of its two elements: its norm is √2 · x
    body = TAP.format(lambda_='(diagnostic "gradient/w" (norm g) :reduce :max :below 4.0)', x=column("x"))
    run = ':diagnostics ["gradient/*"] :sample-every 2'
    done = device_program.run(training(body, steps=4, run=run), x=[9.0, 2.0, 9.0, 3.0])
    assert done.points("guard/gradient/w") == [(2, 0.0), (4, 1.0)]
    assert [round(v, 5) for v in done.values("gradient/w")] == [round(math.sqrt(2) * x, 5) for x in (2.0, 3.0)]
    assert done.error["guard"] == "gradient/w"
    # 9, on a step between the samples, went by: that is what sampling means
    assert done.error["step"] == 4


# Bounds hold for every value, not for the number that the series reports


@pytest.mark.clause(19)
@pytest.mark.scenario(1)
def test_g19_s01_microbatch_losses_19_and_21_count_1_though_20_is_reported(device_program: Program) -> None:
    body = f'(metric "train/loss" (+ {column("x")} still) :below 20.0)'
    done = device_program.run(training(body, batch=2, steps=1), x=[19.0, 21.0])
    assert done.points("train/loss") == [(1, 20.0)]
    assert done.points("guard/train/loss") == [(1, 1.0)]
    assert done.error["count"] == 1
    # the mean is under another bound, and the loss of 21 still counts under its own
    done = device_program.run(training(body.replace("20.0", "20.5"), batch=2, steps=1), x=[19.0, 21.0])
    assert (done.values("train/loss"), done.values("guard/train/loss")) == ([20.0], [1.0])


@pytest.mark.clause(20)
@pytest.mark.parametrize(("reduce", "bound", "reported"), [(":max", ":above 2.5", 3.0), (":min", ":below 2.5", 2.0)])
def test_g20_a_bound_holds_for_every_parameter_of_a_group(
    device_program: Program, reduce: str, bound: str, reported: float
) -> None:
    # the sizes are 2 and 3: one of them is outside of the bound, and the reported extreme is inside
    form = f'(diagnostic "size" (size p) :reduce {reduce} {bound})'
    run = ':diagnostics ["size"] :sample-every 1'
    done = device_program.run(optimized(form, steps=1, run=run), a=[1.0], b=[1.0])
    assert done.values("size") == [reported]
    assert done.values("guard/size") == [1.0]
    assert done.error["meta"] == {"param": "one" if reduce == ":max" else "two"}


@pytest.mark.clause(17)
@pytest.mark.parametrize("form", FORMS)
def test_g17_an_optimizers_first_state_is_made_before_any_step(program: Program, form: str) -> None:
    state = FORMS[form].replace("sum x", "sum p").replace(" x)", " p)")
    optimizer = f"(optimizer mine (p g) :state ((m (begin {state} (zeros-like p)))) (update (- p g) :m m))"
    found = only(program.refused(training("(sum w)", before=optimizer, optimizer="(mine)"), x=[0.0]))
    assert found["code"] == "E-CONTRACT-019"


@pytest.mark.clause(15)
def test_g15_a_guard_in_a_schedule_counts_for_every_parameter(device_program: Program) -> None:
    text = optimized("", optimizer='(sgd :lr (lambda (s) (guard "late" (where (> s 2) 1.0 0.0))))')
    done = device_program.run(text, a=[0.5] * 3, b=[0.5] * 3)
    assert done.points("guard/late") == [(1, 0.0), (2, 0.0), (3, 2.0)]
    assert done.message.startswith("E-GUARD-001: guard late param=one counted 1 at step 3,")


@pytest.mark.clause(15)
def test_g15_a_guard_in_a_total_counts_once_for_each_parameter(device_program: Program) -> None:
    body = '(total (guard "summed" (count-where (> (abs g) 1.0)))) (guard "own" (count-where (> (abs g) 1.0)))'
    done = device_program.run(optimized(body, steps=1), a=[2.0], b=[2.0])
    assert (done.values("guard/summed"), done.values("guard/own")) == ([5.0], [5.0])
    told = [(e["guard"], e["meta"]["param"], e["count"]) for e in [done.error, *done.error["also"]]]
    assert told == [("summed", "one", 2), ("own", "one", 2), ("summed", "two", 3), ("own", "two", 3)]
