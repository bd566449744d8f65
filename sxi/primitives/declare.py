"""How a primitive is declared: everything about one array operation in one entry.

    @primitive("tanh", "x", promote="f", type=like_first, vjp=(lambda g, out, x: mul(g, sub(1.0, square(out))),),
               sample=(REAL,), elementwise=True)
    def tanh(xp, x):
        \"\"\"Hyperbolic tangent of each element.

        x:      f32[*n]
        gives:  f32[*n]

        (tanh 0.0) ; => 0.0
        \"\"\"
        return xp.tanh(x)

To add one, add its entry to the module of its group.  The type rule's and the gradient's tests, the
docstring's examples, the reference page, `,doc`, completion and arity errors all derive from it.

The signature is text in the language's own order:

    x            an array operand            x...        one or more array operands
    [x...]       a list of array operands    axis:int    a static operand of kind `int`
    :keep bool=false   a keyword and its default         :mask array=nil   an array operand by keyword
    step:number=1      a static operand that may be left out

Kinds of static operands: int, ints (an integer or a list of them), axes (an integer, a list, or nil for
all), shape, dtype, bool, number, string, keyword, numbers (a number, or lists of them of any depth), pairs
(a list of [before after]), padding (of a convolution).  The function receives `xp`, the array operands
in the order of the signature (an absent keyword operand as None), and the static ones by keyword,
`-` as `_` and a Python keyword with `_` behind it.

An operand may be a host number where the operation takes arrays: it reaches the function as a Python
number where `promote` lets it take another operand's type, and as a 0-d array elsewhere.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from sxi.arraytype import ArrayType

Array: TypeAlias = Any
Static: TypeAlias = dict[str, Any]
TypeRule: TypeAlias = Callable[..., ArrayType]
VJP: TypeAlias = Callable[..., Any]

REQUIRED = object()


class Value:
    """An array as a walk holds it: `type`, and the emitter that new operations on it go to.

    A trace's value is an op of a graph, an eager one a computed array.
    """

    __slots__ = ("emitter", "type")

    def __init__(self, type: ArrayType, emitter: Emitter) -> None:
        self.type, self.emitter = type, emitter

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def dtype(self) -> str:
        return self.type.dtype


class Emitter(Protocol):
    """Where operations go: a graph that records them, or a backend that computes them."""

    def apply(self, primitive: Primitive, operands: Sequence[Any], static: Static) -> Any:
        """The result of `primitive`; `operands` are values, host numbers or None."""


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a primitive's signature."""

    name: str
    kind: str  # "array", or a kind of static operand
    by_keyword: bool = False
    many: bool = False  # the rest of the positional operands
    listed: bool = False  # one operand, a list of arrays
    default: Any = REQUIRED

    @property
    def python_name(self) -> str:
        name = self.name.replace("-", "_").replace("?", "")
        return name + "_" if keyword.iskeyword(name) else name


@dataclass(frozen=True, slots=True)
class Domain:
    """Where a test draws an operand from: its dtype, and the range of its elements."""

    dtype: str
    low: float
    high: float


REAL = Domain("f32", -3, 3)
POSITIVE = Domain("f32", 0.1, 3)
UNIT = Domain("f32", -0.9, 0.9)
ABOVE_ONE = Domain("f32", 1.1, 4)
MASK = Domain("bool", 0, 2)
INTEGER = Domain("i32", -5, 6)
INDEX = Domain("i32", 0, 2)


@dataclass(frozen=True, slots=True)
class Case:
    """One set of shapes and static operands on which the tests try a primitive that is not elementwise."""

    shapes: tuple[tuple[int, ...], ...]
    static: Static = field(default_factory=dict)


