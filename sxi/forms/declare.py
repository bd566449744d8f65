"""The declarations of a file: what a top-level form adds to the program.

`declare(form, scope, ...)` resolves one top-level form to a step that is performed, in the order of the
file, each time the program is evaluated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sxi import codes, contracts, data
from sxi.arraytype import ArrayType
from sxi.builtins import builtin
from sxi.calls import parts_of, unknown_keyword
from sxi.eager import EagerArray, EagerEmitter
from sxi.eval import FORMS, USAGE, bindable, malformed, missing_keyword, resolve, resolve_function, run_body
from sxi.forms.core import definition_value, keyword_pairs, operands
from sxi.forms.graph import refuse_declaration
from sxi.names import Scope
from sxi.reader import Form, Group, Keyword, Symbol, Text
from sxi.show import printed
from sxi.source import Span
from sxi.suggest import did_you_mean
from sxi.values import (
    Body,
    DataRecord,
    Definition,
    Function,
    Generator,
    Instance,
    Key,
    Node,
    is_number,
    is_static,
    kind_of,
    plain,
    written,
)  # fmt: skip
from sxi.values import Group as ParamGroup

SOURCES = ("npz", "npy", "csv", "safetensors", "text")
PASS_OPTIONS = ("data", "split", "batch", "every", "examples")


@dataclass(slots=True, eq=False)
class Setting:
    """A value that `--set` and a stage may override.

    value:  what the file gives; given: what overrides it, or None
    """

    name: str
    value: Any
    span: Span
    doc: str = ""


@dataclass(slots=True, eq=False)
class Stage:
    """One stage of the curriculum."""

    name: Node
    name_span: Span
    until: Node | None
    settings: dict[str, tuple[Node, Span]]
    span: Span
    scope: Scope


@dataclass(slots=True, eq=False)
class RunForm:
    """`(run NAME option …)`: the options as resolved.

    size:   of the environment they are evaluated in
    parts:  option -> where the elements of its value are, if it is written as a list
    """

    name: str
    options: dict[str, tuple[Node, Span, Span]]
    span: Span
    size: int = 0
    parts: dict[str, list[Span]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Declared:
    """What a file declares besides names: filled by performing its steps."""

    settings: dict[str, Setting] = field(default_factory=dict)
    data: dict[str, DataRecord] = field(default_factory=dict)
    functions: dict[str, list[tuple[str, Function, Span]]] = field(default_factory=dict)
    prepare: Function | None = None
    objective: Function | None = None
    evaluations: dict[str, Definition] = field(default_factory=dict)
    definitions: dict[str, Definition] = field(default_factory=dict)
    generators: dict[str, Generator] = field(default_factory=dict)
    models: dict[str, Function] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    curriculum: Span | None = None
    runs: list[RunForm] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class World:
    """What a step of the file may use while it is performed.

    overrides:  settings given from outside
    files:      data that was loaded before, by what was asked for
    working:    the folder that a file's path is relative to, "" for the process's own
    """

    frame: Any
    declared: Declared
    overrides: dict[str, Any]
    files: dict[Any, Any]
    working: str = ""


Step = Callable[[World], Any]
Declare = Callable[[Group, Scope], tuple[str | None, Step]]
DECLARATIONS: dict[str, Declare] = {}


def declaration(name: str, usage: str) -> Callable[[Declare], Declare]:
    """Enter a top-level form: a function to the name it defines and the step that defines it."""

    def entry(resolver: Declare) -> Declare:
        DECLARATIONS[name] = resolver
        USAGE[name] = usage
        if name not in FORMS:
            FORMS[name] = refuse_declaration
        return resolver

    return entry


def defined_name(form: Form) -> tuple[str, Span] | None:
    """The name that a top-level form defines, as far as it can be seen without resolving it."""
    if not isinstance(form, Group) or form.head not in DECLARATIONS or form.head in NAMELESS or len(form.items) < 2:
        return None
    target = form.items[1]
    if form.head == "define" and isinstance(target, Group) and target.bracket == "(" and target.items:
        target = target.items[0]
    if isinstance(target, Symbol):
        bindable(target, form)
        return target.name, target.span
    return None


NAMELESS = frozenset({"prepare", "objective", "curriculum", "import", "run", "print"})


def _name(form: Group) -> str:
    name = form.items[1] if len(form.items) > 1 else form
    return bindable(name, form)


@declaration("define", "(define name e) or (define (f a b :k default) body …)")
def define(form: Group, scope: Scope) -> tuple[str | None, Step]:
    target, *body = operands(form, 2)
    name = bindable(target.items[0] if isinstance(target, Group) and target.items else target, form)
    value = definition_value(form, name, target, body, scope)

    def step(world: World) -> Any:
        return value(world.frame, [None] * scope.size)

    return name, step


@declaration("setting", '(setting name e :doc "…")')
def setting(form: Group, scope: Scope) -> tuple[str | None, Step]:
    target, e, *rest = operands(form, 2)
    name = bindable(target, form)
    value = resolve(e, scope)
    doc = ""
    for key, f in keyword_pairs(rest, form):
        if key.name != "doc":
            raise unknown_keyword(key.span, "setting", key.name, ("doc",), USAGE["setting"])
        doc = resolve(f, scope)(None, [])

    def step(world: World) -> Any:
        found = value(world.frame, [None] * scope.size)
        if not is_static(found):
            raise codes.WRONG_SETTING.at(e.span, name=name, what=f"it is {kind_of(found)}, and a setting is a constant")
        world.declared.settings[name] = Setting(name, found, form.span, str(doc))
        if name in world.overrides:
            return overridden(name, found, world.overrides[name], form.span)
        return found

    return name, step


def overridden(name: str, value: Any, given: Any, span: Span) -> Any:
    """`given` in place of a setting's `value`, which must be of the same kind."""
    if isinstance(value, float) and is_number(given):
        return float(given)
    same = (
        (is_number(value) and isinstance(given, int) and not isinstance(given, bool))
        or (isinstance(value, bool) and isinstance(given, bool))
        or (value is None)
        or (type(value) is type(given) and not isinstance(value, int | float))
    )
    if not same:
        what = f"{written(given)} is not of the kind of {written(value)}"
        raise codes.WRONG_SETTING.at(span, name=name, what=what)
    return given


