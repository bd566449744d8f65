"""The declarations of a file: what a top-level form adds to the program, and the plainest of them.

A declaration resolves one top-level form to a step that is performed, in the order of the file, each time the
program is evaluated.  Those of data, of graphs and of the run have files of their own beside this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sxi import codes
from sxi.calls import unknown_keyword
from sxi.eval import FORMS, USAGE, bindable, malformed, resolve
from sxi.forms.core import definition_value, keyword_pairs, operands
from sxi.forms.graph import refuse_declaration
from sxi.names import Scope
from sxi.primitives.host import real
from sxi.reader import Form, Group, Symbol, Text
from sxi.show import printed
from sxi.source import Span
from sxi.values import (
    DataRecord,
    Definition,
    Function,
    Generator,
    Node,
    is_number,
    is_static,
    kind_of,
    written,
)


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
    """One stage of the curriculum.

    settings:  what `:set` gives: name -> (value, where its name is, where its value is)
    """

    name: Node
    name_span: Span
    until: Node | None
    settings: dict[str, tuple[Node, Span, Span]]
    span: Span
    scope: Scope
    until_span: Span | None = None


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
    # (define (f a) …); another form that is written so is refused for that, and its name is known all the same
    if isinstance(target, Group) and target.bracket == "(" and target.items:
        target = target.items[0]
    if isinstance(target, Symbol):
        bindable(target, form)
        return target.name, target.span
    return None


NAMELESS = frozenset({"prepare", "objective", "curriculum", "import", "run", "print"})


def name_of(form: Group) -> str:
    """The name that a declaration gives."""
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
        if not isinstance(f, Text):
            malformed(f, "setting", ":doc is a text, written out")
        doc = f.value

    def step(world: World) -> Any:
        found = value(world.frame, [None] * scope.size)
        if not is_static(found):
            raise codes.WRONG_SETTING.at(e.span, name=name, what=f"it is {kind_of(found)}, and a setting is a constant")
        world.declared.settings[name] = Setting(name, found, form.span, doc)
        if name in world.overrides:
            return overridden(name, found, world.overrides[name], form.span)
        return found

    return name, step


def overridden(name: str, value: Any, given: Any, span: Span) -> Any:
    """`given` in place of a setting's `value`, which must be of the same kind."""
    if isinstance(value, float) and is_number(given):
        return real(given)
    same = (
        (is_number(value) and isinstance(given, int) and not isinstance(given, bool))
        or (isinstance(value, bool) and isinstance(given, bool))
        or (value is None)
        or (type(value) is type(given) and not isinstance(value, int | float))
    )
    if not same:
        what = f"{written(given)} is not of the kind of {written(value)}"
        raise codes.WRONG_SETTING.at(span, name=name, what=what, help=f"give {_wanted(value, given)}")
    return given


def _wanted(value: Any, given: Any) -> str:
    """What may override a setting's `value`, in words."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int) and isinstance(given, float):
        return f"a whole number, or make the setting a real: {value}.0"
    if isinstance(value, str):
        return f'a string, as "{written(given)}"'
    kinds = ((int, "a whole number"), (float, "a number"), (list, "a list"), (dict, "a record"))
    return next((kind for type, kind in kinds if isinstance(value, type)), "a keyword, as :name")


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
    return lambda world: node(world.frame, [None] * scope.size)
