"""The stages of a run: the program under each stage's settings, checked before the first step.

A program is a pure function of its file and its settings, so a stage is one more evaluation of the file.
Each stage stands by itself: what it does not set has the value that the file or `--set` gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sxi import codes, contracts
from sxi.compiled import Attempt, Checked, at_once, check_all, declared_run
from sxi.eager import Eager, EagerEmitter
from sxi.errors import SxiError
from sxi.forms.core import holds
from sxi.forms.declare import Stage, overridden
from sxi.forms.stages import History, Values, apart, check_reads
from sxi.layout import Layout
from sxi.primitives.declare import Value
from sxi.program import Loaded, Program, no_such_setting
from sxi.values import kind_of


@dataclass(slots=True, eq=False)
class CheckedStage:
    """A stage whose every contract holds; a run without a curriculum is one stage without a name."""

    name: str | None
    form: Stage | None
    checked: Checked

    def is_over(self, host: Any, history: History, step: int, stage_steps: int) -> bool:
        """Whether `:until` holds now.  Raises an SxiError where the test cannot be computed."""
        if self.form is None or self.form.until is None:
            return False
        frame = curriculum_frame(host, self.checked.program, history, step, stage_steps)
        value = self.form.until(frame, [None] * self.form.scope.size)
        if isinstance(value, Value):
            contracts.branches_are_static.refuse(self.form.span, form=":until", test=value.type)
        return holds(value)


def curriculum_frame(host: Any, program: Program, history: History, step: int, stage_steps: int) -> Eager:
    """The frame that the curriculum's host code is walked in."""
    frame = Eager(EagerEmitter(host), program.globals, "curriculum", "curriculum")
    frame.history, frame.steps, frame.stage_steps = history, step, stage_steps
    return frame


def check_run(
    loaded: Loaded, host: Any, settings: dict[str, Any] | None = None, options: dict[str, int] | None = None
) -> list[CheckedStage]:
    """Check the run of a file under each of its stages.  Raises the first SxiError.

    options:  what the command line gives in place of the run's options, `steps` and `seed`
    """
    base = loaded.evaluate(host, settings)
    stages = check_stages(loaded, base, host, settings or {}, options or {}, at_once)
    check_tests(stages, host)
    return stages


def check_stages(
    loaded: Loaded, base: Program, host: Any, settings: dict[str, Any], options: dict[str, int], attempt: Attempt
) -> list[CheckedStage]:
    """Check the run of `base`, an evaluation of `loaded`, under each of its stages, each walk through `attempt`.

    result:  the stages whose contracts hold; what compares them is checked where that is all of them
    """
    if base.declared.curriculum is None:
        checked = check_all(base, _top_frame(base, host), attempt, options)
        return [] if checked is None else [CheckedStage(None, None, checked)]
    if attempt(declared_run, base) is None:
        return []
    stages: list[CheckedStage] = []
    forms = base.declared.stages
    names: list[str] = []
    for form in forms:
        own = attempt(_named_settings, form, base, host, names)
        if own is None:
            continue
        program = attempt(loaded.evaluate, host, {**settings, **own})
        checked = None if program is None else check_all(program, _top_frame(program, host), attempt, options)
        if checked is not None:
            stages.append(CheckedStage(names[-1], form, checked))
    if len(stages) == len(forms):
        for stage in stages[1:]:
            attempt(_check_same_state, stages[0], stage)
        attempt(_check_reads, base, stages)
    return stages


def check_stage_settings(base: Program, host: Any, attempt: Attempt) -> None:
    """Check the names and the settings of the stages of a file that has no run to walk."""
    names: list[str] = []
    for form in base.declared.stages:
        attempt(_named_settings, form, base, host, names)


# What is tried for the values of a step: signs, sizes and what is no number.
_TRIED = (0.0, 0.1, 1.0, 2.5, 10.0, 100.0, -1.0, float("inf"), float("-inf"), float("nan"))


def check_tests(stages: list[CheckedStage], host: Any) -> None:
    """Refuse a stage whose `:until` cannot be computed after its first step, whatever is reported.

    After the first step of all, what a pass reports that has not been taken then is nil.
    """
    for number, stage in enumerate(stages, 1):
        if stage.form is None or stage.form.until is None:
            continue
        if number == 1:
            first = [None, *_first_passes(stage)]
            reported = {key: series for key, series in _reported_by([stage]).items() if key[1] in first}
            tried = [(reported, value) for value in _TRIED]
        else:
            reported = _reported_by(stages)
            tried = [*[(reported, value) for value in _TRIED], ({}, 0.0)]
        errors = []
        for case in tried:
            error = _error_of_test(stage, host, number, *case)
            if error is None:
                break
            errors.append(error)
        else:
            if number == 1:
                errors[0].notes.append("it is computed after every step, and what has not been reported then is nil")
            raise errors[0]


