"""`sxi explain FILE`: guards with their graphs and sources, series and rate, parameters, passes, options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sxi import plan
from sxi.backends import open_backend
from sxi.cli import main
from sxi.compiled import Checked
from sxi.errors import SxiError
from sxi.explain_program import (
    as_json,
    explain_file,
    explain_run,
    graph_as_json,
    graph_lines,
    graph_of_run,
    run_as_json,
)
from sxi.program import load_source
from sxi.reader import load
from sxi.render import cells
from sxi.run import Runner
from sxi.source import Source
from sxi.stages import CheckedStage, check_run

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "tutorials/runs").glob("*.sx"))


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is told by the path as given, which stands in the texts below."""
    monkeypatch.chdir(ROOT)


def stages_of(source: Source) -> list[CheckedStage]:
    loaded = load_source(source)
    assert loaded.errors == []
    return check_run(loaded, open_backend("cpu"))


def checked(text: str) -> Checked:
    return stages_of(Source("p.sx", text))[0].checked


def explained(name: str, width: int) -> str:
    return "\n".join(explain_file(stages_of(load(f"tutorials/runs/{name}.sx"))[0].checked, width)) + "\n"


def section(text: str, head: str) -> str:
    """One section: from its head to the next empty line."""
    found = [part for part in text.split("\n\n") if part.startswith(head)]
    assert len(found) == 1
    return found[0].rstrip("\n") + "\n"


DIGITS = """\
run digits, tutorials/runs/digits.sx:22:1

Guards: 4
  hidden/activation layer=0, layer=1
    assert-finite, tutorials/runs/digits.sx:10:16
    in objective: every microbatch
      by net, called at tutorials/runs/digits.sx:14:30
    in evaluate accuracy: every batch of the pass
      by net, called at tutorials/runs/digits.sx:19:17
  train/loss
    metric :below 20.0, tutorials/runs/digits.sx:15:5
    in objective: every microbatch
  accuracy
    metric :above 0.05, tutorials/runs/digits.sx:20:5
    in evaluate accuracy: every batch of the pass

Diagnostics: none

Series: 8 values in the fullest step, :report-limit 10,000
  every step: 4
    train/loss split=train (metric, mean)
    guard/hidden/activation layer=0 split=train (guard)
    guard/hidden/activation layer=1 split=train (guard)
    guard/train/loss split=train (guard)
  pass accuracy, every 100 steps: 4
    accuracy split=held-out pass=accuracy (metric, mean)
    guard/hidden/activation layer=0 split=held-out pass=accuracy (guard)
    guard/hidden/activation layer=1 split=held-out pass=accuracy (guard)
    guard/accuracy split=held-out pass=accuracy (guard)

Parameters: 6, 26,122 elements, and 52,244 of optimizer state
  name              type          initializer  group  uses  elements
  net/hidden0/w     f32[64 128]   glorot       adamw     1     8,192
  net/hidden0/bias  f32[128]      zeros-init   adamw     1       128
  net/hidden1/w     f32[128 128]  glorot       adamw     1    16,384
  net/hidden1/bias  f32[128]      zeros-init   adamw     1       128
  net/logits/w      f32[128 10]   glorot       adamw     1     1,280
  net/logits/bias   f32[10]       zeros-init   adamw     1        10
  optimizer: (adamw :lr (warmup-cosine :peak rate :warmup 20 :total 400))

Passes: 1
  accuracy: digits, split held-out, 359 examples in 1 batch of 359, every 100 steps

Options
  :steps 400
  :data digits
  :split train
  :shuffle on
  :batch 128
  :microbatches 2
  :seed 7
  :start-from none
  :checkpoint-every 100
  :keep-checkpoints 3
  :keep-best none
  :diagnostics none
  :sample-every 100
  :guard-finite on
  :report-limit 10,000
  setting rate 0.002 (peak learning rate)
"""

LORENTZ_GUARDS = """\
Guards: 5
  geometry/off-manifold
    guard,
      tutorials/runs/lorentz.sx:36:5
    in objective: every microbatch
  geometry/radius-max
    diagnostic :below 200.0,
      tutorials/runs/lorentz.sx:37:5
    in objective: every microbatch, on
      steps 50, 100, ...
  train/loss
    metric :below 20.0,
      tutorials/runs/lorentz.sx:38:5
    in objective: every microbatch
  lr/effective
    metric :above 0.0,
      tutorials/runs/lorentz.sx:49:5
    in optimizer lorentz-sgd: every
      parameter's update
      parameters: points/points
  update/point
    assert-finite,
      tutorials/runs/lorentz.sx:50:5
    in optimizer lorentz-sgd: every
      parameter's update
      parameters: points/points
"""