# Data


@declaration("data", '(data NAME (npz "f.npz") :split {:train 0.8 :held-out 0.2})')
def data_(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, source, *rest = operands(form, 2)
    name = _name(form)
    if not isinstance(source, Group) or source.head not in SOURCES:
        head = source.head if isinstance(source, Group) else ""
        near = did_you_mean(head, SOURCES, "({} …)") or None
        malformed(source, "data", f"a source is one of {', '.join([f'({s} …)' for s in SOURCES])}", help=near)
    positional = [f for f in source.items[1:2] if not isinstance(f, Keyword)]
    if not positional:
        malformed(source, "data", f"({source.head} …) needs the path of its file")
    path = resolve(positional[0], scope)
    options = {k.name: (resolve(v, scope), v.span) for k, v in keyword_pairs(source.items[2:], source)}
    keys = {k.name: k.span for k, _ in keyword_pairs(source.items[2:], source)}
    for key, span in keys.items():
        if key not in ("columns", "dtype"):
            raise unknown_keyword(span, source.head, key, ("columns", "dtype"))
    split = None
    for key_form, f in keyword_pairs(rest, form):
        if key_form.name != "split":
            raise unknown_keyword(key_form.span, "data", key_form.name, ("split",), USAGE["data"])
        split = resolve(f, scope), f.span
    own = _DataForm(name, source.head, path, positional[0].span, options, split, source.span, scope)
    return name, own.perform


@dataclass(slots=True, eq=False)
class _DataForm:
    name: str
    kind: str
    path: Node
    path_span: Span
    options: dict[str, tuple[Node, Span]]
    split: tuple[Node, Span] | None
    span: Span
    scope: Scope

    def perform(self, world: World) -> DataRecord:
        env: list[Any] = [None] * self.scope.size
        files = self._files(self.path(world.frame, env))
        given = {k: plain(node(world.frame, env)) for k, (node, _) in self.options.items()}
        columns, dtype = self._options(given)
        base = os.path.join(world.working, os.path.dirname(self.span.source.path))
        key = (self.kind, repr(files), base, repr(columns), repr(dtype))
        if key not in world.files:
            world.files[key] = data.load(
                self.kind, files, base, self.span, columns=columns, dtype=dtype,
                spans={"path": self.path_span, **{k: span for k, (_, span) in self.options.items()}},
            )  # fmt: skip
        found = world.files[key]
        held = {n: c for n, c in found.items() if isinstance(c, data.Column)}
        fields = {n: ColumnArray(c, world.frame.emitter) if n in held else c for n, c in found.items()}
        record = DataRecord(self.name, fields, held, {}, self.span)
        if self.split is not None:
            record.splits = self._splits(record, self.split[0](world.frame, env), self.split[1])
        world.declared.data[self.name] = record
        return record

    def _files(self, value: Any) -> str | dict[str, str]:
        if isinstance(value, str) and self.kind != "npy":
            return value
        if (
            self.kind == "npy"
            and isinstance(value, dict)
            and value
            and all([isinstance(v, str) for v in value.values()])
        ):
            return value
        wanted = 'a record of paths, {:x "x.npy"}' if self.kind == "npy" else "a path, a string"
        raise codes.WRONG_KIND.at(self.path_span, what=f"the file of {self.kind}", given=kind_of(value), wanted=wanted)

    def _options(self, given: dict[str, Any]) -> tuple[list[str] | None, dict[str, str] | None]:
        columns, dtype = given.get("columns"), given.get("dtype")
        if columns is not None and not (isinstance(columns, list) and all([isinstance(c, str) for c in columns])):
            raise codes.WRONG_KIND.at(
                self.options["columns"][1], what=":columns", given=kind_of(columns), wanted="a list of names"
            )
        if dtype is not None and not (isinstance(dtype, dict) and all([isinstance(d, str) for d in dtype.values()])):
            raise codes.WRONG_KIND.at(
                self.options["dtype"][1], what=":dtype", given=kind_of(dtype), wanted="a record of types, {:x :f64}"
            )
        names = None if columns is None else [c.removeprefix(":") for c in columns]
        return names, None if dtype is None else {k: v.removeprefix(":") for k, v in dtype.items()}

    def _splits(self, record: DataRecord, fractions: Any, span: Span) -> dict[str, Any]:
        if not isinstance(fractions, dict) or not all([is_number(v) for v in fractions.values()]):
            raise codes.WRONG_KIND.at(
                span,
                what=":split",
                given=kind_of(fractions),
                wanted="a record of fractions, {:train 0.8 :held-out 0.2}",
            )
        return data.split(rows_of(record, span), fractions, span)


def rows_of(record: DataRecord, span: Span) -> int:
    """How many examples the data has.  Raises E-CONTRACT-014 where its arrays differ in that."""
    sizes = data.leading_sizes(record.columns)
    contracts.leading_sizes_agree(span, name=record.name, sizes=sizes)
    if not sizes:
        raise codes.DATA_EMPTY.at(span)
    return next(iter(sizes.values())) or 0


class ColumnArray(EagerArray):
    """A whole column as an array of the language, read when it is first used."""

    __slots__ = ("_read", "column")

    def __init__(self, column: data.Column, emitter: EagerEmitter) -> None:
        self.column = column
        self._read: Any = None
        self.type: ArrayType = column.type
        self.emitter = emitter

    @property
    def data(self) -> Any:
        if self._read is None:
            self._read = self.column.whole()
        return self._read


@builtin("part", "(part NAME :train)", 2, 2)
def part(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The record of a split's arrays."""
    record, key = args
    if not isinstance(record, DataRecord):
        raise codes.WRONG_KIND.at(span, what="the operand of part", given=kind_of(record), wanted="data")
    name = key.name if isinstance(key, Key) else None
    if name not in record.splits:
        known = " ".join([f":{s}" for s in record.splits]) or "none"
        raise codes.NO_SUCH_KEY.at(
            span,
            key=name or written(key),
            help=did_you_mean(name or "", record.splits, ":{}"),
            notes=(f"the splits of {record.name}: {known}",),
        )
    rows = record.splits[name]
    emitter = next(iter(record.values())).emitter
    return {
        n: EagerArray(ArrayType(c.type.dtype, (len(rows), *c.type.shape[1:])), emitter, c.rows(rows))
        for n, c in record.columns.items()
    }


# Functions of a context


def _function(form: Group, scope: Scope, context: str, named: bool, arity: int | None) -> tuple[str, Body]:
    """(form NAME (a b) body …) or, nameless, (form (batch) body …)."""
    parts = operands(form, 3 if named else 2)
    name = _name(form) if named else form.head
    parameters, *body = parts[1:] if named else parts
    made, _ = resolve_function(name, parameters, body, scope, form, context)
    if arity is not None and made.arity != arity:
        malformed(parameters, form.head, f"it takes {arity} parameter{'s' * (arity != 1)}, not {made.arity}")
    if made.keywords and form.head in ("prepare", "objective", "evaluate", "generator"):
        malformed(parameters, form.head, "it takes no keywords")
    return name, made


@declaration("model", "(model NAME (a b) body …)")
def model(form: Group, scope: Scope) -> tuple[str | None, Step]:
    name, body = _function(form, scope, "model", True, None)

    def step(world: World) -> Any:
        made = Function(body, (), name)
        world.declared.models[name] = made
        return made

    return name, step


@declaration("generator", "(generator NAME (n) body …)")
def generator(form: Group, scope: Scope) -> tuple[str | None, Step]:
    name, body = _function(form, scope, "generator", True, 1)

    def step(world: World) -> Any:
        made = Generator(Function(body), form.span)
        world.declared.generators[name] = made
        return made

    return name, step


@declaration("initializer", "(initializer NAME (shape :k default …) body …)")
def initializer(form: Group, scope: Scope) -> tuple[str | None, Step]:
    name, body = _function(form, scope, "initializer", True, 1)

    def step(world: World) -> Any:
        made = Definition("initializer", Function(body), form.span)
        world.declared.definitions[name] = made
        return made

    return name, step


@declaration("prepare", "(prepare (batch) body …)")
def prepare(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, body = _function(form, scope, "prepare", False, 1)

    def step(world: World) -> Any:
        if world.declared.prepare is not None:
            contracts.run_options_are_consistent.refuse(form.span, what="the file has a second prepare", help="")
        world.declared.prepare = Function(body)

    return None, step


@declaration("objective", "(objective (batch) body …)")
def objective(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, body = _function(form, scope, "objective", False, 1)

    def step(world: World) -> Any:
        if world.declared.objective is not None:
            contracts.run_options_are_consistent.refuse(form.span, what="the file has a second objective", help="")
        world.declared.objective = Function(body)

    return None, step


@declaration("evaluate", "(evaluate NAME (batch) body …)")
def evaluate(form: Group, scope: Scope) -> tuple[str | None, Step]:
    name, body = _function(form, scope, "evaluate", True, 1)

    def step(world: World) -> Any:
        made = Definition("evaluate", Function(body), form.span, takes=PASS_OPTIONS)
        world.declared.evaluations[name] = made
        return made

    return name, step


@declaration("optimizer", "(optimizer NAME (p g :k default …) :state ((m e) …) body …)")
def optimizer(form: Group, scope: Scope) -> tuple[str | None, Step]:
    parts = operands(form, 3)
    name = _name(form)
    states: list[OptimizerState] = []
    body = parts[2:]
    doc: list[Form] = []
    if len(body) > 1 and not isinstance(body[0], Keyword) and isinstance(body[1], Keyword):
        doc, body = [body[0]], body[1:]
    if isinstance(body[0], Keyword):
        states = _states(form, body[0], body[1:2])
        body = [*doc, *body[2:]]
    made, _ = resolve_function(name, _with_states(parts[1], states), body, scope, form, "optimizer")
    if made.arity != 2:
        malformed(parts[1], "optimizer", f"it takes a parameter and its gradient, (p g …), not {made.arity}")
    made.parameters = " ".join([f.span.text for f in parts[1].items]) if isinstance(parts[1], Group) else ""
    own = tuple([k for k in made.keywords if k not in [s.bound for s in states]])
    spans = {s.name: s.first.span for s in states}
    bound = {s.name: s.bound for s in states}

    def step(world: World) -> Any:
        definition = Definition("optimizer", Function(made), form.span, states=spans, takes=own, bound=bound)
        world.declared.definitions[name] = definition
        return definition

    return name, step


@dataclass(frozen=True, slots=True)
class OptimizerState:
    """A state of an optimizer as written, `(m e)`, or `(average e :as "ema")`.

    name:   what `update`, `reading` and a checkpoint call it; bound: what the body calls it
    first:  its first value
    """

    name: str
    bound: str
    first: Form


def _states(form: Group, key: Keyword, given: list[Form]) -> list[OptimizerState]:
    if key.name != "state" or not given:
        malformed(key, "optimizer", "before the body stands :state ((m e) …) or nothing")
    group = given[0]
    if not isinstance(group, Group) or group.bracket != "(":
        malformed(group, "optimizer", "the states are a list of (name e)")
    states: list[OptimizerState] = []
    for f in group.items:
        made = _state(f)
        if made.name in [s.name for s in states]:
            raise codes.DEFINED_TWICE.at(f.span, name=f"state {made.name}")
        states.append(made)
    return states


def _state(form: Form) -> OptimizerState:
    match form:
        case Group(items=(Symbol(bound), first)):
            name = bound
        case Group(items=(Symbol(bound), first, Keyword("as"), Text(name))):
            contracts.name_is_valid(form.items[3].span, form="state", name=name)
        case _:
            malformed(form, "optimizer", 'a state is (name e), or (name e :as "saved-name")')
    return OptimizerState(name, bound, first)


def _with_states(parameters: Form, states: list[OptimizerState]) -> Form:
    """The parameters with the states behind them: a state's first value may use what stands before."""
    if not isinstance(parameters, Group):
        return parameters
    extra: list[Form] = []
    for s in states:
        extra += [Keyword(s.bound, s.first.span), s.first]
    return Group(parameters.bracket, (*parameters.items, *extra), parameters.span)


# The curriculum and the run


@declaration("curriculum", '(curriculum (stage "name" :until test :set {…}) …)')
def curriculum(form: Group, scope: Scope) -> tuple[str | None, Step]:
    stages = []
    for f in operands(form, 1):
        if not isinstance(f, Group) or f.head != "stage" or len(f.items) < 2:
            malformed(f, "curriculum", 'it is made of stages, (stage "name" :until test :set {…})')
        inner = Scope(scope, scope.module, "curriculum")
        made = Stage(resolve(f.items[1], inner), f.items[1].span, None, {}, f.span, inner)
        for key, e in keyword_pairs(f.items[2:], f):
            if key.name == "until":
                made.until = resolve(e, inner)
            elif key.name == "set":
                made.settings = _stage_settings(e, inner)
            else:
                raise unknown_keyword(key.span, "stage", key.name, ("until", "set"))
        stages.append(made)

    def step(world: World) -> Any:
        if world.declared.curriculum is not None:
            contracts.run_options_are_consistent.refuse(form.span, what="the file has a second curriculum", help="")
        world.declared.curriculum, world.declared.stages = form.span, stages

    return None, step


def _stage_settings(form: Form, scope: Scope) -> dict[str, tuple[Node, Span]]:
    if not isinstance(form, Group) or form.bracket != "{":
        malformed(form, "stage", ":set takes a record of settings, {:rate 1e-4}")
    return {k.name: (resolve(v, scope), k.span) for k, v in keyword_pairs(form.items, form)}


@declaration("run", "(run NAME option …)")
def run(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, *rest = operands(form, 1)
    name = _name(form)
    options = {}
    parts: dict[str, list[Span]] = {}
    for i in range(0, len(rest), 2):
        key = rest[i]
        if not isinstance(key, Keyword):
            malformed(key, "run", f"expected an option, not {key.span.text[:30]}")
        if i + 1 == len(rest):
            malformed(key, "run", f":{key.name} has no value")
        if key.name in options:
            contracts.run_options_are_consistent.refuse(rest[i + 1].span, what=f":{key.name} is given twice", help="")
        value = _pairs(rest[i + 1]) if key.name == "start-from" else rest[i + 1]
        options[key.name] = (resolve(value, scope), key.span, value.span)
        parts[key.name] = parts_of(value)

    def step(world: World) -> Any:
        world.declared.runs.append(RunForm(name, options, form.span, scope.size, parts))

    return None, step


def _pairs(form: Form) -> Form:
    """`[("glob" "path") …]` with each pair as the list that it stands for."""
    if not isinstance(form, Group) or form.bracket != "[":
        return form
    pairs = [replace(f, bracket="[") if isinstance(f, Group) and not f.head else f for f in form.items]
    return replace(form, items=tuple(pairs))


@declaration("import", '(import "file.sx")')
def import_(form: Group, scope: Scope) -> tuple[str | None, Step]:
    """The loader has read the file already: its names are in scope."""
    return None, lambda world: None


@declaration("print", "(print e …)")
def print_(form: Group, scope: Scope) -> tuple[str | None, Step]:
    nodes = [resolve(f, scope) for f in operands(form, 1)]

    def step(world: World) -> Any:
        values = [node(world.frame, [None] * scope.size) for node in nodes]
        world.declared.printed.append(" ".join([printed(v) for v in values]))

    return None, step


def expression(form: Form, scope: Scope) -> Step:
    """A top-level form that is no declaration: evaluated for its errors."""
    node = resolve(form, scope)
    return lambda world: run_body(world.frame, [node], [None] * scope.size)


@builtin("group", '(group "name" "glob" optimizer)', 3, 3, takes_spans=True)
def group(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span, places: Sequence[Span]) -> Any:
    """The parameters whose names the glob matches, and the optimizer that updates them."""
    name, glob, optimizer = args
    contracts.name_is_valid(places[0], form="group", name=name)
    if not isinstance(glob, str):
        raise codes.WRONG_KIND.at(places[1], what="the glob of group", given=kind_of(glob), wanted="a string")
    return ParamGroup(name, glob, optimizer_of(optimizer, places[2]), places[1])


def optimizer_of(value: Any, span: Span) -> Instance:
    """An optimizer with its keywords."""
    if isinstance(value, Definition) and value.kind == "optimizer":
        required = [k for k, (_, default) in value.function.body.keywords.items() if default is None]
        if required:
            raise missing_keyword(value, required[0], span)
        return Instance(value, {}, span)
    if isinstance(value, Instance) and value.definition.kind == "optimizer":
        return value
    raise codes.WRONG_KIND.at(
        span, what="the optimizer", given=kind_of(value), wanted="an optimizer, as (adamw :lr 1e-3)"
    )