def case(*shapes: tuple[int, ...], **static: Any) -> Case:
    return Case(shapes, static)


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """One array operation; see the module's docstring for how it is declared.

    forward:     (xp, *operands, **static) -> array; None for a composite
    expand:      (*values, **static) -> value: a composite in terms of other primitives
    rule:        (*types, **static) -> ArrayType; raises codes.Refusal
    promote:     a letter per operand, the last one for the rest: `-` leave as it is, `s` bring to one
                 common dtype, `f` the same and integers to f32
    vjp:         a function per array operand, (g, out, *operands, **static) -> cotangent in primitives,
                 None for "no gradient by this operand"; one function for all operands of a variadic
                 one, with the operand's number as `index`; None for the whole: no gradient at all
    into:        like vjp, (acc, g, out, *operands, **static) -> acc plus the cotangent: for indexing,
                 whose dense cotangent would be as large as the whole array for each use
    draws:       takes the run's `Draws` after xp, and the static operand `place`, the text of the place in
                 the program that it draws for; a composite takes `place` only, to hand it on
    needs_emitter:  a composite that takes the emitter before its values, of which it may have none, and
                 host numbers as they are
    uses_training:  a composite that takes the static operand `training`, what `(training?)` gives there
    moves:       its results are among its operands' elements: rounding them again changes nothing
    in_place:    the operand whose buffer `forward(..., out=buffer)` may write into when nothing else
                 needs it, or None
    cuda:        for a fused kernel: an expression of its operands {0}, {1}, or ""
    """

    name: str
    signature: str
    params: tuple[Param, ...]
    forward: Callable[..., Array] | None
    expand: Callable[..., Any] | None
    rule: TypeRule | None
    promote: str
    vjp: tuple[VJP | None, ...] | VJP | None
    into: tuple[VJP | None, ...] | VJP | None
    sample: tuple[Domain, ...]
    cases: tuple[Case, ...]
    elementwise: bool
    host: Callable[..., Any] | None
    draws: bool
    needs_emitter: bool
    uses_training: bool
    moves: bool
    in_place: int | None
    internal: bool
    cuda: str
    arrays: tuple[Param, ...]
    doc: str

    @property
    def usage(self) -> str:
        """How a call is written: `(sum x :axis nil :keep false)`, `step?` for an operand that may be left out."""
        text = self.signature
        for pattern, plain in _AS_WRITTEN:
            text = pattern.sub(plain, text)
        return f"({self.name} {text})" if text else f"({self.name})"

    @property
    def examples(self) -> list[tuple[str, str]]:
        """The `(expression) ; => value` lines of the docstring."""
        return examples_of(self.doc)

    def policy(self, index: int) -> str:
        """How operand `index` is promoted: `-`, `s` or `f`."""
        return self.promote[min(index, len(self.promote) - 1)] if self.promote else "-"

    def __call__(self, *operands: Any, **static: Any) -> Any:
        """Apply to values inside a vjp or a composite; static operands by keyword, defaults filled in."""
        emitter = next(x.emitter for x in operands if isinstance(x, Value))
        for p in self.params:
            if p.kind == "array":
                continue
            if p.python_name not in static and p.default is not REQUIRED:
                static[p.python_name] = p.default
        return emitter.apply(self, operands, static)


def examples_of(doc: str) -> list[tuple[str, str]]:
    """The `(expression) ; => value` lines of a docstring."""
    split = (line.partition("; =>") for line in doc.splitlines())
    return [(expression.strip(), value.strip()) for expression, arrow, value in split if arrow]


PRIMITIVES: dict[str, Primitive] = {}

_PARAM = re.compile(
    r"""\s*(?:
      \[(?P<listed>[\w-]+)\.\.\.\]
    | :(?P<key>[\w-]+)\s+(?P<kind>\w+)=(?P<default>\S+)
    | (?P<static>[\w-]+):(?P<skind>\w+)(=(?P<sdefault>\S+))?
    | (?P<name>[\w-]+)(?P<many>\.\.\.)?
    )""",
    re.X,
)
# From a signature to a call as it is written: the kinds of operands left out, `...` as `…`.
_AS_WRITTEN = (
    (re.compile(r":([\w-]+) \w+=(\S+)"), r":\1 \2"),
    (re.compile(r"([\w-]+):\w+=\S+"), r"\1?"),
    (re.compile(r"(?<=[\w-]):\w+"), ""),
    (re.compile(r"\.\.\."), " …"),
)
_CONSTANTS: dict[str, Any] = {"nil": None, "true": True, "false": False}


