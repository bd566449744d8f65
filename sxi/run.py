"""The step, the pass, the verdict: a run as a generator of reports.

For each step: microbatches, one grouped reduction, the update beside the current values, ONE read, the
verdict, the commit by swap, the passes.  Whoever takes the reports (the command line, the prompt) feeds
them to the stream, the status and the screen.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sxi import data, guards
from sxi.arraytype import ArrayType
from sxi.backends import Array, Backend
from sxi.beginning import first_state
from sxi.compiled import Compiled, PassPlan, StepPlan, compile_program
from sxi.errors import SxiError
from sxi.forms.stages import History, apart
from sxi.guards import Total
from sxi.layout import Point, cleared
from sxi.options import Pass, Run
from sxi.plan import Plan
from sxi.random import Draws
from sxi.ranks import Ranks, Solo
from sxi.stages import CheckedStage, new_history
from sxi.state import State, Values
from sxi.tracing import StepGraph
from sxi.values import DataRecord


@dataclass(slots=True)
class Failure:
    """Why a run stopped at a step: the error, and the other guards that failed with it."""

    error: SxiError
    also: list[SxiError] = field(default_factory=list)
    guard: guards.Guard | None = None


@dataclass(slots=True)
class Report:
    """What a step or a pass reports.

    points:     every series' value
    pass_name:  of a pass, its name
    outputs:    what `output` gave in a pass, by name: its batches in the order of the examples
    ends_step:  whether nothing more of the step follows
    stage:      the stage that begins after the step, where one does
    """

    step: int
    points: list[Point]
    failure: Failure | None = None
    pass_name: str | None = None
    outputs: dict[str, Any] = field(default_factory=dict)
    ends_step: bool = False
    stage: str | None = None


@dataclass(slots=True, eq=False)
class Runner:
    """One run: its stages made ready, its state, its draws.

    host:      where initializers and the curriculum compute
    step:      the last step completed; steps: how many the run takes
    taken:     how many examples the steps completed took: a stage may change the batch
    stage:     the number of the stage, and stage_start the step after which it began
    finished:  whether the last stage's `:until` held
    """

    stages: list[CheckedStage]
    backend: Backend
    host: Backend
    ranks: Ranks = field(default_factory=Solo)
    plain: bool = False
    state: State = field(default_factory=State)
    step: int = 0
    taken: int = 0
    stage: int = 0
    stage_start: int = 0
    finished: bool = False
    history: History = field(init=False)
    compiled: Compiled = field(init=False)
    draws: Draws = field(init=False)
    order: data.Order | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.history = new_history(self.stages[0])
        self.draws = Draws(self.run.seed, self.backend.asarray)
        self.enter(self.stage)

    @property
    def run(self) -> Run:
        """The options of the run, under the settings of its stage."""
        return self.stages[self.stage].checked.run

    @property
    def steps(self) -> int:
        return self.stages[0].checked.run.steps

    @property
    def is_over(self) -> bool:
        """Whether no step is left to take."""
        return self.step >= self.steps or self.finished

    def state_types(self) -> dict[str, ArrayType]:
        """The type of everything that is carried from step to step, by its name in a checkpoint."""
        checked = self.compiled.checked
        registry = checked.tracer.registry
        return {
            **{f"param/{name}": d.type for name, d in registry.params.items()},
            **{f"state/{name}": d.type for name, d in registry.states.items()},
            **{f"optimizer/{state}/{name}": t for (name, state), t in checked.updates[False].states.items()},
        }

    def enter(self, number: int) -> None:
        """Make the plans of a stage; the state is carried over."""
        self.stage = number
        stage = self.stages[number]
        self.compiled = compile_program(stage.checked, self.backend, stage.name, plain=self.plain)
        run = self.run
        self.order = None
        if isinstance(run.data, DataRecord):
            rows = run.data.splits[run.split] if run.split else np.arange(_row_count(run.data))
            self.order = data.Order(rows, run.seed, shuffle=run.shuffle, span=run.spans.get("data"))

    # The beginning

    def begin(self) -> None:
        """Make the first value of every parameter, state and optimizer state, on the host, and take it over.

        Initializers draw by the seed and the parameter's name alone, so they give the same bits for any backend.
        Raises the errors of `:start-from`.
        """
        self.state = first_state(self.compiled.checked, self.host, self.backend)

    # Steps

    def reports(self) -> Iterator[Report]:
        """Take the steps that are left; a report for each step and each pass, the failing one last."""
        with self.backend.computing():
            while not self.is_over:
                for report in self._one_step():
                    yield report
                    if report.failure is not None:
                        return

    def _one_step(self) -> Iterator[Report]:
        """A step, then its passes in order, then the curriculum; where that ends the run, the passes that are left."""
        report = self.take_step()
        due = [p for p in self.compiled.passes if self._is_due(p[False].option)]
        if report.failure is None:
            report = yield from self._passes_after(report, due)
        if report.failure is None:
            try:
                report.stage = self._advance()
            except SxiError:
                yield report  # what was reported is known, whatever the curriculum makes of it
                raise
            if self.finished:
                report = yield from self._passes_after(report, [p for p in self.compiled.passes if p not in due])
            report.ends_step = report.failure is None
        yield report

    def _passes_after(self, report: Report, passes: list[dict[bool, PassPlan]]) -> Generator[Report, None, Report]:
        """Give `report`, then take `passes` and give their reports up to a failing one, all but the last of them."""
        for plans in passes:
            yield report
            report = self.take_pass(plans[self.is_sampled(self.step)])
            if report.failure is not None:
                break
        return report

    def _advance(self) -> str | None:
        """Go to the next stage where this one is over; its name."""
        stage = self.stages[self.stage]
        if not stage.is_over(self.host, self.history, self.step, self.step - self.stage_start):
            return None
        if self.stage + 1 == len(self.stages):
            self.finished = True
            return None
        self.stage_start = self.step
        self.enter(self.stage + 1)
        return self.stages[self.stage].name

    def _is_due(self, option: Pass) -> bool:
        return self.step == self.steps or (option.every is not None and self.step % option.every == 0)

    def is_sampled(self, step: int) -> bool:
        """Whether selected diagnostics run on that step."""
        checked = self.compiled.checked
        return checked.samples and step % checked.run.sample_every == 0

    def step_plan(self, step: int) -> StepPlan:
        """The plan of that step, sampled or not."""
        return self.compiled.steps[self.is_sampled(step)]

    def _cleared(self, plan: StepPlan) -> Array:
        return cleared(self.backend, plan.size, [plan.gathering.layout, plan.update_gathering.layout])

    def gradients(self, step: int) -> tuple[list[Array], list[Array]]:
        """The gradients and the states' next values of a step, computed again; nothing is counted."""
        plan = self.step_plan(step)
        return self._microbatches(plan, self._cleared(plan), step)

    def updated(self, plan: StepPlan, gradients: list[Array], nexts: list[Array], step: int) -> Values:
        """The next values of everything, computed again; nothing is counted."""
        return self._update(plan, gradients, nexts, self._cleared(plan), step)

    def take_step(self) -> Report:
        """One step: computed, judged, and committed where its verdict is good."""
        step = self.step + 1
        plan = self.step_plan(step)
        counters = self._cleared(plan)
        gradients, nexts = self._microbatches(plan, counters, step)
        values = self._update(plan, gradients, nexts, counters, step)
        self.state.offer(values)
        totals = self.backend.read(counters).tolist()  # the step's one read
        failure = self._verdict(plan, totals, step)
        points = self._points(plan, totals)
        if failure is None:
            self.state.commit()
            self.step = step
            self.taken += self.run.batch
            self._remember(points, None)
        else:
            self.state.refuse()
        return Report(step, points, failure)

    def _microbatches(self, plan: StepPlan, counters: Array, step: int) -> tuple[list[Array], list[Array]]:
        """Run each microbatch: the mean gradients and the states' next values; counts go to the counters."""
        run = self.run
        given = self.state.inputs()
        n_grads = len(plan.graph.grads)
        sums: list[Array] = []
        mine = self.ranks.microbatches(run.microbatches)
        for m in mine:
            self.draws.at(step, m)
            out = plan.plan.run(self.batch_inputs(plan.graph, plan.plan, given, step, m), self.draws)
            self.backend.tally(counters, [plan.loss], out[:1])
            n_nexts = sum([n for _, _, n in plan.nexts])
            plan.gathering.add(self.backend, counters, out[1 + n_grads + n_nexts :], is_last=m == run.microbatches - 1)
            own = out[1 : 1 + n_grads] + self._reduced_nexts(plan, out[1 + n_grads : 1 + n_grads + n_nexts])
            sums = own if not sums else self._accumulated(plan, sums, own, n_grads)
        gradients, _, _, _ = self.ranks.reduce(sums[:n_grads], counters, None, failed=False)
        return self._means(plan, gradients, sums[n_grads:])

    def batch_inputs(
        self, graph: StepGraph, plan: Plan, given: dict[tuple[str, str], Array], step: int, m: int
    ) -> dict[tuple[str, str], Array]:
        """What a plan of the step's graph is given for microbatch `m`."""
        run = self.run
        inputs = {**given}
        rows = self.rows(step, m)
        if rows is not None and isinstance(run.data, DataRecord):
            for name in graph.batch:
                if ("batch", name) in plan.inputs:
                    inputs["batch", name] = self.backend.asarray(run.data.columns[name].rows(rows))
        self._give_step(inputs, plan, step)
        return inputs

    def rows(self, step: int, m: int) -> data.HostArray | None:
        """Which rows of the data are microbatch `m` of a step, i64[n]; None where a generator makes it."""
        if self.order is None:
            return None
        at = self.taken + (step - self.step - 1) * self.run.batch
        return data.chunk(self.order.rows(at, self.run.batch), self.run.microbatches, m)

    def _give_step(self, inputs: dict[tuple[str, str], Array], plan: Plan, step: int) -> None:
        if ("step", "step") in plan.inputs:
            inputs["step", "step"] = self.backend.asarray(np.int32(step))

    def update_inputs(
        self, plan: Plan, made: StepPlan, gradients: list[Array], step: int
    ) -> dict[tuple[str, str], Array]:
        """What a plan of the update's graph is given; its draws are placed."""
        inputs = self.state.inputs()
        for name, g in zip(made.graph.params, gradients, strict=True):
            inputs["grad", name] = g
        self._give_step(inputs, plan, step)
        self.draws.at(step, 0)
        return inputs

    def _accumulated(self, plan: StepPlan, sums: list[Array], own: list[Array], n_grads: int) -> list[Array]:
        xp = self.backend.xp
        out = [xp.add(a, b) for a, b in zip(sums[:n_grads], own[:n_grads], strict=True)]
        for (_, reduce, _), a, b in zip(plan.nexts, sums[n_grads:], own[n_grads:], strict=True):
            out.append(_combined(xp, reduce, a, b))
        return out

    def _reduced_nexts(self, plan: StepPlan, values: list[Array]) -> list[Array]:
        """The values that each state was given in one microbatch, reduced to one."""
        out, at = [], 0
        for _, reduce, n in plan.nexts:
            own = values[at : at + n]
            at += n
            x = own[0]
            for y in own[1:]:
                x = _combined(self.backend.xp, reduce, x, y)
            out.append(x)
        return out

    def _means(self, plan: StepPlan, gradients: list[Array], nexts: list[Array]) -> tuple[list[Array], list[Array]]:
        m = self.run.microbatches
        xp = self.backend.xp
        if m > 1:
            gradients = [xp.divide(g, float(m)) for g in gradients]
        means = []
        for (_, reduce, n), x in zip(plan.nexts, nexts, strict=True):
            means.append(_divided(xp, x, m * n) if reduce == "mean" and m * n > 1 else x)
        return gradients, means

    def _update(self, plan: StepPlan, gradients: list[Array], nexts: list[Array], counters: Array, step: int) -> Values:
        """The next values of everything, beside the current ones."""
        backend = self.backend
        inputs = self.update_inputs(plan.update, plan, gradients, step)
        out = plan.update.run(inputs, self.draws)
        current = self.state.current
        values = Values({}, dict(current.states), {})
        finite: list[list[Array]] = []
        at = 0
        for name, _, states in plan.update_graph.params:
            values.params[name] = out[at]
            finite.append(out[at : at + 1 + len(states)])
            for k, state in enumerate(states, 1):
                values.optimizer[f"{state}/{name}"] = out[at + k]
            at += 1 + len(states)
        for (name, _, _), x in zip(plan.nexts, nexts, strict=True):
            values.states[name] = x
        plan.update_gathering.add(backend, counters, out[at:])
        if self.run.guard_finite:
            self._count_not_finite(plan, counters, gradients, finite)
        return values

    def _count_not_finite(
        self, plan: StepPlan, counters: Array, gradients: list[Array], updates: list[list[Array]]
    ) -> None:
        count = self.backend.count_nonfinite_own
        slots = list(range(plan.grads, plan.grads + len(gradients)))
        counts = [count(g) for g in gradients]
        for i, arrays in enumerate(updates):
            for x in arrays:
                slots.append(plan.updates + i)
                counts.append(count(x))
        self.backend.tally(counters, slots, counts)

    # The verdict

    def _verdict(self, plan: StepPlan, totals: Sequence[float], step: int) -> Failure | None:
        """A training guard's failure first, since it names the cause, then the finite guard's, then an optimizer's."""
        layout, update = plan.gathering.layout, plan.update_gathering.layout
        failing = [guard_failure(t, step) for t in guards.failures(layout.guards, layout.counts(totals))]
        finite = self._finite_verdict(plan, totals, step)
        if finite is not None:
            failing.append(finite)
        failing += [guard_failure(t, step) for t in guards.optimizer_failures(update.guards, update.counts(totals))]
        return with_others(failing)

    def _finite_verdict(self, plan: StepPlan, totals: Sequence[float], step: int) -> Failure | None:
        if not self.run.guard_finite:
            return None
        names = [name for name, _, _ in plan.update_graph.params]
        labels = ["loss", *[f"gradient of {n}" for n in names], *[f"update of {n}" for n in names]]
        counts = [float(not math.isfinite(totals[plan.loss])), *totals[plan.grads : plan.size]]
        found = guards.first_not_finite(labels, counts)
        return None if found is None else Failure(guards.finite_error(*found, step))

    def _points(self, plan: StepPlan, totals: Sequence[float]) -> list[Point]:
        m = self.run.microbatches
        layout, update = plan.gathering.layout, plan.update_gathering.layout
        points = layout.series_points(totals, [m], [1]) + update.series_points(totals, [1], [1])
        return points + layout.guard_points(totals) + update.guard_points(totals)

    # Passes

    def take_pass(self, plan: PassPlan) -> Report:
        """One pass over its data, to its end; then its verdict."""
        option, backend = plan.option, self.backend
        counters = cleared(backend, plan.layout.size, [plan.layout])
        given = self.state.inputs()
        outputs: dict[str, list[Any]] = {}
        runs = [0] * len(plan.plans)
        batches = data.pass_batches(option.examples, option.batch)
        for number in self.ranks.batches(len(batches)):
            batch = batches[number]
            size = batch.stop - batch.start
            variant = next(i for i, g in enumerate(plan.graphs) if g.examples == size)
            runs[variant] += 1
            out = self._run_batch(plan, variant, batch, number, given)
            gathering = plan.gatherings[variant]
            n = len(gathering.outputs)
            gathering.add(backend, counters, out[:n], variant=variant, is_last=number == len(batches) - 1)
            for name, x in zip(plan.graphs[variant].recording.outputs, out[n:], strict=True):
                outputs.setdefault(name, []).append(backend.to_host(x))
        totals = backend.read(counters).tolist()  # the pass's one read
        layout = plan.layout
        failing = [
            guard_failure(t, self.step, option.name) for t in guards.failures(layout.guards, layout.counts(totals))
        ]
        weights = [float(g.examples) for g in plan.graphs]
        points = layout.series_points(totals, [float(r) for r in runs], weights) + layout.guard_points(totals)
        if not failing:
            self._remember(points, option.name)
        return Report(self.step, points, with_others(failing), option.name, outputs)

    def _remember(self, points: list[Point], pass_name: str | None) -> None:
        """Keep the metrics' values for the curriculum; guards and diagnostics never reach it."""
        for p in points:
            if p.label.kind == "metric":
                self.history.add(p.label.name, pass_name, apart(p.label.meta), p.value)

    def _run_batch(
        self, plan: PassPlan, variant: int, batch: slice, number: int, given: dict[tuple[str, str], Array]
    ) -> list[Array]:
        inputs = self.pass_inputs(plan, variant, batch, number, plan.plans[variant], given)
        return plan.plans[variant].run(inputs, self.draws)

    def pass_inputs(
        self,
        plan: PassPlan,
        variant: int,
        batch: slice,
        number: int,
        one: Plan,
        given: dict[tuple[str, str], Array],
    ) -> dict[tuple[str, str], Array]:
        """What a plan of a pass's graph is given for a batch; its draws are placed."""
        option = plan.option
        inputs = dict(given)
        made = plan.generators[variant]
        if made is not None:
            self.draws.at(0, number)
            # every pass sees the same examples, as at step 0
            self._give_step(inputs, made[0], 0)
            for name, x in zip(made[1], made[0].run(inputs, self.draws), strict=True):
                inputs["batch", name] = x
        elif isinstance(option.data, DataRecord):
            rows = option.data.splits[option.split][batch] if option.split else batch
            for name in plan.graphs[variant].batch:
                if ("batch", name) in one.inputs:
                    inputs["batch", name] = self.backend.asarray(option.data.columns[name].rows(rows))
        self._give_step(inputs, one, self.step)
        self.draws.at(self.step, number)
        return inputs


def guard_failure(total: Total, step: int, pass_name: str | None = None) -> Failure:
    """The failure of a guard that counted."""
    return Failure(guards.guard_error(total, step, pass_name), guard=total.source)


def with_others(failing: list[Failure]) -> Failure | None:
    """The first failure, the others beside it."""
    if not failing:
        return None
    failing[0].also = [f.error for f in failing[1:]]
    return failing[0]


def _combined(xp: Any, reduce: str, a: Array, b: Array) -> Array:
    if reduce in ("mean", "sum"):
        return xp.add(a, b)
    if reduce in ("min", "max"):
        return (xp.minimum if reduce == "min" else xp.maximum)(a, b)
    return b


def _divided(xp: Any, sum_: Array, n: int) -> Array:
    """The mean of `n` values by their sum; one of integers is rounded down, as `quotient` does."""
    if sum_.dtype.kind == "f":
        return xp.divide(sum_, float(n))
    return xp.floor_divide(sum_, n) if sum_.dtype.kind == "i" else sum_


def _row_count(record: DataRecord) -> int:
    sizes = data.leading_sizes(record.columns)
    return next(iter(sizes.values())) or 0
