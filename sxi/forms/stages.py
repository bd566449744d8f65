"""What the curriculum reads: the values that were reported, the steps of the stage."""

from __future__ import annotations

from typing import Any

from sxi import codes, contracts
from sxi.builtins import builtin
from sxi.eval import malformed, resolve, special_form
from sxi.forms.core import keyword_pairs, operands
from sxi.names import Scope
from sxi.reader import Group, Text
from sxi.source import Span
from sxi.suggest import suggest
from sxi.values import Node, kind_of


class History:
    """The metrics' values so far: what `reported` reads.

    values:  (name, pass or None) -> {metadata as text: [values]}
    kept:    names of which every value is kept; of others the last
    """

    def __init__(self, kept: frozenset[str] = frozenset()) -> None:
        self.values: dict[tuple[str, str | None], dict[str, list[float]]] = {}
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
        where = {None: "the top level of a file", "prompt": "the prompt"}.get(frame.context, f"the {frame.context}")
        raise codes.OUT_OF_PLACE.at(span, form=form, where=where, wanted="the curriculum")


@special_form("reported", '(reported "metric" :pass "held" :all false)')
def reported(form: Group, scope: Scope) -> Node:
    """The last value of a metric, nil before the first; with `:all true` the list of its values."""
    name_form, *rest = operands(form, 1)
    name = resolve(name_form, scope)
    options = {k.name: (resolve(v, scope), v.span) for k, v in keyword_pairs(rest, form)}
    for key in options:
        if key not in ("pass", "all"):
            malformed(form, "reported", f"it takes :pass and :all, not :{key}")
    if isinstance(name_form, Text):
        scope.module.reported.append((name_form.value, name_form.span))

    def node(frame: Any, env: list[Any]) -> Any:
        _in_curriculum(frame, "reported", form.span)
        given = name(frame, env)
        if not isinstance(given, str):
            raise codes.WRONG_KIND.at(
                name_form.span, what="the name of reported", given=kind_of(given), wanted="a string"
            )
        pass_name = options["pass"][0](frame, env) if "pass" in options else None
        every = options["all"][0](frame, env) if "all" in options else False
        series = _series(frame.history, given, pass_name)
        if len(series) > 1:
            raise codes.SEVERAL_SERIES.at(form.span, name=given, series=", ".join(series))
        values = next(iter(series.values()), [])
        return list(values) if every not in (False, None) else (values[-1] if values else None)

    return node


def _series(history: History, name: str, pass_name: str | None) -> dict[str, list[float]]:
    """The series of that name: a pass's where one is named, else training's, else that of the one pass that has it."""
    if pass_name is not None or (name, None) in history.values:
        return history.values.get((name, pass_name), {})
    found = [series for (n, _), series in history.values.items() if n == name]
    return {meta: values for series in found for meta, values in series.items()}


def check_reads(reads: list[tuple[str, Span]], kinds: dict[str, str], guards: set[str]) -> None:
    """Refuse a `reported` of what is no metric of the run: contract 024."""
    for name, span in reads:
        kind = kinds.get(name)
        if name.startswith("guard/") or (kind is None and name in guards):
            contracts.the_curriculum_reads_metrics.refuse(span, name=name, kind="guard")
        near = suggest(name, [n for n, k in kinds.items() if k == "metric"])
        help = f'did you mean "{near}"?' if kind is None and near else None
        contracts.the_curriculum_reads_metrics(span, help=help, name=name, kind=kind)


@builtin("stage-step", "(stage-step)", 0, 0)
def stage_step(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """In the curriculum: how many steps the stage has taken."""
    _in_curriculum(frame, "stage-step", span)
    return frame.stage_steps
