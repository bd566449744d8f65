"""The forms that stand in a graph: parameters, scopes, states, regions, taps, updates, outputs."""

from __future__ import annotations

from typing import Any

from sxi import codes, contracts
from sxi.arraytype import CARRIERS, ArrayType
from sxi.calls import CallSite, parts_of, refuse_array, unknown_keyword
from sxi.codes import Refusal
from sxi.eval import USAGE, malformed, missing_keyword, resolve, resolve_body, special_form
from sxi.forms.core import keyword_pairs, operands
from sxi.names import Scope
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Value
from sxi.primitives.shape import sized
from sxi.reader import Group, Keyword
from sxi.series import REDUCES
from sxi.source import Span
from sxi.suggest import did_you_mean
from sxi.trace import Tap
from sxi.values import Definition, Function, Instance, Key, Node, Update, kind_of


def place_in_words(context: str | None) -> str:
    """Where a form stands that a walk of `context` comes upon."""
    words = {None: "at the top level of a file", "prompt": "at the prompt", "evaluate": "in an evaluation"}
    return words.get(context, f"in the {context}")


def _in_graph(frame: Any, form: str, span: Span, contexts: tuple[str, ...] | None = None) -> None:
    """Refuse a form that has no meaning where it is walked."""
    if frame.context in (None, "prompt") or (contexts and frame.context not in contexts):
        where = place_in_words(frame.context)
        wanted = " or ".join(contexts) if contexts else "a graph"
        raise codes.OUT_OF_PLACE.at(span, form=form, where=where, wanted=wanted)


def shape_of(value: Any, form: str, span: Span, parts: list[Span]) -> tuple[int, ...]:
    """A shape as host integers; `parts` are the places of its elements where it is written out.

    Raises E-CONTRACT-010 for an array, E-EVAL-005 for anything else, E-SHAPE-005 for what no machine could hold.
    """
    if isinstance(value, Value) or (isinstance(value, list) and any([isinstance(n, Value) for n in value])):
        refuse_array(form, value, span, parts)
    if not isinstance(value, list) or not all(
        [isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value]
    ):
        raise codes.WRONG_KIND.at(
            span, what=f"the shape of {form}", given=kind_of(value), wanted="a list of whole numbers"
        )
    try:
        return sized(value)
    except Refusal as refusal:
        error = refusal.error()
        error.span = span
        raise error from None


def _initializer(value: Any, form: str, span: Span) -> Instance:
    """An initializer with its keywords."""
    if isinstance(value, Definition) and value.kind == "initializer":
        required = [k for k, (_, default) in value.function.body.keywords.items() if default is None]
        if required:
            raise missing_keyword(value, required[0], span)
        return Instance(value, {}, span)
    if isinstance(value, Instance) and value.definition.kind == "initializer":
        return value
    raise codes.WRONG_KIND.at(span, what=f":init of {form}", given=kind_of(value), wanted="an initializer")


def _dtype_of(value: Any, form: str, span: Span, floats_only: bool) -> str:
    if not isinstance(value, Key) or value.name not in CARRIERS:
        wanted = f"one of {' '.join([':' + d for d in CARRIERS])}"
        near = did_you_mean(value.name, CARRIERS, ":{}") if isinstance(value, Key) else ""
        raise codes.WRONG_KIND.at(span, what=f":dtype of {form}", given=kind_of(value), wanted=wanted, help=near)
    if floats_only and value.name not in ("f32", "f64"):
        raise codes.WRONG_KIND.at(span, what=f":dtype of {form}", given=kind_of(value), wanted=":f32 or :f64")
    return value.name


def _whole_shape(form: Group) -> str:
    """The repair of a shape that is written without its brackets."""
    end = next((i for i, f in enumerate(form.items) if isinstance(f, Keyword)), len(form.items))
    lengths = " ".join([f.span.text for f in form.items[2:end]])
    return f"({form.head} {form.items[1].span.text} [{lengths}] …)"


