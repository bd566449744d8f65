"""The declarations whose bodies are graphs: models, generators, initializers, the objective, passes, optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sxi import codes, contracts
from sxi.errors import Label
from sxi.eval import malformed, resolve_function
from sxi.forms.core import operands
from sxi.forms.declare import Step, World, declaration, name_of
from sxi.names import Scope
from sxi.reader import Form, Group, Keyword, Symbol, Text
from sxi.values import (
    Body,
    Definition,
    Function,
    Generator,
)

PASS_OPTIONS = ("data", "split", "batch", "every", "examples")


def _function(form: Group, scope: Scope, context: str, named: bool, arity: int | None) -> tuple[str, Body]:
    """(form NAME (a b) body …) or, nameless, (form (batch) body …)."""
    parts = operands(form, 3 if named else 2)
    name = name_of(form) if named else form.head
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


def _refuse_second(first: Function | None, form: Group) -> None:
    """Refuse what a file has one of, where it has one already."""
    if first is not None:
        contracts.run_options_are_consistent.refuse(
            form.span, what=f"the file has a second {form.head}", labels=(Label(first.body.span, "the first"),),
            help="take one of the two out",
        )  # fmt: skip


@declaration("prepare", "(prepare (batch) body …)")
def prepare(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, body = _function(form, scope, "prepare", False, 1)

    def step(world: World) -> Any:
        _refuse_second(world.declared.prepare, form)
        world.declared.prepare = Function(body)

    return None, step


@declaration("objective", "(objective (batch) body …)")
def objective(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, body = _function(form, scope, "objective", False, 1)

    def step(world: World) -> Any:
        _refuse_second(world.declared.objective, form)
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
    name = name_of(form)
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
    if "/" in name:  # it is saved as `name/parameter`, and a parameter's name may hold a / too
        malformed(
            form, "optimizer", f"the name of the state {name} holds a /", help=f"name it {name.replace('/', '-')}"
        )
    return OptimizerState(name, bound, first)


def _with_states(parameters: Form, states: list[OptimizerState]) -> Form:
    """The parameters with the states behind them: a state's first value may use what stands before."""
    if not isinstance(parameters, Group):
        return parameters
    extra: list[Form] = []
    for s in states:
        extra += [Keyword(s.bound, s.first.span), s.first]
    return Group(parameters.bracket, (*parameters.items, *extra), parameters.span)