LORENTZ_SERIES = """\
Series: 9 values in the fullest step, :report-limit 10,000
  every step: 6
    train/loss (metric, mean)
    guard/geometry/off-manifold (guard)
    guard/train/loss (guard)
    lr/effective param=lorentz-sgd (metric, mean)
    guard/lr/effective param=lorentz-sgd (guard)
    guard/update/point param=lorentz-sgd (guard)
  steps 50, 100, ...: 2 more
    geometry/radius-max (diagnostic, max)
    guard/geometry/radius-max (guard)
  pass rank, every 1,000 steps: 1
    rank/mean pass=rank (metric, mean)
"""

LORENTZ_REST = """\
Parameters: 1, 13,002 elements
  points/points f32[1182 11]
    on-sheet, group lorentz-sgd, 2 uses,
      13,002 elements
  optimizer: (lorentz-sgd :lr rate)

Passes: 1
  rank: mammals, 6,542 examples in 6
    batches of 1,024 and 1 of 398, every
    1,000 steps
"""


@pytest.mark.clause(34)
def test_digits_in_100_columns() -> None:
    assert explained("digits", 100) == DIGITS


def test_lorentz_in_40_columns() -> None:
    text = explained("lorentz", 40)
    assert section(text, "Guards") == LORENTZ_GUARDS
    assert LORENTZ_REST in text


@pytest.mark.clause(33)
def test_lorentz_in_100_columns() -> None:
    text = explained("lorentz", 100)
    assert section(text, "Series") == LORENTZ_SERIES
    assert section(text, "Diagnostics") == (
        "Diagnostics: 1 of 1 selected, on steps 50, 100, ...\n"
        "  geometry/radius-max: selected by geometry/*, tutorials/runs/lorentz.sx:37:5\n"
    )


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_every_width_is_kept(path: Path) -> None:
    stage = stages_of(load(str(path.relative_to(ROOT))))[0].checked
    for width in (0, 40, 57, 80, 200, 1_000):
        lines = explain_file(stage, width)
        taken = max(40, min(width, 200))
        assert [line for line in lines if cells(line) > taken and len(line.split()) > 1] == []
        text = " ".join(" ".join(lines).split())
        for guard in as_json(stage)["guards"]:
            assert guard["source"] in text


# A program that has one of everything.

EVERYTHING = """
(setting limit 9.0 :doc "how far a point may be")
(generator points (n)
  (let ((x (normal [n 3])))
    (diagnostic "points/made" (max x) :below 99.0)
    {:x x}))
(define (near x kind)
  (guard "points/far" (count-where (> (abs x) limit)) :kind kind)
  x)
(prepare (batch) {:x (near (:x batch) "raw")})
(model net (x)
  (let ((h (assert-finite "net/in" (near x "model"))))
    (@ h (param "w" [3 1] :init (normal-init :scale 0.1)))))
(objective (batch)
  (let ((y (tap-gradient (net (:x batch)) (lambda (g) (diagnostic "slope" (max g) :reduce :max :above -inf))))
        (loss (mean (square (+ y (param "b" [1] :init zeros-init))))))
    (diagnostic "loss/unseen" loss :below 1.0)
    (metric "loss" loss :above 0.0 :below 20.0)
    loss))
(evaluate held (batch)
  (diagnostic "slope" (max (net (:x batch))) :reduce :max)
  (output "y" (net (:x batch)))
  (metric "held/loss" (mean (square (net (:x batch))))))
(optimizer downhill (p g :lr required) :state ((m (zeros-like p)))
  (metric "lr" lr :above 0.0)
  (update (- p (* lr g)) :m m))
(run all :data points :steps 3 :batch 4 :microbatches 2
  :optimizer [(group "weights" "*w" (downhill :lr 0.1)) (group "rest" "*" (downhill :lr 0.2))]
  :evaluate [(held :data points :examples 10 :batch 4 :every 2)]
  :diagnostics ["slope" "points/*"] :sample-every 2)
"""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(as_json(checked(EVERYTHING)), allow_nan=False))
    return found


def places(fact: dict[str, Any]) -> list[tuple[str, int | None]]:
    return [(g["graph"], g["sampled-every"]) for g in fact["graphs"]]


