"""What a checked program does, told without a step: `sxi explain FILE`.

`run_as_json` gathers the facts and `explain_run` lays them out as text; so do `graph_of_run` and `graph_lines`
for one recorded graph.  Nothing is computed here: all of it was found when the program was checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, TypeAlias

from sxi import codes, explain_layout
from sxi.compiled import Checked, CheckedPass, series_count
from sxi.graph import Graph, Op, written_call
from sxi.guards import Guard
from sxi.layout import Label, Layout
from sxi.options import Run
from sxi.series import matches_glob
from sxi.source import Span
from sxi.stages import CheckedStage
from sxi.suggest import did_you_mean
from sxi.trace import Recording
from sxi.tracing import PassGraph, StepGraph, UpdateGraph
from sxi.values import Instance, plain, written

Facts: TypeAlias = dict[str, Any]
Calls: TypeAlias = Sequence[tuple[str, Span]]


def explain_run(stages: Sequence[CheckedStage], width: int) -> list[str]:
    """The stages, guards, diagnostics, series, parameters, passes and options of a run, as lines of text.

    They are told of the first stage, and of each other one as far as they differ.
    width:  columns of the terminal, taken as 40 to 200; a place `file:line:column` is never broken
    """
    drawn = [explain_layout.sections(as_json(stage.checked), width) for stage in stages]
    parts = drawn[0]
    if stages[0].form is not None:
        parts = [parts[0], explain_layout.stages(_stages(stages), width), *parts[1:]]
    for stage, own in zip(stages[1:], drawn[1:], strict=True):
        # of the options, which come last, the lines that differ
        differing = [part for part in own[1:-1] if part not in drawn[0]]
        options = [line for line in own[-1] if line not in drawn[0][-1] and not line.startswith("  setting ")]
        if options:
            differing.append([own[-1][0], *options])
        parts += [[f"In stage {stage.name}" + ("" if differing else ": nothing else")], *differing]
    return "\n\n".join(["\n".join(part) for part in parts]).split("\n")


def run_as_json(stages: Sequence[CheckedStage]) -> Facts:
    """The same facts as values of strict JSON: those of the first stage, and `stages` with what differs in each."""
    facts = [as_json(stage.checked) for stage in stages]
    told = [] if stages[0].form is None else _stages(stages)
    for stage, own in zip(told, facts, strict=False):
        stage["differs"] = {key: value for key, value in own.items() if value != facts[0][key]}
    return {**facts[0], "stages": told}


def _stages(stages: Sequence[CheckedStage]) -> list[Facts]:
    found = []
    for stage in stages:
        assert stage.form is not None, "a stage of a curriculum"
        until, settings = stage.form.until_span, stage.checked.program.settings
        found.append(
            {"name": stage.name, "until": None if until is None else " ".join(until.text.split()),
             "set": {name: strict(settings[name]) for name in stage.form.settings}, "source": str(stage.form.span)}
        )  # fmt: skip
    return found


def explain_file(checked: Checked, width: int) -> list[str]:
    """What `explain_run` says of one stage."""
    return "\n\n".join(["\n".join(part) for part in explain_layout.sections(as_json(checked), width)]).split("\n")


def as_json(checked: Checked) -> Facts:
    """The facts of one stage as values of strict JSON: a number that is not finite is a string."""
    run, declared = checked.run, checked.program.declared
    facts = {
        "run": {"name": run.name, "source": str(run.span)},
        "guards": _guards(checked),
        "diagnostics": _diagnostics(checked),
        "series": _series(checked),
        "values": _values(checked),
        "parameters": _parameters(checked),
        "states": _states(checked),
        "elements": {
            "parameters": sum([prod(p.type.shape) for p in checked.tracer.registry.params.values()]),
            "optimizer": sum([prod(t.shape) for t in checked.updates[False].states.values()]),
        },
        "optimizer": _optimizers(run),
        "passes": [_pass(p, run) for p in checked.passes],
        "options": _options(run),
        "settings": [
            {"name": s.name, "value": checked.program.settings.get(s.name, s.value), "default": s.value, "doc": s.doc}
            for s in declared.settings.values()
        ],
    }
    return strict(facts)  # type: ignore[no-any-return]  # a dict stays one


def strict(value: Any) -> Any:
    """A host value as strict JSON holds it; a keyword as `:name`, what has no JSON as it is written."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return strict(plain(value))


