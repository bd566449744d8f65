"""What a program computes with besides arrays: keywords, records, functions, and what is made of them.

Numbers, strings, bools, nil and lists are Python's own; a record is a dict from names to values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sxi.arraytype import ArrayType
from sxi.primitives.declare import Primitive, Value, examples_of
from sxi.source import Span

Node: TypeAlias = Callable[[Any, list[Any]], Any]  # (frame, env) -> value


@dataclass(frozen=True, slots=True)
class Key:
    """A keyword as a value, `:mean`."""

    name: str

    def __str__(self) -> str:
        return f":{self.name}"


@dataclass(slots=True, eq=False)
class Cell:
    """Where a local definition lives, so that functions may refer forward to it."""

    name: str
    value: Any = None
    is_set: bool = False


@dataclass(slots=True, eq=False)
class Body:
    """A function as resolved: everything that does not depend on what it captured.

    arity:     how many positional parameters
    keywords:  keyword parameter -> (slot, node of its default or None where it is required)
    node:      what its value is when walked; set when its text is resolved
    locals:    the rest of its environment behind the operands; what is captured stands behind these
    last:      where its last form stands, whose value is the function's
    captures:  how the environment that makes the function finds what it captures, last first
    """

    name: str
    span: Span
    arity: int
    keywords: dict[str, tuple[int, Node | None]] = field(default_factory=dict)
    node: Node = field(init=False)
    locals: list[None] = field(default_factory=list)
    captures: list[int] = field(default_factory=list)
    doc: str = ""
    parameters: str = ""

    @property
    def last(self) -> Span:
        return self.last_span or self.span

    last_span: Span | None = None


@dataclass(slots=True, eq=False)
class Function:
    """A function of the program: a body and what it captured.

    model:  the name that its parameters are put under, where it is a model
    """

    body: Body
    captured: tuple[Any, ...] = ()
    model: str | None = None

    @property
    def name(self) -> str:
        return self.body.name


@dataclass(frozen=True, slots=True, eq=False)
class Builtin:
    """A function of host values that the interpreter brings: `call(frame, args, keywords, span)`.

    least, most:  how many positional arguments (most None: any number)
    keywords:     which keyword arguments it takes
    takes_spans:  whether `call` takes the spans of the positional arguments too
    """

    name: str
    call: Callable[..., Any]
    least: int
    most: int | None
    keywords: tuple[str, ...]
    usage: str
    doc: str
    takes_spans: bool = False

    @property
    def examples(self) -> list[tuple[str, str]]:
        """The `(expression) ; => value` lines of the docstring."""
        return examples_of(self.doc)


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A declaration that is called with keywords to be used: an optimizer or an initializer.

    kind:    "optimizer", "initializer", "evaluate"
    states:  an optimizer's states, keywords of its function whose defaults are their first values: name -> where
    bound:   state -> the keyword, what the body calls it
    takes:   the keywords of its use where they are not the function's own: an evaluation's options
    """

    kind: str
    function: Function
    span: Span
    states: dict[str, Span] = field(default_factory=dict)
    takes: tuple[str, ...] | None = None
    bound: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.function.name


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """A definition with the keywords it was given: `(adamw :lr 1e-3)`."""

    definition: Definition
    keywords: dict[str, Any]
    span: Span
    spans: dict[str, Span] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes two instances the same initializer."""
        return (id(self.definition), *sorted((k, repr(plain(v))) for k, v in self.keywords.items()))


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """`(group "name" "glob" optimizer)`: the parameters that one optimizer updates; `span` is the glob's."""

    name: str
    glob: str
    optimizer: Instance
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class Generator:
    """`(generator NAME (n) body …)`: makes examples."""

    function: Function
    span: Span

    @property
    def name(self) -> str:
        return self.function.name


