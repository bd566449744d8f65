"""The forms that stand in a graph: states, regions, taps, diagnostics, gradients; small runs worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import running
from tests.running import Finished, Program, only, training

program = running.program
device_program = running.device_program

ONES = "(generator made (n) {:x (ones [n])})"


def run_of(options: str, *, optimizer: str = "(sgd :lr 1.0)") -> str:
    return f"(run r :data made :batch 1 :optimizer {optimizer} {options})"


def scalar(name: str = "w", init: str = "zeros-init") -> str:
    return f'(param "{name}" [] :init {init})'


def held(done: Finished) -> dict[str, Any]:
    """What the last checkpoint holds, as numbers."""
    assert done.status == 0, done.err
    return {name: x.tolist() for name, x in done.saved(done.checkpoints[-1]).items()}


# States

NEXT = """
(define (kept) (state "s" [] :init zeros-init {dtype}))
(evaluate look (batch) (metric "held" (kept)) (next "s" 1000.0))
"""


@pytest.mark.parametrize(
    ("reduce", "values"),
    [
        ("", [2.0, 8.0]),  # (0 + 1, 0 + 3) -> 2; (2 + 5, 2 + 7) -> 8
        (":reduce :mean", [2.0, 8.0]),
        (":reduce :sum", [4.0, 20.0]),  # 1 + 3; (4 + 5) + (4 + 7)
        (":reduce :min", [1.0, 6.0]),
        (":reduce :max", [3.0, 10.0]),
        (":reduce :last", [3.0, 10.0]),
    ],
)
@pytest.mark.parametrize("dtype", ["", ":dtype :i32", ":dtype :f64"])
def test_a_state_is_read_as_before_the_step_and_its_next_values_are_reduced(
    device_program: Program, reduce: str, values: list[float], dtype: str
) -> None:
    if dtype == ":dtype :i32":
        given = "(cast (sum (:x batch)) :i32)"
        before = NEXT.format(dtype=dtype).replace("1000.0", "1000")
    else:
        given, before = "(sum (:x batch))", NEXT.format(dtype=dtype)
    body = f'(let ((s (kept))) (metric "read" s) (next "s" (+ s {given}) {reduce}) still)'
    text = training(body, before=before, steps=2, batch=2, run=":evaluate [(look :data d :batch 4 :every 1)]")
    done = device_program.run(text, x=[1.0, 3.0, 5.0, 7.0])
    # each microbatch of a step reads the same; a pass reads what the step left, and its next leaves it
    assert done.values("read") == [0.0, values[0]]
    assert done.values("held") == values
    assert held(done)["state/s"] == values[1]


def test_the_mean_of_whole_numbers_is_rounded_down(device_program: Program) -> None:
    body = """(let ((s (state "s" [] :init zeros-init :dtype :i32)))
      (next "s" (cast (sum (:x batch)) :i32)) still)"""
    done = device_program.run(training(body, steps=1, batch=2), x=[1, 2])
    assert held(done)["state/s"] == 1
    done = device_program.run(training(body, steps=1, batch=2), x=[-1, -2])
    assert held(done)["state/s"] == -2


def test_a_state_given_several_times_in_a_microbatch_reduces_them_too(device_program: Program) -> None:
    for reduce, value in (("mean", 7.0), ("sum", 28.0), ("max", 16.0), ("last", 16.0)):
        body = f"""(let ((s (state "s" [] :init zeros-init)))
          (next "s" (sum (:a batch)) :reduce :{reduce})
          (next "s" (sum (:b batch)) :reduce :{reduce})
          still)"""
        done = device_program.run(training(body, steps=1, batch=2), a=[1.0, 3.0], b=[8.0, 16.0])
        assert held(done)["state/s"] == value


def test_a_state_is_reduced_in_one_way(program: Program) -> None:
    body = """(let ((s (state "s" [] :init zeros-init)))
      (next "s" 1.0 :reduce :max)
      (next "s" 2.0)
      still)"""
    found = only(program.refused(training(body), x=[0.0]))
    assert found["code"] == "E-CONTRACT-012"
    assert "reduce :max" in found["message"]
    assert "reduce :mean" in found["message"]


@pytest.mark.parametrize(
    ("dtype", "value", "kept"),
    [
        (":i32", "7", 7),
        (":i64", "5_000_000_000", 5_000_000_000),
        (":f32", "7", 7.0),
        (":f64", "0.1", 0.1),
        (":bf16", "(array 0.3)", 0.30078125),
        (":bool", "(> (step) 0)", True),
        (":i32", "1.5", "E-CONTRACT-012"),
        (":i32", "(* 1.5 (step))", "E-CONTRACT-012"),
        (":i32", "5_000_000_000", "E-DTYPE-005"),
        (":f32", "(step)", "E-CONTRACT-012"),
        (":bool", "1", "E-CONTRACT-012"),
    ],
)
def test_the_next_value_of_a_state_is_of_its_type(program: Program, dtype: str, value: str, kept: Any) -> None:
    body = f"""(let ((s (state "s" [] :init zeros-init :dtype {dtype}))) (next "s" {value}) still)"""
    text = training(body, steps=1)
    if isinstance(kept, str):
        assert only(program.refused(text, x=[0.0]))["code"] == kept
    else:
        assert held(program.run(text, x=[0.0]))["state/s"] == kept


@pytest.mark.parametrize(
    ("form", "second", "said"),
    [
        ("param", "(own 1.0)", None),
        (
            "param",
            "(own 2.0)",
            "initializer (constant-init :value 1.0) and also initializer (constant-init :value 2.0)",
        ),
        ("state", "(own 1.0)", None),
        (
            "state",
            "(own 2.0)",
            "initializer (constant-init :value 1.0) and also initializer (constant-init :value 2.0)",
        ),
        ("state", '(state "v" [] :init zeros-init)', "initializer (constant-init :value 1.0) and also"),
        ("param", '(param "v" [] :init zeros-init)', "initializer (constant-init :value 1.0) and also"),
    ],
)
def test_one_name_has_one_initializer_whichever_call_gives_it(
    program: Program, form: str, second: str, said: str | None
) -> None:
    text = f"""{ONES}
    (define (own value) ({form} "v" [] :init (constant-init :value value)))
    (objective (batch) (+ {scalar()} (own 1.0) {second}))
    {run_of(":steps 1")}"""
    if said is None:
        assert held(program.run(text))["param/w"] == -1.0
        return
    found = only(program.refused(text))
    assert found["code"] == "E-CONTRACT-012"
    assert said in found["message"]


def test_a_pass_of_another_batch_may_come_to_another_initializer(program: Program) -> None:
    done = program.run(f"""{ONES}
    (model net (x) (* x (param "v" [] :init (constant-init :value (dim x 0)))))
    (objective (batch) (sum (net (:x batch))))
    (evaluate look (batch) (metric "v" (mean (net (:x batch)))))
    {run_of(":steps 1 :evaluate [(look :data made :examples 5 :batch 3)]", optimizer="(sgd :lr 0.5)")}""")
    assert done.values("v") == [0.5]


@pytest.mark.parametrize("where", ["optimizer", "tap"])
def test_a_state_is_given_its_next_value_once_a_microbatch_and_at_every_step(program: Program, where: str) -> None:
    # an update has no microbatches; a tap is walked on sampled steps only
    update, value = {"optimizer": ('(next "s" 1.0)', "s"), "tap": ("", '(tap-gradient s (lambda (g) (next "s" g)))')}[
        where
    ]
    text = f"""{ONES}
    (optimizer own (p g) {update} (update (- p g)))
    (objective (batch)
      (let ((w {scalar()}) (s (+ w (state "s" [] :init zeros-init)))) (diagnostic "d" 0.0) {value}))
    {run_of(':steps 1 :diagnostics ["d"] :sample-every 1', optimizer="(own)")}"""
    assert only(program.refused(text))["code"] == "E-EVAL-023"


def test_a_state_takes_no_gradient_and_is_named_like_a_parameter(program: Program) -> None:
    done = program.run(f"""{ONES}
    (model net (w)
      (let ((s (scope "in" (state "s" [] :init ones-init))))
        (scope "in" (next "s" (* w 3.0)))
        (* w s s)))
    (objective (batch) (net {scalar("w", "ones-init")}))
    {run_of(":steps 2")}""")
    # the gradient is s², though the next s depends on w: 1, then 9
    assert held(done) == {"param/w": -9.0, "state/net/in/s": 0.0}


def test_states_alone_may_learn(program: Program) -> None:
    done = program.run(f"""{ONES}
    (objective (batch) (let ((s (state "s" [] :init zeros-init))) (next "s" (+ s 2.0)) 0.0))
    {run_of(":steps 3", optimizer="[]")}""")
    assert held(done) == {"state/s": 6.0}


# Regions


def test_a_frozen_use_takes_no_gradient_and_another_use_does(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (model net (x) (* x {scalar("v", "ones-init")}))
    (objective (batch)
      (let ((w {scalar("w", "ones-init")}))
        (+ (frozen (net w)) (* 4.0 (net 1.0)) (frozen (* 8.0 (param "w"))))))
    {run_of(":steps 1")}""")
    # through the frozen call flows what does not come from a parameter in it: w was read outside
    assert held(done) == {"param/w": 0.0, "param/net/v": -3.0}


