"""What guards report and what they cost: the clauses G30 to G38, through `sxi run`, `check` and `explain`."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

from sxi import guards, layout
from tests.clauses.programs import LARGE, optimized, passing
from tests.running import Finished, Program, column, only, training

INF = math.inf

# Series


@pytest.mark.clause(30)
@pytest.mark.scenario(34)
def test_g30_s34_a_flat_zero_at_every_step_until_it_is_not(device_program: Program) -> None:
    body = f'(guard "x" {column("x")} :layer 1) (assert-finite "w" w) still'
    done = device_program.run(training(body, steps=6), x=[0.0, 0.0, 0.0, 0.0, 3.0, 0.0])
    assert done.points("guard/x") == [(1, 0.0), (2, 0.0), (3, 0.0), (4, 0.0), (5, 3.0)]
    assert done.points("guard/w") == [(s, 0.0) for s in range(1, 6)]
    assert done.metas("guard/x") == [{"layer": 1}]


@pytest.mark.clause(30)
def test_g30_the_runtimes_split_stage_and_pass_are_in_its_metadata(device_program: Program) -> None:
    text = """
    (data d (npz "d.npz") :split {:train 0.5 :held-out 0.5})
    (setting limit 9.0)
    (model net (x) (guard "net/x" (count-where (> x limit)) :layer 2)
      (* (sum x) (sum (param "w" [1] :init ones-init))))
    (objective (batch) (net (:x batch)))
    (evaluate held (batch) (net (:x batch)))
    (curriculum (stage "short" :until (>= (step) 1)) (stage "long" :set {:limit 8.0}))
    (run r :data d :batch 2 :steps 2 :optimizer (sgd :lr 0.0)
      :evaluate [(held :data d :split :held-out :every 1)])"""
    done = device_program.run(text, x=[1.0] * 4)
    assert done.status == 0
    own = [{"layer": 2, "split": "train", "stage": stage} for stage in ("short", "long")]
    held = [{"layer": 2, "split": "held-out", "stage": stage, "pass": "held"} for stage in ("short", "long")]
    assert done.metas("guard/net/x") == [own[0], held[0], own[1], held[1]]
    # none of them is in the message
    failed = device_program.run(text, "--set", "limit=0.5", x=[1.0] * 4)
    assert failed.message.startswith("E-GUARD-001: guard net/x layer=2 counted 2 at step 1, expected 0;")
    assert failed.error["meta"] == {"layer": 2}


@pytest.mark.clause(31)
def test_g31_an_optimizers_guard_reports_its_groups_param_summed_over_the_group(device_program: Program) -> None:
    optimizer = '[(group "small" "one" (guarded)) (group "rest" "*" (guarded))]'
    done = device_program.run(optimized(LARGE, steps=1, optimizer=optimizer), a=[2.0], b=[2.0])
    assert done.metas("guard/large") == [{"param": "small"}, {"param": "rest"}]
    assert done.values("guard/large") == [2.0, 3.0]
    # without groups it is the optimizer's name, and the sum over all parameters
    done = device_program.run(optimized(LARGE, steps=1), a=[2.0], b=[2.0])
    assert (done.metas("guard/large"), done.values("guard/large")) == ([{"param": "guarded"}], [5.0])
    # the message has the parameter's own name
    assert "param=one counted 2 " in done.message


@pytest.mark.clause(32)
@pytest.mark.scenario(29)
@pytest.mark.parametrize(
    ("rows", "said", "value"),
    [
        ([16777216.0, 1.0], "16777217", None),  # 2^24 + 1: f32 has no such number
        ([16777216.0, 2.0], "16777218", 16777218.0),
        ([3e38, 3e38], str(2 * int(np.float32(3e38))), None),  # past f32's range
        ([-16777216.0, -1.0], "-16777217", None),
        ([0.5, 0.25], "0.75", 0.75),
        ([INF, 1.0], "Infinity", INF),
        ([INF, -INF], "NaN", math.nan),
    ],
)
def test_g32_s29_a_count_past_f32_is_left_out_and_told_whole(
    device_program: Program, rows: list[float], said: str, value: float | None
) -> None:
    done = device_program.run(training(f'(guard "n" {column("n")}) still', batch=2, steps=1), n=rows)
    assert f"guard n counted {said} at step 1," in done.message
    expected = [] if value is None else [str(value)]
    assert [str(v) for v in done.values("guard/n")] == expected
    told: Any = int(said) if said.lstrip("-").isdigit() else 0.75 if said == "0.75" else said
    # whole ones are written whole, 16777217 and not 16777217.0
    assert repr(done.error["count"]) == repr(done.annotations[0]["count"]) == repr(told)


@pytest.mark.clause(32)
@pytest.mark.scenario(29)
def test_g32_s29_one_evaluation_is_counted_exactly_and_rounded_once(program: Program) -> None:
    # 2^24 + 3 violations lie halfway between two f32 numbers, and go to the even one
    body = (
        '(assert-finite "ones" (* inf (ones [16777219]))) (guard "mask" (count-where (> (ones [16777219]) 0.5))) still'
    )
    done = program.run(training(body, steps=1), x=[0.0])
    assert done.values("guard/ones") == [16777220.0]
    assert done.values("guard/mask") == [16777220.0]


@pytest.mark.clause(33)
def test_g33_each_guard_and_metadata_counts_in_the_reporting_rate(program: Program) -> None:
    # values a step: 1 metric and its bounds' 1 series, 3 of the loop, 1 of assert-finite, 2 groups: 8
    body = f"""
    (metric "loss" {column("x")} :above -9.0 :below 9.0)
    (fold (acc 0.0) (layer (range 3)) (begin (guard "g" 0 :layer layer) (guard "g" 0 :layer layer) acc))
    (assert-finite "w" w)
    (+ still (* 0.0 (sum (param "v" [1] :init ones-init))))"""
    optimizer = '[(group "one" "w" (guarded)) (group "two" "*" (guarded))]'
    before = '(optimizer guarded (p g) (guard "opt" 0) (update p))'

    def text(limit: int) -> str:
        return training(body, before=before, optimizer=optimizer, run=f":report-limit {limit}", steps=1)

    done = program.run(text(8), x=[0.0])
    assert done.status == 0
    assert len([line for line in done.lines if line["kind"] == "point"]) == 8
    found = only(program.refused(text(7), x=[0.0]))
    assert found["code"] == "E-CONTRACT-023"
    assert found["message"] == "the fullest step reports 8 values, past the :report-limit of 7"


EVERYWHERE = """(data d (npz "d.npz"))
(prepare (batch) (guard "raw" (count-where (> (:x batch) 9.0))) batch)
(model net (x) (assert-finite "net/x" x :layer 1) (* (sum x) (sum (param "w" [1] :init ones-init))))
(objective (batch)
  (metric "loss" (net (:x batch))
    :below 20.0))
