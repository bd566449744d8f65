"""Calling a primitive: its operands taken by its signature, its refusals given their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from sxi import codes, contracts
from sxi.arithmetic import quick_call
from sxi.arraytype import CARRIERS
from sxi.codes import Refusal
from sxi.errors import Label, SxiError
from sxi.names import Scope
from sxi.primitives.declare import REQUIRED, Param, Primitive, Value
from sxi.reader import Form, Group, Keyword, Symbol, read
from sxi.source import Source, Span
from sxi.suggest import did_you_mean
from sxi.values import Function, Key, Node, is_number, is_static, kind_of

LONGEST_CALL_SHOWN = 40
LONGEST_OPERAND_SHOWN = 12


class CallSite:
    """Where a primitive is called: spans for errors, the number for the place of its draws.

    spans:  parameter name -> span of its operand
    parts:  parameter name -> the spans of the elements of an operand that is written as a list
    """

    __slots__ = ("number", "parts", "span", "spans")

    def __init__(
        self, span: Span, number: str, spans: dict[str, Span], parts: dict[str, list[Span]] | None = None
    ) -> None:
        self.span, self.number, self.spans, self.parts = span, number, spans, parts or {}


def primitive_call(
    primitive: Primitive, form: Group, arguments: tuple[list[Form], list[tuple[Keyword, Form]]],
    scope: Scope, resolve: Callable[[Form, Scope], Node],
) -> Node:  # fmt: skip
    """The node of a call whose head is known to be `primitive`: bound by the signature now, once."""
    positional, pairs = arguments
    _check_keywords_last(primitive, positional)
    keywords = {}
    for key, value in pairs:  # before operands are counted: a keyword in an operand's place takes the next one along
        param = _keyword_param(primitive, key.name, key.span)
        if param.name in keywords:
            raise codes.MALFORMED.at(
                key.span, form=primitive.name, what=f":{key.name} is given twice", help=primitive.usage
            )
        keywords[param.name] = value
    check_counts(primitive, len(positional), form.span, _count_repair(primitive, form, positional))
    number = scope.number(primitive.name) if primitive.draws else ""
    bound = _by_position(primitive, positional)
    forms = {**{p.name: f for p, f in bound}, **keywords}
    parts = {n: parts_of(f) for n, f in forms.items()}
    parts |= {p.name: [f.span for q, f in bound if q is p] for p in primitive.arrays if p.many}
    spans = {n: f.span for n, f in forms.items()}
    site = CallSite(form.span, number, spans, parts)
    arrays: list[tuple[Param, Node | None]] = []
    statics: list[tuple[Param, Node]] = []
    fixed: dict[str, Any] = {}
    for param, f in bound:
        (arrays if param.kind == "array" else statics).append((param, resolve(f, scope)))
    for param in primitive.params:
        if not param.by_keyword:
            if param.name not in spans and param.default is not REQUIRED:
                fixed[param.python_name] = param.default
            continue
        node = resolve(keywords[param.name], scope) if param.name in keywords else None
        if param.kind == "array":
            arrays.append((param, node))
        elif node is not None:
            statics.append((param, node))
        else:
            fixed[param.python_name] = param.default
    if not statics and not fixed and not primitive.draws and all([n is not None and not p.listed for p, n in arrays]):
        nodes = [n for _, n in arrays if n is not None]
        return quick_call(primitive, [f for _, f in bound], nodes, site, scope) or _plain_call(primitive, nodes, site)
    return _full_call(primitive, arrays, statics, fixed, site)


def _plain_call(primitive: Primitive, nodes: list[Node], site: CallSite) -> Node:
    """A call with array operands only: the most frequent kind."""

    def node(frame: Any, env: list[Any]) -> Any:
        return frame.apply(primitive, [n(frame, env) for n in nodes], {}, site)

    return node


def _full_call(
    primitive: Primitive, arrays: list[tuple[Param, Node | None]], statics: list[tuple[Param, Node]],
    fixed: dict[str, Any], site: CallSite,
) -> Node:  # fmt: skip
    def node(frame: Any, env: list[Any]) -> Any:
        operands: list[Any] = []
        for param, n in arrays:
            value = n(frame, env) if n is not None else None
            if param.listed:
                operands.extend(_listed(primitive, param, value, site))
            else:
                operands.append(value)
        static = dict(fixed)
        for param, n in statics:
            static[param.python_name] = static_operand(primitive, param, n(frame, env), site)
        return frame.apply(primitive, operands, static, site)

    return node


def _by_position(primitive: Primitive, given: Sequence[Any]) -> list[tuple[Param, Any]]:
    """Each positional argument with the parameter it is for."""
    params = [p for p in primitive.params if not p.by_keyword]
    out = []
    for i, x in enumerate(given):
        out.append((params[min(i, len(params) - 1)], x))
    return out


OPERATORS = frozenset({"+", "-", "*", "/", "@", "<", "<=", ">", ">=", "=", "/="})


def infix_repair(form: Group) -> str:
    """How a call is written whose operator stands between its operands, as in `(a + b)`; "" where none does."""
    for i, item in enumerate(form.items[1:-1], 1):
        if isinstance(item, Symbol) and item.name in OPERATORS:
            left, right = form.items[i - 1], form.items[i + 1]
            shown = f"({item.name} {_short(left)} {_short(right)})"
            rest = len(form.items) - 3
            around = f"({_short(form.items[0])} {shown})" if rest == 1 and i == 2 else shown
            return f"an operator comes first: {around}"
    return ""


# What reduces one array -> what takes two.
_OF_TWO_ARRAYS = {"max": "maximum", "min": "minimum"}


def _count_repair(primitive: Primitive, form: Group, positional: Sequence[Form]) -> str:
    """How a call that has too many operands was probably meant."""
    takes = [p for p in primitive.params if not p.by_keyword]
    if len(positional) <= len(takes) or not takes or takes[-1].many:
        return ""
    infix = infix_repair(form)
    if infix:
        return infix
    texts = [_short(f) for f in positional]
    if primitive.name in _OF_TWO_ARRAYS:
        return f"elementwise of two arrays: ({_OF_TWO_ARRAYS[primitive.name]} {' '.join(texts)})"
    if takes[0].listed or takes[0].kind == "shape":
        return f"one list: ({primitive.name} [{' '.join(texts)}])"
    named = next((p for p in primitive.params if p.by_keyword), None)
    if named is None:
        return ""
    rest = texts[len(takes) :]
    value = rest[0] if len(rest) == 1 else f"[{' '.join(rest)}]"
    return f"the rest by keyword: ({' '.join([primitive.name, *texts[: len(takes)], f':{named.name}', value])})"


def _check_keywords_last(primitive: Primitive, positional: Sequence[Form]) -> None:
    """Refuse a keyword of the primitive that stands among its operands: before one, or without a value."""
    takes = [p.name for p in primitive.params if p.by_keyword]
    for i, item in enumerate(positional):
        if isinstance(item, Keyword) and item.name in takes:
            last = i == len(positional) - 1
            what = "has no value" if last else "stands before an operand; keywords come last"
            raise codes.MALFORMED.at(item.span, form=primitive.name, what=f":{item.name} {what}", help=primitive.usage)


def unknown_keyword(span: Span, name: str, keyword: str, takes: Iterable[str], usage: str = "") -> SxiError:
    """The error of a keyword that `name` does not take: the nearest that it does, and how it is written."""
    takes = list(takes)
    known = f"it takes {' '.join([f':{k}' for k in takes])}" if takes else "it takes no keyword"
    note = f"it is written {usage}" if usage else known
    return codes.UNKNOWN_KEYWORD.at(
        span, name=name, keyword=keyword, help=did_you_mean(keyword, takes, ":{}"), notes=(note,)
    )


def check_counts(primitive: Primitive, given: int, span: Span, help: str = "") -> None:
    """Refuse a wrong number of positional arguments; `help` is the repair."""
    params = [p for p in primitive.params if not p.by_keyword]
    least, most = len([p for p in params if p.default is REQUIRED]), len(params)
    many = bool(params) and (params[-1].many)
    if given < least or (given > most and not many):
        wanted = f"at least {least}" if many else f"{least} to {most}" if least < most else str(most)
        plural = "s" * (most != 1)
        raise codes.WRONG_COUNT.at(
            span,
            name=primitive.name,
            wanted=f"{wanted} argument{plural}",
            given=given,
            notes=(f"it is written {primitive.usage}",),
            help=help,
        )


def _keyword_param(primitive: Primitive, name: str, span: Span) -> Param:
    takes = {p.name: p for p in primitive.params if p.by_keyword}
    if name not in takes:
        raise unknown_keyword(span, primitive.name, name, takes, primitive.usage)
    return takes[name]


def bind_call(
    frame: Any, primitive: Primitive, args: Sequence[Any], keywords: dict[str, Any], span: Span, number: str,
    spans: tuple[Sequence[Span], dict[str, Span]] | None,
) -> Any:  # fmt: skip
    """A call of a primitive that is a value: bound by the signature while walking."""
    check_counts(primitive, len(args), span)
    at, keys = spans or ((), {})
    site = CallSite(span, number, {})
    bound = _by_position(primitive, args)
    for (param, _), span_of in zip(bound, at, strict=False):  # a call within the interpreter has no places
        site.spans.setdefault(param.name, span_of)
        if param.kind == "array" and param.many:
            site.parts.setdefault(param.name, []).append(span_of)
    operands: list[Any] = []
    static: dict[str, Any] = {}
    for name in keywords:
        _keyword_param(primitive, name, keys.get(name, span))
    positional = {p.name for p, _ in bound}
    absent = [p for p in primitive.params if p.name not in positional]
    given = [*bound, *[(p, keywords.get(p.name, p.default)) for p in absent]]
    for param, value in given:
        if param.kind != "array":
            is_default = param.name not in positional and param.name not in keywords
            static[param.python_name] = value if is_default else static_operand(primitive, param, value, site)
        elif param.listed:
            operands.extend(_listed(primitive, param, value, site))
        else:
            operands.append(None if value is REQUIRED else value)
    return frame.apply(primitive, operands, static, site)


def _listed(primitive: Primitive, param: Param, value: Any, site: CallSite) -> list[Any]:
    if not isinstance(value, list) or not value:
        what = f"{param.name} of {primitive.name}"
        raise codes.WRONG_KIND.at(
            site.spans.get(param.name, site.span),
            what=what,
            given=kind_of(value) if value != [] else "the empty list",
            wanted="a list of arrays",
            help="" if value == [] else f"write a list of them: ({primitive.name} [x y …])",
        )
    return value


# Static operands


def _whole(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _whole_list(x: Any) -> bool:
    return isinstance(x, list) and all([_whole(e) for e in x])


def _leaves(x: Any) -> list[Any]:
    """The elements of lists of any depth, in order; `x` itself where it is no list."""
    found, open_lists = [], [x]
    while open_lists:
        part = open_lists.pop()
        if isinstance(part, list):
            open_lists += part[::-1]
        else:
            found.append(part)
    return found


def _holds_numbers(x: Any) -> bool:
    return all([isinstance(e, bool | int | float) for e in _leaves(x)])


def _is_padding(x: Any) -> bool:
    if isinstance(x, Key):
        return x.name in ("same", "valid")
    return _whole(x) or _whole_list(x) or _list_of_pairs(x)


def _list_of_pairs(x: Any) -> bool:
    return isinstance(x, list) and all([_whole_list(e) and len(e) == 2 for e in x])


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("a whole number", _whole),
    "ints": ("a whole number or a list of them", lambda x: _whole(x) or _whole_list(x)),
    "axes": ("an axis, a list of axes or nil", lambda x: x is None or _whole(x) or _whole_list(x)),
    "shape": ("a shape, a list of whole numbers", _whole_list),
    "dtype": (f"one of {' '.join([':' + d for d in CARRIERS])}", lambda x: isinstance(x, Key) and x.name in CARRIERS),
    "bool": ("true or false", lambda x: isinstance(x, bool)),
    "number": ("a number", is_number),
    "string": ("a string", lambda x: isinstance(x, str)),
    "keyword": ("a keyword", lambda x: isinstance(x, Key)),
    "numbers": ("a number, or lists of numbers", _holds_numbers),
    "pairs": ("a list of pairs [before after], whole numbers for each axis", _list_of_pairs),
    "padding": (":same, :valid, a whole number or [before after] for each axis", _is_padding),
}  # fmt: skip


def static_operand(primitive: Primitive, param: Param, value: Any, site: CallSite) -> Any:
    """`value` as the function takes it.  An array where a static value is needed is contract 010's."""
    wanted, holds = _KINDS[param.kind]
    span = site.spans.get(param.name, site.span)
    if _holds_array(value):
        refuse_array(primitive.name, value, span, site.parts.get(param.name, []))
    if not holds(value) and not (value is None and param.default is None):
        help = _static_repair(param, value)
        what = f"{param.name} of {primitive.name}"
        if param.kind == "numbers" and isinstance(value, list):
            value = next(e for e in _leaves(value) if not _holds_numbers(e))
            what, wanted = f"an element of {primitive.name}", "a number"
        raise codes.WRONG_KIND.at(span, what=what, given=kind_of(value), wanted=wanted, help=help)
    return _frozen(value)