def test_reading_is_the_optimizers_state_in_a_pass_and_in_the_objective(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (model net (x) (* x {scalar("v")}))
    (objective (batch)
      (metric "target" (reading "ema" (net 2.0)))
      (+ (net 1.0) (* 8.0 (reading "ema" (net 1.0)))))
    (evaluate look (batch) (metric "average" (reading "ema" (net 1.0))) (metric "own" (net 1.0)))
    {run_of(":steps 3 :evaluate [(look :data made :examples 1 :every 1)]", optimizer="(sgd :lr 1.0 :ema 0.5)")}""")
    # v is -1 -2 -3 and its average half way behind: -1/2, -5/4, -17/8; reading takes no gradient
    assert done.values("own") == [-1.0, -2.0, -3.0]
    assert done.values("average") == [-0.5, -1.25, -2.125]
    assert done.values("target") == [0.0, -1.0, -2.5]


def test_training_holds_in_a_step_and_not_in_a_pass(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (define (phase) (if (training?) 1.0 2.0))
    (model net (x) (* (phase) (dropout x 0.999)))
    (prepare (batch) (metric "prepare" (phase)) batch)
    (objective (batch) (metric "objective" (phase)) (+ {scalar()} (* 0.0 (sum (net (:x batch))))))
    (evaluate look (batch) (metric "pass" (phase)) (metric "net" (sum (net (:x batch)))))
    {run_of(":steps 1 :evaluate [(look :data made :examples 8)]")}""")
    assert (done.values("prepare"), done.values("objective"), done.values("pass")) == ([1.0], [1.0], [2.0])
    assert done.values("net") == [16.0]


