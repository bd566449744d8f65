"""A failure looked at again: the violating array from the state before the step, by the same graph.

After a guard has stopped a run, the state is still that before the step.  The microbatch that failed is
run again with what the guard looked at as one more output, and what is found is kept in `failure/`:

    failure.json          what failed, where, and each array in figures
    arrays.safetensors    the arrays, and the prepared microbatch they came from
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sxi import checkpoint, codes, data
from sxi.arraytype import ArrayType
from sxi.backends import Array
from sxi.graph import Graph, Op
from sxi.guards import Guard
from sxi.plan import plan
from sxi.primitives.declare import Value
from sxi.primitives.host import real
from sxi.run import Report, Runner
from sxi.stream import plain
from sxi.trace import Recording

FIRST = 10
_COMPARISONS = frozenset({"<", "<=", ">", ">=", "=", "/=", "finite?", "nan?", "inf?"})


@dataclass(slots=True)
class Evidence:
    """What a failure's second look found.

    where:    `microbatch 1`, `batch 3` or ``, counted from 0
    arrays:   what the guard looked at: role (`operand`, `mask`, `compared`, `count`) -> array
    batch:    the prepared microbatch it came from, by name
    """

    where: str = ""
    arrays: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)


def examine(runner: Runner, report: Report) -> Evidence:
    """Run the failing part of a step or pass again and take what failed out of it."""
    failure = report.failure
    assert failure is not None
    with runner.backend.aside(), runner.backend.computing():
        if report.pass_name is not None:
            return _of_pass(runner, report)
        if failure.guard is None:
            return _of_finite(runner, report)
        if failure.guard.param is not None:
            return _of_update(runner, report)
        return _of_step(runner, report)


@dataclass(slots=True, eq=False)
class _Look:
    """The plan of a graph with what a guard looked at: for each evaluation its count, then its arrays."""

    guard: Guard
    recording: Recording
    evaluations: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        slot = next(i for i, g in enumerate(self.recording.guards.guards) if g is self.guard)
        for (s, count), operand in zip(self.recording.tallies, self.recording.operands, strict=True):
            if s == slot:
                self.evaluations.append((count, looked_at(operand)))

    def outputs(self) -> list[Any]:
        return [x for count, arrays in self.evaluations for x in (count, *arrays.values())]

    def failing(self, values: Sequence[Array], runner: Runner) -> dict[str, Any] | None:
        """The arrays of the first evaluation whose count is not zero."""
        at = 0
        for _, arrays in self.evaluations:
            count = float(runner.backend.to_host(values[at]))
            own = values[at + 1 : at + 1 + len(arrays)]
            at += 1 + len(arrays)
            if count != 0:
                return {k: _host(runner, x) for k, x in zip(arrays, own, strict=True)}
        return None


def looked_at(operand: Any) -> dict[str, Any]:
    """What a guard looked at: of a `count-where` the mask and the compared array, else the operand itself."""
    op = operand
    while isinstance(op, Op) and op.primitive is not None and op.primitive.name in ("cast", "identity", "round-bf16"):
        op = op.operands[0]
    if isinstance(op, Op) and op.primitive is not None and op.primitive.name == "count-where":
        mask = op.operands[0]
        found = {"mask": mask}
        made = mask.primitive if isinstance(mask, Op) else None
        if made is not None and made.name in _COMPARISONS:
            arrays = [x for x in mask.operands if isinstance(x, Op)]
            found["compared"] = max(arrays, key=lambda x: x.type.size)
        return found
    return {"operand": operand}


def _host(runner: Runner, x: Any) -> Any:
    if not isinstance(x, bool | int | float):
        return runner.backend.to_host(x)
    return np.asarray(x if isinstance(x, bool) or abs(x) < 2**63 else real(x))  # a longer integer has no array


def _of_step(runner: Runner, report: Report) -> Evidence:
    failure, step = report.failure, report.step
    assert failure is not None
    assert failure.guard is not None
    made = runner.step_plan(step)
    look = _Look(failure.guard, made.graph.recording)
    batch = _leaves(made.graph.prepared, made.graph.graph)
    one = plan(made.graph.graph, [*look.outputs(), *batch.values()], runner.backend, plain=runner.plain)
    given = runner.state.inputs()
    for m in runner.ranks.microbatches(runner.run.microbatches):
        runner.draws.at(step, m)
        values = one.run(runner.batch_inputs(made.graph, one, given, step, m), runner.draws)
        n = len(look.outputs())
        arrays = look.failing(values[:n], runner)
        if arrays is not None:
            prepared = {k: _host(runner, x) for k, x in zip(batch, values[n:], strict=True)}
            return Evidence(f"microbatch {m}", arrays, prepared)
    return Evidence()


def _leaves(x: Any, graph: Graph, name: str = "") -> dict[str, Any]:
    """The arrays of a prepared batch by name: `candidates`, `pair/0`."""
    if isinstance(x, Value):
        return {name or "batch": graph.adopt(x)}
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    found: dict[str, Any] = {}
    for key, value in items:
        found |= _leaves(value, graph, f"{name}/{key}" if name else str(key))
    return found


def _of_update(runner: Runner, report: Report) -> Evidence:
    failure = report.failure
    assert failure is not None
    assert failure.guard is not None
    made = runner.step_plan(report.step)
    look = _Look(failure.guard, made.update_graph.recording)
    one = plan(made.update_graph.graph, look.outputs(), runner.backend, plain=runner.plain)
    gradients, _ = runner.gradients(report.step)
    values = one.run(runner.update_inputs(one, made, gradients, report.step), runner.draws)
    return Evidence("", look.failing(values, runner) or {})


def _of_finite(runner: Runner, report: Report) -> Evidence:
    """The loss of the first microbatch that is not finite, a gradient, or an update."""
    assert report.failure is not None
    what = report.failure.error.data["what"]
    made = runner.step_plan(report.step)
    if what == "loss":
        return _loss(runner, report)
    gradients, nexts = runner.gradients(report.step)
    name = what.split(" of ", 1)[1]
    if what.startswith("gradient"):
        return Evidence("", {"operand": _host(runner, gradients[made.graph.params.index(name)])})
    values = runner.updated(made, gradients, nexts, report.step)
    candidates = [values.params[name], *[x for key, x in values.optimizer.items() if key.endswith(f"/{name}")]]
    for x in candidates:
        host = _host(runner, x)
        if host.dtype.kind == "f" and not np.isfinite(host).all():
            return Evidence("", {"operand": host})
    return Evidence()


def _loss(runner: Runner, report: Report) -> Evidence:
    made = runner.step_plan(report.step)
    batch = _leaves(made.graph.prepared, made.graph.graph)
    one = plan(made.graph.graph, [made.graph.loss, *batch.values()], runner.backend, plain=runner.plain)
    given = runner.state.inputs()
    for m in runner.ranks.microbatches(runner.run.microbatches):
        runner.draws.at(report.step, m)
        values = one.run(runner.batch_inputs(made.graph, one, given, report.step, m), runner.draws)
        loss = _host(runner, values[0])
        if not np.isfinite(loss):
            prepared = {k: _host(runner, x) for k, x in zip(batch, values[1:], strict=True)}
            return Evidence(f"microbatch {m}", {"operand": loss}, prepared)
    return Evidence()


def _of_pass(runner: Runner, report: Report) -> Evidence:
    failure = report.failure
    assert failure is not None
    assert failure.guard is not None
    plans = next(p for p in runner.compiled.passes if p[False].option.name == report.pass_name)
    made = plans[runner.is_sampled(report.step)]
    name = failure.guard
    for number, batch in enumerate(data.pass_batches(made.option.examples, made.option.batch)):
        variant = next(i for i, g in enumerate(made.graphs) if g.examples == batch.stop - batch.start)
        graph = made.graphs[variant]
        own = next(
            g
            for g in graph.recording.guards.guards
            if g.series == name.series and g.span == name.span and g.form == name.form
        )
        look = _Look(own, graph.recording)
        one = plan(graph.graph, look.outputs(), runner.backend, plain=runner.plain)
        inputs = runner.pass_inputs(made, variant, batch, number, one, runner.state.inputs())
        values = one.run(inputs, runner.draws)
        arrays = look.failing(values, runner)
        if arrays is not None:
            given = {k: _host(runner, x) for (kind, k), x in inputs.items() if kind == "batch"}
            return Evidence(f"batch {number}", arrays, given)
    return Evidence()


# In figures


def figures(x: Any, mask: Any = None) -> dict[str, Any]:
    """An array as a message shows it: type, range, how many are NaN and infinite, the first that violate.

    mask:  which elements violate; without it, those that are not finite, or every one of a scalar
    """
    type = ArrayType.of(x)
    found: dict[str, Any] = {"type": str(type)}
    violating = np.asarray(mask) if mask is not None else np.zeros(x.shape, bool)
    if type.is_float:
        finite = x[np.isfinite(x)]
        found["nan"] = int(np.isnan(x).sum())
        found["+inf"], found["-inf"] = int((x == np.inf).sum()), int((x == -np.inf).sum())
        if finite.size:
            found["min"], found["max"] = float(finite.min()), float(finite.max())
        if mask is None:
            violating = ~np.isfinite(x)
    elif x.size and type.is_numeric:
        found["min"], found["max"] = int(x.min()), int(x.max())
    if mask is None and x.shape == ():
        violating = np.ones((), bool)
    if violating.shape == x.shape:
        found["violations"] = int(violating.sum())
        places = np.argwhere(violating)[:FIRST] if x.shape else np.zeros((int(violating), 0), int)
        found["first"] = [[[int(i) for i in place], _number(x[tuple(place)])] for place in places]
    return found


def _number(x: Any) -> Any:
    value = x.item()
    return value if not isinstance(value, float) or math.isfinite(value) else plain(value)


def described(evidence: Evidence) -> dict[str, Any]:
    """What `failure.json` says of the arrays."""
    mask = evidence.arrays.get("mask")
    shown = {}
    for role, x in evidence.arrays.items():
        fits = mask is not None and role == "compared" and mask.shape == x.shape
        shown[role] = figures(x, mask if fits or role == "mask" else None)
    batch = {name: str(ArrayType.of(x)) for name, x in evidence.batch.items()}
    return {"where": evidence.where, "arrays": shown, "batch": batch}


def _facts(error: dict[str, Any], calls: Sequence[tuple[str, Any]], evidence: Evidence) -> dict[str, Any]:
    return {**error, "calls": [f"{name} called at {span}" for name, span in calls], **described(evidence)}


def keep(folder: Path, error: dict[str, Any], calls: Sequence[tuple[str, Any]], evidence: Evidence) -> None:
    """Write `failure/`.  Raises E-RUN-020 where it cannot be written."""
    arrays = {f"guard/{role}": x for role, x in evidence.arrays.items()}
    arrays |= {f"batch/{name}": x for name, x in evidence.batch.items()}
    facts = _facts(error, calls, evidence)
    checkpoint.save_arrays(folder, "arrays.safetensors", arrays)
    checkpoint.save_text(folder, "failure.json", json.dumps(facts, indent=1, ensure_ascii=False))


# Shown


def show(folder: Path) -> list[str]:
    """What `failure/` holds, as lines.  Raises E-RUN-044 where it holds nothing that can be read."""
    try:
        facts = json.loads((folder / "failure.json").read_text(encoding="utf-8"))
        return list(_lines(facts))
    except (OSError, ValueError, KeyError, TypeError):
        raise codes.NO_FAILURE.at(None, path=folder) from None


def shown(error: dict[str, Any], calls: Sequence[tuple[str, Any]], evidence: Evidence) -> list[str]:
    """What a failure's second look found, as lines, without a folder."""
    return list(_lines(_facts(error, calls, evidence)))


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"{facts['code']}: {facts['message']}"
    for call in facts.get("calls", []):
        yield f"  in {call}"
    if facts["where"]:
        yield f"  in {facts['where']}, counted from 0"
    for role, figure in facts["arrays"].items():
        yield f"{ROLES[role]}: {figure_text(figure)}"
        if role == "mask" and "compared" in facts["arrays"]:
            continue
        for place, value in figure.get("first", []):
            yield f"  {place_text(place)} {value}"
        more = figure.get("violations", 0) - len(figure.get("first", []))
        if more > 0:
            yield f"  … and {more} more"
    if facts["batch"]:
        yield "the microbatch it came from: " + ", ".join(f"{name} {type}" for name, type in facts["batch"].items())


ROLES = {"operand": "what was looked at", "mask": "the mask", "compared": "what was compared"}


def place_text(place: Sequence[int]) -> str:
    """The index of an element as the language writes it."""
    return f"[{' '.join(map(str, place))}]"


def figure_text(figure: dict[str, Any]) -> str:
    """An array's type, range and counts in a line."""
    parts = [figure["type"]]
    if "min" in figure:
        parts.append(f"from {figure['min']:.6g} to {figure['max']:.6g}")
    for kind, text in (("nan", "NaN"), ("+inf", "+inf"), ("-inf", "-inf")):
        if figure.get(kind):
            parts.append(f"{figure[kind]} {text}")
    if "violations" in figure:
        parts.append(f"{figure['violations']} violating")
    return ", ".join(parts)