def parse_signature(text: str) -> tuple[Param, ...]:
    """The parameters that `text` declares.  Raises ValueError where it is not a signature."""
    params, at = [], 0
    while at < len(text.rstrip()):
        found = _PARAM.match(text, at)
        if not found:
            raise ValueError(f"not a signature: {text!r} at {text[at:]!r}")
        at = found.end()
        if found["listed"]:
            params.append(Param(found["listed"], "array", listed=True))
        elif found["key"]:
            params.append(Param(found["key"], found["kind"], by_keyword=True, default=_constant(found["default"])))
        elif found["static"]:
            default = REQUIRED if found["sdefault"] is None else _constant(found["sdefault"])
            params.append(Param(found["static"], found["skind"], default=default))
        else:
            params.append(Param(found["name"], "array", many=bool(found["many"])))
    return tuple(params)


def _constant(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text.startswith(":"):
        return text[1:]
    if text.startswith('"'):
        return text.strip('"')
    return float(text) if any(c in text for c in ".e") else int(text)


def primitive(
    name: str,
    signature: str,
    *,
    type: TypeRule,
    promote: str,
    vjp: tuple[VJP | None, ...] | VJP | None,
    sample: tuple[Domain, ...],
    cases: tuple[Case, ...] = (),
    into: tuple[VJP | None, ...] | VJP | None = None,
    elementwise: bool = False,
    host: Callable[..., Any] | None = None,
    draws: bool = False,
    moves: bool = False,
    in_place: int | None = None,
    internal: bool = False,
    cuda: str = "",
) -> Callable[[Callable[..., Array]], Primitive]:
    """Register the decorated function as the primitive `name`.

    `elementwise` primitives take host numbers too; `host` computes such a call in Python's numbers
    where the function over NumPy's binary64 would not do (exact integers).  `internal` ones have no
    name in the language: gradients and regions use them.
    """

    def entry(forward: Callable[..., Array]) -> Primitive:
        return _enter(
            Primitive(
                name=name, signature=signature, params=(params := parse_signature(signature)), forward=forward,
                expand=None, rule=type, promote=promote, vjp=vjp, into=into, sample=sample, cases=cases,
                elementwise=elementwise, host=host, draws=draws, needs_emitter=False, uses_training=False,
                moves=moves, in_place=in_place, internal=internal, cuda=cuda,
                arrays=tuple(p for p in params if p.kind == "array"), doc=inspect.getdoc(forward) or "",
            )
        )  # fmt: skip

    return entry


def composite(
    name: str,
    signature: str,
    *,
    promote: str,
    sample: tuple[Domain, ...],
    cases: tuple[Case, ...] = (),
    elementwise: bool = False,
    host: Callable[..., Any] | None = None,
    draws: bool = False,
    needs_emitter: bool = False,
    uses_training: bool = False,
) -> Callable[[Callable[..., Any]], Primitive]:
    """Register the decorated function, (*values, **static) -> value, as the primitive `name`.

    Its type and its gradient are those of the primitives it is made of.  In a bf16 region it is
    rounded at its edges only.  One that draws, needs an emitter or uses training is called by the
    evaluator alone, which has these to give; within one the draw is made by
    `emitter.apply(draw_…, (), {"shape": …, "place": place})`.
    """

    def entry(expand: Callable[..., Any]) -> Primitive:
        return _enter(
            Primitive(
                name=name, signature=signature, params=(params := parse_signature(signature)), forward=None,
                expand=expand, rule=None, promote=promote, vjp=None, into=None, sample=sample, cases=cases,
                elementwise=elementwise, host=host, draws=draws, needs_emitter=needs_emitter,
                uses_training=uses_training, moves=False, in_place=None, internal=False, cuda="",
                arrays=tuple(p for p in params if p.kind == "array"), doc=inspect.getdoc(expand) or "",
            )
        )  # fmt: skip

    return entry


def _enter(made: Primitive) -> Primitive:
    if made.name in PRIMITIVES:
        raise ValueError(f"primitive {made.name} is already defined")
    PRIMITIVES[made.name] = made
    return made