def _static_repair(param: Param, value: Any) -> str:
    """How a static operand of another kind was probably meant."""
    if param.kind == "dtype" and isinstance(value, Key | str):
        name = value.name if isinstance(value, Key) else value
        return f"write :{name}" if name in CARRIERS else did_you_mean(name, CARRIERS, ":{}")
    if param.kind == "shape" and _whole(value):
        return f"a shape is a list: [{value}]"
    return ""


def parts_of(form: Form) -> list[Span]:
    """Where the elements of a form stand that is written as a list."""
    return [f.span for f in form.items] if isinstance(form, Group) and form.bracket == "[" else []


def refuse_array(form: str, value: Any, span: Span, parts: Sequence[Span]) -> NoReturn:
    """E-CONTRACT-010 at the array itself where it is one element of a list that is written out."""
    if isinstance(value, list) and len(value) == len(parts):
        i = next(i for i, x in enumerate(value) if _holds_array(x))
        value, span = value[i], parts[i]
    contracts.shapes_are_static.refuse(span, form=form, value=kind_of(value), label=kind_of(value))


def _holds_array(value: Any) -> bool:
    return isinstance(value, Value) or (isinstance(value, list) and any([_holds_array(e) for e in value]))


def _frozen(value: Any) -> Any:
    """Lists as tuples and keywords as their names, so that static operands can be compared."""
    if isinstance(value, list):
        return tuple([_frozen(e) for e in value])
    return value.name if isinstance(value, Key) else value