class DataRecord(dict[str, Any]):
    """`(data NAME …)`: the record of the whole arrays; it knows its columns and its splits.

    columns:  name -> sxi.data.Column
    splits:   name -> the rows of the split, i64[size]; empty where the data has no splits
    """

    def __init__(
        self, name: str, fields: dict[str, Any], columns: dict[str, Any], splits: dict[str, Any], span: Span
    ) -> None:
        super().__init__(fields)
        self.name, self.columns, self.splits, self.span = name, columns, splits, span


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """`(grad f)` or `(value-and-grad f)`: a function of the same arguments."""

    function: Any
    with_value: bool


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What an optimizer's body ends in: the new parameter and the new states."""

    parameter: Any
    states: dict[str, Any]
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class FormValue:
    """A quoted form."""

    form: Any


def is_number(x: Any) -> bool:
    """Whether `x` is a host number; a bool is not."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def is_static(x: Any) -> bool:
    """Whether `x` is a host value through and through: it holds no array."""
    if isinstance(x, Value):
        return False
    if isinstance(x, list | tuple):
        return all([is_static(e) for e in x])
    if isinstance(x, dict):
        return all([is_static(e) for e in x.values()])
    return True


def plain(x: Any) -> Any:
    """A host value as Python's own data, for comparing, hashing and JSON."""
    if isinstance(x, Key):
        return f":{x.name}"
    if isinstance(x, list | tuple):
        return [plain(e) for e in x]
    if isinstance(x, Mapping):
        return {k: plain(v) for k, v in x.items()}
    if x is None or isinstance(x, bool | int | float | str):
        return x
    if isinstance(x, Instance):
        return {x.name: plain(x.keywords)}
    return f"{type(x).__name__}:{getattr(x, 'name', id(x))}"


def kind_of(x: Any) -> str:
    """What `x` is, in words: "a list", "f32[3 4]", "the number 3"."""
    if isinstance(x, Value):
        return str(x.type)
    if isinstance(x, ArrayType):
        return str(x)
    if x is None:
        return "nil"
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int | float):
        return f"the number {number_text(x)}"
    if isinstance(x, str):
        return f'the string "{x}"' if len(x) < 40 else "a string"
    if isinstance(x, Key):
        return f"the keyword :{x.name}"
    if isinstance(x, list):
        return "a list"
    if isinstance(x, DataRecord):
        return f"the data {x.name}"
    if isinstance(x, dict):
        return "a record"
    if isinstance(x, Function):
        return f"the model {x.name}" if x.model else f"the function {x.name}"
    if isinstance(x, Primitive | Builtin):
        return f"the function {x.name}"
    if isinstance(x, Definition | Instance):
        definition = x.definition if isinstance(x, Instance) else x
        return f"the {'evaluation' if definition.kind == 'evaluate' else definition.kind} {definition.name}"
    if isinstance(x, Generator):
        return f"the generator {x.name}"
    if isinstance(x, Gradient):
        return "a gradient function"
    if isinstance(x, FormValue):
        return "a quoted form"
    return f"a {type(x).__name__.lower()}"


def number_text(x: int | float) -> str:
    """A host number as the language writes it: whole reals keep their point, `inf` and `nan` are names."""
    if isinstance(x, bool):
        return "true" if x else "false"
    if isinstance(x, int):
        return str(x) if abs(x) < 10**40 else f"{str(x)[:20]}…"
    return repr(x)


_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def _escaped(character: str) -> str:
    plain = character if character.isprintable() else f"\\u{{{ord(character):X}}}"
    return _ESCAPED.get(character, plain)


def written(x: Any) -> str:
    """A host value as the language would write it."""
    if isinstance(x, str):
        return f'"{"".join(map(_escaped, x))}"'
    if x is None:
        return "nil"
    if isinstance(x, bool | int | float):
        return number_text(x)
    if isinstance(x, Key):
        return f":{x.name}"
    if isinstance(x, list | tuple):
        return f"[{' '.join([written(e) for e in x])}]"
    if isinstance(x, dict):
        return "{" + " ".join([f":{k} {written(v)}" for k, v in x.items()]) + "}"
    if isinstance(x, FormValue):
        return str(x.form.span.text)
    return kind_of(x)