class _Declaration:
    """`(param "name" shape :init i :dtype t)` and `(state …)`, as resolved."""

    def __init__(self, form: Group, scope: Scope, least: int) -> None:
        rest = operands(form, least)
        positional = [f for f in rest[:2] if not isinstance(f, Keyword)]
        if not positional or isinstance(rest[0], Keyword):
            malformed(form, form.head, "it has no name")
        self.form, self.span = form.head, form.span
        self.name, self.name_span = resolve(positional[0], scope), positional[0].span
        self.shape = resolve(positional[1], scope) if len(positional) > 1 else None
        self.shape_span = positional[1].span if len(positional) > 1 else form.span
        self.shape_parts = parts_of(positional[1]) if len(positional) > 1 else []
        self.options: dict[str, tuple[Node, Span]] = {}
        if len(rest) > 2 and len(positional) == 2 and not isinstance(rest[2], Keyword):
            malformed(rest[2], form.head, "the shape is one list", help=_whole_shape(form))
        for key, value in keyword_pairs(rest[len(positional) :], form):
            if key.name not in ("init", "dtype"):
                raise unknown_keyword(key.span, form.head, key.name, ("init", "dtype"), USAGE[form.head])
            self.options[key.name] = (resolve(value, scope), value.span)
        if self.shape is None and (self.options or least > 1):
            malformed(form, form.head, "it has no shape")
        if self.shape is not None and "init" not in self.options:
            malformed(form, form.head, "it has no :init", help=f"add :init, as in {USAGE[form.head]}")

    def of(self, frame: Any, env: list[Any]) -> tuple[str, ArrayType | None, Instance | None]:
        """Its name, its type and its initializer; None where it names an existing one."""
        name = self.name(frame, env)
        contracts.name_is_valid(self.name_span, form=self.form, name=name)
        if self.shape is None:
            return name, None, None
        shape = shape_of(self.shape(frame, env), self.form, self.shape_span, self.shape_parts)
        node, span = self.options["init"]
        init = _initializer(node(frame, env), self.form, span)
        dtype = "f32"
        if "dtype" in self.options:
            node, span = self.options["dtype"]
            dtype = _dtype_of(node(frame, env), self.form, span, floats_only=self.form == "param")
        return name, ArrayType(dtype, shape), init


@special_form("param", '(param "name" shape :init i :dtype :f32)')
def param(form: Group, scope: Scope) -> Node:
    """A parameter: made where the name is new, else the same one again."""
    declared = _Declaration(form, scope, 1)
    site = CallSite(form.span, "", {})

    def node(frame: Any, env: list[Any]) -> Any:
        name, type, init = declared.of(frame, env)
        return frame.param(name, type, init, site)

    return node


@special_form("state", '(state "name" shape :init i :dtype :f32)')
def state(form: Group, scope: Scope) -> Node:
    """An array kept from step to step, without a gradient."""
    declared = _Declaration(form, scope, 2)
    site = CallSite(form.span, "", {})

    def node(frame: Any, env: list[Any]) -> Any:
        _in_graph(frame, "state", form.span)
        name, type, init = declared.of(frame, env)
        return frame.state(name, type, init, site)

    return node


@special_form("next", '(next "name" e :reduce :mean)')
def next_(form: Group, scope: Scope) -> Node:
    """Give a state its next value; the form's value is that value."""
    name, value, *rest = operands(form, 2)
    name_node, value_node = resolve(name, scope), resolve(value, scope)
    reduce_node: tuple[Node, Span] | None = None
    for key, f in keyword_pairs(rest, form):
        if key.name != "reduce":
            raise unknown_keyword(key.span, "next", key.name, ("reduce",), USAGE["next"])
        reduce_node = resolve(f, scope), f.span

    def node(frame: Any, env: list[Any]) -> Any:
        # an update has no microbatches to reduce over, and a tap is walked on sampled steps only
        _in_graph(frame, "next", form.span, ("prepare", "objective", "evaluate"))
        given = name_node(frame, env)
        contracts.name_is_valid(name.span, form="next", name=given)
        reduce = Key("mean")
        if reduce_node is not None:
            reduce = reduce_node[0](frame, env)
            contracts.reduce_is_known(reduce_node[1], form="next", name=given, reduce=reduce)
        assert reduce.name in REDUCES
        return frame.next_state(given, value_node(frame, env), reduce.name, value.span)

    return node


@special_form("scope", '(scope "block0" body …)')
def scope_(form: Group, scope: Scope) -> Node:
    """Puts a prefix before the names made in its body."""
    name, *body = operands(form, 2)
    name_node, inner = resolve(name, scope), resolve_body(body, scope, form, "scope")

    def node(frame: Any, env: list[Any]) -> Any:
        given = name_node(frame, env)
        contracts.name_is_valid(name.span, form="scope", name=given)
        outer = frame.scope
        frame.scope = (*outer, given)
        value = inner(frame, env)
        frame.scope = outer
        return value

    return node


@special_form("bf16", "(bf16 body …)")
def bf16(form: Group, scope: Scope) -> Node:
    """A region whose operations are rounded to bf16."""
    inner = resolve_body(operands(form, 1), scope, form, "bf16")

    def node(frame: Any, env: list[Any]) -> Any:
        emitter = frame.emitter
        outer, emitter.rounding = emitter.rounding, True
        value = inner(frame, env)
        emitter.rounding = outer
        return value

    return node


@special_form("frozen", "(frozen body …)")
def frozen(form: Group, scope: Scope) -> Node:
    """A region in which parameters take no gradient."""
    inner = resolve_body(operands(form, 1), scope, form, "frozen")

    def node(frame: Any, env: list[Any]) -> Any:
        outer, frame.frozen = frame.frozen, True
        value = inner(frame, env)
        frame.frozen = outer
        return value

    return node