def test_step_is_the_one_being_taken_and_in_a_pass_the_one_completed(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (prepare (batch) (metric "prepare" (step)) batch)
    (optimizer own (p g) (metric "update" (step)) (update (- p (* g (step)))))
    (objective (batch) (metric "objective" (step)) {scalar()})
    (evaluate look (batch) (metric "pass" (step)))
    {run_of(":steps 3 :evaluate [(look :data made :examples 1 :every 2)]", optimizer="(own)")}""")
    for name in ("prepare", "objective", "update"):
        assert done.points(name) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert done.points("pass") == [(2, 2.0), (3, 3.0)]
    assert held(done) == {"param/w": -6.0}


# Taps and diagnostics

SAMPLED = ':diagnostics ["*"] :sample-every 2'


def test_a_tap_sees_the_gradient_that_flows_back_on_sampled_steps(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (objective (batch)
      (let ((w (param "w" [2] :init ones-init))
            (h (tap-gradient (* 3.0 w) (lambda (g)
                 (diagnostic "g" (sum g) :reduce :sum)
                 (diagnostic "n" (size g))))))
        (+ (sum (* 2.0 h)) (sum (* 5.0 h)))))
    {run_of(f":steps 5 :microbatches 2 :batch 2 {SAMPLED}").replace(":batch 1", "")}""")
    # 2 + 5 for each of the two elements, in each of the two microbatches
    assert done.points("g") == [(2, 28.0), (4, 28.0)]
    assert done.points("n") == [(2, 2.0), (4, 2.0)]
    assert held(done)["param/w"] == [1.0 - 5 * 21.0] * 2


