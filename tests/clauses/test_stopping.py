"""When a run stops and what it leaves: the clauses G22 to G29, through `sxi run`, `--resume` and `sxi status`."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sxi import replay
from tests.clauses.programs import LARGE, STATEFUL, optimized, passing
from tests.running import Finished, Program, column, only, training

NAN = math.nan
EVERY = ":checkpoint-every 1 :keep-checkpoints 9"
MOVING = f"(+ (* {column('x')} (sum w)) (* 0.0 {column('bad')}))"


def bad_at(step: int, limit: float = 0.5) -> str:
    """A program that moves by `x` each step, with a guard on `bad`, and a state that counts steps."""
    body = f"""
    (next "seen" (+ 1.0 (state "seen" [1] :init zeros-init)))
    (guard "bad" (count-where (> {column("bad")} {limit})))
    {MOVING}"""
    return training(body, steps=step, run=EVERY, optimizer="(adam :lr 0.1)")


@pytest.mark.clause(22)
@pytest.mark.scenario(10)
@pytest.mark.scenario(11)
@pytest.mark.scenario(20)
def test_g22_s10_s11_s20_no_checkpoint_of_the_failing_step_and_the_last_goes_on(device_program: Program) -> None:
    x, bad = [1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 0.0, 1.0, 0.0]
    failed = device_program.run(bad_at(5), x=x, bad=bad)
    assert failed.status == 3
    assert failed.checkpoints == [1, 2, 3]
    assert sorted(p.name for p in (failed.folder / "checkpoints").iterdir()) == ["000001", "000002", "000003"]
    # the guard repaired, the run goes on to where it would have come without the violation
    repaired = device_program.run(bad_at(5, limit=2.0), resume=failed)
    assert (repaired.status, repaired.state["state"]) == (0, "done")
    assert repaired.checkpoints == [1, 2, 3, 4, 5]
    straight = device_program.run(bad_at(5, limit=2.0))
    assert repaired.saved_bytes(5) == straight.saved_bytes(5)
    assert repaired.saved(5)["state/seen"].tolist() == [5.0]
    # a reader of the stream sees the steps once, with no trace of the attempt that failed
    assert repaired.points("guard/bad") == straight.points("guard/bad") == [(s, 0.0) for s in range(1, 6)]
    assert repaired.texts == ["done"]


@pytest.mark.clause(22)
@pytest.mark.scenario(10)
def test_g22_s10_the_last_checkpoint_is_not_pruned(program: Program) -> None:
    text = bad_at(5).replace("keep-checkpoints 9", "keep-checkpoints 1")
    assert program.run(text, x=[1.0] * 5, bad=[0.0, 0, 0, 1, 0]).checkpoints == [3]


@pytest.mark.clause(22)
def test_g22_a_failure_before_any_checkpoint_leaves_none_and_goes_on_from_the_beginning(program: Program) -> None:
    failed = program.run(bad_at(3), x=[1.0] * 3, bad=[1.0, 0, 0])
    assert failed.checkpoints == []
    repaired = program.run(bad_at(3, limit=2.0), resume=failed)
    assert repaired.points("guard/bad") == [(1, 0.0), (2, 0.0), (3, 0.0)]
    assert repaired.checkpoints == [1, 2, 3]


@pytest.mark.clause(22)
def test_g22_resuming_with_the_guard_as_it_was_stops_at_the_same_step_again(program: Program) -> None:
    failed = program.run(bad_at(5), x=[1.0] * 5, bad=[0.0, 0, 0, 3, 0])
    again = program.run(bad_at(5), resume=failed)
    assert (again.status, again.message) == (3, failed.message)
    assert again.error == failed.error
    assert again.texts == failed.texts


@pytest.mark.clause(22)
@pytest.mark.parametrize("where", ["step", "pass"])
def test_g22_the_last_step_or_pass_failing_leaves_no_checkpoint_at_the_end(program: Program, where: str) -> None:
    form = f'(guard "bad" {column("bad")})'
    text = training(f"{form} still", steps=3) if where == "step" else passing(form, every=9, steps=3)
    done = program.run(text, bad=[0.0, 0.0, 1.0])
    assert (done.status, done.error["step"], done.checkpoints) == (3, 3, [])
    assert done.state["step"] == (2 if where == "step" else 3)


# Passes


@pytest.mark.clause(23)
@pytest.mark.scenario(14)
@pytest.mark.scenario(15)
def test_g23_s14_s15_a_pass_runs_to_its_end_and_then_stops_the_run(device_program: Program) -> None:
    evaluate = f"""(metric "x" {column("x")} :reduce :max) (assert-finite "finite" (:x batch))"""
    before = '(evaluate after (batch) (metric "never" 1.0))'
    text = passing(evaluate, before=before, every=2, steps=4, checkpoints=True).replace(
        ":every 2)]", ":every 2) (after :data d :every 2)]"
    )
    done = device_program.run(text, x=[1.0, 2.0, NAN, 4.0, NAN, 50.0, math.inf])
    assert done.message == (
        "E-GUARD-001: guard finite counted 3 in pass held at step 2, expected 0; it is written at program.sx:2:67"
    )
    # the batches behind the violating ones were looked at: two NaN and the infinity of the last one
    assert done.points("guard/finite") == [(2, 3.0)]
    assert only(done.points("x"))[0] == 2
    assert math.isnan(only(done.values("x")))
    assert "never" not in done.names
    # the step is taken, its checkpoint is not written
    assert (done.state["step"], done.error["step"]) == (2, 2)
    assert done.checkpoints == [1]
    assert done.texts == ["guard finite failed", f"failed: {done.message}"]
    assert [a["step"] for a in done.annotations] == [2, 2]


@pytest.mark.clause(23)
def test_g23_a_failing_pass_is_followed_by_no_stage(program: Program) -> None:
    before = '(curriculum (stage "one" :until (>= (step) 2)) (stage "two"))'
    done = program.run(passing('(guard "bad" (max (:bad batch)))', before=before, every=2, steps=4), bad=[0.0, 1, 0])
    assert done.texts[:2] == ["stage one", "guard bad failed"]
    assert "stage two" not in done.texts


# Verdicts before the commit


def _held(program: Program, text: str, **columns: Any) -> Finished:
    """A run that fails at step 3: memory and the last checkpoint hold what step 2 left."""
    done = program.run(text, **columns)
    assert (done.status, done.error["step"], done.state["step"]) == (3, 3, 2)
    assert done.checkpoints == [1, 2]
    assert done.held_bytes == done.saved_bytes(2)
    assert done.saved_bytes(1) != done.saved_bytes(2)
    assert done.runner.step == 2
    return done


@pytest.mark.clause(22)
def test_g22_after_a_training_guard_everything_is_as_before_the_step(device_program: Program) -> None:
    done = _held(device_program, bad_at(4), x=[1.0] * 4, bad=[0.0, 0, 1, 0])
    assert done.error["code"] == "E-GUARD-001"
    assert {name.split("/")[0] for name in done.held_bytes} == {"param", "state", "optimizer"}


@pytest.mark.clause(24)
def test_g24_after_the_finite_guard_everything_is_as_before_the_step(device_program: Program) -> None:
    done = _held(device_program, bad_at(4), x=[1.0, 1, math.inf, 1], bad=[0.0, 0, 0, 0])
    assert done.error["code"] == "E-GUARD-002"


@pytest.mark.clause(24)
@pytest.mark.scenario(18)
@pytest.mark.parametrize("finite", ["on", "off"])
def test_g24_s18_after_an_optimizers_guard_everything_is_as_before_the_step(
    device_program: Program, finite: str
) -> None:
    body = '(assert-finite "update" (/ (square g) (square g)))'  # 0/0 in one element: the gradient itself is fine
    text = optimized(body, steps=4, run=f":guard-finite {finite}", guarded=STATEFUL)
    done = _held(device_program, text, a=[1.0, 1, 1, 1], b=[1.0, 1, 0, 1])
    assert done.message.startswith("E-GUARD-001: guard update param=two counted 3 at step 3,")
    assert {name.split("/")[0] for name in done.held_bytes} == {"param", "optimizer"}


@pytest.mark.clause(25)
@pytest.mark.parametrize(("a", "b", "param", "count", "total"), [(2.0, 3.0, "one", 2, 5.0), (0.5, 3.0, "two", 3, 3.0)])
def test_g25_an_optimizers_error_names_the_first_parameter_with_its_own_count(
    device_program: Program, a: float, b: float, param: str, count: int, total: float
) -> None:
    done = device_program.run(optimized(LARGE, steps=1), a=[a], b=[b])
    assert done.values("guard/large") == [total]
    assert (done.error["meta"], done.error["count"]) == ({"param": param}, count)
    assert f"guard large param={param} counted {count} at step 1," in done.message
    others = [(e["meta"]["param"], e["count"]) for e in done.error["also"]]
    assert others == ([("two", 3)] if param == "one" else [])


@pytest.mark.clause(25)
def test_g25_the_order_is_that_of_the_objectives_walk_whatever_the_groups(program: Program) -> None:
    body = '(guard "first" (count-where (> g 1.0)) :n 1) (guard "second" (* 2.0 (count-where (> g 1.0))) :n 2)'
    optimizer = '[(group "rest" "t*" (guarded)) (group "early" "*" (guarded))]'
    done = program.run(optimized(body, steps=1, optimizer=optimizer), a=[5.0], b=[5.0])
    told = [(e["guard"], e["meta"]["param"], e["count"]) for e in [done.error, *done.error["also"]]]
    # the parameter first, then the order in the body
    assert told == [("first", "one", 2), ("second", "one", 4), ("first", "two", 3), ("second", "two", 6)]
    assert done.message.startswith("E-GUARD-001: guard first n=1 param=one counted 2 at step 1,")


@pytest.mark.clause(25)
def test_g25_both_bounds_of_one_form_count_for_their_parameter_together(program: Program) -> None:
    body = '(metric "g" (mean g) :above 0.0 :below 9.0)'
    done = program.run(optimized(body, steps=1, run=":guard-finite off"), a=[NAN], b=[NAN])
    assert (done.error["count"], done.values("guard/g")) == (2, [4.0])


@pytest.mark.clause(26)
@pytest.mark.parametrize(
    ("training_guard", "finite", "told"),
    [
        (True, "on", ["data", None, "update"]),
        (True, "off", ["data", "update"]),
        (False, "on", [None, "update"]),
        (False, "off", ["update"]),
    ],
)
def test_g26_training_guard_then_finite_guard_then_optimizer_guard(
    device_program: Program, training_guard: bool, finite: str, told: list[str | None]
) -> None:
    text = optimized('(assert-finite "update" g)', run=f":guard-finite {finite}").replace(
        "(objective (batch)",
        '(objective (batch) (assert-finite "data" (:b batch))' if training_guard else "(objective (batch)",
    )
    done = device_program.run(text, a=[1.0, 1.0, 1.0], b=[1.0, NAN, 1.0])
    assert [e["guard"] for e in [done.error, *done.error["also"]]] == told
    assert done.error["step"] == 2
    assert {e["step"] for e in done.error["also"]} <= {2}
    if told[0] is None:
        assert done.message == "E-GUARD-002: the loss has 1 values that are not finite at step 2"


@pytest.mark.clause(26)
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        # the loss of step 2 is NaN: one value
        ({"a": [1.0, NAN], "b": [1.0, 1.0]}, "the loss has 1 values"),
        # the loss is 1 · √0, and the root's gradient there is ∞ · 0
        ({"a": [1.0, 1.0], "b": [1.0, 0.0]}, "the gradient of one has 2 values"),
        # the gradients are 1e30, and their squares past f32
        ({"a": [1.0, 1e30], "b": [1.0, 1.0]}, "the update of one has 2 values"),
    ],
)
def test_g26_the_finite_guard_tells_loss_then_gradient_then_update(
    device_program: Program, rows: dict[str, Any], said: str
) -> None:
    text = """
    (data d (npz "d.npz"))
    (optimizer squaring (p g) (update (- p (* 0.1 (square g)))))
    (objective (batch)
      (let ((p (param "one" [2] :init ones-init)))
        (* (sum (:a batch)) (sum (sqrt (* (sum (:b batch)) (square p)))))))
    (run r :data d :shuffle off :batch 1 :steps 2 :optimizer (squaring))"""
    done = device_program.run(text, **rows)
    assert done.message == f"E-GUARD-002: {said} that are not finite at step 2"
    assert done.texts == [f"failed: {done.message}"]
    assert [a["step"] for a in done.annotations] == [2]
    assert done.names == []
    assert (done.error["guard"], done.error["source"]) == (None, None)


@pytest.mark.clause(27)
@pytest.mark.scenario(43)
@pytest.mark.parametrize("kind", ["training", "finite", "optimizer"])
def test_g27_s43_a_failure_is_of_the_step_not_yet_taken(device_program: Program, kind: str) -> None:
    text = optimized(LARGE if kind == "optimizer" else "")
    if kind == "training":
        text = text.replace("(objective (batch)", '(objective (batch) (guard "rows" (sum (:bad batch)))')
    columns: dict[str, Any] = {
        "training": {"bad": [0.0, 7.0, 0.0]}, "finite": {"a": [0.5, NAN, 0.5]}, "optimizer": {"a": [0.5, 2.0, 0.5]},
    }[kind]  # fmt: skip
    columns = {"a": [0.5] * 3, "b": [0.5] * 3, "bad": [0.0] * 3, **columns}
    done = device_program.run(text, **columns)
    assert " at step 2" in done.message
    assert (done.error["step"], done.state["step"]) == (2, 1)
    assert {a["step"] for a in done.annotations} == {2}
    if kind != "finite":
        assert max(line["step"] for line in done.lines if line["kind"] == "point") == 2


LORENTZ = """; points on a hyperboloid
(data d (npz "../d.npz"))
(define (constraint-error x layer)
  (if (= layer 3) (where (= (step) 4107) x 0.0) (zeros-like x)))
{padding}
(objective (batch)
  (fold (x (:x batch)) (layer (range 5))
   (begin
    (guard "geometry/off-manifold" (count-where (> (abs (constraint-error x layer)) 1e-3)) :layer layer)
    x))
  (sum (* 0.0 (param "w" [1] :init ones-init))))
