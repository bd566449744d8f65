"""A failure looked at again: the violating array from the state before the step, by the same graph.

After a guard has stopped a run, the state is still that before the step.  The microbatch that failed is
run again for the counts of the guard's evaluations, and once more with what the first failing one looked
at as further outputs.  `evidence.py` keeps and shows what is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sxi import data
from sxi.backends import HostArray
from sxi.evidence import Evidence, Part, Seen, not_finite, parts_of, seen
from sxi.graph import Graph
from sxi.guards import Guard
from sxi.options import Pass
from sxi.plan import Plan, plan
from sxi.primitives.declare import Value
from sxi.primitives.host import real
from sxi.run import Report, Runner
from sxi.trace import Recording
from sxi.values import DataRecord

# What a plan is given for one microbatch, batch or update; its draws are placed.
Giving: TypeAlias = Callable[[Plan], dict[tuple[str, str], Any]]


def examine(runner: Runner, report: Report) -> Evidence:
    """Run the failing part of a step or pass again and take what failed out of it."""
    failure = report.failure
    assert failure is not None
    with runner.backend.aside(), runner.backend.computing():
        if failure.guard is None:
            return _of_finite(runner, report, failure.error.data["what"])
        if report.pass_name is not None:
            return _of_pass(runner, report, failure.guard)
        if failure.guard.param is not None:
            return _of_update(runner, report, failure.guard)
        return _of_step(runner, report, failure.guard)


@dataclass(slots=True, eq=False)
class _Look:
    """A look at a guard of a graph.

    evaluations:  for each, in the order of the walk: its count, what it was given, the calls that led there
    counts:       the plan of the counts alone, since what they count need not all fit into memory at once
    """

    runner: Runner
    guard: Guard
    graph: Graph
    recording: Recording
    evaluations: list[tuple[Any, Any, Any]] = field(init=False)
    counts: Plan = field(init=False)

    def __post_init__(self) -> None:
        slot = next(i for i, g in enumerate(self.recording.guards.guards) if g is self.guard)
        each = zip(self.recording.tallies, self.recording.operands, self.recording.calls, strict=True)
        self.evaluations = [(count, operand, calls) for (s, count), operand, calls in each if s == slot]
        self.counts = planned(self.runner, self.graph, [count for count, _, _ in self.evaluations])

    def at(self, give: Giving, batch: dict[str, Any], where: str = "") -> Evidence | None:
        """What the first evaluation whose count is not zero looked at; None where every count is zero."""
        counts = [float(x) for x in computed(self.runner, self.counts, give)]
        failing = next((i for i, count in enumerate(counts) if count != 0), None)
        if failing is None:
            return None
        _, operand, calls = self.evaluations[failing]
        parts = parts_of(self.guard, operand)
        outputs = [*[part.value for part in parts], *batch.values()]
        values = computed(self.runner, planned(self.runner, self.graph, outputs), give)
        given = dict(zip(batch, values[len(parts) :], strict=True))
        return Evidence(where, seen(parts, values[: len(parts)]), given, None, counts[failing], calls)


def planned(runner: Runner, graph: Graph, outputs: list[Any]) -> Plan:
    """The plan of other outputs of a recorded graph: each operation as in the run."""
    return plan(graph, outputs, runner.backend, plain=runner.plain)


def computed(runner: Runner, one: Plan, give: Giving) -> list[HostArray]:
    """The outputs of a plan in the host's memory."""
    return [_host(runner, x) for x in one.run(give(one), runner.draws)]


def _host(runner: Runner, x: Any) -> HostArray:
    if not isinstance(x, bool | int | float):
        return runner.backend.to_host(x)
    number = x if isinstance(x, bool) or abs(x) < 2**63 else real(x)  # a longer integer has no array
    return runner.host.to_host(runner.host.xp.asarray(number))


# A step's guards


def _of_step(runner: Runner, report: Report, guard: Guard) -> Evidence:
    made = runner.step_plan(report.step).graph
    look = _Look(runner, guard, made.graph, made.recording)
    batch = _leaves(made.prepared, made.graph)
    for m, give in _microbatches(runner, report.step):
        found = look.at(give, batch, f"microbatch {m}")
        if found is not None:
            found.rows = runner.rows(report.step, m)
            return found
    return Evidence()