@pytest.mark.parametrize(
    ("use", "seen"),
    [
        ("(sum h)", [1.0]),
        ("(sum (* 2.0 h))", [2.0]),
        ("(sum (stop-gradient h))", []),
        ("0.0", []),
        ("(frozen (sum h))", [1.0]),  # the region freezes parameters, not values
        ("(+ (sum h) ((grad (lambda (v) (* v (sum h)))) 3.0))", [2.0]),  # h and h again, as that gradient
    ],
)
def test_a_tap_through_which_nothing_flows_sees_nothing(program: Program, use: str, seen: list[float]) -> None:
    body = f"""(diagnostic "other" 0.0)
      (let ((h (tap-gradient w (lambda (g) (diagnostic "g" (mean g)))))) (+ still {use}))"""
    done = program.run(training(body, steps=1, run=':diagnostics ["*"] :sample-every 1'), x=[0.0])
    assert done.status == 0, done.err
    assert done.values("g") == seen


def test_a_tap_changes_no_bit(device_program: Program) -> None:
    tapped = '(tap-gradient {} (lambda (g) (diagnostic "g" (norm g))))'
    bits = []
    for value in ("(tanh (* w (:x batch)))", tapped.format("(tanh (* w (:x batch)))")):
        text = training(f'(diagnostic "g" 0.0) (+ still (mean {value}))', steps=4, run=SAMPLED)
        bits.append(device_program.run(text, x=[0.3, -0.7, 1.9, 0.1]).held_bytes)
    assert bits[0] == bits[1]


def test_diagnostics_are_of_sampled_steps_in_every_context(device_program: Program) -> None:
    done = device_program.run(f"""
    (generator made (n) (diagnostic "in/generator" 1.0) {{:x (ones [n])}})
    (prepare (batch) (diagnostic "in/prepare" 1.0) batch)
    (optimizer own (p g) (diagnostic "in/update" (sum g)) (update (- p g)))
    (objective (batch)
      (metric "every" (step))
      (diagnostic "in/objective" (* 2.0 (metric "inner" (step))))
      (diagnostic "out/objective" 1.0)
      {scalar()})
    (evaluate look (batch) (diagnostic "in/pass" (sum (:x batch)) :reduce :sum))
    (run r :data made :batch 1 :steps 7 :optimizer (own)
      :diagnostics ["in/*"] :sample-every 3 :evaluate [(look :data made :examples 5 :batch 2 :every 2)])""")
    assert done.points("every") == done.points("inner") == [(s, float(s)) for s in range(1, 8)]
    assert done.points("in/prepare") == [(3, 1.0), (6, 1.0)]
    assert done.points("in/objective") == [(3, 6.0), (6, 12.0)]
    assert done.points("in/update", param="own") == [(3, 1.0), (6, 1.0)]
    # passes follow the steps 2, 4, 6 and 7, of which 6 is sampled
    assert done.points("in/pass") == [(6, 5.0)]
    assert not {"out/objective", "in/generator"} & set(done.names)


# Gradients


