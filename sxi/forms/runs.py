"""What is run: the options of a run, its groups, the stages of the curriculum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sxi import codes, contracts
from sxi.builtins import builtin
from sxi.calls import parts_of, unknown_keyword
from sxi.eval import malformed, missing_keyword, resolve
from sxi.forms.core import keyword_pairs, operands
from sxi.forms.declare import RunForm, Stage, Step, World, declaration, name_of
from sxi.names import Scope
from sxi.reader import Form, Group, Keyword, Symbol
from sxi.source import Span
from sxi.values import (
    Definition,
    Instance,
    Node,
    kind_of,
)
from sxi.values import Group as ParamGroup


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
                made.until, made.until_span = resolve(e, inner), e.span
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


def _stage_settings(form: Form, scope: Scope) -> dict[str, tuple[Node, Span, Span]]:
    if not isinstance(form, Group) or form.bracket != "{":
        malformed(form, "stage", ":set takes a record of settings, {:rate 1e-4}")
    return {k.name: (resolve(v, scope), k.span, v.span) for k, v in keyword_pairs(form.items, form)}


@declaration("run", "(run NAME option …)")
def run(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, *rest = operands(form, 1)
    name = name_of(form)
    options = {}
    parts: dict[str, list[Span]] = {}
    for i in range(0, len(rest), 2):
        key = rest[i]
        if not isinstance(key, Keyword):
            help = f"did you mean :{key.name}?" if isinstance(key, Symbol) else None
            malformed(key, "run", f"expected an option, not {key.span.text[:30]}", help=help)
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
