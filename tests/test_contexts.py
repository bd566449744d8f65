"""Each context and each form of a graph in small runs worked out by hand, in powers of two so that they are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from sxi.checking import check_text
from tests import running
from tests.running import Finished, Program, only

program = running.program
device_program = running.device_program


def scalar(name: str = "w", value: str = "zeros-init") -> str:
    return f'(param "{name}" [] :init {value})'


def run_of(options: str, *, data: str = "made", optimizer: str = "(sgd :lr 1.0)") -> str:
    return f"(run r :data {data} :optimizer {optimizer} {options})"


def last(done: Finished) -> dict[str, Any]:
    """What the last checkpoint holds."""
    assert done.status == 0, done.err
    return done.saved(done.checkpoints[-1])


def param(done: Finished, name: str = "w") -> Any:
    return last(done)[f"param/{name}"].tolist()


ONES = "(generator made (n) {:x (ones [n])})"
DATA = '(data d (npz "d.npz"))'


# Where examples come from


def test_a_generator_makes_each_microbatch_and_each_batch_of_a_pass(device_program: Program) -> None:
    done = device_program.run(f"""
    (generator made (n) {{:x (arange n)}})
    (objective (batch)
      (metric "calls" 1 :reduce :sum)
      (metric "n" (size (:x batch)))
      (* {scalar()} (mean (:x batch))))
    (evaluate held (batch)
      (metric "mean" (mean (:x batch)))
      (metric "sum" (sum (:x batch)) :reduce :sum)
      (metric "last" (size (:x batch)) :reduce :last)
      (output "x" (:x batch)))
    {run_of(":steps 2 :batch 8 :microbatches 2 :evaluate [(held :data made :examples 5 :batch 2 :every 1)]")}
    """)
    # a microbatch is 0 1 2 3, so the gradient is 3/2 in each of the two
    assert param(done) == -3.0
    assert (done.values("calls"), done.values("n")) == ([2.0, 2.0], [4.0, 4.0])
    # the pass has batches of 2, 2 and 1: 0 1 | 0 1 | 0, their means weighted by their examples
    assert done.values("mean") == [0.4, 0.4]
    assert (done.values("sum"), done.values("last")) == ([2.0, 2.0], [1.0, 1.0])
    assert done.metas("mean") == [{"pass": "held"}]
    x = safetensors.numpy.load_file(done.folder / "outputs/held/000002.safetensors")["x"]
    assert x.tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("epochs", "batch", "sums"),
    [
        (1, 4, [10, 26, 22]),  # 10 examples are 3 steps of 4, the last of which begins the next epoch: 9 10 1 2
        (2, 4, [10, 26, 22, 18, 34]),  # 3 4 5 6 and 7 8 9 10
        (2, 5, [15, 40, 15, 40]),
        (3, 10, [55, 55, 55]),
    ],
)
def test_epochs_are_laid_end_to_end(program: Program, epochs: int, batch: int, sums: list[int]) -> None:
    text = f"""{DATA}
    (objective (batch) (metric "sum" (sum (:x batch))) (* 0.0 {scalar()}))
    """
    ten = np.arange(1, 11, dtype=np.float32)
    options = f":epochs {epochs} :batch {batch}"
    assert program.run(text + run_of(options + " :shuffle off", data="d"), x=ten).values("sum") == sums
    shuffled = program.run(text + run_of(options, data="d"), x=ten)
    assert len(shuffled.values("sum")) == len(sums)
    whole = 10 * epochs // batch  # steps that lie within the epochs
    if whole * batch == 10 * epochs:
        assert sum(shuffled.values("sum")) == 55 * epochs
    assert shuffled.values("sum") != sums or batch == 10


def test_an_epoch_is_of_the_split_that_is_trained(program: Program) -> None:
    done = program.run(
        f"""(data d (npz "d.npz") :split {{:train 0.75 :held 0.25}})
    (objective (batch) (metric "sum" (sum (:x batch))) (* 0.0 {scalar()}))
    {run_of(":epochs 2 :batch 6", data="d")}""",
        x=2.0 ** np.arange(8, dtype=np.float32),
    )
    both = done.values("sum", split="train")
    # of 8 rows 6 are of training: one step is an epoch, the same six twice
    assert len(both) == 2
    assert both[0] == both[1]
    assert int(both[0]).bit_count() == 6


def test_part_is_the_rows_of_a_split_and_a_name_alone_all_rows(program: Program) -> None:
    x = 2.0 ** np.arange(10, dtype=np.float32)
    done = program.run(
        f"""(data d (npz "d.npz") :split {{:train 0.7 :held 0.3}})
    (define train (:x (part d :train)))
    (define held (:x (part d :held)))
    (print (shape train) (shape held) (shape (:x d)))
    (objective (batch)
      (metric "train" (sum train)) (metric "held" (sum held)) (metric "all" (sum (:x d)))
      (metric "rows" (size train))
      (* 0.0 {scalar()}))
    (evaluate look (batch) (metric "seen" (sum (:x batch)) :reduce :sum))
    {run_of(":steps 1 :batch 7 :evaluate [(look :data d :split :held :batch 2)]", data="d")}""",
        x=x,
    )
    (train,), (held,), (seen,) = done.values("train"), done.values("held"), done.values("seen")
    assert done.values("all") == [1023.0]
    assert train + held == 1023.0
    assert (int(train).bit_count(), int(held).bit_count()) == (7, 3)
    assert seen == held
    assert done.values("rows") == [7.0]


def test_a_part_of_a_text_knows_the_vocabulary_of_the_whole(program: Program) -> None:
    (program.path / "t.txt").write_text("hello world, hello", encoding="utf-8")
    done = program.run(f"""(data d (text "t.txt") :split {{:train 0.5 :held 0.5}}) {ONES}
    (objective (batch)
      (metric "known" (:vocabulary (part d :train))) (metric "rows" (size (:tokens (part d :train)))) {scalar()})
    {run_of(":steps 1")}""")
    # h e l o w r d, the blank and the comma; half of 18
    assert (done.values("known"), done.values("rows")) == ([9.0], [9.0])


def test_a_batch_has_every_column_with_its_type(program: Program) -> None:
    done = program.run(
        f"""{DATA}
    (objective (batch)
      (metric "picked" (sum (at (:x batch) (arange 2) (:y batch))))
      (* 0.0 {scalar()}))
    {run_of(":steps 2 :batch 2 :shuffle off", data="d")}""",
        x=np.arange(12, dtype=np.float32).reshape(4, 3),
        y=[0, 2, 1, 1],
    )
    assert done.values("picked") == [0.0 + 5.0, 7.0 + 10.0]


# prepare, models, the objective


def test_prepare_changes_what_is_trained_on_and_nothing_else(device_program: Program) -> None:
    done = device_program.run(
        f"""{DATA}
    (prepare (batch) (with batch :x (* (:x batch) (cast (step) :f32)) :twice (* 2.0 (:x batch))))
    (objective (batch)
      (metric "x" (sum (:x batch))) (metric "twice" (sum (:twice batch)))
      (* {scalar()} (sum (:x batch))))
    (evaluate look (batch) (metric "raw" (sum (:x batch))))
    {run_of(":steps 2 :batch 1 :shuffle off :evaluate [(look :data d)]", data="d")}""",
        x=[4.0, 3.0],
    )
    assert done.values("x") == [4.0, 6.0]
    assert done.values("twice") == [8.0, 6.0]
    assert param(done) == -10.0
    assert done.values("raw") == [7.0]


def test_a_model_makes_its_parameters_under_its_own_name_whoever_calls_it(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (model inner (x) (* x {scalar("a")}))
    (model outer (x) (scope "s" (scope "t" (+ (inner x) (* x {scalar("a")})))))
    (objective (batch)
      (let ((x (sum (:x batch))))
        (+ (scope "unseen" (inner x)) (outer (* 2.0 x)) (scope "own" (* x {scalar("b")})))))
    (evaluate look (batch)
      (metric "by-name" (+ (param "inner/a") (param "outer/s/t/a") (param "own/b")))
      (metric "by-model" (outer 1.0)))
    {run_of(":steps 1 :batch 1 :evaluate [(look :data made :examples 1)]")}
    """)
    held = {k: v.tolist() for k, v in last(done).items()}
    # inner/a is called with x and with 2 x: its gradient is 1 + 2
    assert held == {"param/inner/a": -3.0, "param/outer/s/t/a": -2.0, "param/own/b": -1.0}
    assert done.values("by-name") == [-6.0]
    assert done.values("by-model") == [-5.0]