@pytest.mark.parametrize(
    ("call", "value"),
    [
        ("((grad f) 2.0)", 32.0),  # of x⁴: 4 x³, 12 x², 24 x, 24, 0
        ("((grad (grad f)) 2.0)", 48.0),
        ("((grad (grad (grad f))) 2.0)", 48.0),
        ("((grad (grad (grad (grad f)))) 2.0)", 24.0),
        ("((grad (grad (grad (grad (grad f))))) 2.0)", 0.0),
        ("(nth ((value-and-grad f) 2.0) 0)", 16.0),
        ("(nth ((value-and-grad f) 2.0) 1)", 32.0),
        ("((grad (lambda (x) (nth ((value-and-grad f) x) 1))) 2.0)", 48.0),
        ("(nth ((value-and-grad (grad f)) 2.0) 0)", 32.0),
        ("((grad (lambda (x) (* x ((grad f) x)))) 2.0)", 128.0),  # (4 x⁴)' = 16 x³
        ("((grad (lambda (x) (f (stop-gradient x)))) 2.0)", 0.0),
        ("((grad (lambda (x) (* ((grad (lambda (y) (* x y))) x) x))) 2.0)", 4.0),  # (x · x)': the inner y is not x
        ("(sum ((grad (lambda (v) (sum (* v v v)))) (array [1.0 2.0 3.0])))", 42.0),  # 3 + 12 + 27
        ("((grad g) 2.0 5.0)", 5.0),
        ("((grad (lambda (y) (g 2.0 y))) 5.0)", 2.0),
        ("(:a ((grad (lambda (r) (* (:a r) (:a r) (:b r)))) {:a (array 3.0) :b (array 5.0)}))", 30.0),
        ("(:b ((grad (lambda (r) (* (:a r) (:a r) (:b r)))) {:a (array 3.0) :b (array 5.0)}))", 9.0),
        ("(nth ((grad (lambda (r) (* (nth r 0) (first (nth r 1))))) [(array 3.0) [(array 7.0)]]) 0)", 7.0),
    ],
)
def test_gradients_of_every_order_in_a_graph(device_program: Program, call: str, value: float) -> None:
    before = "(define (f x) (* x x x x)) (define (g x y) (* x y))"
    done = device_program.run(training(f'(metric "g" {call}) still', before=before, steps=1), x=[0.0])
    assert done.values("g") == [value], done.err


def test_second_derivatives_inside_an_objective(device_program: Program) -> None:
    # the loss is |∇ Σ w³| ² / 9 = Σ w⁴, whose gradient is 4 w³
    body = "(+ still (/ (sum (square ((grad (lambda (v) (sum (* v v v)))) w))) 9.0))"
    done = device_program.run(training(body, steps=1, optimizer="(sgd :lr 0.5)"), x=[0.0])
    assert held(done)["param/w"] == [1.0 - 2.0] * 2


