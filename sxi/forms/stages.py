"""What the curriculum reads: the values that were reported, the steps of the stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from sxi import codes, contracts
from sxi.builtins import builtin
from sxi.calls import unknown_keyword
from sxi.eval import USAGE, resolve, special_form
from sxi.forms.core import keyword_pairs, operands
from sxi.forms.graph import place_in_words
from sxi.names import Reading, Scope
from sxi.reader import Group, Text
from sxi.source import Span
from sxi.suggest import did_you_mean, some_of
from sxi.values import Node, kind_of

# (name, pass or None) -> {metadata as text: [values]}
Values: TypeAlias = dict[tuple[str, str | None], dict[str, list[float]]]


def apart(metadata: Mapping[str, Any]) -> str:
    """What tells a series from others of its name: the stages of a run go on with one series."""
    return " ".join([f"{k}={v}" for k, v in metadata.items() if k != "stage"])


class History:
    """The metrics' values so far: what `reported` reads.

    values:  what was reported
    kept:    names of which every value is kept; of others the last
    """

    def __init__(self, kept: frozenset[str] = frozenset()) -> None:
        self.values: Values = {}
        self.kept = kept

    def add(self, name: str, pass_name: str | None, meta: str, value: float) -> None:
        """One more value of a metric."""
        values = self.values.setdefault((name, pass_name), {}).setdefault(meta, [])
        if values and name not in self.kept:
            values[0] = value
        else:
            values.append(value)

    def as_json(self) -> list[Any]:
        """What a checkpoint keeps."""
        return [[name, p, meta, values] for (name, p), series in self.values.items() for meta, values in series.items()]

    def load(self, saved: list[Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.values = {}
        for name, p, meta, values in saved:
            # what the curriculum no longer reads whole keeps one value, as `add` does
            self.values.setdefault((name, p), {})[meta] = list(values) if name in self.kept else values[-1:]


def _in_curriculum(frame: Any, form: str, span: Span) -> None:
    if frame.context != "curriculum":
        raise codes.OUT_OF_PLACE.at(span, form=form, where=place_in_words(frame.context), wanted="the curriculum")


@special_form("reported", '(reported "metric" :pass "held" :all false)')
def reported(form: Group, scope: Scope) -> Node:
    """The last value of a metric, nil before the first; with `:all true` the list of its values."""
    name_form, *rest = operands(form, 1)
    name = resolve(name_form, scope)
    pairs = keyword_pairs(rest, form)
    options = {k.name: (resolve(v, scope), v.span) for k, v in pairs}
    for key, _ in pairs:
        if key.name not in ("pass", "all"):
            raise unknown_keyword(key.span, "reported", key.name, ("pass", "all"), USAGE["reported"])
    if isinstance(name_form, Text):
        given = next((f for k, f in pairs if k.name == "pass"), None)
        pass_name = given.value if isinstance(given, Text) else None if given is None else ""
        place = None if given is None else given.span
        scope.module.reported.append(Reading(name_form.value, name_form.span, pass_name, place))

    def node(frame: Any, env: list[Any]) -> Any:
        _in_curriculum(frame, "reported", form.span)
        given = name(frame, env)
        if not isinstance(given, str):
            raise codes.WRONG_KIND.at(
                name_form.span, what="the name of reported", given=kind_of(given), wanted="a string"
            )
        pass_name = options["pass"][0](frame, env) if "pass" in options else None
        every = options["all"][0](frame, env) if "all" in options else False
        series = _series(frame.history.values, given, pass_name)
        if len(series) > 1:
            raise codes.SEVERAL_SERIES.at(form.span, name=given, series=_listed(series))
        values = next(iter(series.values()), [])
        return list(values) if every not in (False, None) else (values[-1] if values else None)

    return node


def _series(values: Values, name: str, pass_name: str | None) -> dict[str, list[float]]:
    """The series of that name: a pass's where one is named, else training's, else that of the one pass that has it."""
    if pass_name is not None or (name, None) in values:
        return values.get((name, pass_name), {})
    found = [series for (n, _), series in values.items() if n == name]
    return {meta: values for series in found for meta, values in series.items()}


def _listed(series: Iterable[str]) -> str:
    return some_of([meta or "without metadata" for meta in series])


def check_reads(
    reads: list[Reading], kinds: dict[str, str], guards: set[str], values: Values, passes: set[str]
) -> None:
    """Refuse a `reported` of what is no metric of the run or of the pass, contract 024, or of several series.

    values:  the metadata of every series of a metric that a stage will report, as `History` keeps them
    passes:  the names of the passes of all stages
    """
    for read in reads:
        name, kind = read.name, kinds.get(read.name)
        if name.startswith("guard/") or (kind is None and name in guards):
            contracts.the_curriculum_reads_metrics.refuse(read.span, name=name, kind="guard")
        near = did_you_mean(name, [n for n, k in kinds.items() if k == "metric"], '"{}"') if kind is None else ""
        contracts.the_curriculum_reads_metrics(read.span, help=near or None, name=name, kind=kind)
        if read.pass_name and (name, read.pass_name) not in values:
            _refuse_pass(read, values, passes)
        series = {} if read.pass_name == "" else _series(values, name, read.pass_name)
        if len(series) > 1:
            raise codes.SEVERAL_SERIES.at(read.span, name=name, series=_listed(series))


def _refuse_pass(read: Reading, values: Values, passes: set[str]) -> NoReturn:
    """Refuse a pass that does not report what is read of it, or that there is not."""
    assert read.pass_name is not None, "a pass is named"
    metrics = [name for name, pass_name in values if pass_name == read.pass_name]
    span: Span | None = read.span
    note, near = f"the pass reports {some_of(metrics)}", did_you_mean(read.name, metrics, '"{}"')
    if read.pass_name not in passes:
        known = sorted(passes)
        span, near = read.pass_span, did_you_mean(read.pass_name, known, '"{}"')
        note = f"the run's passes are {some_of(known)}" if known else "the run has no pass"
    contracts.the_curriculum_reads_metrics.refuse(
        span, help=near or None, notes=(note,), name=read.name, kind=None, of_pass=read.pass_name
    )


@builtin("stage-step", "(stage-step)", 0, 0)
def stage_step(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """In the curriculum: how many steps the stage has taken."""
    _in_curriculum(frame, "stage-step", span)
    return frame.stage_steps