def test_the_same_name_again_is_the_same_parameter_and_its_gradients_add(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (objective (batch) (fold (loss 0.0) (c [1.0 2.0 4.0]) (+ loss (* c {scalar()}))))
    {run_of(":steps 1 :batch 1")}""")
    assert param(done) == -7.0


@pytest.mark.parametrize(
    ("init", "first"),
    [
        ("zeros-init", 0.0),
        ("ones-init", 1.0),
        ("(constant-init :value 2.5)", 2.5),
        ("(own :value 3.0)", 12.0),
        ("own", 4.0),
    ],
)
def test_a_parameter_begins_as_its_initializer_says(program: Program, init: str, first: float) -> None:
    done = program.run(f"""{ONES}
    (initializer own (shape :value 1.0) (full shape (* value (+ 1 (count shape) (first shape)))))
    (objective (batch) (sum (* 0.0 (param "w" [2] :init {init}))))
    {run_of(":steps 1 :batch 1")}""")
    assert param(done) == [first, first]


@pytest.mark.parametrize("where", ["prepare", "evaluate", "generator", "optimizer"])
def test_only_the_objective_and_its_models_make_parameters(program: Program, where: str) -> None:
    made = '(param "v" [] :init zeros-init)'
    parts = {
        "prepare": f"{ONES} (prepare (batch) (with batch :v {made}))",
        "evaluate": f"{ONES} (evaluate look (batch) (shape {made}))",
        "generator": f"(generator made (n) {{:x (+ {made} (ones [n]))}})",
        "optimizer": f"{ONES} (optimizer own (p g) (update (+ p {made})))",
    }
    optimizer = "(own)" if where == "optimizer" else "(sgd :lr 1.0)"
    passes = ":evaluate [(look :data made :examples 1)]" if where == "evaluate" else ""
    text = f"{parts[where]} (objective (batch) {scalar()}) {run_of(f':steps 1 {passes}', optimizer=optimizer)}"
    assert only(program.refused(text))["code"] == "E-CONTRACT-011"


@pytest.mark.parametrize(
    ("generator", "prepare", "initial"),
    [
        ('(* (param "w") (ones [n]))', "batch", "0.0"),
        ("(ones [n])", '(with batch :v (param "w"))', "0.0"),
        ("(ones [n])", "batch", '(+ (param "w") (zeros shape))'),
    ],
)
def test_no_parameter_is_read_before_one_is_known(program: Program, generator: str, prepare: str, initial: str) -> None:
    refused = only(
        program.refused(f"""(generator made (n) {{:x {generator}}}) (prepare (batch) {prepare})
        (initializer own (shape) (+ {initial} (zeros shape)))
        (objective (batch) (+ (mean (:x batch)) (param "w" [] :init own))) {run_of(":steps 1")}""")
    )
    assert refused["code"] == "E-CONTRACT-011"
    # not to be told to do what was done
    assert "existing" not in refused["help"]


# Passes


def test_passes_run_in_their_order_each_when_it_is_due_and_after_the_last_step(device_program: Program) -> None:
    due = "(c :data made :examples 1 :every 5) (a :data made :examples 3 :every 2) (b :data made :examples 1)"
    done = device_program.run(f"""{ONES}
    (objective (batch) {scalar()})
    (evaluate a (batch) (metric "a/w" (param "w")))
    (evaluate b (batch) (metric "b/w" (param "w")))
    (evaluate c (batch) (metric "c/w" (param "w")) (metric "c/step" (step)))
    {run_of(f":steps 5 :batch 1 :evaluate [{due}]")}""")
    # a pass sees the parameters after the step that it follows
    assert done.points("a/w") == [(2, -2.0), (4, -4.0), (5, -5.0)]
    assert done.points("b/w") == [(5, -5.0)]
    assert done.points("c/w") == [(5, -5.0)]
    assert done.points("c/step") == [(5, 5.0)]
    order = [(line["step"], line["series"]) for line in done.lines if line["kind"] == "point"]
    assert order == [(2, "a/w"), (4, "a/w"), (5, "c/w"), (5, "c/step"), (5, "a/w"), (5, "b/w")]


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 7])
def test_a_pass_covers_its_rows_in_order_whatever_its_batch(program: Program, batch: int) -> None:
    rows = [1.0, 2.0, 4.0, 8.0, 17.0]
    done = program.run(
        f"""{DATA}
    (objective (batch) {scalar()})
    (evaluate look (batch)
      (metric "mean" (mean (:x batch)))
      (metric "sum" (sum (:x batch)) :reduce :sum)
      (metric "max" (max (:x batch)) :reduce :max)
      (metric "min" (- (max (:x batch))) :reduce :min)
      (metric "last" (size (:x batch)) :reduce :last)
      (metric "batches" 1 :reduce :sum)
      (output "x" (:x batch)))
    {run_of(f":steps 1 :batch 1 :evaluate [(look :data d :batch {batch})]", data="d")}""",
        x=rows,
    )
    # 32 / 5: each batch's mean counts as many times as it has examples
    assert done.values("mean") == [pytest.approx(6.4, rel=1e-6)]
    assert (done.values("sum"), done.values("max"), done.values("min")) == ([32.0], [17.0], [-17.0])
    batches = -(-5 // batch)
    assert (done.values("batches"), done.values("last")) == ([float(batches)], [float(5 - batch * (batches - 1))])
    x = safetensors.numpy.load_file(done.folder / "outputs/look/000001.safetensors")["x"]
    assert x.tolist() == rows


def test_a_ragged_batch_is_another_graph(program: Program) -> None:
    done = program.run(
        f"""{DATA}
    (objective (batch) {scalar()})
    (evaluate look (batch)
      (if (= (dim (:x batch) 0) 3) (metric "full" (sum (:x batch))) (metric "ragged" (sum (:x batch)))))
    {run_of(":steps 1 :batch 1 :evaluate [(look :data d :batch 3)]", data="d")}""",
        x=[1.0, 2.0, 4.0, 8.0, 16.0],
    )
    assert (done.values("full"), done.values("ragged")) == ([7.0], [24.0])


def test_one_evaluation_reads_what_another_context_shares(program: Program) -> None:
    # the same function in the objective and in a pass: what it is called with differs, what it says does not
    done = program.run(
        f"""{DATA}
    (define (error batch) (mean (square (- (:x batch) {scalar()}))))
    (objective (batch) (metric "loss" (error batch)))
    (evaluate look (batch) (metric "held" (error batch)))
    {run_of(":steps 2 :batch 2 :evaluate [(look :data d :every 1)]", data="d", optimizer="(sgd :lr 0.5)")}""",
        x=[1.0, 3.0],
    )
    # loss (1 + 9) / 2, gradient -(1 + 3), w = 2; then (1 + 1) / 2 with gradient 0
    assert done.values("loss") == [5.0, 1.0]
    assert done.values("held") == [1.0, 1.0]
    assert param(done) == 2.0


# Optimizers

SUM = f"""(objective (batch)
  (+ {scalar("net/a/w")} (* 2.0 {scalar("net/b/w")}) (* 4.0 {scalar("head")})))"""


def test_each_parameter_is_taken_by_the_first_group_whose_glob_matches(device_program: Program) -> None:
    groups = '[(group "slow" "net/a/*" (sgd :lr 0.25)) (group "net" "net/*" (own)) (group "rest" "*" (sgd :lr 1.0))]'
    done = device_program.run(f"""{ONES}
    (optimizer own (p g :lr 8.0) (metric "own/g" (sum g)) (update (- p (* lr g))))
    {SUM} {run_of(":steps 2 :batch 1", optimizer=groups)}""")
    assert {name: x.tolist() for name, x in last(done).items()} == {
        "param/net/a/w": -0.5, "param/net/b/w": -32.0, "param/head": -8.0,
    }  # fmt: skip
    assert done.values("own/g", param="net") == [2.0, 2.0]
    assert done.metas("own/g") == [{"param": "net"}]


def test_without_groups_the_series_of_an_optimizer_has_its_name(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (optimizer own (p g)
      (metric "mean" (sum g)) (metric "sum" (sum g) :reduce :sum) (metric "step" (step) :reduce :max)
      (update (- p g)))
    {SUM} {run_of(":steps 2 :batch 4 :microbatches 4", optimizer="(own)")}""")
    # over the parameters, whatever the microbatches: 1, 2 and 4
    assert done.metas("mean") == [{"param": "own"}]
    assert done.values("mean") == [pytest.approx(7 / 3, rel=1e-7)] * 2
    assert (done.values("sum"), done.values("step")) == ([7.0, 7.0], [1.0, 2.0])