def line_of(start: str) -> int:
    (number,) = [n for n, line in enumerate(EVERYTHING.splitlines(), 1) if line.strip().startswith(start)]
    return number


def test_each_guard_has_all_the_graphs_that_it_runs_in(facts: dict[str, Any]) -> None:
    found = [(g["name"], g["metadata"], g["form"], g["bound"], places(g)) for g in facts["guards"]]
    assert found == [
        ("points/far", {"kind": "raw"}, "guard", None, [("prepare", None)]),
        ("points/far", {"kind": "model"}, "guard", None, [("objective", None), ("evaluate held", None)]),
        ("net/in", {}, "assert-finite", None, [("objective", None), ("evaluate held", None)]),
        ("loss", {}, "metric", [":above", 0.0], [("objective", None)]),
        ("loss", {}, "metric", [":below", 20.0], [("objective", None)]),
        ("slope", {}, "diagnostic", [":above", "-Infinity"], [("objective", 2)]),
        ("lr", {}, "metric", [":above", 0.0], [("optimizer downhill", None)]),
    ]


def test_a_guard_tells_its_place_and_the_calls_that_lead_to_it(facts: dict[str, Any]) -> None:
    raw, model = facts["guards"][0], facts["guards"][1]
    written = line_of('(guard "points/far"')
    assert raw["source"] == model["source"] == f"p.sx:{written}:3"
    prepared = line_of("(prepare")
    assert raw["graphs"][0]["calls"] == [{"call": "near", "source": f"p.sx:{prepared}:22"}]
    called = [(c["call"], int(c["source"].split(":")[1])) for c in model["graphs"][0]["calls"]]
    assert called == [("near", line_of("(let ((h (assert-finite")), ("net", line_of("(let ((y (tap-gradient"))]
    assert [c["call"] for c in model["graphs"][1]["calls"]] == ["near", "net"]


def test_an_optimizers_guard_tells_its_groups(facts: dict[str, Any]) -> None:
    (graph,) = facts["guards"][-1]["graphs"]
    assert graph["groups"] == {"weights": ["net/w"], "rest": ["b"]}
    assert [(o["group"], o["glob"], o["optimizer"], o["source"]) for o in facts["optimizer"]] == [
        ("weights", "*w", "(downhill :lr 0.1)", place_of("(downhill :lr 0.1)")),
        ("rest", "*", "(downhill :lr 0.2)", place_of("(downhill :lr 0.2)")),
    ]


def place_of(text: str) -> str:
    (number,) = [n for n, line in enumerate(EVERYTHING.splitlines(), 1) if text in line]
    return f"p.sx:{number}:{EVERYTHING.splitlines()[number - 1].index(text) + 1}"


def test_each_diagnostic_tells_what_selects_it(facts: dict[str, Any]) -> None:
    assert [(d["name"], d["selected-by"], d["runs"]) for d in facts["diagnostics"]] == [
        ("points/made", "points/*", False),
        ("loss/unseen", None, False),
        ("slope", "slope", True),
    ]
    text = section("\n".join(explain_file(checked(EVERYTHING), 80)), "Diagnostics")
    assert "points/made: selected by points/*, dropped in a generator, " in text
    assert "loss/unseen: not selected, " in text


@pytest.mark.clause(33)
def test_the_values_of_a_step_are_those_that_the_run_reports(facts: dict[str, Any]) -> None:
    """Each guard with its metadata is one series; both bounds of one metric count into one."""
    runner = Runner(stages_of(Source("p.sx", EVERYTHING)), open_backend("cpu"), open_backend("cpu"))
    runner.begin()
    reported: dict[tuple[int, str], list[str]] = {}
    for report in runner.reports():
        key = report.step, report.pass_name or "step"
        reported.setdefault(key, []).extend([point.label.name for point in report.points])
    values = facts["values"]
    assert values["step"] == len(reported[1, "step"]) == 9
    assert values["sampled-step"] == len(reported[2, "step"]) == 11
    assert values["passes"] == {"held": len(reported[2, "held"])} == {"held": 4}
    assert values["fullest-step"] == 11 + 4
    names = [s["name"] for s in facts["series"] if s["reported"] == "step"]
    assert sorted(names) == sorted(reported[2, "step"])
    usual = [s["name"] for s in facts["series"] if s["reported"] == "step" and not s["sampled"]]
    assert sorted(usual) == sorted(reported[1, "step"])