@special_form("reading", '(reading "ema" body …)')
def reading(form: Group, scope: Scope) -> Node:
    """A frozen region in which each parameter is its optimizer's state of that name."""
    name, *body = operands(form, 2)
    name_node, inner = resolve(name, scope), resolve_body(body, scope, form, "reading")

    def node(frame: Any, env: list[Any]) -> Any:
        _in_graph(frame, "reading", form.span)
        given = name_node(frame, env)
        contracts.name_is_valid(name.span, form="state", name=given)
        outer, frame.reading = frame.reading, given
        value = inner(frame, env)
        frame.reading = outer
        return value

    return node


@special_form("training?", "(training?)")
def training(form: Group, scope: Scope) -> Node:
    """Whether the walk is of training: true in `prepare` and the objective and what they call."""
    operands(form, 0, 0)
    return lambda frame, env: frame.training


@special_form("step", "(step)")
def step(form: Group, scope: Scope) -> Node:
    """The step being taken, an i32 scalar array; in a pass, the one just completed."""
    operands(form, 0, 0)
    span = form.span

    def node(frame: Any, env: list[Any]) -> Any:
        if frame.context is None:
            _in_graph(frame, "step", span)
        return frame.step()

    return node


@special_form("tap-gradient", "(tap-gradient x (lambda (g) …))")
def tap_gradient(form: Group, scope: Scope) -> Node:
    """Its value; where a gradient flows back through it on a sampled step, the lambda gets it."""
    x_form, lambda_form = operands(form, 2, 2)
    x = resolve(x_form, scope)
    number = scope.number("tap-gradient")
    outer_context, scope.context = scope.context, "tap-gradient"
    with scope.numbered_apart("tap"):
        f = resolve(lambda_form, scope)
    scope.context = outer_context

    def node(frame: Any, env: list[Any]) -> Any:
        value = x(frame, env)
        function = f(frame, env)
        if not isinstance(function, Function):
            raise codes.WRONG_KIND.at(
                lambda_form.span, what="what a tap gives its gradient to", given=kind_of(function), wanted="a function"
            )
        if not isinstance(value, Value | int | float):
            raise codes.WRONG_KIND.at(
                x_form.span, what="what a tap looks at", given=kind_of(value), wanted="an array",
                help="tap each of its arrays",
            )  # fmt: skip
        if not isinstance(value, Value) or getattr(frame, "recording", None) is None:
            return value
        taps = frame.recording.taps
        taps[len(taps)] = Tap(function, frame.state_for_tap(), lambda_form.span, number)
        return frame.apply(PRIMITIVES["tap"], [value], {"tap": len(taps) - 1}, CallSite(form.span, "", {}))

    return node


@special_form("update", "(update new-p :m new-m …)")
def update(form: Group, scope: Scope) -> Node:
    """What an optimizer's body ends in: the new parameter and its new states."""
    first, *rest = operands(form, 1)
    new = resolve(first, scope)
    states = [(k.name, resolve(v, scope)) for k, v in keyword_pairs(rest, form)]
    span = form.span

    def node(frame: Any, env: list[Any]) -> Any:
        _in_graph(frame, "update", span, ("optimizer",))
        return Update(new(frame, env), {k: n(frame, env) for k, n in states}, span)

    return node


@special_form("total", "(total e)")
def total(form: Group, scope: Scope) -> Node:
    """The sum of a scalar over all the run's parameters."""
    (inner,) = operands(form, 1, 1)
    node_of = resolve(inner, scope)

    def node(frame: Any, env: list[Any]) -> Any:
        _in_graph(frame, "total", form.span, ("optimizer",))
        return frame.total(node_of, env, inner.span)

    return node


@special_form("output", '(output "name" x)')
def output(form: Group, scope: Scope) -> Node:
    """In `evaluate`: its value, also written for every example of the pass."""
    name, value = operands(form, 2, 2)
    name_node, value_node = resolve(name, scope), resolve(value, scope)

    def node(frame: Any, env: list[Any]) -> Any:
        _in_graph(frame, "output", form.span, ("evaluate",))
        given = name_node(frame, env)
        contracts.name_is_valid(name.span, form="output", name=given)
        x = value_node(frame, env)
        if not isinstance(x, Value):
            raise codes.WRONG_KIND.at(value.span, what="what output writes", given=kind_of(x), wanted="an array")
        if given in frame.recording.outputs:
            raise codes.DEFINED_TWICE.at(form.span, name=f"output {given}")
        frame.recording.outputs[given] = x, form.span
        return x

    return node


def refuse_declaration(form: Group, scope: Scope) -> Node:
    """A declaration that stands inside another form."""
    if scope.context is not None:
        contracts.graphs_do_nothing_to_the_host(form.span, form=form.head, context=scope.context)
    raise codes.TOP_LEVEL_ONLY.at(form.span, form=form.head)