def test_a_keyword_given_a_function_is_its_value_at_the_step(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (optimizer own (p g :lr required :shift 0.0) (update (- (+ p shift) (* lr g))))
    (define (falls s) (* 0.5 s))
    (objective (batch) {scalar()})
    {run_of(":steps 3 :batch 1", optimizer="(own :lr falls :shift (lambda (s) (- s 1)))")}""")
    # less 0.5 + 1 + 1.5, and 0 + 1 + 2
    assert param(done) == -3.0 + 3.0


def test_a_schedule_of_the_library_and_one_of_the_program_are_alike(program: Program) -> None:
    rates = ["(step-decay :peak 1.0 :every 2 :factor 0.5)", "(lambda (s) (pow 0.5 (quotient (- s 1) 2)))"]
    for rate in rates:
        done = program.run(f"{ONES} (objective (batch) {scalar()})"
                           f"{run_of(':steps 5 :batch 1', optimizer=f'(sgd :lr {rate})')}")  # fmt: skip
        assert param(done) == -(1 + 1 + 0.5 + 0.5 + 0.25)


def test_total_sums_over_all_parameters_of_all_groups(device_program: Program) -> None:
    groups = '[(group "a" "a" (own)) (group "b" "b" (own :share 2.0))]'
    done = device_program.run(f"""{ONES}
    (optimizer own (p g :share 1.0)
      (let ((norm (sqrt (total (sum (square g))))))
        (metric "norm" norm :reduce :max)
        (metric "elements" (total (size p)) :reduce :max)
        (metric "sizes" (total (* share (step))) :reduce :max)
        (update (- p (* share (/ g norm))))))
    (objective (batch) (+ (* 3.0 {scalar("a")}) (* 2.0 (sum (param "b" [4] :init ones-init)))))
    {run_of(":steps 1 :batch 1", optimizer=groups)}""")
    # 3² + 4 · 2² = 25
    assert done.values("norm", param="a") == done.values("norm", param="b") == [5.0]
    assert done.values("elements", param="a") == done.values("elements", param="b") == [5.0]
    # a total reads the keywords of the group that asks: 1 + 1, and 2 + 2
    assert (done.values("sizes", param="a"), done.values("sizes", param="b")) == ([2.0], [4.0])
    assert param(done, "a") == -float(np.float32(0.6))
    assert param(done, "b") == [float(np.float32(1) - np.float32(0.8))] * 4


@pytest.mark.parametrize("state", ["(x/y p)", '(b p :as "x/y")'])
def test_the_name_of_a_state_cannot_be_taken_for_part_of_a_parameters(program: Program, state: str) -> None:
    # x of y/w and x/y of w would be saved under one name
    found = only(
        program.refused(f"""{ONES}
    (optimizer own (p g) :state ((x p) {state}) (update p :x x :x/y p))
    (objective (batch) (+ {scalar()} {scalar("y/w")}))
    {run_of(":steps 1 :batch 1", optimizer="own")}""")
    )
    assert (found["code"], found["help"]) == ("E-EVAL-002", "name it x-y")


def test_a_tap_looks_at_an_array(program: Program) -> None:
    tapped = '(tap-gradient {:x (:x batch)} (lambda (g) (diagnostic "g" (norm g))))'
    refused = only(program.refused(f"{ONES} (objective (batch) (begin {tapped} {scalar()})) {run_of(':steps 1')}"))
    assert (refused["code"], refused["help"]) == ("E-EVAL-005", "tap each of its arrays")


@pytest.mark.parametrize(
    ("total", "code"),
    [
        ("(total (/ (sum g) n))", "E-EVAL-005"),
        ("(total (map-sum (lambda (x) (/ x n)) g))", "E-EVAL-005"),
        ("(total (/ (sum g) same))", None),
        ("(total (let ((n 2.0)) (/ (sum g) n)))", None),
        ("(total (/ (sum g) (size p)))", None),
        ("(fold (s 0.0) (i (range n)) (+ s (total (* i (sum g)))))", "E-EVAL-005"),
        ("(fold (s 0.0) (i (range 3)) (+ s (total (* i (sum g)))))", None),
    ],
)
def test_a_total_reads_no_number_of_one_parameter(program: Program, total: str, code: str | None) -> None:
    text = f"""{ONES} (define (map-sum f x) (f (sum x)))
    (optimizer own (p g) (let ((n (size p)) (same (* 2.0 1.5))) (metric "t" {total}) (update (- p g))))
    (objective (batch) (+ (sum (param "a" [2] :init ones-init)) (sum (param "b" [3] :init ones-init))))
    {run_of(":steps 1", optimizer="(own)")}"""
    if code is None:
        assert program.run(text).status == 0
    else:
        assert only(program.refused(text))["code"] == code


def test_a_total_may_hold_another_and_what_was_computed_of_one(program: Program) -> None:
    done = program.run(f"""{ONES}
    (optimizer own (p g)
      (let ((norm (sqrt (total (sum (square g))))))
        (metric "nested" (total (* (sum g) (total (sum g)))))
        (metric "scaled" (total (sum (square (/ g norm)))))
        (metric "clipped" (total (sum (square (clipped g 2.5)))))
        (update (- p g))))
    (objective (batch) (+ (* 3.0 {scalar("a")}) (* 2.0 (sum (param "b" [4] :init ones-init)))))
    {run_of(":steps 1 :batch 1", optimizer="own")}""")
    # the sums of the gradients are 3 and 8, their norm is 5
    assert done.values("nested") == [121.0]
    assert done.values("scaled") == [pytest.approx(1.0, rel=1e-6)]
    assert done.values("clipped") == [pytest.approx(6.25, rel=1e-5)]


def test_the_states_of_an_optimizer_begin_as_they_are_written_and_are_kept(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (optimizer own (p g :keep nil :start 2.0)
      :state ((m (* start (ones-like p))) (n 0) (first p) (never (if keep p nil)))
      (update (- p (* m g)) :m (+ m g) :n (+ n 1) :first first :never nil))
    (objective (batch) {scalar("w", "ones-init")})
    {run_of(":steps 3 :batch 1", optimizer="(own)")}""")
    # w less 2 + 3 + 4
    assert {name: x.tolist() for name, x in last(done).items()} == {
        "param/w": -8.0, "optimizer/m/w": 5.0, "optimizer/n/w": 3, "optimizer/first/w": 1.0,
    }  # fmt: skip