# Guards


def _recordings(checked: Checked) -> list[tuple[Recording, Recording]]:
    """Of the step, the update and each pass: what it records on a sampled step, and on any other."""
    fullest = checked.samples
    graphs: list[tuple[Any, Any]] = [
        (checked.steps[fullest], checked.steps[False]),
        (checked.updates[fullest], checked.updates[False]),
        *[(p.graphs[fullest][0], p.graphs[False][0]) for p in checked.passes],
    ]
    return [(full.recording, usual.recording) for full, usual in graphs]


def _guards(checked: Checked) -> list[Facts]:
    """Each guard form with its metadata once, with all the graphs that it runs in."""
    found: dict[Any, Facts] = {}
    kinds = checked.tracer.registry.kinds
    for full, usual in _recordings(checked):
        always = {_identity(g) for g in usual.guards.guards}
        for guard in full.guards.guards:
            facts = found.setdefault((guard.span, guard.form, guard.bound, *guard.series), _guard(guard, kinds))
            _add_graph(facts["graphs"], guard, None if _identity(guard) in always else checked.run.sample_every)
    return list(found.values())


def _identity(guard: Guard) -> tuple[Any, ...]:
    return guard.span, guard.form, guard.bound, *guard.series, guard.graph


def _guard(guard: Guard, kinds: dict[str, tuple[str, str, Span]]) -> Facts:
    is_bound = guard.bound is not None
    return {
        "name": guard.name,
        "metadata": dict(guard.metadata),
        "form": kinds[guard.name][0] if is_bound else guard.form,
        "bound": [guard.form, guard.bound] if is_bound else None,
        "source": str(guard.span),
        "graphs": [],
    }


def _add_graph(graphs: list[Facts], guard: Guard, every: int | None) -> None:
    """Enter the graph of `guard`; `every` says on which steps alone it counts, None: on each."""
    name = guard.graph.removesuffix(f" {guard.param}") if guard.param is not None else guard.graph
    known = next((g for g in graphs if g["graph"] == name and g["sampled-every"] == every), None)
    if known is None:
        known = {"graph": name, "sampled-every": every, "calls": _calls(guard.calls), "groups": {}}
        graphs.append(known)
    if guard.param is not None:
        known["groups"].setdefault(guard.group, []).append(guard.param)


def _calls(calls: Calls) -> list[Facts]:
    """The calls that lead to a form, innermost first."""
    return [{"call": name, "source": str(span)} for name, span in calls]


# Diagnostics and series


def _diagnostics(checked: Checked) -> list[Facts]:
    """Each diagnostic once, with the glob that selects it."""
    running = {s.name for full, _ in _recordings(checked) for s in full.series.all() if s.kind == "diagnostic"}
    found: dict[str, Facts] = {}
    for _, usual in _recordings(checked):
        for name, (_, span) in usual.diagnostics.items():
            glob = next((g for g in checked.run.diagnostics if matches_glob(g, name)), None)
            facts = {"name": name, "selected-by": glob, "runs": name in running, "source": str(span)}
            found.setdefault(name, facts)
    return list(found.values())


def _layouts(checked: Checked, sampled: bool) -> list[tuple[str, Layout]]:
    """The series of the step with its update, and of each pass, as the stream names them."""
    run = checked.run
    runtime: Facts = {"split": run.split} if run.split else {}
    found = [
        ("step", Layout(checked.steps[sampled].recording, 0, runtime)),
        ("step", Layout(checked.updates[sampled].recording, 0, runtime)),
    ]
    for p in checked.passes:
        own: Facts = {"split": p.option.split} if p.option.split else {}
        name = p.option.name
        found.append((f"pass {name}", Layout(p.graphs[sampled][0].recording, 0, {**own, "pass": name})))
    return found


def _labelled(layout: Layout) -> list[tuple[Label, str, list[Span]]]:
    """Each series of a graph: its label, how it is reduced, the forms that report it."""
    found = [(label, s.reduce, [s.span]) for label, s in zip(layout.labels, layout.series, strict=True)]
    for key, label in layout.guard_labels.items():
        spans = [g.span for g in layout.guards if (*g.series, g.group) == key]
        found.append((label, "sum", list(dict.fromkeys(spans))))
    return found


