"""A program is a function of its text and its settings: `--set` and a stage evaluate again what depends on them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests import running
from tests.running import Program, only

program = running.program

ONES = "(generator made (n) {:x (ones [n])})"
W = '(param "w" [] :init zeros-init)'
CHAIN = f"""{ONES}
(setting n 2)
(setting half (/ n 2.0) :doc "follows n")
(setting kind :plain)
(define twice (* n 2))
(define (f x) (+ x twice))
(objective (batch)
  (metric "n" n) (metric "half" half) (metric "twice" twice) (metric "f" (f 0.5))
  (metric "kind" (if (= kind :plain) 0 1))
  (metric "size" (size (:x batch)))
  {W})
(run r :data made :batch n :steps n :optimizer (sgd :lr half))
"""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], {"n": 2.0, "half": 1.0, "twice": 4.0, "f": 4.5, "kind": 0.0, "size": 2.0}),
        (["n=3"], {"n": 3.0, "half": 1.5, "twice": 6.0, "f": 6.5, "kind": 0.0, "size": 3.0}),
        (["n=3", "half=8"], {"n": 3.0, "half": 8.0, "twice": 6.0, "f": 6.5, "kind": 0.0, "size": 3.0}),
        (["kind=:other"], {"n": 2.0, "half": 1.0, "twice": 4.0, "f": 4.5, "kind": 1.0, "size": 2.0}),
    ],
)
def test_what_depends_on_a_setting_follows_it(program: Program, given: list[str], found: dict[str, float]) -> None:
    done = program.run(CHAIN, *[part for text in given for part in ("--set", text)])
    assert done.status == 0, done.err
    assert {name: done.values(name)[0] for name in found} == found
    n = int(found["n"])
    assert len(done.values("n")) == n
    assert done.saved(n)["param/w"] == -n * found["half"]


def test_a_setting_may_be_the_path_of_data(program: Program) -> None:
    text = f"""(setting path "d.npz") (data d (npz path)) (define top (max (:x d)))
    (objective (batch) (metric "top" top) {W})
    (run r :data d :batch 1 :steps 1 :optimizer (sgd :lr 1.0))"""
    np.savez(program.path / "other.npz", x=np.array([4.0, 8.0], np.float32))
    assert program.run(text, x=[1.0, 2.0]).values("top") == [2.0]
    assert program.run(text, "--set", "path=other.npz").values("top") == [8.0]
    missing = program.run(text, "--set", "path=none.npz")
    assert (missing.status, missing.message.split(":")[0]) == (1, "E-RUN-001")


@pytest.mark.parametrize(
    ("value", "given", "found"),
    [
        ("3.0", "20", 20.0),
        ("3.0", "2e1", 20.0),
        ("3.0", "nan", None),
        ("3", "20", 20.0),
        ("3", "20.5", None),
        ("3", "true", None),
        ("3", "many", None),
        ("3.0", '"20"', None),
        ("true", "off", 0.0),
        ("true", "1", None),
        (":a", ":b", 0.0),
        (":a", "[1]", None),
        ('"a"', "b", 0.0),
        ('"a"', "7", None),
        ("[1 2]", "[3]", 0.0),
        ("[1 2]", "3", None),
        ("nil", "5", 5.0),
    ],
)
def test_a_setting_keeps_its_kind(program: Program, value: str, given: str, found: float | None) -> None:
    text = f"""{ONES} (setting s {value})
    (objective (batch) (metric "s" (if (or (= s nil) (= s :b) (= s true) (= s false) (= s [3]) (= s "b")) 0 s)) {W})
    (run r :data made :batch 1 :steps 1 :optimizer (sgd :lr 1.0))"""
    done = program.run(text, "--set", f"s={given}")
    if found is not None:
        assert done.values("s") == [found], done.err
    elif given == "nan":
        assert np.isnan(done.values("s")).all()
    else:
        assert done.status in (2, 4)
        assert done.err.startswith(("E-EVAL-016: setting s", "E-USE-004"))
        assert not done.folder.exists()


@pytest.mark.parametrize(
    ("value", "given", "repair"),
    [
        ("3.0", "many", "give a number"),
        ("3", "0.5", "give a whole number, or make the setting a real: 3.0"),
        ("3", "many", "give a whole number"),
        ("on", "1", "give true or false"),
        ('"a"', "7", 'give a string, as "7"'),
        (":a", "b", "give a keyword, as :name"),
        ("[1]", "1", "give a list"),
        ("{:a 1}", "1", "give a record"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_told_what_it_takes(
    program: Program, value: str, given: str, repair: str
) -> None:
    done = program.run(f"(setting s {value})", "--set", f"s={given}")
    assert (done.status, done.err.split(":")[0]) == (4, "E-EVAL-016")
    assert f"help: {repair}\n" in done.err


def test_a_setting_that_is_not_there_is_refused_with_the_nearest(program: Program) -> None:
    done = program.run(CHAIN, "--set", "hlaf=3")
    assert (done.status, done.err.split(":")[0]) == (4, "E-EVAL-016")
    assert "did you mean half?" in done.err


# Stages

WIDE = f"""{ONES}
(setting n 2)
(setting scale 1.0)
(objective (batch)
  (let ((s (state "s" [] :init zeros-init)) (w {W}) (extra (ones [n])))
    (next "s" (+ s 1.0))
    (metric "made" (size extra))
    (metric "s" s)
    (diagnostic "d" n)
    (* w (sum extra) scale)))