def test_microbatches_are_cut_in_order_and_their_gradients_are_averaged(device_program: Program) -> None:
    text = f"""{DATA}
    (objective (batch)
      (metric "first" (sum (:x batch)) :reduce :last)
      (* {scalar()} (mean (:x batch))))
    """
    rows = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
    for microbatches, of_last in ((1, 63.0), (2, 56.0), (3, 48.0), (6, 32.0)):
        options = f":steps 1 :batch 6 :shuffle off :microbatches {microbatches}"
        done = device_program.run(text + run_of(options, data="d"), x=rows)
        assert done.values("first") == [of_last]
        assert param(done) == -10.5


# The curriculum


def test_stages_set_settings_read_what_is_reported_and_the_last_ends_the_run(device_program: Program) -> None:
    done = device_program.run(f"""{ONES}
    (setting rate 1.0)
    (setting other 7.0)
    (objective (batch) (metric "other" other) (metric "loss" {scalar()}))
    (curriculum
      (stage "slow" :until (>= (stage-step) 2) :set {{:rate 0.5}})
      (stage "fast" :until (<= (reported "loss") -5.0) :set {{:rate 2.0 :other 8.0}})
      (stage "end" :until (>= (step) 7)))
    {run_of(":steps 20 :batch 1", optimizer="(sgd :lr rate)")}""")
    # the loss of a step is w before it: 0 -0.5 | -1 -3 -5 | -7 -8
    assert done.points("loss", stage="slow") == [(1, 0.0), (2, -0.5)]
    assert done.points("loss", stage="fast") == [(3, -1.0), (4, -3.0), (5, -5.0)]
    assert done.points("loss", stage="end") == [(6, -7.0), (7, -8.0)]
    # what a stage does not set has the file's value, not that of the stage before
    assert done.values("other") == [7.0, 7.0, 8.0, 8.0, 8.0, 7.0, 7.0]
    assert param(done) == -9.0
    assert (done.state["state"], done.state["step"], done.checkpoints) == ("done", 7, [7])
    assert done.texts == ["stage slow", "stage fast", "stage end", "done"]