(run r :data d :batch 1 :steps 5000 :optimizer (sgd :lr 0.1))
"""


@pytest.mark.clause(28)
def test_g28_the_message_to_the_letter(program: Program) -> None:
    lines = LORENTZ.format(padding="").splitlines()
    at = next(i for i, line in enumerate(lines) if "(guard" in line)
    text = LORENTZ.format(padding="\n" * (40 - at))
    assert text.splitlines()[40].startswith("    (guard")
    done = program.run(text, file="runs/lorentz.sx", x=[[1.0] * 12])
    assert done.err.splitlines() == [
        "sxi run: E-GUARD-001: guard geometry/off-manifold layer=3 counted 12 at step 4107, expected 0; "
        "it is written at runs/lorentz.sx:41:5"
    ]
    assert done.out == ""
    assert done.status == 3


@pytest.mark.clause(29)
@pytest.mark.scenario(12)
@pytest.mark.scenario(33)
@pytest.mark.scenario(36)
def test_g29_s12_s33_s36_what_the_status_and_the_stream_say(device_program: Program) -> None:
    body = f'(guard "rows/bad" {column("bad")} :layer 3 :kind :row) (guard "rows/other" {column("bad")}) still'
    done = device_program.run(training(body, batch=2, steps=3), bad=[0.0, 0.0, 1.0, 1.0, 0.0, 0.0])
    message = (
        "E-GUARD-001: guard rows/bad layer=3 kind=row counted 2 at step 2, expected 0; it is written at program.sx:6:1"
    )
    meta = {"layer": 3, "kind": "row"}
    assert done.status == 3
    assert done.message == message
    assert done.err.count("E-GUARD") == 1
    assert done.state["state"] == "failed"
    assert {k: v for k, v in done.error.items() if k != "also"} == {
        "code": "E-GUARD-001", "message": message.removeprefix("E-GUARD-001: "), "guard": "rows/bad", "meta": meta,
        "count": 2, "step": 2, "source": "program.sx:6:1",
    }  # fmt: skip
    assert [e["guard"] for e in done.error["also"]] == ["rows/other"]
    # all points of the step, then one annotation for the guard that the error names, then the closing one: the end
    kinds = [(line["kind"], line.get("step")) for line in done.lines][-4:]
    assert kinds == [("point", 2), ("point", 2), ("annotation", 2), ("annotation", 2)]
    assert done.annotations == [
        {"kind": "annotation", "step": 2, "text": "guard rows/bad failed", "guard": "rows/bad", "meta": meta,
         "count": 2, "source": "program.sx:6:1"},
        {"kind": "annotation", "step": 2, "text": f"failed: {message}"},
    ]  # fmt: skip
    status, shown, _ = device_program.command("status", str(done.folder))
    assert status == 0
    assert shown.splitlines()[0] == "failed at step 1"
    assert message in shown
    assert "also E-GUARD-001: guard rows/other counted 2 at step 2" in shown
    _, shown, _ = device_program.command("status", str(done.folder), "--format", "json")
    assert json.loads(shown)["error"] == done.error


@pytest.mark.clause(29)
def test_g29_a_fault_in_looking_at_what_failed_hides_no_verdict(program: Program, monkeypatch: Any) -> None:
    def broken(*arguments: Any) -> Any:
        raise ValueError("a fault")

    monkeypatch.setattr(replay, "examine", broken)
    program.write(training(f'(guard "bad" {column("bad")}) still', steps=1), bad=[1.0])
    status, _, said = program.command("run", "program.sx", "--out", "out", "--quiet")
    message = "E-GUARD-001: guard bad counted 1 at step 1, expected 0; it is written at program.sx:6:1"
    assert status == 3
    assert f"sxi run: {message}" in said.splitlines()
    assert "ValueError: a fault" in said
    done = Finished(status, "", said, program.path / "out")
    assert done.texts == ["guard bad failed", f"failed: {message}"]
    assert (done.state["state"], done.error["code"]) == ("failed", "E-GUARD-001")