(evaluate look (batch) (metric "shape" (size (:x batch))))
(curriculum
  (stage "two" :until (= (stage-step) 2))
  (stage "five" :until (= (stage-step) 3) :set {{:n 5}})
  (stage "half" :set {{:scale 0.5}}))
(run r :data made :batch n :steps 8 :optimizer (momentum :lr 1.0 :mu 0.5)
  :diagnostics ["d"] :sample-every 4 :evaluate [(look :data made :examples 7 :batch n :every 2)])
"""


def test_a_stage_that_changes_shapes_is_walked_once_and_the_state_goes_on(program: Program) -> None:
    done = program.run(WIDE)
    assert done.status == 0, done.err
    assert done.values("made") == [2.0, 2.0, 5.0, 5.0, 5.0, 2.0, 2.0, 2.0]
    assert done.values("s") == [float(i) for i in range(8)]
    assert done.points("d") == [(4, 5.0), (8, 2.0)]
    w = m = 0.0
    for gradient in (2.0, 2.0, 5.0, 5.0, 5.0, 1.0, 1.0, 1.0):
        m = 0.5 * m + gradient
        w -= m
    saved = done.saved(8)
    assert (saved["param/w"], saved["optimizer/m/w"], saved["state/s"]) == (w, m, 8.0)
    # each stage: a step, sampled and not; full and ragged batches; the update; nothing a second time
    for stage, n in zip(done.runner.stages, (2, 5, 2), strict=True):
        walks = stage.checked.tracer.walks
        assert set(walks.values()) == {1}, walks
        expected = {f"step n={n} sampled={s}" for s in (False, True)}
        expected |= {f"pass look n={k} sampled={s}" for k in (n, 7 % n) for s in (False, True)}
        expected |= {f"update w f32[] sampled={s}" for s in (False, True)}
        expected |= {f"initializer {name} f32[]" for name in "ws"}
        assert set(walks) == expected


@pytest.mark.parametrize(
    ("first", "changed"),
    [
        ('(param "w" [n] :init zeros-init)', "parameter w"),
        ('(param (str "w" n) [2] :init zeros-init)', "parameter w2"),
        ('(if (= n 2) (param "w" [2] :init zeros-init) (param "w" [2] :init zeros-init :dtype :f64))', "parameter w"),
        ('(let ((s (state "s" [n] :init zeros-init))) (param "w" [2] :init zeros-init))', "state s"),
        ('(* (if (= n 2) 1.0 (param "v" [] :init ones-init)) (param "w" [2] :init zeros-init))', "parameter v"),
    ],
)
def test_a_stage_that_would_change_the_state_is_refused_before_any_step(
    program: Program, first: str, changed: str
) -> None:
    text = f"""{ONES} (setting n 2)
    (objective (batch) (sum {first}))
    (curriculum (stage "a" :until (= (step) 2))
      (stage "b" :set {{:n 3}}))
    (run r :data made :batch 1 :steps 8 :optimizer (sgd :lr 1.0))"""
    found = only(program.refused(text))
    assert found["code"] == "E-EVAL-026"
    assert f"stage b changes the {changed} from" in found["message"]


def test_a_stage_may_not_change_the_optimizers_states(program: Program) -> None:
    text = f"""{ONES} (setting mu 0.0)
    (objective (batch) {W})
    (curriculum (stage "a" :until (= (step) 2)) (stage "b" :set {{:mu 0.5}}))
    (run r :data made :batch 1 :steps 8 :optimizer (if (= mu 0.0) (sgd :lr 1.0) (momentum :lr 1.0 :mu mu)))"""
    found = only(program.refused(text))
    assert (found["code"], "the optimizer state m of w" in found["message"]) == ("E-EVAL-026", True)


@pytest.mark.parametrize(
    ("set_", "code", "said"),
    [
        ("{:m 3}", "E-EVAL-016", "its settings are n"),
        ("{:n 2.5}", "E-EVAL-016", "give a whole number, or make the setting a real: 2.0"),
        ('{:n "3"}', "E-EVAL-016", "give a whole number"),
        ("{:n (zeros [2])}", "E-EVAL-016", "f32[2]"),
        ("{:n 0}", "E-CONTRACT-025", "from 1"),
        ("[n 3]", "E-EVAL-002", ":set takes a record"),
    ],
)
def test_what_a_stage_sets_is_checked_before_any_step(program: Program, set_: str, code: str, said: str) -> None:
    text = f"""{ONES} (setting n 2)
    (objective (batch) {W})
    (curriculum (stage "a" :until (= (step) 2)) (stage "b" :set {set_}))
    (run r :data made :batch n :steps 8 :optimizer (sgd :lr 1.0))"""
    found = only(program.refused(text))
    assert found["code"] == code
    assert said in json.dumps(found, ensure_ascii=False)
    if code != "E-CONTRACT-025":
        span = found["span"]["start"]
        assert text.splitlines()[span["line"] - 1][span["column"] - 1 :].startswith(
            (":m", "2.5", '"3"', "(zeros", "[n 3]")
        )


def test_a_run_that_is_resumed_in_a_later_stage_goes_on_bit_for_bit(program: Program) -> None:
    text = """(data d (npz "d.npz")) (setting n 3) (setting noise 0.1)
    (objective (batch)
      (let ((w (param "w" [4] :init ones-init)))
        (metric "rows" (sum (:x batch)))
        (mean (square (- (+ (:x batch) (* noise (normal [n]))) (sum (tanh w)))))))
    (curriculum
      (stage "a" :until (= (stage-step) 2))
      (stage "b" :until (< (reported "rows") -1e9) :set {:n 4 :noise 0.2}))
    (run r :data d :batch n :steps 9 :optimizer (adam :lr 0.1) :checkpoint-every 1 :keep-checkpoints 99)"""
    x = np.arange(11, dtype=np.float32)
    whole = program.run(text, x=x)
    assert whole.status == 0, whole.err
    # 2 · 3 + 7 · 4 examples are three epochs of 11 and one more
    assert sum(whole.values("rows")) == pytest.approx(3 * 55.0, abs=10.0)
    for step in (1, 2, 3, 6):
        stopped = program.run(text, "--steps", str(step), x=x)
        assert stopped.checkpoints[-1] == step
        status, _, err = program.command(
            "run", running.FILE, "--resume", str(stopped.folder), "--steps", "9", "--quiet"
        )
        assert status == 0, err
        assert stopped.saved_bytes(9) == whole.saved_bytes(9)
        assert stopped.points("rows") == whole.points("rows")