def test_a_run_ends_at_its_steps_whatever_its_stage(program: Program) -> None:
    done = program.run(f"""{ONES} (objective (batch) (metric "loss" {scalar()}))
    (curriculum (stage "first" :until (>= (step) 100)) (stage "never"))
    {run_of(":steps 3 :batch 1")}""")
    assert done.points("loss", stage="first") == [(1, 0.0), (2, -1.0), (3, -2.0)]


def test_what_the_curriculum_reads(program: Program) -> None:
    # nil before the first value; a pass's by its name; every value with :all
    text = f"""{ONES} (objective (batch) (metric "loss" {scalar()}))
    (define (sum-of values) (fold (s 0.0) (v values) (+ s v)))
    (evaluate held (batch) (metric "held" (param "w")) (metric "loss" 100.0))
    (curriculum (stage "only" :until UNTIL))
    {run_of(":steps 9 :batch 1 :evaluate [(held :data made :examples 1 :every 2)]")}"""
    for until, steps in {
        '(= (reported "loss") -3.0)': 4,
        '(reported "held")': 2,
        '(not (= nil (reported "held" :pass "held")))': 2,
        '(= (count (reported "loss" :all true)) 5)': 5,
        '(<= (sum-of (reported "loss" :all true)) -10.0)': 5,  # 0 -1 -2 -3 -4
        '(= (count (reported "held" :all true)) 3)': 6,
        '(= (reported "loss" :pass "held") 100.0)': 2,
        '(= (count (reported "held" :pass (str "ot" "her") :all true)) 1)': 9,
        '(and (reported "held") (< (reported "held") (reported "loss")) (> (step) 3))': 4,
        "(and (= (step) 3) (= (stage-step) 3))": 3,
        "true": 1,
        "nil": 9,
    }.items():
        done = program.run(text.replace("UNTIL", until))
        assert done.state["step"] == steps, (until, done.err)


