"""The tree walk: a form is resolved once to a node, and a node is walked in a frame.

Resolving places names, validates the shape of special forms and numbers calls; walking asks the frame
for all that depends on the kind of walk (`frames.py`).  A special form is one function of `forms/`,
entered in `FORMS`.

Nested calls must not grow Python's C stack: a node is a plain closure and evaluates its operands in
list comprehensions, never through `map`, `sum` or a generator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

from sxi import codes
from sxi.calls import LONGEST_CALL_SHOWN, bind_call, infix_repair, primitive_call, unknown_keyword
from sxi.codes import Refusal
from sxi.errors import Label, SxiError
from sxi.graph import Link
from sxi.names import Module, Scope, Variable, dropped_reports, report_identity
from sxi.primitives.declare import Primitive, Value
from sxi.reader import Form, Group, Keyword, Number, Quote, Symbol, Text
from sxi.source import Span
from sxi.suggest import INSTEAD, did_you_mean
from sxi.values import Body, Builtin, Definition, FormValue, Function, Gradient, Instance, Key, Node, kind_of

Env: TypeAlias = list[Any]
SpecialForm: TypeAlias = Callable[[Group, Scope], Node]

FORMS: dict[str, SpecialForm] = {}
USAGE: dict[str, str] = {}
# Names of constants; no definition may take them.
CONSTANTS: dict[str, Any] = {
    "true": True, "false": False, "on": True, "off": False, "nil": None,
    "inf": float("inf"), "-inf": float("-inf"), "nan": float("nan"), "pi": 3.141592653589793,
}  # fmt: skip
MOST_CALLS = 10_000


def special_form(name: str, usage: str) -> Callable[[SpecialForm], SpecialForm]:
    """Enter a special form; `usage` is how it is written."""

    def entry(resolver: SpecialForm) -> SpecialForm:
        FORMS[name] = resolver
        USAGE[name] = usage
        return resolver

    return entry


def malformed(form: Form, name: str, what: str, help: str | None = None) -> NoReturn:
    """Refuse the operand `form` of the special form `name`."""
    shown = USAGE.get(name)
    raise codes.MALFORMED.at(form.span, form=name, what=what, help=help if help is not None else shown or "")


# Resolving


def resolve(form: Form, scope: Scope) -> Node:
    """The node of `form`.  Raises an SxiError where the form means nothing."""
    match form:
        case Number(value) | Text(value):
            return lambda frame, env: value
        case Keyword(name):
            key = Key(name)
            return lambda frame, env: key
        case Symbol(name):
            return resolve_symbol(name, form.span, scope)
        case Quote(quoted):
            made = FormValue(quoted)
            return lambda frame, env: made
        case Group(bracket="["):
            nodes = [resolve(f, scope) for f in form.items]
            return lambda frame, env: [node(frame, env) for node in nodes]
        case Group(bracket="{"):
            return _resolve_record(form, scope)
        case Group(items=()):
            malformed(form, "()", "there is nothing to call", help="nil is the empty value, [] the empty list")
        case Group():
            if id(form) in scope.dropped:
                with scope.numbered_apart(report_identity(form)):
                    return FORMS[form.head](form, scope)
            return FORMS[form.head](form, scope) if form.head in FORMS else _resolve_call(form, scope)
    raise AssertionError(form)


def resolve_symbol(name: str, span: Span, scope: Scope) -> Node:
    """The node that reads a name."""
    if name in CONSTANTS:
        constant = CONSTANTS[name]
        return lambda frame, env: constant
    found = scope.lookup(name)
    if isinstance(found, Variable):
        slot = found.slot
        if not found.in_cell:
            return lambda frame, env: env[slot]
        return _cell_reader(slot, name, span)
    if isinstance(found, int):
        scope.module.mentions.globals.append((found, span))
        return _global_reader(found, name, span, scope.module.own.get(name))
    if found is not None:
        return lambda frame, env: found
    if name in FORMS:
        malformed(Symbol(name, span), name, "a special form is not a value", help=f"write {USAGE[name]}")
    known = [*scope.visible_names(), *FORMS, *CONSTANTS]
    repair = INSTEAD.get(name) or _as_a_call(name, scope) or did_you_mean(name, known)
    raise codes.UNKNOWN_NAME.at(span, name=name, help=repair)


def _as_a_call(name: str, scope: Scope) -> str:
    """How `x.f`, of a name that is bound, is written: a call of a function, or a field of a record."""
    owner, dot, part = name.rpartition(".")
    if not dot or not part or scope.lookup(owner) is None:
        return ""
    return f"write ({part if scope.lookup(part) is not None else f':{part}'} {owner})"


def _cell_reader(slot: int, name: str, span: Span) -> Node:
    def node(frame: Any, env: Env) -> Any:
        cell = env[slot]
        if not cell.is_set:
            raise codes.USED_BEFORE.at(span, name=name)
        return cell.value

    return node


def _global_reader(index: int, name: str, span: Span, defined: tuple[int, Span] | None) -> Node:
    def node(frame: Any, env: Env) -> Any:
        value = frame.globals[index]
        if value is UNSET:
            labels = (Label(defined[1], "defined here"),) if defined else ()
            raise codes.USED_BEFORE.at(span, name=name, labels=labels)
        return value

    return node


UNSET = Module.UNSET


def _resolve_record(form: Group, scope: Scope) -> Node:
    if len(form.items) % 2:
        malformed(form.items[-1], "{}", "a record is keyword and value, in pairs", help="{:x 1 :y 2}")
    names: list[str] = []
    nodes: list[Node] = []
    for key, value in zip(form.items[::2], form.items[1::2], strict=True):
        if not isinstance(key, Keyword):
            meant = key.name.rstrip(":") if isinstance(key, Symbol) else ""
            help = f"{{:{meant} …}}" if meant else "{:x 1 :y 2}"
            malformed(key, "{}", "a record's key is a keyword", help=help)
        if key.name in names:
            malformed(key, "{}", f":{key.name} is given twice", help="")
        names.append(key.name)
        nodes.append(resolve(value, scope))
    return lambda frame, env: dict(zip(names, [node(frame, env) for node in nodes], strict=True))


def split_arguments(
    items: Sequence[Form], takes: frozenset[str] | None
) -> tuple[list[Form], list[tuple[Keyword, Form]]]:
    """Positional arguments, then keyword ones: a run of keyword and value to the end.

    takes:  the keywords of a builtin that is known; another keyword is then a positional value, as
            in `(get record :x 0)`
    """
    for i, item in enumerate(items):
        if not isinstance(item, Keyword) or (takes is not None and item.name not in takes):
            continue
        rest = items[i:]
        if len(rest) % 2 == 0 and all([isinstance(k, Keyword) for k in rest[::2]]):
            pairs = [(k, v) for k, v in zip(rest[::2], rest[1::2], strict=True) if isinstance(k, Keyword)]
            return list(items[:i]), pairs
    return list(items), []


def _resolve_call(form: Group, scope: Scope) -> Node:
    head, *arguments = form.items
    if isinstance(head, Keyword):
        return _resolve_field(head, arguments, form, scope)
    known = scope.lookup(head.name) if isinstance(head, Symbol) and head.name not in CONSTANTS else None
    if isinstance(known, Primitive):
        # what is compared may be a keyword
        takes = frozenset[str]() if known.name in ("=", "/=") else None
        return primitive_call(known, form, split_arguments(arguments, takes), scope, resolve)
    takes = frozenset(known.keywords) if isinstance(known, Builtin) and "*" not in known.keywords else None
    positional, pairs = split_arguments(arguments, takes)
    name = head.name if isinstance(head, Symbol) else "lambda"
    function = resolve(head, scope)
    number = scope.number(name)
    nodes = [resolve(f, scope) for f in positional]
    keywords = [(k.name, resolve(v, scope)) for k, v in pairs]
    spans = [f.span for f in positional], {k.name: k.span for k, _ in pairs}
    for i, (key, _) in enumerate(pairs):
        if key.name in [k.name for k, _ in pairs[:i]]:
            malformed(key, name, f":{key.name} is given twice", help="")
    span, head_span = form.span, head.span
    only = nodes[0] if len(nodes) == 1 else None

    def node(frame: Any, env: Env) -> Any:
        f = function(frame, env)
        args = [only(frame, env)] if only is not None else [n(frame, env) for n in nodes]
        given = {k: n(frame, env) for k, n in keywords} if keywords else {}
        if type(f) is Function:
            return call_function(frame, f, args, given, span, number, spans[1])
        try:
            return call_value(frame, f, args, given, span, number, head_span, spans)
        except SxiError as error:
            if error.span is head_span:
                error.help = infix_repair(form) or error.help
            raise

    return node


def _resolve_field(head: Keyword, arguments: list[Form], form: Group, scope: Scope) -> Node:
    """`(:x record)`: a field of a record."""
    if len(arguments) != 1:
        raise codes.WRONG_COUNT.at(form.span, name=f":{head.name}", wanted="one record", given=len(arguments))
    record, name, at = resolve(arguments[0], scope), head.name, arguments[0].span

    def node(frame: Any, env: Env) -> Any:
        value = record(frame, env)
        if not isinstance(value, dict):
            raise codes.WRONG_KIND.at(at, what=f"the operand of :{name}", given=kind_of(value), wanted="a record")
        if name not in value:
            raise no_such_key(name, value, head.span)
        return value[name]

    return node


def no_such_key(name: str, record: dict[str, Any], span: Span) -> SxiError:
    """The error of a field that is not there; names those that are."""
    known = [f":{k}" for k in list(record)[:8]]
    more = " …" if len(record) > len(known) else ""
    note = f"it has {' '.join(known)}{more}" if known else "it is empty"
    return codes.NO_SUCH_KEY.at(span, key=name, help=did_you_mean(name, record, ":{}"), notes=(note,))


def resolve_body(forms: Sequence[Form], scope: Scope, owner: Form, name: str) -> Node:
    """The node of a body: local definitions at its head, then forms, of which the last is the value."""
    if not forms:
        malformed(owner, name, "the body is empty")
    defines = [f for f in forms if isinstance(f, Group) and f.head == "define"]
    if defines and list(forms[: len(defines)]) != defines:
        late = next(f for i, f in enumerate(forms) if f in defines and forms[i - 1] not in defines and i)
        malformed(late, "define", "local definitions stand at the head of a body", help="")
    if len(defines) == len(forms):
        malformed(forms[-1], name, "the body ends in a definition and has no value", help="")
    scope.push()
    scope.declare_cells(defines, lambda f, what: malformed(f, "define", what))
    nodes = [resolve(f, scope) if f is forms[-1] else resolve_dropped(f, scope) for f in forms]
    scope.pop()
    return sequence(nodes)


def resolve_dropped(form: Form, scope: Scope) -> Node:
    """A form whose value is not used.

    The calls in a report are numbered apart then, so that adding or removing it changes no draw.
    """
    scope.dropped.update({id(f): f for f in dropped_reports(form)})
    return resolve(form, scope)


def sequence(nodes: list[Node]) -> Node:
    """The node that walks `nodes` in order, of the value of the last."""
    if len(nodes) == 1:
        return nodes[0]

    def node(frame: Any, env: Env) -> Any:
        value = None
        for n in nodes:
            value = n(frame, env)
        return value

    return node


# Calling


def call_function(
    frame: Any, f: Function, args: list[Any], keywords: dict[str, Any], span: Span, number: str,
    keys: dict[str, Span] | None = None,
) -> Any:  # fmt: skip
    """The value of a function of the program, called at `span`.

    number:  the call's segment in the places of draws; "" for the body of a graph, which nothing calls
    keys:    where its keywords are written
    """
    body = f.body
    if len(args) != body.arity:
        raise _wrong_count(f, args, span)
    if body.keywords or keywords:
        _check_keywords(f, keywords, span, keys or {})
    env = [*args, *body.locals, *f.captured]
    outer, outer_scope = frame.call if frame.turn is None else frame.chain(), frame.scope
    if number:
        frame.call = Link(outer, number, f.name, span)
    frame.depth += 1
    if frame.depth > MOST_CALLS:
        raise codes.TOO_DEEP.at(span, limit=f"{MOST_CALLS:,}")
    if f.model is not None:
        frame.scope = (f.model,)
    try:
        if body.keywords or keywords:
            _bind_keywords(frame, f, keywords, env)
        value = body.node(frame, env)
    except SxiError as error:
        if number:
            error.chain.append((f.name, span))
        raise
    except RecursionError:
        raise codes.TOO_DEEP.at(span, limit=f"{MOST_CALLS:,}") from None
    frame.depth -= 1
    frame.call, frame.scope = outer, outer_scope
    return value


def _wrong_count(f: Function, args: list[Any], span: Span) -> SxiError:
    """The error of a call with too few or too many operands."""
    arity = f.body.arity
    misplaced = [x.name for x in args if isinstance(x, Key) and x.name in f.body.keywords]
    return codes.WRONG_COUNT.at(
        span, name=f.name, wanted=f"{arity} argument{'s' * (arity != 1)}" if arity else "no positional argument",
        given=len(args), notes=(f"it is written {usage_of(f)}",),
        help=f":{misplaced[0]} and its value come last" if misplaced else "",
    )  # fmt: skip


def _check_keywords(f: Function, given: dict[str, Any], span: Span, keys: dict[str, Span]) -> None:
    """Refuse a keyword that `f` does not take, and the lack of one that it needs."""
    takes = f.body.keywords
    for name in given:
        if name not in takes:
            raise unknown_keyword(keys.get(name, span), f.name, name, takes, usage_of(f))
    for name, (_, default) in takes.items():
        if default is None and name not in given:
            raise missing_keyword(f, name, span)


def _bind_keywords(frame: Any, f: Function, given: dict[str, Any], env: Env) -> None:
    for name, (slot, default) in f.body.keywords.items():
        if name in given:
            env[slot] = given[name]
        elif default is not None:
            env[slot] = default(frame, env)


def missing_keyword(f: Any, name: str, span: Span) -> SxiError:
    """The error of a call without a keyword that has no default."""
    return codes.MISSING_KEYWORD.at(span, name=f.name, keyword=name, notes=(f"it is written {usage_of(f)}",))


def usage_of(f: Any) -> str:
    """How a call of `f` is written."""
    if isinstance(f, Function):
        return f"({f.name}{' ' if f.body.parameters else ''}{f.body.parameters})"
    if isinstance(f, Primitive | Builtin):
        return f.usage
    if isinstance(f, Definition):
        keywords = f.function.body.parameters.split(" ", 2 if f.kind == "optimizer" else 1)
        return f"({f.name} {keywords[-1]})"
    return kind_of(f)


Spans: TypeAlias = tuple[Sequence[Span], dict[str, Span]]


def call_value(
    frame: Any, f: Any, args: list[Any], keywords: dict[str, Any], span: Span, number: str,
    head: Span | None = None, spans: Spans | None = None,
) -> Any:  # fmt: skip
    """The value of any callable: a function, a primitive, a builtin, an optimizer, a gradient, a keyword."""
    if isinstance(f, Function):
        return call_function(frame, f, args, keywords, span, number)
    if isinstance(f, Builtin):
        return _call_builtin(frame, f, args, keywords, span, number, spans)
    if isinstance(f, Primitive):
        return bind_call(frame, f, args, keywords, span, number, spans)
    if isinstance(f, Definition):
        return _instantiate(f, args, keywords, span, spans)
    if isinstance(f, Gradient):
        return frame.differentiate(f, args, keywords, span, number, call_value)
    if isinstance(f, Key) and len(args) == 1 and isinstance(args[0], dict) and not keywords:
        if f.name not in args[0]:
            raise no_such_key(f.name, args[0], span)
        return args[0][f.name]
    raise codes.NOT_A_FUNCTION.at(head or span, given=kind_of(f), help=_as_an_element(f, args))


def _as_an_element(f: Any, args: list[Any]) -> str:
    """How an element is taken of what was called as if it were a function."""
    if not args:
        return ""
    if isinstance(f, Value):
        return "of an array: (at x i)"
    if isinstance(f, list):
        return "of a list: (nth list i)"
    return "of a record: (:key record)" if isinstance(f, dict) else ""


def _call_builtin(
    frame: Any, f: Builtin, args: list[Any], keywords: dict[str, Any], span: Span, number: str, spans: Spans | None
) -> Any:
    if len(args) < f.least or (f.most is not None and len(args) > f.most):
        raise codes.WRONG_COUNT.at(
            span, name=f.name, wanted=counted(f.least, f.most), given=len(args), notes=(f"it is written {f.usage}",)
        )
    for name in keywords:
        if name not in f.keywords and "*" not in f.keywords:
            raise unknown_keyword((spans[1] if spans else {}).get(name, span), f.name, name, f.keywords, f.usage)
    outer = frame.chain()
    frame.call = Link(outer, number, "", None)
    places = spans[0] if spans else [span] * len(args)
    try:
        # a call of starred arguments would nest on the C stack
        if f.takes_spans:
            value = f.call(frame, args, keywords, span, places)
        else:
            value = f.call(frame, args, keywords, span)
    except Refusal as refusal:
        error = refusal.error()
        error.span = places[refusal.operand] if isinstance(refusal.operand, int) else span
        raise error from None
    frame.call = outer
    return value


def counted(least: int, most: int | None) -> str:
    """How many arguments, in words."""
    if most is None:
        return f"at least {least} argument{'s' * (least != 1)}"
    if least == most:
        return f"{least} argument{'s' * (least != 1)}"
    return f"{least} to {most} arguments"


def _instantiate(f: Definition, args: list[Any], keywords: dict[str, Any], span: Span, spans: Spans | None) -> Instance:
    """An optimizer, initializer or evaluation with its keywords; defaults are evaluated where it is used."""
    if args:
        raise codes.WRONG_COUNT.at(
            span, name=f.name, wanted="keywords only", given=f"{len(args)} positional", help=usage_of(f)
        )
    at = spans[1] if spans else {}
    takes = list(f.takes if f.takes is not None else f.function.body.keywords)
    for name in keywords:
        if name not in takes:
            raise unknown_keyword(at.get(name, span), f.name, name, takes)
    for name, (_, default) in f.function.body.keywords.items():
        if default is None and name not in keywords:
            raise missing_keyword(f, name, span)
    return Instance(f, keywords, span, at)


@contextmanager
def turn(frame: Any, number: int) -> Iterator[None]:
    """One turn of a fold or a map, a segment of the place of the draws in it."""
    outer = frame.chain()
    frame.turn = number
    yield
    frame.call, frame.turn = outer, None


# Functions from their forms


def resolve_function(
    name: str, parameters: Form, body: Sequence[Form], scope: Scope, owner: Group, context: str | None = None
) -> tuple[Body, Scope]:
    """A function's body; what it captures is found in `scope` when the function is made."""
    if not isinstance(parameters, Group) or parameters.bracket != "(":
        shown = f"({parameters.span.text[1:-1]})" if isinstance(parameters, Group) else f"({parameters.span.text})"
        what = "the parameters are a list of names in parentheses"
        malformed(parameters, owner.head, what, help=f"write {shown}" if len(shown) <= LONGEST_CALL_SHOWN else None)
    inner = Scope(scope, scope.module, context or scope.context)
    made = Body(name, owner.span, 0)
    items = list(parameters.items)
    while items and isinstance(items[0], Symbol):
        parameter = items.pop(0)
        inner.bind(bindable(parameter, owner), parameter.span)
        made.arity += 1
    while items:
        key = items.pop(0)
        if not isinstance(key, Keyword):
            malformed(key, owner.head, "after the first keyword come keywords and their defaults")
        if not items:
            malformed(key, owner.head, f":{key.name} has no default", help="write :k default, or :k required")
        default = items.pop(0)
        required = isinstance(default, Symbol) and default.name == "required"
        # a default may use the parameters before it
        node = None if required else resolve(default, inner)
        # a keyword may have the name of a form, as :total has: it is read as a name, never called
        made.keywords[key.name] = (inner.bind(key.name, key.span), node)
    doc, body = docstring(body)
    made.node = resolve_body(body, inner, owner, owner.head)
    made.last_span = body[-1].span
    made.locals = [None] * (inner.size - made.arity)
    made.captures, made.doc = inner.captures_last_first(), doc
    made.parameters = " ".join([i.span.text for i in parameters.items])
    return made, inner


def docstring(body: Sequence[Form]) -> tuple[str, Sequence[Form]]:
    """The text that heads a body of more than one form, and the rest."""
    if len(body) > 1 and isinstance(body[0], Text):
        return body[0].value, body[1:]
    return "", body


def bindable(form: Form, owner: Form) -> str:
    """The name of a symbol that may be bound: not a special form and not a constant."""
    head = owner.head if isinstance(owner, Group) else ""
    if not isinstance(form, Symbol):
        malformed(form, head, f"expected a name, not {form.span.text[:30]}")
    if form.name in FORMS or form.name in CONSTANTS or form.name == "else":
        malformed(form, head, f"{form.name} is a name of the language and cannot be bound", help="")
    return form.name


def function_node(body: Body, model: str | None = None) -> Node:
    """The node that makes the function, capturing what it needs now."""
    captures = body.captures
    return lambda frame, env: Function(body, tuple([env[i] for i in captures]), model)
