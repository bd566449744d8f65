"""The walk that records a graph; what it finds besides operations is its `Recording`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sxi import codes, contracts
from sxi.arraytype import ArrayType, fits
from sxi.calls import CallSite
from sxi.errors import Label
from sxi.frames import Frame, as_count, rebuilt
from sxi.grad import gradients
from sxi.graph import Graph, Op
from sxi.guards import Guard, GuardTable
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Value
from sxi.primitives.host import real
from sxi.series import Series, SeriesTable, matches
from sxi.source import Span
from sxi.suggest import did_you_mean, some_of
from sxi.values import Gradient, Instance, is_number, kind_of, written


@dataclass(slots=True, eq=False)
class Param:
    """A parameter as declared: its full name, its type, how it begins, where.

    uses:  how often one walk of the objective asks for it
    """

    name: str
    type: ArrayType
    init: Any
    span: Span
    calls: Sequence[tuple[str, Span]] = ()
    uses: int = 0


@dataclass(slots=True, eq=False)
class StateDecl:
    """An array kept from step to step."""

    name: str
    type: ArrayType
    init: Any
    span: Span
    calls: Sequence[tuple[str, Span]] = ()
    reduce: str = "mean"


@dataclass(slots=True, eq=False)
class Registry:
    """What all graphs of one program share: names that mean one thing everywhere.

    kinds:  metric or diagnostic name -> (kind, reduce, where it was first written)
    """

    params: dict[str, Param] = field(default_factory=dict)
    states: dict[str, StateDecl] = field(default_factory=dict)
    kinds: dict[str, tuple[str, str, Span]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Tap:
    """A value whose cotangent a lambda is to see, with where the lambda was written."""

    function: Any
    frame_state: tuple[Any, ...]
    span: Span
    number: str


@dataclass(slots=True, eq=False)
class Recording:
    """What the walk of a graph found besides its operations.

    guards, tallies:   the guard slots, and (slot, count) for each evaluation, f32[] values
    operands, calls:   for each evaluation what it looked at, an array, a host number or a count; the calls to it
    series:            metrics, and diagnostics that run
    diagnostics:       every diagnostic that stands in the graph: (name, selected, span)
    nexts:             state name -> the values given to it
    outputs:           output name -> (value, span)
    """

    guards: GuardTable = field(default_factory=GuardTable)
    tallies: list[tuple[int, Any]] = field(default_factory=list)
    operands: list[Any] = field(default_factory=list)
    calls: list[Sequence[tuple[str, Span]]] = field(default_factory=list)
    series: SeriesTable = field(default_factory=SeriesTable)
    diagnostics: dict[str, tuple[bool, Span]] = field(default_factory=dict)
    nexts: dict[str, list[Any]] = field(default_factory=dict)
    outputs: dict[str, tuple[Any, Span]] = field(default_factory=dict)
    taps: dict[int, Tap] = field(default_factory=dict)


def align(recordings: Sequence[Recording]) -> None:
    """Give the recordings of one pass the same guards, series and diagnostics, in the same order.

    A ragged last batch may have others than a full one: a form for each row.  What a batch does not have
    it reports no value of.
    """
    guards, series, diagnostics = GuardTable(), SeriesTable(), dict[str, tuple[bool, Span]]()
    for own in recordings:
        slots = [guards.slot(g) for g in own.guards.guards]
        own.tallies = [(slots[slot], count) for slot, count in own.tallies]
        series.series |= {key: s for key, s in own.series.series.items() if key not in series.series}
        diagnostics = {**own.diagnostics, **diagnostics}
    for own in recordings:
        own.guards, own.diagnostics = guards, diagnostics
        mine = own.series.series
        own.series = SeriesTable({key: mine.get(key) or replace(s, values=[]) for key, s in series.series.items()})


# Contexts in which no parameter is made, and those of them that are walked before any parameter is known.
MAKE_NONE = frozenset({"generator", "initializer", "optimizer", "prepare"})
UPSTREAM = frozenset({"generator", "initializer", "prepare"})
# Contexts in which nothing is reported.
REPORT_NOTHING = frozenset({None, "generator", "initializer", "curriculum"})


class Trace(Frame):
    """A walk that records a graph.

    registry:    what the program's graphs share
    selected:    globs of the diagnostics that the run selects
    sampled:     whether this graph is for sampled steps
    param_name:  in an optimizer, the parameter that is updated; group: and its group
    """

    def __init__(
        self, graph: Graph, globals: list[Any], context: str | None, place: str, registry: Registry,
        recording: Recording, *, selected: Sequence[str] = (), sampled: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(graph, globals, context, place)
        self.graph, self.registry, self.recording = graph, registry, recording
        self.selected, self.sampled = selected, sampled
        self.param_name: str | None = None
        self.group: str | None = None
        self.on_total: Callable[..., Any] | None = None
        self.totals: dict[Any, Any] = {}

    def entering(self, context: str | None, place: str) -> Trace:
        """The frame of another context's body that is recorded into the same graph."""
        made = Trace(
            self.graph, self.globals, context, place, self.registry, self.recording,
            selected=self.selected, sampled=self.sampled,
        )  # fmt: skip
        made.training = self.training
        return made

    # Parameters and states

    def param(self, name: str, type: ArrayType | None, init: Any, site: CallSite) -> Any:
        """The parameter of that name, made where it is new and this context may make one."""
        if type is not None or self.context in UPSTREAM:
            contracts.parameters_are_made_by_the_model(
                site.span, form="param", context=self.context if self.context in MAKE_NONE else "objective"
            )
        full = self.full_name(name) if type is not None else name
        known = self.registry.params.get(full)
        if known is None:
            if type is None:
                names = list(self.registry.params)
                known_names = f"the parameters are {some_of(names)}" if names else "none is made before"
                raise codes.UNKNOWN_PARAMETER.at(
                    site.span, name=full, known=known_names, help=did_you_mean(full, names, '"{}"')
                )
            contracts.parameters_are_made_by_the_model(site.span, form=f"param {full}", context=self.context)
            known = Param(full, type, init, site.span, self.calls())
            self.registry.params[full] = known
        elif type is not None:
            self._check_same(known, type, init, site.span, "parameter")
        if self.context == "objective" and not self.sampled:
            known.uses += 1
        self.graph.span, self.graph.call = site.span, self.chain()
        if self.reading is not None:
            return self.graph.input("optimizer", f"{self.reading}/{full}", known.type)
        found = self.graph.input("param", full, known.type)
        return PRIMITIVES["stop-gradient"](found) if self.frozen else found

    def _check_same(self, known: Param | StateDecl, type: ArrayType, init: Any, span: Span, form: str) -> None:
        """Refuse a second declaration of a parameter or a state that is not like the first: contract 012."""
        # a pass of another batch may come to another initializer by the same form: it makes nothing
        same_init = self.context != "objective" or _init_identity(known.init) == _init_identity(init)
        if span == known.span and known.type == type and same_init:
            return
        # the same form, called from elsewhere, is told apart by the call
        by_call = known.span == span and known.calls
        first = (
            Label(known.calls[0][1], "first by this call") if by_call else Label(known.span, "first declared here"),
        )
        for what, a, b in (
            ("shape", known.type.shape, type.shape), ("type", known.type.dtype, type.dtype),
            ("initializer", _init_identity(known.init), _init_identity(init)),
        ):  # fmt: skip
            shown = (_init_text(known.init), _init_text(init)) if what == "initializer" else (known.type, type)
            if a != b:
                contracts.a_parameter_is_declared_alike.refuse(
                    span, labels=first, name=known.name, what=what, first=str(shown[0]), second=str(shown[1]), form=form
                )

    def state(self, name: str, type: ArrayType | None, init: Any, site: CallSite) -> Op:
        """The value that a state had before the step."""
        full = self.full_name(name)
        known = self.registry.states.get(full)
        if known is None:
            contracts.parameters_are_made_by_the_model(site.span, form=f"state {full}", context=self.context)
            assert type is not None
            known = self.registry.states[full] = StateDecl(full, type, init, site.span, self.calls())
        elif type is not None:
            self._check_same(known, type, init, site.span, "state")
        return self.graph.input("state", full, known.type)

    def next_state(self, name: str, value: Any, reduce: str, span: Span) -> Any:
        """Give a state its next value; in a pass it is read only."""
        full = self.full_name(name)
        known = self.registry.states.get(full)
        if known is None:
            names = list(self.registry.states)
            declared = f"the states are {some_of(names)}" if names else "none is declared before"
            help = did_you_mean(full, names, '"{}"') or f'declare it before: (state "{name}" shape :init zeros-init)'
            raise codes.UNKNOWN_STATE.at(span, name=full, known=declared, help=help)
        if not isinstance(value, Value) and not is_number(value):
            raise codes.WRONG_KIND.at(
                span, what=f"the next value of {full}", given=kind_of(value), wanted="an array or a number"
            )
        op = self.graph.adopt(value) if isinstance(value, Value) else self._number(value, known.type, span)
        reals = op.type.is_float and known.type.is_float
        if op.type.shape != known.type.shape or not (reals or op.dtype == known.type.dtype):
            contracts.a_parameter_is_declared_alike.refuse(
                span, labels=(Label(known.span, "the state is declared here"),), name=full, what="next value",
                first=str(known.type), second=str(op.type), form="state",
            )  # fmt: skip
        if self.training:  # a pass gives none
            given = self.recording.nexts.setdefault(full, [])
            if given and reduce != known.reduce:
                contracts.a_parameter_is_declared_alike.refuse(
                    span, name=full, what="reduce", first=f":{known.reduce}", second=f":{reduce}", form="state"
                )
            known.reduce = reduce
            given.append(PRIMITIVES["stop-gradient"](self.graph.cast(op, known.type.dtype)))
        return value

    def _number(self, value: int | float, like: ArrayType, span: Span) -> Op:
        """A host number as an array scalar, of the type of `like` where it is of that kind."""
        if isinstance(value, int) and like.dtype in ("i32", "i64"):
            if not fits(value, like.dtype):
                raise codes.DOES_NOT_FIT.at(span, value=value, dtype=like.dtype)
            return self.graph.constant(value, like.dtype)
        return self.graph.constant(real(value), "f64" if like.dtype == "f64" else "f32")

    def total(self, node: Any, env: list[Any], span: Span) -> Any:
        """The sum of a scalar over all parameters; the update's walk knows them."""
        assert self.on_total is not None
        return self.on_total(node, env, span)

    def step(self) -> Op:
        return self.graph.input("step", "step", ArrayType("i32"))

    # Reports

    def tally(self, guard: Guard, count: Any) -> None:
        """Count `count`, a scalar, into the slot of `guard`."""
        made = replace(guard, graph=self.place, calls=self.calls(), param=self.param_name, group=self.group)
        slot = self.recording.guards.slot(made)
        with self.unrounded():
            self.recording.tallies.append((slot, as_count(self.emitter, count)))
            operand = guard.operand
            self.recording.operands.append(self.graph.adopt(operand) if isinstance(operand, Value) else operand)
            self.recording.calls.append(made.calls)

    def report(self, series: Series, value: Any) -> None:
        series.graph, series.group = self.place, self.group
        self.recording.series.add(series, self.graph.adopt(value) if isinstance(value, Value) else value)

    def print(self, values: list[Any], span: Span) -> None:  # noqa: ARG002  # as every frame has it
        """Refused: what the walk would print has no numbers yet."""
        context = "function of a gradient" if self.context in (None, "prompt") else self.context
        contracts.graphs_do_nothing_to_the_host(span, form="print", context=context)

    def runs_diagnostic(self, name: str, span: Span) -> bool:
        """Whether a diagnostic of that name is computed in this graph."""
        selected = matches(self.selected, name)
        self.recording.diagnostics.setdefault(name, (selected, span))
        return selected and self.sampled and self.context != "generator"

    # Gradients

    def differentiate(
        self, f: Gradient, args: list[Any], keywords: dict[str, Any], span: Span, number: str, call: Any
    ) -> Any:
        """The gradient of a function by its first argument, recorded behind its value."""
        if not args:
            raise codes.WRONG_COUNT.at(span, name="a gradient function", wanted="at least 1 argument", given=0)
        leaves = [
            x if isinstance(x, Op) else self.graph.constant(real(x), "f32") if is_number(x) else self.graph.adopt(x)
            for x in self.leaves(args[0], span)
        ]
        self.graph.span, self.graph.call = span, self.chain()
        own = [PRIMITIVES["identity"](x) for x in leaves]
        first = rebuilt(args[0], iter(own)) if not is_number(args[0]) else own[0]
        value = call(self, f.function, [first, *args[1:]], keywords, span, number)
        self._check_scalar(value, span)
        if is_number(value):
            grads: list[Any] = [PRIMITIVES["zeros-like"](x) for x in own]
        else:
            grads = gradients(self.graph, value, own, on_tap=lambda op, g: self.walk_tap(op, g, call))
        made = rebuilt(args[0], iter(grads)) if not is_number(args[0]) else grads[0]
        return [value, made] if f.with_value else made

    def _check_scalar(self, value: Any, span: Span) -> None:
        scalar = is_number(value) or (isinstance(value, Op) and value.shape == () and value.type.is_float)
        if not scalar:
            raise codes.WRONG_KIND.at(
                span,
                what="the value of the function that is differentiated",
                given=kind_of(value),
                wanted="a scalar of reals",
            )

    def state_for_tap(self) -> tuple[Any, ...]:
        return self.chain(), self.scope, self.training

    def walk_tap(self, op: Op, g: Op, call: Any) -> None:
        """Give the cotangent `g` that flows through a tap to its lambda."""
        tap = self.recording.taps[op.static["tap"]]
        # where nothing may report, a tap may not either: it stays what it is in
        frame = self.entering(self.context if self.context in REPORT_NOTHING else "tap-gradient", self.place)
        frame.call, frame.scope, frame.training = tap.frame_state
        call(frame, tap.function, [g], {}, tap.span, tap.number)


def _init_identity(init: Any) -> Any:
    return init.identity if isinstance(init, Instance) else id(init)


def _init_text(init: Instance) -> str:
    """An initializer as it is written: with its keywords, where it was given any."""
    given = "".join([f" :{key} {written(value)}" for key, value in init.keywords.items()])
    return f"({init.name}{given})" if given else init.name