@pytest.mark.parametrize(
    ("reading", "said", "note", "repair"),
    [
        ('"held" :pass "hled"', "held of the pass hled", "the run's passes are held", 'did you mean "held"?'),
        ('"loss" :pass "held"', "loss of the pass held", "the pass reports held", ""),
        ('"hled" :pass "held"', "hled", "", 'did you mean "held"?'),
    ],
)
def test_a_pass_reports_what_the_curriculum_reads_of_it(reading: str, said: str, note: str, repair: str) -> None:
    (error,) = check_text(f"""{ONES} (objective (batch) (metric "loss" {scalar()}))
    (evaluate held (batch) (metric "held" (param "w")))
    (curriculum (stage "only" :until (reported {reading})))
    {run_of(":steps 9 :batch 1 :evaluate [(held :data made :examples 1 :every 2)]")}""")
    assert (error.code, error.message) == ("E-CONTRACT-024", f"the curriculum reads {said}, which is not a metric")
    assert (error.notes, error.help) == ([note] if note else [], repair)


def test_a_stage_that_changes_the_batch_goes_on_where_the_one_before_left_off(program: Program) -> None:
    done = program.run(
        f"""{DATA} (setting n 2)
    (objective (batch) (metric "sum" (sum (:x batch))) (* {scalar()} (mean (:x batch))))
    (curriculum (stage "small" :until (= (step) 3)) (stage "large" :set {{:n 4}}))
    {run_of(":steps 5 :batch n :shuffle off", data="d")}""",
        x=2.0 ** np.arange(12, dtype=np.float32),
    )
    assert [int(v).bit_length() for v in done.values("sum")] == [2, 4, 6, 10, 12]
    assert done.values("sum") == [3.0, 12.0, 48.0, 15.0 * 64, 3.0 * 1024 + 3.0]
    both = sum([3 / 2, 12 / 2, 48 / 2, 960 / 4, 3075 / 4])
    assert param(done) == -both
