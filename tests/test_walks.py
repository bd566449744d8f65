"""A program is walked before its first step, once for each graph and static signature, and never again."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from sxi import eval as walker
from sxi.arraytype import ArrayType
from sxi.backends import open_backend
from sxi.graph import Graph
from sxi.plan import plan
from sxi.primitives import PRIMITIVES
from sxi.program import load_source
from sxi.reader import load
from sxi.run import Runner
from sxi.stages import check_run

RUNS = Path(__file__).parents[1] / "tutorials" / "runs"


def runner_of(name: str, steps: int) -> Runner:
    host = open_backend("cpu")
    stages = check_run(load_source(load(str(RUNS / name))), host, {}, {"steps": steps})
    runner = Runner(stages, host, host)
    runner.begin()
    return runner


@pytest.mark.parametrize(
    ("name", "signatures"),
    [
        # the step; initializers and updates of 3 layers' weights and biases; the pass over 359 in one batch of 360
        ("digits.sx", {"step": 1, "initializer": 6, "update": 6, "pass": 1}),
        # twice the step and the update, for sampled steps too; the pass in batches of 1024 and a last one of 398
        ("lorentz.sx", {"step": 2, "initializer": 1, "update": 2, "pass": 4}),
    ],
)
def test_one_walk_for_each_graph_and_signature(name: str, signatures: dict[str, int]) -> None:
    walks = runner_of(name, 1).stages[0].checked.tracer.walks
    assert set(walks.values()) == {1}
    kinds = [signature.split()[0] for signature in walks]
    assert {kind: kinds.count(kind) for kind in signatures} == signatures
    assert len(kinds) == sum(signatures.values())


@pytest.mark.parametrize("name", ["digits.sx", "lorentz.sx"])
def test_a_step_never_enters_the_walker(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of(name, 51)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a step walked the program")

    for function in ("resolve", "call_function", "call_value", "sequence"):
        monkeypatch.setattr(walker, function, refuse)
    for module in ("sxi.tracing", "sxi.builtins", "sxi.forms.core", "sxi.forms.graph"):
        monkeypatch.setattr(f"{module}.call_function", refuse, raising=False)
    reports = list(runner.reports())  # sampled steps and a pass are among them
    assert reports[-1].step == 51
    assert all(report.failure is None for report in reports)


def test_what_is_on_the_grid_of_bf16_is_not_rounded_again() -> None:
    graph = Graph("test")
    x = graph.input("input", "x", ArrayType("f32", (2, 3)))
    graph.rounding = True
    apply = functools.partial(graph.apply, static={})
    y = apply(PRIMITIVES["*"], [x, x])
    moved = apply(PRIMITIVES["stop-gradient"], [y])
    out = apply(PRIMITIVES["+"], [apply(PRIMITIVES["maximum"], [moved, y]), x])
    rounds = [i.op for i in plan(graph, [out], open_backend("cpu")).instructions if i.op.name == "round-bf16"]
    # x, the product and the sum; what is moved or chosen of these is on the grid
    assert [op.operands[0].name for op in rounds] == ["input", "*", "+"]
    recorded = [op for op in graph.ops if op.name == "round-bf16"]
    assert len(recorded) > len(rounds), "each use has a rounding of its own, for its gradient"
