"""The forms of any Lisp: definitions, functions, bindings, tests, folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sxi import codes, contracts
from sxi.errors import SxiError
from sxi.eval import (
    bindable,
    function_node,
    malformed,
    resolve,
    resolve_body,
    resolve_dropped,
    resolve_function,
    sequence,
    special_form,
)
from sxi.graph import Link
from sxi.names import Scope
from sxi.primitives.declare import Value
from sxi.reader import Form, Group, Keyword, Symbol, Text
from sxi.source import Span
from sxi.suggest import did_you_mean
from sxi.values import Cell, Key, Node, kind_of

# A longer form is left out of a repair, which is one line.
LONGEST_REPAIR = 60


def operands(form: Group, least: int, most: int | None = None) -> list[Form]:
    """The forms behind the head, when there are as many as the form takes."""
    given = list(form.items[1:])
    if len(given) < least or (most is not None and len(given) > most):
        malformed(form, form.head, f"it takes {_count(least, most)}, not {len(given)}")
    return given


def _count(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} operand{'s' * (least != 1)} or more"
    return f"{least} operand{'s' * (least != 1)}" if least == most else f"{least} to {most} operands"


@special_form("define", "(define name e) or (define (f a :k default) body …)")
def define(form: Group, scope: Scope) -> Node:
    """A definition at the head of a body; at the top level `program.py` takes it apart."""
    target, *body = operands(form, 2)
    name_form = target.items[0] if isinstance(target, Group) and target.items else target
    name = bindable(name_form, form)
    found = scope.lookup(name)
    if not scope.is_bound_here(name) or not getattr(found, "in_cell", False):
        malformed(
            form, "define", "a definition stands at the top level or at the head of a body", help="(let ((name e)) …)"
        )
    slot = found.slot
    value = definition_value(form, name, target, body, scope)

    def node(frame: Any, env: list[Any]) -> Any:
        cell = Cell(name)
        # a function made before this definition has captured the cell that stood here
        env[slot] = cell = env[slot] if env[slot] is not None else cell
        cell.value = value(frame, env)
        cell.is_set = True
        return cell.value

    return node


def definition_value(form: Group, name: str, target: Form, body: Sequence[Form], scope: Scope) -> Node:
    """The node of what a `define` binds."""
    if isinstance(target, Group):
        parameters = Group("(", target.items[1:], target.span)
        made, _ = resolve_function(name, parameters, body, scope, form)
        return function_node(made)
    if len(body) == 2 and isinstance(body[1], Text):
        body = body[:1]
    if len(body) != 1:
        malformed(form, "define", "a name is defined as one expression")
    return resolve(body[0], scope)


@special_form("lambda", "(lambda (a :k default) body …)")
def lambda_(form: Group, scope: Scope) -> Node:
    parameters, *body = operands(form, 2)
    made, _ = resolve_function("lambda", parameters, body, scope, form)
    return function_node(made)


@special_form("begin", "(begin e …)")
def begin(form: Group, scope: Scope) -> Node:
    forms = operands(form, 1)
    nodes = [resolve(f, scope) if f is forms[-1] else resolve_dropped(f, scope) for f in forms]
    return sequence(nodes)


# Bindings


@special_form("let", "(let ((a e) (b e)) body …)")
def let(form: Group, scope: Scope) -> Node:
    bindings, *body = operands(form, 2)
    if isinstance(bindings, Group) and len(bindings.items) == 2 and isinstance(bindings.items[0], Symbol):
        shown = f"(let ({' '.join(bindings.span.text.split())}) …)"
        malformed(bindings, "let", "the bindings are a list of (name e)", help=shown)
    if not isinstance(bindings, Group) or bindings.bracket != "(":
        malformed(bindings, "let", "the bindings are a list of (name e)")
    steps: list[Node] = []
    opened = 0
    for binding in bindings.items:
        if not isinstance(binding, Group) or binding.bracket != "(" or len(binding.items) != 2:
            malformed(binding, "let", "a binding is (name e)")
        value = resolve(binding.items[1], scope)
        scope.push()  # a later binding may take the same name again
        opened += 1
        steps.append(pattern(binding.items[0], form, scope, value))
    inner = resolve_body(body, scope, form, "let")
    for _ in range(opened):
        scope.pop()

    def node(frame: Any, env: list[Any]) -> Any:
        for step in steps:
            step(frame, env)
        return inner(frame, env)

    return node


def pattern(form: Form, owner: Group, scope: Scope, value: Node) -> Node:
    """The node that binds a name, or takes a list or a record apart."""
    if isinstance(form, Symbol):
        slot = scope.bind(bindable(form, owner), form.span)

        def bind(frame: Any, env: list[Any]) -> None:
            env[slot] = value(frame, env)

        return bind
    if not isinstance(form, Group) or not form.items:
        malformed(form, owner.head, f"expected a name, a list of names or a record of names, not {form.span.text[:30]}")
    return (_record_pattern if form.bracket == "{" else _list_pattern)(form, owner, scope, value)


def _list_pattern(form: Group, owner: Group, scope: Scope, value: Node) -> Node:
    slot = scope.bind(f" list {form.span.start}")
    parts = [pattern(f, owner, scope, _element(slot, i)) for i, f in enumerate(form.items)]
    count, span = len(parts), form.span

    def node(frame: Any, env: list[Any]) -> None:
        found = value(frame, env)
        if not isinstance(found, list) or len(found) != count:
            given = f"a list of {len(found)}" if isinstance(found, list) else kind_of(found)
            raise codes.WRONG_KIND.at(span, what="what is taken apart", given=given, wanted=f"a list of {count}")
        env[slot] = found
        for part in parts:
            part(frame, env)

    return node


def _element(slot: int, i: int) -> Node:
    return lambda frame, env: env[slot][i]


def _record_pattern(form: Group, owner: Group, scope: Scope, value: Node) -> Node:
    if len(form.items) % 2 or not all([isinstance(k, Keyword) for k in form.items[::2]]):
        malformed(form, owner.head, "a record is taken apart by keyword and name, in pairs", help="{:x x :y y}")
    slot = scope.bind(f" record {form.span.start}")
    names = [k.name for k in form.items[::2] if isinstance(k, Keyword)]
    parts = [pattern(f, owner, scope, _field(slot, n)) for n, f in zip(names, form.items[1::2], strict=True)]
    span = form.span

    def node(frame: Any, env: list[Any]) -> None:
        found = value(frame, env)
        if not isinstance(found, dict):
            raise codes.WRONG_KIND.at(span, what="what is taken apart", given=kind_of(found), wanted="a record")
        for name in names:
            if name not in found:
                raise codes.NO_SUCH_KEY.at(span, key=name)
        env[slot] = found
        for part in parts:
            part(frame, env)

    return node


def _field(slot: int, name: str) -> Node:
    return lambda frame, env: env[slot][name]


# Tests: host values only, in a graph and at the prompt alike.


def _static_test(test: Node, form: Form, name: str) -> Node:
    span = form.span

    def node(frame: Any, env: list[Any]) -> Any:
        value = test(frame, env)
        _refuse_array(value, span, name, None)
        return value

    return node


def _refuse_array(value: Any, span: Span, name: str, repair: str | None) -> None:
    """Refuse to branch on an array: contract 009."""
    if isinstance(value, Value):
        contracts.branches_are_static(span, form=name, test=value.type, label=str(value.type), help=repair)


def holds(value: Any) -> bool:
    """Only `false` and `nil` are false."""
    return value is not None and value is not False


@special_form("if", "(if test a b)")
def if_(form: Group, scope: Scope) -> Node:
    test_form, then_form, else_form = operands(form, 3, 3)
    chosen = f"(where {' '.join([' '.join(f.span.text.split()) for f in form.items[1:]])})"
    repair = f"choose by an array: {chosen}" if len(chosen) <= LONGEST_REPAIR else None
    test = resolve(test_form, scope)
    then, other = resolve(then_form, scope), resolve(else_form, scope)

    def node(frame: Any, env: list[Any]) -> Any:
        value = test(frame, env)
        if value is True:
            return then(frame, env)
        if value is False or value is None:
            return other(frame, env)
        _refuse_array(value, test_form.span, "if", repair)
        return then(frame, env)

    return node


@special_form("when", "(when test e …)")
def when(form: Group, scope: Scope) -> Node:
    test_form, *body = operands(form, 2)
    test = _static_test(resolve(test_form, scope), test_form, "when")
    inner = resolve_body(body, scope, form, "when")
    return lambda frame, env: inner(frame, env) if holds(test(frame, env)) else None


@special_form("cond", "(cond (test e …) … (else e …))")
def cond(form: Group, scope: Scope) -> Node:
    clauses = operands(form, 1)
    branches: list[tuple[Node, Node]] = []
    for clause in clauses:
        if not isinstance(clause, Group) or clause.bracket != "(" or len(clause.items) < 2:
            malformed(clause, "cond", "a clause is (test e …)")
        first = clause.items[0]
        is_else = isinstance(first, Symbol) and first.name == "else"
        if is_else and clause is not clauses[-1]:
            malformed(clause, "cond", "else is the last clause", help="")
        _refuse_near_else(first, scope)
        test = (lambda frame, env: True) if is_else else _static_test(resolve(first, scope), first, "cond")
        branches.append((test, resolve_body(clause.items[1:], scope, clause, "cond")))

    def node(frame: Any, env: list[Any]) -> Any:
        for test, inner in branches:
            if holds(test(frame, env)):
                return inner(frame, env)
        return None

    return node


def _refuse_near_else(test: Form, scope: Scope) -> None:
    """`else` is no name, so what is unknown as one is compared with it here."""
    if isinstance(test, Symbol) and scope.lookup(test.name) is None:
        near = did_you_mean(test.name, ["else"])
        if near:
            raise codes.UNKNOWN_NAME.at(test.span, name=test.name, help=near)


@special_form("and", "(and e …)")
def and_(form: Group, scope: Scope) -> Node:
    nodes = [_static_test(resolve(f, scope), f, "and") for f in form.items[1:]]

    def node(frame: Any, env: list[Any]) -> Any:
        value: Any = True
        for n in nodes:
            value = n(frame, env)
            if not holds(value):
                return value
        return value

    return node


@special_form("or", "(or e …)")
def or_(form: Group, scope: Scope) -> Node:
    nodes = [_static_test(resolve(f, scope), f, "or") for f in form.items[1:]]

    def node(frame: Any, env: list[Any]) -> Any:
        value: Any = False
        for n in nodes:
            value = n(frame, env)
            if holds(value):
                return value
        return value

    return node


@special_form("not", "(not e)")
def not_(form: Group, scope: Scope) -> Node:
    (operand,) = operands(form, 1, 1)
    test = _static_test(resolve(operand, scope), operand, "not")
    return lambda frame, env: not holds(test(frame, env))


# Repetition and threading


@special_form("fold", "(fold (acc e) (i items) body …)")
def fold(form: Group, scope: Scope) -> Node:
    start, over, *body = operands(form, 3)
    for part, what in ((start, "(acc e)"), (over, "(i items)")):
        if not isinstance(part, Group) or part.bracket != "(" or len(part.items) != 2:
            malformed(part, "fold", f"expected {what}")
    assert isinstance(start, Group)
    assert isinstance(over, Group)
    first, items = resolve(start.items[1], scope), resolve(over.items[1], scope)
    items_span, number = over.items[1].span, scope.number("fold")
    scope.push()
    carried, bind = _loop_variable(start.items[0], form, scope, "fold")
    item, bind_item = _loop_variable(over.items[0], form, scope, "item")
    inner = resolve_body(body, scope, form, "fold")
    scope.pop()
    binders = [b for b in (bind, bind_item) if b is not None]

    def node(frame: Any, env: list[Any]) -> Any:
        value = first(frame, env)
        turns = items(frame, env)
        if not isinstance(turns, list):
            raise codes.WRONG_KIND.at(items_span, what="what a fold goes over", given=kind_of(turns), wanted="a list")
        outer = frame.chain()
        within = Link(outer, number, "", None)
        try:
            for i, x in enumerate(turns):
                frame.call, frame.turn = within, i
                env[carried], env[item] = value, x
                for b in binders:
                    b(frame, env)
                value = inner(frame, env)
        except SxiError as error:
            _say_too_large(error, form.span, len(turns))
            raise
        frame.call, frame.turn = outer, None
        return value

    return node


def _say_too_large(error: SxiError, span: Span, turns: int) -> None:
    """Say of the innermost fold that made a graph too large that it did."""
    if error.code == codes.GRAPH_TOO_LARGE.code and not error.label:
        error.span, error.label = span, f"unrolled: {turns:,} turns"


def _loop_variable(form: Form, owner: Group, scope: Scope, what: str) -> tuple[int, Node | None]:
    """The slot that a fold puts a value into, and what takes it apart where it is a pattern."""
    if isinstance(form, Symbol):
        return scope.bind(bindable(form, owner), form.span), None
    slot = scope.bind(f" {what} {form.span.start}")
    return slot, pattern(form, owner, scope, lambda frame, env: env[slot])


@special_form("->", "(-> x (f a) g …)")
def thread(form: Group, scope: Scope) -> Node:
    """`(-> x (f a) g)` is `(g (f x a))`; each call keeps the place where it is written."""
    first, *rest = operands(form, 1)
    made = first
    for f in rest:
        if isinstance(f, Group) and f.bracket == "(" and f.items:
            made = Group("(", (f.items[0], made, *f.items[1:]), f.span)
        elif isinstance(f, Symbol | Keyword):
            made = Group("(", (f, made), f.span)
        else:
            malformed(f, "->", "each step is a function or a call")
    return resolve(made, scope)


@special_form("print", "(print e …)")
def print_(form: Group, scope: Scope) -> Node:
    nodes = [resolve(f, scope) for f in operands(form, 1)]
    span = form.span

    def node(frame: Any, env: list[Any]) -> Any:
        frame.print([n(frame, env) for n in nodes], span)

    return node


def static_key(form: Form, owner: Group) -> str:
    """The name of a keyword operand."""
    if not isinstance(form, Keyword):
        malformed(form, owner.head, "expected a keyword and its value, in pairs")
    return form.name


def keyword_pairs(forms: Sequence[Form], owner: Group) -> list[tuple[Keyword, Form]]:
    """The `:key value` operands that end a form, each keyword once."""
    pairs: list[tuple[Keyword, Form]] = []
    for i in range(0, len(forms), 2):
        key = forms[i]
        if not isinstance(key, Keyword):
            help = f"did you mean :{key.name}?" if isinstance(key, Symbol) else None
            malformed(key, owner.head, f"expected a keyword, not {key.span.text[:30]}", help=help)
        if i + 1 == len(forms):
            malformed(key, owner.head, f":{key.name} has no value")
        if any([k.name == key.name for k, _ in pairs]):
            malformed(key, owner.head, f":{key.name} is given twice", help="")
        pairs.append((key, forms[i + 1]))
    return pairs


def text_of(value: Any) -> Any:
    """A string or a keyword's name."""
    return value.name if isinstance(value, Key) else value