def _microbatches(runner: Runner, step: int) -> Iterable[tuple[int, Giving]]:
    """Each microbatch's number, and what a plan of the step's graph is given for it."""
    graph = runner.step_plan(step).graph
    given = runner.state.inputs()

    def giving(m: int) -> Giving:
        def give(one: Plan) -> dict[tuple[str, str], Any]:
            inputs = runner.batch_inputs(graph, one, given, step, m)
            runner.draws.at(step, m)
            return inputs

        return give

    for m in runner.ranks.microbatches(runner.run.microbatches):
        yield m, giving(m)


def _leaves(x: Any, graph: Graph, name: str = "") -> dict[str, Any]:
    """The arrays of a prepared batch by name: `candidates`, `pair/0`."""
    if isinstance(x, Value):
        return {name or "batch": graph.adopt(x)}
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    found: dict[str, Any] = {}
    for key, value in items:
        found |= _leaves(value, graph, f"{name}/{key}" if name else str(key))
    return found


def _of_update(runner: Runner, report: Report, guard: Guard) -> Evidence:
    made = runner.step_plan(report.step)
    look = _Look(runner, guard, made.update_graph.graph, made.update_graph.recording)
    gradients, _ = runner.gradients(report.step)
    return look.at(lambda one: runner.update_inputs(one, made, gradients, report.step), {}) or Evidence()


# The finite guard


def _of_finite(runner: Runner, report: Report, what: str) -> Evidence:
    """The loss of the first microbatch that is not finite, a gradient, or an update."""
    made = runner.step_plan(report.step)
    kind, _, name = what.partition(" of ")
    if kind == "loss":
        return _of_microbatch(runner, report, made.graph.loss, "the loss")
    if kind == "gradient":
        number = made.graph.params.index(name)
        found = _of_microbatch(runner, report, made.graph.grads[number], "the gradient")
        gradients, _ = runner.gradients(report.step)
        # what was judged is the mean over the microbatches
        return _not_finite("the gradient", _host(runner, gradients[number]), found)
    gradients, nexts = runner.gradients(report.step)
    values = runner.updated(made, gradients, nexts, report.step)
    states = next(states for param, _, states in made.update_graph.params if param == name)
    candidates = {"the new value": values.params[name]}
    candidates |= {f"the new state {state}": values.optimizer[f"{state}/{name}"] for state in states}
    for title, x in candidates.items():
        found = _not_finite(title, _host(runner, x), Evidence())
        if found.arrays:
            return found
    return Evidence()


def _not_finite(title: str, x: HostArray, found: Evidence) -> Evidence:
    """`found` with `x` as what was looked at, where `x` is not finite in its own type."""
    violating = not_finite(x, own=True)
    if violating.any():
        found.arrays = {"operand": Seen(Part("operand", title, None, "not finite"), x, violating)}
    return found


def _of_microbatch(runner: Runner, report: Report, op: Any, title: str) -> Evidence:
    """The first microbatch for which `op` of the step's graph is not finite."""
    made = runner.step_plan(report.step).graph
    batch = _leaves(made.prepared, made.graph)
    one = planned(runner, made.graph, [op, *batch.values()])
    for m, give in _microbatches(runner, report.step):
        x, *prepared = computed(runner, one, give)
        found = _not_finite(title, x, Evidence(f"microbatch {m}"))
        if found.arrays:
            found.batch, found.rows = dict(zip(batch, prepared, strict=True)), runner.rows(report.step, m)
            return found
    return Evidence()


# A pass's guards


def _of_pass(runner: Runner, report: Report, guard: Guard) -> Evidence:
    passes = [plans[runner.is_sampled(report.step)] for plans in runner.compiled.passes]
    made = next(p for p in passes if any(g is guard for g in p.layout.guards))
    given = runner.state.inputs()
    looks = [_Look(runner, guard, graph.graph, graph.recording) for graph in made.graphs]
    for number, batch in enumerate(data.pass_batches(made.option.examples, made.option.batch)):
        variant = next(i for i, g in enumerate(made.graphs) if g.examples == batch.stop - batch.start)
        graph = made.graphs[variant]

        def give(one: Plan, variant: int = variant, batch: slice = batch, number: int = number) -> Any:
            return runner.pass_inputs(made, variant, batch, number, one, given)

        columns = {name: graph.graph.sources["batch", name] for name in graph.batch}
        found = looks[variant].at(give, columns, f"batch {number}")
        if found is not None:
            found.rows = _pass_rows(runner, made.option, batch)
            return found
    return Evidence()


def _pass_rows(runner: Runner, option: Pass, batch: slice) -> HostArray | None:
    if not isinstance(option.data, DataRecord):
        return None
    if option.split:
        return option.data.splits[option.split][batch]
    return runner.host.to_host(runner.host.xp.arange(batch.start, batch.stop))