# Operands and refusals


def check_operands(primitive: Primitive, operands: Sequence[Any], site: CallSite) -> None:
    """Refuse what is neither an array nor a number; `=` and `/=` compare any host values."""
    if primitive.name == "count-where":
        span = _operand_span(primitive, 0, site)
        contracts.counts_take_the_right_operand(span, form="count-where", operand=operands[0])
    for i, x in enumerate(operands):
        if isinstance(x, Value | int | float) or _is_absent(primitive, i, x):
            continue
        if primitive.name in ("=", "/=") and all([is_static(o) for o in operands]):
            continue
        refusal = Refusal(codes.NOT_AN_ARRAY, i, given=kind_of(x))
        raise located(refusal, primitive, operands, site, _made_an_array(x))


def _is_absent(primitive: Primitive, index: int, x: Any) -> bool:
    """Whether the operand is one that may be left out, and is."""
    return x is None and primitive.arrays[min(index, len(primitive.arrays) - 1)].default is not REQUIRED


def _made_an_array(x: Any) -> str:
    """The repair of an operand that is no array."""
    if isinstance(x, list) and all([is_number(e) for e in x]):
        return "make an array of the list: (array …)"
    if isinstance(x, Function):
        return f"call it: ({x.name}{' ' if x.body.parameters else ''}{x.body.parameters})"
    if isinstance(x, dict) and x:
        return f"take one of its arrays: (:{next(iter(x))} …)"
    return ""


