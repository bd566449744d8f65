"""A checked program made ready to run on a backend: its plans, and the layout of its counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sxi import codes, contracts, series
from sxi.backends import Backend
from sxi.errors import Label
from sxi.forms.declare import RunForm
from sxi.guards import metadata_text
from sxi.layout import Gathering, Layout
from sxi.options import Pass, Run, run_of
from sxi.plan import Plan, plan
from sxi.program import Program
from sxi.suggest import did_you_mean, some_of, suggest_glob
from sxi.trace import align
from sxi.tracing import PassGraph, StepGraph, Tracer, UpdateGraph


@dataclass(slots=True, eq=False)
class CheckedPass:
    """A pass with the graphs of its sizes of batch: the full one, and a ragged last one."""

    option: Pass
    graphs: dict[bool, list[PassGraph]]
    sizes: list[int]


@dataclass(slots=True, eq=False)
class Checked:
    """A program whose every contract holds: its graphs, sampled (True) and not (False).

    samples:  whether any diagnostic is selected, so that sampled steps differ
    """

    program: Program
    run: Run
    tracer: Tracer
    samples: bool
    steps: dict[bool, StepGraph]
    passes: list[CheckedPass]
    updates: dict[bool, UpdateGraph]

    @property
    def graphs(self) -> list[tuple[str, Any]]:
        """Every unsampled graph by name."""
        return [
            ("step", self.steps[False]),
            ("update", self.updates[False]),
            *[(f"pass {p.option.name}", p.graphs[False][0]) for p in self.passes],
        ]


def check(program: Program, frame: Any, options: dict[str, int] | None = None) -> Checked:
    """Check every contract of the one run of a program.  Raises the first error that is found.

    options:  what the command line gives in place of the run's options, `steps` and `seed`
    """
    checked = check_all(program, frame, at_once, options)
    assert checked is not None, "the first error is raised"
    return checked


Attempt: TypeAlias = Callable[..., Any]
# Among the options given: that no step will be taken.
NO_STEPS = "no steps"


def at_once(walk: Callable[..., Any], *args: Any) -> Any:
    """The `Attempt` that notes nothing: the first error is raised."""
    return walk(*args)


def check_all(program: Program, frame: Any, attempt: Attempt, options: dict[str, int] | None = None) -> Checked | None:
    """Check every contract of the one run of a program, each walk through `attempt`.

    attempt:  `attempt(walk, *args)` gives `walk(*args)`, or notes its error and gives None
    options:  what the command line gives in place of the run's options, `steps` and `seed`
    result:   None where a walk failed: what depends on it is not walked, what does not is
    """
    run = attempt(_only_run, program, frame, options or {})
    if run is None:
        return None
    tracer = Tracer(program, run)
    step = attempt(tracer.step, False)
    if step is not None and attempt(_check_params, tracer) is None:
        return None
    for declared in [*tracer.registry.params.values(), *tracer.registry.states.values()]:
        attempt(tracer.check_initializer, declared)
    update = attempt(tracer.update, False)
    passes = [attempt(_check_pass, tracer, p) for p in run.evaluate]
    if None in (step, update, *passes):
        return None
    checked = Checked(program, run, tracer, False, {False: step}, passes, {False: update})
    return attempt(_check_whole, checked)  # type: ignore[no-any-return]  # what it gives or None


def declared_run(program: Program) -> RunForm:
    """The one run of a program, as it is declared.  Raises E-CONTRACT-025 where there is none, or another."""
    runs = program.declared.runs
    if len(runs) != 1:
        span = runs[1].span if runs else None
        what = "the file has no run" if not runs else "the file has more than one run"
        example = "(run NAME :data D :steps 100 :optimizer (adamw :lr 1e-3))"
        contracts.run_options_are_consistent.refuse(
            span, what=what, labels=(Label(runs[0].span, "the first"),) if runs else (),
            help="take one of the two out" if runs else example,
        )  # fmt: skip
    return runs[0]


def _only_run(program: Program, frame: Any, options: dict[str, int]) -> Run:
    run = run_of(declared_run(program), frame, trains=NO_STEPS not in options)
    for name, value in options.items():
        if name != NO_STEPS:
            setattr(run, name, value)
    return run


def _check_params(tracer: Tracer) -> bool:
    if not tracer.registry.params and not tracer.registry.states:  # states alone learn too: k-means, for one
        what = "the objective makes no parameter and no state, so there is nothing to train"
        contracts.run_options_are_consistent.refuse(tracer.run.span, what=what, help='(param "w" [3] :init zeros-init)')
    return True


def _check_whole(checked: Checked) -> Checked:
    """What is known when every graph is: what diagnostics select, sampled steps, the rate."""
    tracer = checked.tracer
    _check_readings(checked)
    _check_selection(checked)
    _check_start(checked)
    _check_best(checked)
    if checked.samples:
        checked.steps[True] = tracer.step(sampled=True)
        checked.updates[True] = tracer.update(sampled=True)
        for p in checked.passes:
            p.graphs[True] = _pass_graphs(tracer, p.option, p.sizes, sampled=True)
    _check_rate(checked)
    return checked


def _check_pass(tracer: Tracer, option: Pass) -> CheckedPass:
    full, rest = divmod(option.examples, option.batch)
    sizes = ([option.batch] if full else []) + ([rest] if rest else [])
    graphs = _pass_graphs(tracer, option, sizes, sampled=False)
    _check_outputs(graphs)
    return CheckedPass(option, {False: graphs}, sizes)


def _check_outputs(graphs: list[PassGraph]) -> None:
    """Refuse an output whose batches cannot be joined: those of a full and of a ragged batch differ in type."""
    first: dict[str, Any] = {}
    for graph in graphs:
        for name, (x, span) in graph.recording.outputs.items():
            full, written_at = first.setdefault(name, (x, span))
            if (full.dtype, full.shape[1:], full.shape == ()) == (x.dtype, x.shape[1:], x.shape == ()):
                continue
            labels = () if written_at == span else (Label(written_at, f"{name} of a full batch"),)
            raise codes.TYPES_DIFFER.at(
                span, left=full.type, right=x.type, labels=labels,
                notes=(f"a batch has {graphs[0].examples} examples, the last one {graph.examples}",),
                help="give every batch one row for each example, of one type",
            )  # fmt: skip


def _pass_graphs(tracer: Tracer, option: Pass, sizes: list[int], sampled: bool) -> list[PassGraph]:
    graphs = [tracer.evaluation(option, n, sampled) for n in sizes]
    align([g.recording for g in graphs])
    return graphs


def _check_readings(checked: Checked) -> None:
    """Every parameter that `reading` replaces has a state of that name and of its own type in its optimizer."""
    states = checked.updates[False].states
    types = {f"{state}/{param}": type for (param, state), type in states.items()}
    every: list[Any] = [graph for _, graph in checked.graphs]
    every += [graph for p in checked.passes for graph in p.graphs[False][1:]]  # a ragged batch may read more
    for graph in every:
        for (kind, name), op in graph.graph.sources.items():
            if kind != "optimizer" or types.get(name) == op.type:
                continue
            state, _, param = name.partition("/")
            listed = ", ".join([f"{s} {t}" for (p, s), t in states.items() if p == param])
            known = f"the states are {listed}" if listed else "it has none"
            error = codes.UNKNOWN_STATE.at(op.span, name=f"{state} {op.type} of {param}", known=known)
            error.chain = op.call.calls() if op.call else []
            raise error


def _check_selection(checked: Checked) -> None:
    """Every glob of `:diagnostics` selects something."""
    names: dict[str, bool] = {}
    for recording in [g.recording for _, g in checked.graphs]:
        names.update({n: selected for n, (selected, _) in recording.diagnostics.items()})
    checked.samples = bool(checked.run.diagnostics)
    for i, glob in enumerate(checked.run.diagnostics):
        if not any([series.matches_glob(glob, n) for n in names]):
            _refuse_glob(checked.run, "diagnostics", i, glob, list(names), "diagnostic")


def _check_start(checked: Checked) -> None:
    """Every glob of `:start-from` matches a parameter."""
    names = list(checked.tracer.registry.params)
    for i, (glob, _) in enumerate(checked.run.start_from):
        if not any([series.matches_glob(glob, n) for n in names]):
            _refuse_glob(checked.run, "start-from", i, glob, names, "parameter")


def _refuse_glob(run: Run, option: str, i: int, glob: str, names: list[str], kind: str) -> None:
    """Refuse element `i` of an option, a glob that matches none of the names there are."""
    near = suggest_glob(glob, names)
    what = f"the glob {glob} matches no {kind}; the {kind}s are {some_of(names)}"
    contracts.run_options_are_consistent.refuse(
        run.element(option, i), what=what, help=f'did you mean "{near}"?' if near else ""
    )


def _check_best(checked: Checked) -> None:
    """The metric of `:keep-best` is reported by one pass, as one series."""
    if checked.run.keep_best is None:
        return
    name = checked.run.keep_best[0]
    reported = [
        (s.name, " ".join([f"pass={p.option.name}", *[f"{k}={metadata_text(v)}" for k, v in s.metadata]]))
        for p in checked.passes
        for s in p.graphs[False][0].recording.series.all()
        if s.kind == "metric"
    ]
    found = [text for n, text in reported if n == name]
    if len(found) == 1:
        return
    if found:
        what = f"several series are named {name}: {'; '.join(found)}"
    else:
        known = some_of(dict.fromkeys([n for n, _ in reported]))
        what = f"no pass reports the metric {name}; the passes' metrics are {known}"
    help = "" if found else did_you_mean(name, [n for n, _ in reported], '"{}"')
    contracts.run_options_are_consistent.refuse(checked.run.element("keep-best", 0), what=what, help=help)


def _check_rate(checked: Checked) -> None:
    count = series_count(checked)
    limit = checked.run.report_limit
    contracts.run_reports_within_its_limit(
        checked.run.spans.get("report-limit", checked.run.span), count=count, limit=limit
    )


def series_count(checked: Checked) -> int:
    """How many values the fullest step reports: every pass after a sampled step."""
    fullest = checked.samples
    graphs: list[Any] = [
        checked.steps[fullest],
        checked.updates[fullest],
        *[p.graphs[fullest][0] for p in checked.passes],
    ]
    total = 0
    for graph in graphs:
        layout = Layout(graph.recording, 0, {})
        total += len(layout.series) + len(layout.guard_labels)
    return total


# Plans


@dataclass(slots=True, eq=False)
class StepPlan:
    """A step made ready: the microbatch's plan and the update's, and where their counts stand.

    loss:   the slot of the sum of losses
    grads:  the first slot of the gradients' counts of values not finite; updates: of the updates'
    """

    plan: Plan
    graph: StepGraph
    gathering: Gathering
    nexts: list[tuple[str, str, int]]
    update: Plan
    update_graph: UpdateGraph
    update_gathering: Gathering
    loss: int
    grads: int
    updates: int
    size: int


@dataclass(slots=True, eq=False)
class PassPlan:
    """A pass made ready: a plan for each size of batch."""

    option: Pass
    plans: list[Plan]
    generators: list[tuple[Plan, list[str]] | None]
    gatherings: list[Gathering]
    graphs: list[PassGraph]
    layout: Layout


@dataclass(slots=True, eq=False)
class Compiled:
    """Everything that a run needs of its program."""

    checked: Checked
    backend: Backend
    steps: dict[bool, StepPlan]
    passes: list[dict[bool, PassPlan]]


def compile_program(checked: Checked, backend: Backend, stage: str | None = None, *, plain: bool = False) -> Compiled:
    """Make the plans of a checked program for `backend`; `plain` ones as recorded, for comparison."""
    run = checked.run
    runtime: dict[str, Any] = {"split": run.split} if run.split else {}
    if stage is not None:
        runtime["stage"] = stage
    steps = {s: _step_plan(checked, s, backend, runtime, plain) for s in checked.steps}
    passes = [{s: _pass_plan(p, s, backend, stage, plain) for s in p.graphs} for p in checked.passes]
    return Compiled(checked, backend, steps, passes)


def _step_plan(checked: Checked, sampled: bool, backend: Backend, runtime: dict[str, Any], plain: bool) -> StepPlan:
    step, update = checked.steps[sampled], checked.updates[sampled]
    layout = Layout(step.recording, 0, runtime)
    loss = layout.end
    update_layout = Layout(update.recording, loss + 1, runtime)
    grads = update_layout.end
    n = len(step.params) if checked.run.guard_finite else 0
    gathering, update_gathering = Gathering(layout), Gathering(update_layout)
    nexts = [
        (name, checked.tracer.registry.states[name].reduce, len(values))
        for name, values in step.recording.nexts.items()
    ]
    next_ops = [v for values in step.recording.nexts.values() for v in values]
    outputs = [step.loss, *step.grads, *next_ops, *gathering.outputs]
    new = [x for _, p, states in update.params for x in (p, *states.values())]
    return StepPlan(
        plan(step.graph, outputs, backend, plain=plain), step, gathering, nexts,
        plan(update.graph, [*new, *update_gathering.outputs], backend, plain=plain), update, update_gathering,
        loss, grads, grads + n, grads + 2 * n,
    )  # fmt: skip


def _pass_plan(checked: CheckedPass, sampled: bool, backend: Backend, stage: str | None, plain: bool) -> PassPlan:
    option, graphs = checked.option, checked.graphs[sampled]
    runtime: dict[str, Any] = {}
    if option.split:
        runtime["split"] = option.split
    if stage is not None:
        runtime["stage"] = stage
    runtime["pass"] = option.name
    evaluations = [[len(s.values) for s in g.recording.series.all()] for g in graphs]
    layouts = [Layout(g.recording, 0, runtime, evaluations=evaluations) for g in graphs]
    gatherings = [Gathering(layout) for layout in layouts]
    plans = []
    generators: list[tuple[Plan, list[str]] | None] = []
    for g, gathering in zip(graphs, gatherings, strict=True):
        outputs = [x for x, _ in g.recording.outputs.values()]
        plans.append(plan(g.graph, [*gathering.outputs, *outputs], backend, plain=plain))
        generators.append(
            None
            if g.generator is None
            else (plan(g.generator, list(g.made.values()), backend, plain=plain), list(g.made))
        )
    return PassPlan(option, plans, generators, gatherings, graphs, layouts[0])