def test_parameters_and_passes(facts: dict[str, Any]) -> None:
    shown = [
        (p["name"], p["type"], p["initializer"], p["group"], p["uses"], p["elements"]) for p in facts["parameters"]
    ]
    assert shown == [
        ("net/w", "f32[3 1]", "(normal-init :scale 0.1)", "weights", 1, 3),
        ("b", "f32[1]", "zeros-init", "rest", 1, 1),
    ]
    assert facts["elements"] == {"parameters": 4, "optimizer": 4}
    (held,) = facts["passes"]
    assert (held["batches"], held["last-batch"], held["every"], held["runs"]) == (3, 2, 2, 2)
    assert held["outputs"] == [{"name": "y", "type": "f32[4 1]"}]
    assert facts["settings"] == [
        {"name": "limit", "value": 9.0, "default": 9.0, "doc": "how far a point may be"},
    ]


@pytest.mark.clause(34)
def test_no_step_is_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("explain ran a step")

    monkeypatch.setattr(plan.Plan, "run", refuse)
    assert main(["explain", "tutorials/runs/lorentz.sx"]) == 0
    assert "\nGuards: 5\n" in capsys.readouterr().out
    assert main(["explain", "tutorials/runs/lorentz.sx", "--format", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["guards"]) == 5


def test_a_program_without_guards_says_so() -> None:
    text = "\n".join(
        explain_file(
            checked("""
                (generator points (n) {:x (normal [n 3])})
                (objective (batch) (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
                (run r :data points :steps 2 :optimizer (sgd :lr 0.1))
            """),
            80,
        )
    )
    for line in ("Guards: none", "Diagnostics: none", "Passes: none"):
        assert f"\n{line}\n" in text


# Recorded graphs

SMALL = """\
(generator points (n) {:x (ones [n 3])})
(model net (x) (@ x (param "w" [3 1] :init zeros-init)))
(objective (batch)
  (let ((loss (mean (net (:x batch)))))
    (guard "high" (count-where (> loss 9.0)))
    (metric "loss" loss)))
(optimizer o (p g) (update (- p (* 0.5 (assert-finite "g" g)))))
(evaluate held (batch) (metric "held" (sum (:x batch))))
(run r :data points :steps 1 :batch 4 :optimizer o :evaluate [(held :data points :examples 4)])
"""


def test_a_graph_is_written_with_what_each_operation_is_for() -> None:
    lines = graph_lines(graph_as_json(checked(SMALL), "step"))
    rows = [" ".join(line.split()) for line in lines]
    assert rows[0].startswith("step: ")
    for row in (
        "f32[3 1] param net/w",
        "f32[4 1] (@ %0 %1) p.sx:2:16",
        "f32[] (mean %2 :axis nil :keep false) loss, metric loss p.sx:4:15",
        "bool[] (> %3 9.0) p.sx:5:32",
        "f32[] (count-where %4 :axis nil :keep false) guard high p.sx:5:19",
    ):
        assert any(found.endswith(row) for found in rows), row
    assert any("gradient of net/w" in row for row in rows)
    starts = {line.index(line.split()[1]) for line in lines[1:]}
    assert len(starts) == 1


def test_the_update_marks_its_guards_and_what_is_new() -> None:
    rows = [" ".join(line.split()) for line in graph_lines(graph_as_json(checked(SMALL), "update"))]
    assert rows[0] == "update: 5 operations recorded, 5 needed"
    assert [row.split(" ", 1)[1] for row in rows[1:]] == [
        "f32[3 1] param net/w",
        "f32[3 1] grad net/w",
        "f32[] (count-nonfinite %1) guard g param=net/w p.sx:7:40",
        "f32[3 1] (* 0.5 %1) p.sx:7:33",
        "f32[3 1] (- %0 %3) new net/w p.sx:7:28",
    ]


def test_a_pass_and_its_generator_have_graphs() -> None:
    rows = [" ".join(line.split()) for line in graph_lines(graph_as_json(checked(SMALL), "pass held"))]
    assert rows[1:] == ["%0 f32[4 3] batch x", "%1 f32[] (sum %0 :axis nil :keep false) metric held p.sx:8:39"]
    made = [" ".join(line.split()) for line in graph_lines(graph_as_json(checked(SMALL), "generator points"))]
    assert made[-1].endswith("batch x p.sx:1:27")


def test_a_graph_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.sx"
    file.write_text(SMALL)
    assert main(["explain", str(file), "--graph", "update", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["graph"], found["recorded"], len(found["operations"])) == ("update", 5, 5)
    assert found["operations"][2] == {
        "number": 2, "type": "f32[]", "call": "(count-nonfinite %1)", "results": ["guard g param=net/w"],
        "source": f"{file}:7:40",
    }  # fmt: skip
    assert found["operations"][0]["source"] is None


def test_an_unknown_graph_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SxiError, match="the run has no graph stop; its graphs are step, update, pass held") as caught:
        graph_as_json(checked(SMALL), "stop")
    assert (caught.value.code, caught.value.exit_status) == ("E-USE-008", 2)
    assert caught.value.help == "did you mean step?"


# A run of several stages


STAGES = """
(setting rate 0.1)
(setting layers 1)
(generator points (n) {:x (normal [n 3])})
(objective (batch)
  (let ((y (@ (:x batch) (param "w" [3 1] :init zeros-init))))
    (fold (h y) (i (range layers))
      (assert-finite "h" (* h 2.0) :layer i))
    (metric "loss" (mean (square y)))))
(curriculum
  (stage "fast" :until (< (or (reported "loss") 9.0) 0.5))
  (stage "usual" :until (> (stage-step) 5) :set {:rate 0.05})
  (stage "deep" :set {:layers 3 :rate 0.01}))
(run r :data points :steps 20 :batch 4 :optimizer (sgd :lr rate) :microbatches (if (= layers 3) 2 1))
"""


def test_the_stages_are_told_and_of_the_later_ones_what_differs() -> None:
    text = "\n".join(explain_run(stages_of(Source("p.sx", STAGES)), 80))
    assert (
        section(text, "Stages")
        == """\
Stages: 3
  fast: until (< (or (reported "loss") 9.0) 0.5), p.sx:11:3
  usual: until (> (stage-step) 5), p.sx:12:3
    setting rate 0.05
  deep: to the end of the run, p.sx:13:3
    setting layers 3
    setting rate 0.01
"""
    )
    first, last = text.split("\n\nIn stage usual: nothing else\n\nIn stage deep\n\n")
    assert first == "\n\n".join(
        [f"run r, p.sx:14:1\n\n{section(text, 'Stages')[:-1]}", *one_stage(STAGES).split("\n\n")[1:]]
    )
    assert last.split("\n\n")[0].splitlines()[:2] == ["Guards: 3", "  h layer=0, layer=1, layer=2"]
    assert [part.splitlines()[0].split(":")[0] for part in last.split("\n\n")] == ["Guards", "Series", "Options"]
    assert last.split("\n\n")[-1] == "Options\n  :microbatches 2"


def one_stage(text: str) -> str:
    return "\n".join(explain_file(checked(text), 80))


def test_the_facts_of_the_stages() -> None:
    found = json.loads(json.dumps(run_as_json(stages_of(Source("p.sx", STAGES))), allow_nan=False))
    assert {k: v for k, v in found.items() if k != "stages"} == as_json(checked(STAGES))
    assert [(s["name"], s["until"], s["set"], s["source"]) for s in found["stages"]] == [
        ("fast", '(< (or (reported "loss") 9.0) 0.5)', {}, "p.sx:11:3"),
        ("usual", "(> (stage-step) 5)", {"rate": 0.05}, "p.sx:12:3"),
        ("deep", None, {"layers": 3, "rate": 0.01}, "p.sx:13:3"),
    ]
    assert [sorted(s["differs"]) for s in found["stages"]] == [
        [],
        ["settings"],
        ["guards", "options", "series", "settings", "values"],
    ]
    assert found["stages"][2]["differs"]["options"]["microbatches"] == 2
    assert run_as_json(stages_of(Source("p.sx", SMALL)))["stages"] == []


def test_a_graph_of_a_later_stage() -> None:
    stages = stages_of(Source("p.sx", STAGES))
    assert graph_of_run(stages, "step") == graph_as_json(stages[0].checked, "step")
    assert graph_of_run(stages, "step of deep") == graph_as_json(stages[2].checked, "step")
    assert graph_of_run(stages, "step of deep") != graph_of_run(stages, "step")
    with pytest.raises(SxiError) as caught:
        graph_of_run(stages, "stop of deep")
    assert (caught.value.code, caught.value.help) == ("E-USE-008", "did you mean step?")