# What is said of a static operand stands at that operand: code -> the parameters that it may be about.
_ABOUT: dict[str, tuple[str, ...]] = {
    codes.AXIS_OUT_OF_RANGE.code: ("axis", "axes"),
    codes.WRONG_SIZE.code: ("shape", "n"),
}


def located(
    refusal: Refusal, primitive: Primitive, operands: Sequence[Any], site: CallSite, repair: str = ""
) -> SxiError:
    """The error of a call that a type rule refused: the call and its arguments' types in words."""
    error = refusal.error()
    shown = [kind_of(x) for i, x in enumerate(operands) if not _is_absent(primitive, i, x)]
    call = shortened(site.span.text)
    types = f"{', '.join(shown[:-1])} with {shown[-1]}" if len(shown) > 1 else "".join(shown)
    error.message = f"{call}: {types}: {error.message}" if types else f"{call}: {error.message}"
    error.args = (error.code, error.message)
    error.span = _place_of(refusal, primitive, site)
    error.help = repair or _about_operand(error.help, error.span)
    found = {_operand_span(primitive, i, site): str(x.type) for i, x in enumerate(operands) if isinstance(x, Value)}
    found.pop(site.span, None)
    error.label = found.pop(error.span, "")
    if refusal.code in (codes.SHAPES_DIFFER, codes.TYPES_DIFFER) and call != _in_a_line(site.span.text):
        error.labels = tuple([Label(span, text) for span, text in found.items()])
    return error