def test_a_penalty_on_the_gradient_by_the_input_reaches_the_parameters_of_a_model(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (model net (x) (* {scalar("w", "ones-init")} (square x)))
    (objective (batch) (square ((grad net) (* 3.0 (sum (:x batch))))))
    {run_of(":steps 1", optimizer="(sgd :lr 0.125)")}""")
    # (2 w x)² by w is 8 w x² = 72 at x = 3
    assert held(done) == {"param/net/w": 1.0 - 9.0}


def test_one_step_of_descent_inside_the_objective_is_differentiated(device_program: Program) -> None:
    # v = w - 1/4 (w²)' = w / 2, the loss v² = w² / 4 with gradient w / 2
    body = """(let ((inner (lambda (w) (sum (square w)))) (v (- w (* 0.25 ((grad inner) w))))) (+ still (inner v)))"""
    done = device_program.run(training(body, steps=1, optimizer="(sgd :lr 1.0)"), x=[0.0])
    assert held(done)["param/w"] == [0.5, 0.5]


def test_a_hessian_times_a_vector(device_program: Program) -> None:
    # Σ_i w_i² w_(i+1): second derivatives 2 w_(i+1) on the diagonal, 2 w_i beside it
    rng = np.random.default_rng(0)
    w, v = rng.integers(-4, 5, 6).astype(np.float64), rng.integers(-4, 5, 6).astype(np.float64)
    after, before = np.append(w[1:], 0.0), np.insert(w[:-1], 0, 0.0)
    expected = 2 * after * v + 2 * w * np.append(v[1:], 0.0) + 2 * before * np.insert(v[:-1], 0, 0.0)
    expected[-1] = 2 * before[-1] * v[-2]
    listed = [" ".join([str(float(n)) for n in x]) for x in (w, v)]
    text = f"""(define w (array [{listed[0]}])) (define v (array [{listed[1]}]))
    (define (f w) (sum (* (square (slice w 0 0 5)) (slice w 0 1 6))))
    {ONES} (objective (batch) {scalar()})
    (evaluate look (batch)
      (let ((hv ((grad (lambda (w) (sum (* v ((grad f) w))))) w)))
        (map (lambda (i) (metric (str "h" i) (at hv i))) (range 6))))
    {run_of(":steps 1 :evaluate [(look :data made :examples 1)]")}"""
    done = device_program.run(text)
    assert [only(done.values(f"h{i}")) for i in range(6)] == expected.tolist()


def test_a_gradient_in_a_region_is_of_what_the_region_rounds(program: Program) -> None:
    # bf16 holds 1.001 as 1: in a graph and where an initializer computes at once
    steep = "(bf16 ((grad (lambda (x) (sum (* 1.001 x)))) (ones [2])))"
    done = program.run(f"""{ONES}
    (initializer own (shape) {steep})
    (objective (batch) (metric "slope" (max {steep})) (sum (param "w" [2] :init own)))
    {run_of(":steps 1", optimizer="(sgd :lr 0.25)")}""")
    assert done.values("slope") == [1.0]
    assert held(done)["param/w"] == [0.75, 0.75]


def test_the_gradient_by_each_use_in_a_region_is_rounded_before_they_are_added(program: Program) -> None:
    # 1.1328125 * 1.40625 = 1.5930… is 1.59375 in bf16, and 1.203125 * 1.265625 = 1.5227… is 1.5234375; their sum
    # 3.1171875 lies between two bf16s and goes to the even one, as in PyTorch.  Rounded once it would be 3.109375.
    forked = "(+ (* (* u 1.1328125) 1.40625) (* (* u 1.203125) 1.265625))"
    # where the value comes from without the region, the sum of its rounded gradients is f32's own
    done = program.run(f"""{ONES}
    (define (within x) (bf16 (let ((u (* x 1.0))) {forked})))
    (define (without u) (bf16 {forked}))
    (objective (batch)
      (metric "within" ((grad within) 1.0)) (metric "without" ((grad without) 1.0))
      (metric "moved" ((grad (lambda (x) (sum (within (reshape (* x (ones [1])) [1 1]))))) 1.0)) {scalar()})
    {run_of(":steps 1")}""")
    assert [done.values(name) for name in ("within", "without", "moved")] == [[3.125], [3.1171875], [3.125]]


# Batches of a pass that are not alike

LONE = "(= (dim (:x batch) 0) 1)"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (f'(metric "m" (if {LONE} (reading "none" (param "w")) 1.0))', "E-EVAL-024"),
        ('(let ((n (dim (:x batch) 0))) (output "o" (zeros [n n])))', "E-DTYPE-006"),
        (f'(output "o" (if {LONE} (cast (:x batch) :i32) (:x batch)))', "E-DTYPE-006"),
        (f'(if {LONE} (output "o" (sum (:x batch))) (output "o" (:x batch)))', "E-DTYPE-006"),
    ],
)
def test_what_only_a_ragged_batch_holds_is_checked_before_any_step(program: Program, body: str, code: str) -> None:
    text = f"""{ONES} (objective (batch) {scalar()})
    (evaluate look (batch) {body})
    {run_of(":steps 1 :evaluate [(look :data made :examples {} :batch 2)]")}"""
    assert only(program.refused(text.replace("{}", "5")))["code"] == code
    assert program.run(text.replace("{}", "4")).status == 0, "without a ragged batch there is nothing to refuse"