(optimizer guarded (p g) (guard "opt" (count-where (> g 9.0))) (update p))
(evaluate held (batch) (diagnostic "held/x" (net (:x batch)) :above -1.0))
(run r :data d :batch 1 :steps 1 :optimizer (guarded) :evaluate [(held :data d :every 1)]
  :diagnostics ["held/*"] :sample-every 1)
"""


@pytest.mark.clause(34)
def test_g34_explain_lists_every_guard_with_its_graphs_and_source(program: Program) -> None:
    program.write(EVERYWHERE, x=[1.0])
    status, shown, said = program.command("explain", "program.sx")
    assert (status, said) == (0, "")
    section = shown[shown.index("Guards: 5\n") :].partition("\n\n")[0]
    assert section.splitlines()[1:] == [
        "  raw",
        "    guard, program.sx:2:18",
        "    in prepare: every microbatch",
        "  net/x layer=1",
        "    assert-finite, program.sx:3:16",
        "    in objective: every microbatch",
        "      by net, called at program.sx:5:18",
        "    in evaluate held: every batch of the pass",
        "      by net, called at program.sx:8:45",
        "  loss",
        "    metric :below 20.0, program.sx:5:3",
        "    in objective: every microbatch",
        "  opt",
        "    guard, program.sx:7:26",
        "    in optimizer guarded: every parameter's update",
        "      parameters: net/w",
        "  held/x",
        "    diagnostic :above -1.0, program.sx:8:24",
        "    in evaluate held: every batch of the pass, on steps 1, 2, ...",
    ]
    # no step was taken, and nothing written
    assert sorted(p.name for p in program.path.iterdir()) == ["d.npz", "program.sx"]


@pytest.mark.clause(34)
def test_g34_what_explain_lists_is_what_the_run_reports(program: Program) -> None:
    program.write(EVERYWHERE, x=[1.0])
    _, shown, _ = program.command("explain", "program.sx", "--format", "json")
    listed = {f"guard/{g['name']}" for g in json.loads(shown)["guards"]}
    done = program.run(EVERYWHERE)
    assert done.status == 0
    assert listed == {name for name in done.names if name.startswith("guard/")}


@pytest.mark.clause(35)
@pytest.mark.parametrize("read", ["guard/loss", "only-guard"])
def test_g35_a_guard_never_reaches_the_curriculum(program: Program, read: str) -> None:
    body = f'(metric "loss" {column("x")} :below 20.0) (guard "only-guard" 0) still'
    before = f'(curriculum (stage "a" :until (reported "{read}")) (stage "b"))'
    found = only(program.refused(training(body, before=before), x=[0.0]))
    assert found["code"] == "E-CONTRACT-024"


@pytest.mark.clause(35)
@pytest.mark.parametrize("name", ["guard/loss", "guard/only-guard", "only-guard", "look", "guard/look"])
def test_g35_a_name_that_is_computed_finds_no_guard_either(program: Program, name: str) -> None:
    # 0.0 is true and nil is not: a value that were there would end the stage
    body = f'(diagnostic "look" (metric "loss" {column("x")} :below 20.0) :below 9.0) (guard "only-guard" 0) still'
    before = f'(curriculum (stage "a" :until (reported (str "{name[:2]}" "{name[2:]}"))) (stage "b"))'
    run = ':diagnostics ["*"] :sample-every 1'
    done = program.run(training(body, before=before, run=run, steps=2), x=[0.0])
    assert (done.status, done.texts) == (0, ["stage a", "done"])
    assert len(done.points("guard/look")) == 2


@pytest.mark.clause(35)
def test_g35_a_bounded_metric_is_read_as_the_metric(program: Program) -> None:
    # the metric is 0 and its guard 0 too: only the metric's 5 at step 2 ends the stage
    body = f'(metric "loss" {column("x")} :below 20.0) still'
    before = '(curriculum (stage "a" :until (>= (reported "loss") 5.0)) (stage "b"))'
    done = program.run(training(body, before=before, steps=3), x=[0.0, 5.0, 0.0])
    assert [(a["step"], a["text"]) for a in done.annotations[:2]] == [(0, "stage a"), (2, "stage b")]


@pytest.mark.clause(35)
def test_g35_guards_are_in_neither_the_summary_nor_the_progress_line(program: Program) -> None:
    program.write(training(f'(metric "loss" {column("x")} :below 20.0) (guard "alone" 0) still'), x=[1.0, 2.0, 3.0])
    status, shown, said = program.command("run", "program.sx", "--out", "out")
    assert status == 0
    assert shown == "loss 3\n"
    assert "step 3/3" in said
    assert "loss 3" in said
    assert "guard" not in said
    assert "alone" not in said


# What they cost


def _reads(program: Program, text: str, **columns: Any) -> Finished:
    done = program.run(text, "--device", "strict", **columns)
    assert done.status == 0, done.err
    return done


GUARDS = f'(guard "x" {column("x")}) (assert-finite "w" w) (metric "m" {column("x")} :below 9.0 :above -9.0)'


@pytest.mark.clause(36)
@pytest.mark.scenario(8)
@pytest.mark.parametrize("microbatches", [1, 2, 6])
def test_g36_s8_one_read_a_step_with_and_without_guards_whatever_the_microbatches(
    program: Program, microbatches: int
) -> None:
    for body in ("still", f"{GUARDS} still", f'(metric "m" {column("x")}) still'):
        done = _reads(program, training(body, batch=microbatches, steps=5), x=[0.0] * 6)
        assert done.reads_of_steps == 5


@pytest.mark.clause(36)
@pytest.mark.parametrize("rows", [1, 4, 7])
def test_g36_one_read_a_pass_with_and_without_guards_whatever_the_batches(program: Program, rows: int) -> None:
    for evaluate in ("0", GUARDS.replace(' (assert-finite "w" w)', "")):
        done = _reads(program, passing(evaluate, every=1, steps=3), x=[0.0] * rows)
        assert done.reads_of_steps == 3 + 3


@pytest.mark.clause(37)
@pytest.mark.parametrize("finite", ["on", "off"])
@pytest.mark.parametrize("body", ["", LARGE, f'{LARGE} (assert-finite "p" p) (metric "lr" 0.5 :above 0.0)'])
def test_g37_an_optimizers_guard_is_in_the_steps_one_read(program: Program, finite: str, body: str) -> None:
    done = _reads(program, optimized(body, steps=4, batch=2, run=f":guard-finite {finite}"), a=[0.5] * 2, b=[0.5] * 2)
    assert done.reads_of_steps == 4


@pytest.mark.clause(37)
def test_g37_the_read_comes_before_the_commit_with_the_finite_guard_off(device_program: Program) -> None:
    done = device_program.run(optimized(LARGE, run=":guard-finite off"), a=[0.5, 5.0, 0.5], b=[0.5] * 3)
    assert done.held_bytes == done.saved_bytes(1)
    assert done.runner.state.before is not None


# A file without guards

BARE = f"""
(next "seen" (+ 1.0 (state "seen" [1] :init zeros-init)))
(metric "loss" (mean (square (- w {column("x")}))) :reduce :max)"""


@pytest.mark.clause(38)
@pytest.mark.scenario(40)
def test_g38_s40_a_file_without_guards_runs_no_guard_code(device_program: Program, monkeypatch: Any) -> None:
    text = training(BARE, batch=2, run=":evaluate [(held :data d :every 1)]").replace(
        "(objective", f'(evaluate held (batch) (metric "x" {column("x")}))\n(objective'
    )
    x = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]
    with_guards = device_program.run(text, x=x)

    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("guard code ran")

    for where, name in [
        (guards.GuardTable, "slot"), (guards, "Guard"), (guards, "guard_error"), (layout, "series_value"),
    ]:  # fmt: skip
        monkeypatch.setattr(where, name, never)
    without = device_program.run(text, x=x)
    assert with_guards.status == without.status == 0
    assert _stream(with_guards) == _stream(without)
    assert with_guards.saved_bytes(3) == without.saved_bytes(3)
    assert with_guards.reads == without.reads
    assert not [n for n in without.names if n.startswith("guard/")]


def _stream(done: Finished) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k != "run_id"} for line in done.lines]


@pytest.mark.clause(38)
def test_g38_a_file_without_guards_has_no_slot_and_no_operation_of_one(program: Program) -> None:
    def made(body: str) -> tuple[int, list[str]]:
        done = program.run(training(body, run=":guard-finite off"), x=[1.0, 2.0, 3.0])
        plan = done.runner.compiled.steps[False]
        recorded = [op.name for op in plan.graph.graph.ops]
        assert (body is BARE) == (not {"count-nonfinite", "not-below", "not-above"} & {*recorded})
        return plan.size, [i.op.name for i in plan.plan.instructions]

    size, operations = made(BARE)
    assert size == 2  # the loss and the metric
    # a guard adds its one slot, and behind the same operations its own
    larger, more = made(BARE.replace("(next", '(assert-finite "w" w) (next', 1))
    assert larger == size + 1
    assert sorted(more) == sorted([*operations, "count-nonfinite"])


@pytest.mark.clause(38)
def test_g38_the_recorded_graph_is_the_one_with_the_guards_left_out(program: Program) -> None:
    def graph(body: str) -> list[str]:
        program.write(training(body), x=[1.0])
        status, shown, _ = program.command("explain", "program.sx", "--graph", "step")
        assert status == 0
        # type and operation, without its number and those of its operands, and without where it is written
        lines = [re.fullmatch(r" *%\d+ +(.*)", line) for line in shown.splitlines()]
        return [re.sub(r"%\d+", "%", " ".join(re.split("  +", m[1])[:2])) for m in lines if m]

    bare = graph(BARE)
    guarded = graph(BARE.replace("(next", '(assert-finite "w" w) (next', 1))
    assert [line for line in guarded if "count-nonfinite" not in line] == bare
    assert len(guarded) == len(bare) + 1 > 5
