"""The forms that report and guard: `metric`, `diagnostic`, `guard`, `assert-finite`.

Each gives back its value, so wrapping an expression changes no number; each checks its contracts
at every walk, whatever the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sxi import contracts
from sxi.calls import LONGEST_CALL_SHOWN, CallSite
from sxi.errors import Label
from sxi.eval import malformed, resolve, special_form
from sxi.forms.core import operands
from sxi.guards import Guard, Metadata
from sxi.names import Scope
from sxi.primitives import PRIMITIVES, host
from sxi.primitives.declare import Value
from sxi.reader import Form, Group, Keyword, Text
from sxi.series import Series
from sxi.source import Span
from sxi.values import Key, Node

BOUNDS = ("below", "above")
OPTIONS = ("reduce", *BOUNDS)
TEST = {"below": "not-below", "above": "not-above"}


@dataclass(slots=True, eq=False)
class Report:
    """A reporting form as resolved: where its parts stand, and their nodes."""

    form: str
    span: Span
    name: Node
    name_span: Span
    value: Node
    value_span: Span
    metadata: list[tuple[str, Node, Span, Span]]
    options: dict[str, tuple[Node, Span]]

    def name_of(self, frame: Any, env: list[Any]) -> str:
        name = self.name(frame, env)
        contracts.name_is_valid(self.name_span, form=self.form, name=name)
        return name  # type: ignore[no-any-return]  # the rule holds: it is a string

    def metadata_of(self, frame: Any, env: list[Any]) -> Metadata:
        """The metadata, in the order written, keywords by their names."""
        found = []
        for key, node, key_span, value_span in self.metadata:
            contracts.metadata_is_not_the_runtimes(key_span, form=self.form, key=key)
            value = node(frame, env)
            contracts.metadata_is_static(value_span, form=self.form, key=key, value=value)
            found.append((key, value.name if isinstance(value, Key) else value))
        return tuple(found)


def _name_and_value(form: Group) -> list[Form]:
    """The operands of a reporting form, of which the first two are its name and its value."""
    given = operands(form, 1)
    name, value = given[0], given[1] if len(given) > 1 else None
    usage = f'({form.head} "name" value …)'
    is_name = isinstance(name, Text) or (isinstance(name, Group) and name.head == "str")
    if isinstance(value, Text) and not is_name:
        malformed(name, form.head, "its name comes before its value", help=f"({form.head} {value.span.text} …)")
    if value is None or isinstance(value, Keyword):
        text = " ".join(name.span.text.split())
        named = f'({form.head} "name" {text})' if len(text) <= LONGEST_CALL_SHOWN else usage
        malformed(name, form.head, f"it has no {'value' if is_name else 'name'}", help=usage if is_name else named)
    return given


def _resolve_report(form: Group, scope: Scope) -> Report:
    name, value, *rest = _name_and_value(form)
    bounds = tuple([k.name for k in rest[::2] if isinstance(k, Keyword) and k.name in BOUNDS])
    scope.module.mentions.reports.append((form.head, bounds, form.span))
    check_place(form.head, scope.context, bounds, form.span)
    made = Report(form.head, form.span, resolve(name, scope), name.span, resolve(value, scope), value.span, [], {})
    seen: set[str] = set()
    for key, item in _pairs(form, rest):
        if key.name in seen:
            contracts.metadata_is_pairs.refuse(key.span, form=form.head, what=f":{key.name} is given twice")
        seen.add(key.name)
        node = resolve(item, scope)
        if key.name not in OPTIONS:
            made.metadata.append((key.name, node, key.span, item.span))
        elif form.head in ("metric", "diagnostic"):
            made.options[key.name] = (node, item.span)
        else:
            contracts.bound_is_a_static_number.refuse(
                key.span, form=form.head, key=key.name, value=contracts.AsWritten(item.span.text)
            )
    return made


def _pairs(form: Group, rest: Sequence[Form]) -> list[tuple[Keyword, Form]]:
    pairs = []
    for i in range(0, len(rest), 2):
        key = rest[i]
        if not isinstance(key, Keyword):
            contracts.metadata_is_pairs.refuse(key.span, form=form.head, what=f"{key.span.text[:30]} is not a keyword")
        if i + 1 == len(rest):
            contracts.metadata_is_pairs.refuse(key.span, form=form.head, what=f"keyword :{key.name} has no value")
        pairs.append((key, rest[i + 1]))
    return pairs


def check_place(form: str, context: str | None, bounds: Sequence[str], span: Span) -> None:
    """Rules 017 to 019 of a form, where the context is known: lexically, or while walking.

    bounds:  those that the form has, `below` or `above`
    """
    if context == "tap-gradient":
        contracts.a_tap_holds_diagnostics_only(span, form=form)
    if form in ("guard", "assert-finite"):
        contracts.guard_has_a_step(span, form=form, context=context)
    elif bounds and not (form == "diagnostic" and context == "generator"):
        contracts.guard_has_a_step(span, form=f":{bounds[0]}", context=context)
    contracts.these_contexts_report_nothing(span, form=form, context=context)


def _check_walk(report: Report, frame: Any) -> None:
    """The same rules while walking: a helper function is met wherever it is called from."""
    contracts.reporting_stands_in_a_graph(report.span, form=report.form, context=frame.context)
    bounds = [b for b in report.options if b in BOUNDS]
    check_place(report.form, frame.context, bounds, report.span)


def _guard(
    report: Report, name: str, metadata: Metadata, operand: Any, bound: tuple[str, float] | None = None
) -> Guard:
    form, at = (f":{bound[0]}", bound[1]) if bound else (report.form, None)
    return Guard(form, name, metadata, report.span, "", operand=operand, bound=at)


@special_form("guard", '(guard "name" count :key value …)')
def guard(form: Group, scope: Scope) -> Node:
    """Counts `count`, a numeric scalar, and gives it back."""
    report = _resolve_report(form, scope)

    def node(frame: Any, env: list[Any]) -> Any:
        name = report.name_of(frame, env)
        _check_walk(report, frame)
        count = report.value(frame, env)
        contracts.count_is_a_number(report.value_span, name=name, count=count, text=report.value_span.text)
        frame.tally(_guard(report, name, report.metadata_of(frame, env), count), count)
        return count

    return node


@special_form("assert-finite", '(assert-finite "name" x :key value …)')
def assert_finite(form: Group, scope: Scope) -> Node:
    """Counts the elements of `x` that are NaN or infinite as f32, and gives `x` back."""
    report = _resolve_report(form, scope)
    site = CallSite(form.span, "", {})

    def node(frame: Any, env: list[Any]) -> Any:
        name = report.name_of(frame, env)
        _check_walk(report, frame)
        x = report.value(frame, env)
        contracts.counts_take_the_right_operand(report.value_span, form="assert-finite", operand=x)
        metadata = report.metadata_of(frame, env)
        with frame.unrounded():
            tested = 0.0 if isinstance(x, int) else x  # an integer never counts, however long
            count = frame.apply(PRIMITIVES["count-nonfinite"], [_as_array(frame, tested)], {}, site)
        frame.tally(_guard(report, name, metadata, x), count)
        return x

    return node


def _as_array(frame: Any, x: Any) -> Value:
    """A host number as the f32 that a test sees."""
    return x if isinstance(x, Value) else frame.emitter.constant(host.real(x), "f32")


@special_form("metric", '(metric "name" value :reduce :mean :below b :above a :key value …)')
def metric(form: Group, scope: Scope) -> Node:
    return _reporting(_resolve_report(form, scope))


@special_form("diagnostic", '(diagnostic "name" value :reduce :mean :below b :above a :key value …)')
def diagnostic(form: Group, scope: Scope) -> Node:
    return _reporting(_resolve_report(form, scope))


def _reporting(report: Report) -> Node:
    def node(frame: Any, env: list[Any]) -> Any:
        name = report.name_of(frame, env)
        _check_walk(report, frame)
        value = report.value(frame, env)
        contracts.value_is_a_numeric_scalar(report.value_span, form=report.form, name=name, value=value)
        metadata = report.metadata_of(frame, env)
        reduce = _reduce_of(report, name, frame, env)
        bounds = _bounds_of(report, frame, env)
        _check_one_kind(report, name, reduce, frame)
        if report.form == "diagnostic" and not frame.runs_diagnostic(name, report.span):
            return value
        frame.report(Series(report.form, name, metadata, reduce, report.span, ""), value)
        for bound in bounds:
            with frame.unrounded():
                test = PRIMITIVES[TEST[bound[0]]]
                count = frame.apply(test, [_as_array(frame, value)], {"bound": bound[1]}, CallSite(report.span, "", {}))
            frame.tally(_guard(report, name, metadata, value, bound), count)
        return value

    return node


def _reduce_of(report: Report, name: str, frame: Any, env: list[Any]) -> str:
    if "reduce" not in report.options:
        return "mean"
    node, span = report.options["reduce"]
    reduce = node(frame, env)
    contracts.reduce_is_known(span, form=report.form, name=name, reduce=reduce)
    return reduce.name  # type: ignore[no-any-return]  # the rule holds: it is a keyword


def _bounds_of(report: Report, frame: Any, env: list[Any]) -> list[tuple[str, float]]:
    """(`below` or `above`, the number) in the order written."""
    found = []
    for key, (node, span) in report.options.items():
        if key in BOUNDS:
            value = node(frame, env)
            contracts.bound_is_a_static_number(span, form=report.form, key=key, value=value, text=span.text)
            found.append((key, host.real(value)))
    return found


def _check_one_kind(report: Report, name: str, reduce: str, frame: Any) -> None:
    registry = getattr(frame, "registry", None)
    if registry is None:
        return
    kind, first, where = registry.kinds.setdefault(name, (report.form, reduce, report.span))
    contracts.one_name_one_kind(
        report.span, labels=(Label(where, "first written here"),),
        name=name, kind=report.form, reduce=reduce, first_kind=kind, first_reduce=first,
    )  # fmt: skip