def _series(checked: Checked) -> list[Facts]:
    """Each series of the fullest step: where it is reported, and whether on sampled steps only."""
    found = []
    usual = _layouts(checked, False)
    for (place, layout), (_, other) in zip(_layouts(checked, checked.samples), usual, strict=True):
        always = [(label.name, label.meta) for label, _, _ in _labelled(other)]
        for label, reduce, spans in _labelled(layout):
            found.append(
                {"name": label.name, "metadata": label.meta, "kind": label.kind, "reduce": reduce, "reported": place,
                 "sampled": (label.name, label.meta) not in always, "sources": [str(s) for s in spans]}
            )  # fmt: skip
    return found


def _values(checked: Checked) -> Facts:
    """How many values a step reports: a usual one, a sampled one, each pass after it, and the fullest of all."""

    def counted(sampled: bool) -> dict[str, int]:
        counts: dict[str, int] = {}
        for place, layout in _layouts(checked, sampled):
            counts[place] = counts.get(place, 0) + len(_labelled(layout))
        return counts

    full, usual = counted(checked.samples), counted(False)
    return {
        "step": usual.pop("step"),
        "sampled-step": full.pop("step"),
        "passes": {name.removeprefix("pass "): count for name, count in full.items()},
        "fullest-step": series_count(checked),
        "report-limit": checked.run.report_limit,
    }


# Parameters


def _parameters(checked: Checked) -> list[Facts]:
    groups = checked.updates[False].groups
    states: dict[str, Facts] = {}
    for (param, state), type in checked.updates[False].states.items():
        states.setdefault(param, {})[state] = str(type)
    return [
        {"name": p.name, "type": str(p.type), "initializer": _instance(p.init), "group": groups[p.name].name,
         "uses": p.uses, "elements": prod(p.type.shape), "optimizer-states": states.get(p.name, {}),
         "source": str(p.span), "calls": _calls(p.calls)}
        for p in checked.tracer.registry.params.values()
    ]  # fmt: skip


def _states(checked: Checked) -> list[Facts]:
    return [
        {"name": s.name, "type": str(s.type), "initializer": _instance(s.init), "reduce": s.reduce,
         "elements": prod(s.type.shape), "source": str(s.span)}
        for s in checked.tracer.registry.states.values()
    ]  # fmt: skip


def _optimizers(run: Run) -> list[Facts]:
    """The groups of the optimizer in their order; the one of a run without groups has no glob."""
    return [
        {"group": g.name, "glob": g.glob if run.has_groups else None,
         "optimizer": " ".join(g.optimizer.span.text.split()), "source": str(g.optimizer.span)}
        for g in run.optimizer
    ]  # fmt: skip


def _instance(instance: Instance) -> str:
    """An initializer as one writes it."""
    if not instance.keywords:
        return instance.name
    return f"({instance.name} {' '.join([f':{k} {written(v)}' for k, v in instance.keywords.items()])})"


# Passes and options