def _error_of_test(stage: CheckedStage, host: Any, step: int, reported: Values, value: float) -> SxiError | None:
    """What computing a stage's `:until` after its first step raises where all that is reported is `value`."""
    history = new_history(stage)
    for (name, pass_name), series in reported.items():
        for meta in series:
            history.add(name, pass_name, meta, value)
    try:
        stage.is_over(host, history, step, 1)
    except SxiError as error:
        return error
    return None


def _first_passes(stage: CheckedStage) -> list[str]:
    """The passes that follow the first step."""
    run = stage.checked.run
    return [p.name for p in run.evaluate if p.every == 1 or run.steps == 1]


def _top_frame(program: Program, host: Any) -> Eager:
    return Eager(EagerEmitter(host), program.globals, None, "top")


def _named_settings(form: Stage, base: Program, host: Any, names: list[str]) -> dict[str, Any]:
    """The settings of a stage; its name is put behind those before it."""
    frame = curriculum_frame(host, base, History(), 0, 0)
    env: list[Any] = [None] * form.scope.size
    name = form.name(frame, env)
    contracts.name_is_valid(form.name_span, form="stage", name=name)
    if form.until is None and form is not base.declared.stages[-1]:
        contracts.run_options_are_consistent.refuse(
            form.span, what=f"the stage {name} has no :until, and it is not the last", help=':until (reported "…")'
        )
    if name in names:
        contracts.run_options_are_consistent.refuse(form.name_span, what=f"two stages are named {name}", help="")
    names.append(name)
    return _stage_settings(form, base, frame, env)


def _stage_settings(form: Stage, base: Program, frame: Eager, env: list[Any]) -> dict[str, Any]:
    found = {}
    for name, (node, name_span, span) in form.settings.items():
        if name not in base.declared.settings:
            raise no_such_setting(name, base.declared.settings, name_span)
        value = node(frame, env)
        if isinstance(value, Value):
            raise codes.WRONG_SETTING.at(span, name=name, what=f"it is {kind_of(value)}, and a setting is a constant")
        found[name] = overridden(name, base.declared.settings[name].value, value, span)
    return found


def _check_same_state(first: CheckedStage, other: CheckedStage) -> None:
    """Refuse a stage that could not go on with the state of the one before."""
    for what, a, b in (
        ("parameter", _types(first, "params"), _types(other, "params")),
        ("state", _types(first, "states"), _types(other, "states")),
        ("optimizer state", _optimizer(first), _optimizer(other)),
    ):
        for name in {**a, **b}:
            if a.get(name) != b.get(name):
                assert other.form is not None
                raise codes.STAGE_CHANGES_STATE.at(
                    other.form.span, stage=other.name, what=f"the {what} {name}",
                    first=a.get(name, "nothing"), second=b.get(name, "nothing"),
                )  # fmt: skip


def _types(stage: CheckedStage, kind: str) -> dict[str, Any]:
    return {name: d.type for name, d in getattr(stage.checked.tracer.registry, kind).items()}


def _optimizer(stage: CheckedStage) -> dict[str, Any]:
    return {f"{state} of {name}": t for (name, state), t in stage.checked.updates[False].states.items()}


def _check_reads(base: Program, stages: list[CheckedStage]) -> None:
    kinds: dict[str, str] = {}
    guards: set[str] = set()
    for stage in stages:
        kinds |= {name: kind for name, (kind, _, _) in stage.checked.tracer.registry.kinds.items()}
        for _, graph in stage.checked.graphs:
            guards |= {g.name for g in graph.recording.guards.guards}
    passes = {p.name for stage in stages for p in stage.checked.run.evaluate}
    check_reads(base.module.reported, kinds, guards, _reported_by(stages), passes)


def _reported_by(stages: list[CheckedStage]) -> Values:
    """The metadata of every metric of every stage, a value for none, as a run's history has it."""
    found: Values = {}
    for stage in stages:
        run = stage.checked.run
        graphs: list[tuple[str | None, Any, dict[str, Any]]] = [
            (None, stage.checked.steps[False], {"split": run.split} if run.split else {}),
            (None, stage.checked.updates[False], {"split": run.split} if run.split else {}),
        ]
        for p in stage.checked.passes:
            split = {"split": p.option.split} if p.option.split else {}
            graphs.append((p.option.name, p.graphs[False][0], {**split, "pass": p.option.name}))
        for pass_name, graph, runtime in graphs:
            layout = Layout(graph.recording, 0, runtime)
            for label in [label for label in layout.labels if label.kind == "metric"]:
                found.setdefault((label.name, pass_name), {})[apart(label.meta)] = []
    return found


def new_history(stage: CheckedStage) -> History:
    """A history that keeps every value of what the curriculum reads."""
    return History(frozenset(r.name for r in stage.checked.program.module.reported))