def _about_operand(repair: str, span: Span) -> str:
    """A repair in which `…` stands for the operand: with its text where that is short."""
    text = _in_a_line(span.text)
    return repair.replace("…", text) if len(text) <= LONGEST_CALL_SHOWN else repair


def _place_of(refusal: Refusal, primitive: Primitive, site: CallSite) -> Span:
    """The operand that a refusal is about: a static one where its code says so, else the array, else the call."""
    about = _ABOUT.get(refusal.code.code, ())
    if refusal.code is codes.OUT_OF_BOUNDS:
        # what a type rule says of a length is about what was to have it
        named = str(refusal.facts["what"]).removeprefix(":")
        about = (named,) if refusal.operand is not None else (named, "shape", "n", "repeats")
    if isinstance(refusal.operand, str):
        return site.spans.get(refusal.operand, site.span)
    span = next((site.spans[name] for name in about if name in site.spans), None)
    return span or _operand_span(primitive, refusal.operand, site)


def _in_a_line(text: str) -> str:
    return " ".join(text.split())


def shortened(text: str) -> str:
    """The text of a call in one short line: its longer operands by their heads, `(@ x (param …))`."""
    whole = _in_a_line(text)
    if len(whole) <= LONGEST_CALL_SHOWN:
        return whole
    try:
        (form,) = read(Source("", text))
    except (SxiError, ValueError):  # a part of a text, as a step of a thread is
        return f"{whole[: LONGEST_CALL_SHOWN - 1]}…"
    if not isinstance(form, Group) or not form.items:
        return f"{whole[: LONGEST_CALL_SHOWN - 1]}…"
    head = form.items[0].span.text if isinstance(form.items[0], Symbol) else _short(form.items[0])
    parts = [head, *[_short(item) for item in form.items[1:]]]
    made = f"({' '.join(parts)})"
    return made if len(made) <= LONGEST_CALL_SHOWN else f"({parts[0]} …)"


def _short(form: Form) -> str:
    text = _in_a_line(form.span.text)
    if len(text) <= LONGEST_OPERAND_SHOWN:
        return text
    if isinstance(form, Group):
        head = f"{form.head} " if form.head else ""
        return {"(": f"({head}…)", "[": "[…]", "{": "{…}"}[form.bracket]
    return "…"


def _operand_span(primitive: Primitive, operand: int | None, site: CallSite) -> Span:
    if operand is None:
        return site.span
    last = len(primitive.arrays) - 1
    param = primitive.arrays[min(operand, last)]
    span = site.spans.get(param.name, site.span)
    if not param.many and not param.listed:
        return span if operand <= last else site.span
    parts = site.parts.get(param.name, [])
    return parts[operand - last] if operand - last < len(parts) else span