def _pass(checked: CheckedPass, run: Run) -> Facts:
    option = checked.option
    outputs = checked.graphs[False][0].recording.outputs
    return {
        "name": option.name,
        "data": option.data.name,
        "split": option.split,
        "examples": option.examples,
        "batch": option.batch,
        "batches": -(-option.examples // option.batch),
        "last-batch": option.examples % option.batch or option.batch,
        "every": option.every,
        "runs": (run.steps // option.every + bool(run.steps % option.every)) if option.every else 1,
        "outputs": [{"name": n, "type": str(x.type)} for n, (x, _) in outputs.items()],
        "source": str(option.span),
    }


def _options(run: Run) -> Facts:
    """Every option of the run, those that stand for what the file leaves out included."""
    return {
        "steps": run.steps,
        "data": run.data.name,
        "split": run.split,
        "shuffle": run.shuffle,
        "batch": run.batch,
        "microbatches": run.microbatches,
        "seed": run.seed,
        "start-from": [list(pair) for pair in run.start_from],
        "checkpoint-every": run.checkpoint_every,
        "keep-checkpoints": run.keep_checkpoints,
        "keep-best": list(run.keep_best) if run.keep_best else None,
        "diagnostics": run.diagnostics,
        "sample-every": run.sample_every,
        "guard-finite": run.guard_finite,
        "report-limit": run.report_limit,
    }


# A recorded graph


def graph_of_run(stages: Sequence[CheckedStage], name: str) -> Facts:
    """A recorded graph of the first stage, or with ` of STAGE` behind its name of another."""
    for stage in stages[1:]:
        own = name.removesuffix(f" of {stage.name}")
        if own != name:
            return graph_as_json(stage.checked, own)
    return graph_as_json(stages[0].checked, name)


def graph_as_json(checked: Checked, name: str) -> Facts:
    """A recorded graph: of each operation its number, its type, the call, what it is, where it is written.

    name:    `step`, `update`, `pass NAME`, or the `generator NAME` of a pass
    raises:  E-USE-008 where the run has no such graph
    """
    graphs = _graphs(checked)
    if name not in graphs:
        repair = did_you_mean(name, graphs) or "name one of them"
        raise codes.NO_SUCH_GRAPH.at(None, name=name, known=", ".join(graphs), repair=repair)
    graph, remarks = graphs[name]
    ops = graph.needed_for([op for op, _ in remarks])
    results: dict[int, list[str]] = {}
    for op, result in remarks:
        if isinstance(op, Op):
            results.setdefault(op.index, []).append(result)
    return {
        "graph": name,
        "recorded": len(graph.ops),
        "operations": [
            {"number": op.index, "type": str(op.type), "call": written_call(op), "results": results.get(op.index, []),
             "source": str(op.span) if op.span is not None and op.primitive is not None else None}
            for op in ops
        ],
    }  # fmt: skip


def graph_lines(graph: Facts) -> list[str]:
    """The same as a table."""
    ops = graph["operations"]
    rows = [(f"%{op['number']}", op["type"], op["call"], ", ".join(op["results"]), op["source"] or "") for op in ops]
    head = f"{graph['graph']}: {_counted(graph['recorded'], 'operation')} recorded, {len(ops)} needed"
    return [head, *explain_layout.columns(rows, right=(0,))]


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _graphs(checked: Checked) -> dict[str, tuple[Graph, list[tuple[Any, str]]]]:
    """Every graph by its name, with what its results are for: (op, in words)."""
    found: dict[str, tuple[Graph, list[tuple[Any, str]]]] = {
        "step": (checked.steps[False].graph, _results_of_step(checked.steps[False])),
        "update": (checked.updates[False].graph, _results_of_update(checked.updates[False])),
    }
    for p in checked.passes:
        graph = p.graphs[False][0]
        found[f"pass {p.option.name}"] = graph.graph, _results_of_pass(graph)
        if graph.generator is not None:
            made: Iterable[tuple[Any, str]] = [(x, f"batch {n}") for n, x in graph.made.items()]
            found[graph.generator.name] = graph.generator, list(made)
    return found


def _reports(recording: Recording) -> list[tuple[Any, str]]:
    """What guards count and series report."""
    guards = recording.guards.guards
    found = [(op, f"guard {guards[slot].label}") for slot, op in recording.tallies]
    for s in recording.series.all():
        found += [(op, f"{s.kind} {s.name}") for op in s.values]
    return found


def _results_of_step(step: StepGraph) -> list[tuple[Any, str]]:
    nexts = [(op, f"next {name}") for name, values in step.recording.nexts.items() for op in values]
    grads = [(g, f"gradient of {name}") for name, g in zip(step.params, step.grads, strict=True)]
    return [(step.loss, "loss"), *grads, *nexts, *_reports(step.recording)]


def _results_of_update(update: UpdateGraph) -> list[tuple[Any, str]]:
    found = []
    for name, new, states in update.params:
        found += [(new, f"new {name}"), *[(x, f"new {state} of {name}") for state, x in states.items()]]
    return [*found, *_reports(update.recording)]


def _results_of_pass(graph: PassGraph) -> list[tuple[Any, str]]:
    outputs = [(x, f"output {name}") for name, (x, _) in graph.recording.outputs.items()]
    return [*outputs, *_reports(graph.recording)]
