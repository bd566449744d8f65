"""What a trace records: a graph of operations over arrays whose types are known.

An op is a value: it holds the ops it is computed from.  A graph keeps its ops in the order of the
walk, which is an order of computation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, overload

from sxi import codes
from sxi.arraytype import ArrayType, of_literal
from sxi.emit import BaseEmitter
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Primitive, Static, Value
from sxi.source import Span

MOST_OPS = 200_000


class Link:
    """One call, or one turn of a fold, in the chain that leads to an operation.

    number:  the call in its definition, `net#0`, or the number of the turn: a segment of a draw's place, `t3`
    name:    what was called, "" for a turn
    """

    # One is made for each call and each turn, so it is a plain class: a dataclass costs three times as much.
    __slots__ = ("_depth", "_place", "name", "number", "parent", "span")

    _depth: int  # known with the place

    def __init__(self, parent: Link | None, number: str | int, name: str, span: Span | None) -> None:
        self.parent, self.number, self.name, self.span = parent, number, name, span
        self._place: str | None = None

    def calls(self) -> list[tuple[str, Span]]:
        """(what was called, where), innermost first."""
        found: list[tuple[str, Span]] = []
        link: Link | None = self
        while link is not None:
            if link.span is not None and link.name:
                found.append((link.name, link.span))
            link = link.parent
        return found

    def place(self) -> str:
        """The segments from the graph down, joined; past `DEEP` of them, those above as their digest.

        A recursion that draws at each of ten thousand calls would otherwise join ten thousand longer and longer texts.
        """
        above: list[Link] = []
        link: Link | None = self
        while link is not None and link._place is None:
            above.append(link)
            link = link.parent
        for link in reversed(above):
            parent = "" if link.parent is None else link.parent._place
            link._depth = 1 if link.parent is None else link.parent._depth + 1
            if link._depth % DEEP == 0 and parent:
                parent = blake2b(parent.encode(), digest_size=16).hexdigest()
            segment = f"t{link.number}" if isinstance(link.number, int) else link.number
            link._place = f"{parent}/{segment}" if parent else segment
        assert self._place is not None
        return self._place


class Calls(Sequence[tuple[str, Span]]):
    """(What was called, where), innermost first: walked when something looks, for a recursion leads through thousands
    of calls to each of its thousands of forms.
    """

    __slots__ = ("_link", "_walked")

    def __init__(self, link: Link | None) -> None:
        self._link = link
        self._walked: list[tuple[str, Span]] | None = None

    def _all(self) -> list[tuple[str, Span]]:
        if self._walked is None:
            self._walked = self._link.calls() if self._link else []
        return self._walked

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, at: int) -> tuple[str, Span]: ...
    @overload
    def __getitem__(self, at: slice) -> list[tuple[str, Span]]: ...
    def __getitem__(self, at: int | slice) -> tuple[str, Span] | list[tuple[str, Span]]:
        return self._all()[at]


# How many segments of a place stand as text.
DEEP = 64


class Op(Value):
    """One operation of a graph.

    primitive:  what it does, or None for a source, which `source` and `static` describe
    operands:   ops, host numbers or None
    static:     the static operands
    """

    __slots__ = ("call", "index", "operands", "primitive", "source", "span", "static")

    def __init__(
        self,
        graph: Graph,
        primitive: Primitive | None,
        operands: tuple[Any, ...],
        static: Static,
        type: ArrayType,
        source: str = "",
    ) -> None:
        super().__init__(type, graph)
        self.primitive, self.operands, self.static, self.source = primitive, operands, static, source
        self.span, self.call = graph.span, graph.call
        self.index = len(graph.ops)

    @property
    def name(self) -> str:
        return self.primitive.name if self.primitive else self.source

    def __repr__(self) -> str:
        return f"%{self.index} {self.name} {self.type}"


@dataclass(eq=False)
class Graph(BaseEmitter):
    """The ops of one or more contexts' bodies, recorded once and run many times.

    span, call:  where the walk is: they go onto every op recorded
    sources:     (kind, name) -> its op: `input`, `param`, `state`, `optimizer`, `step`
    """

    name: str
    ops: list[Op] = field(default_factory=list)
    sources: dict[tuple[str, str], Op] = field(default_factory=dict)
    span: Span | None = None
    call: Link | None = None
    _adopted: dict[int, tuple[Value, Op]] = field(default_factory=dict)

    def emit(self, primitive: Primitive, operands: tuple[Any, ...], static: Static, type: ArrayType) -> Op:
        op = Op(self, primitive, operands, static, type)
        self.ops.append(op)
        if op.index >= MOST_OPS:
            raise codes.GRAPH_TOO_LARGE.at(self.span, limit=f"{MOST_OPS:,}")
        return op

    def constant(self, value: Any, dtype: str | None = None) -> Op:
        """A host number of `dtype`, or a host array, which keeps its own."""
        if isinstance(value, bool | int | float):
            type = ArrayType(dtype or of_literal(value))
        else:
            type = ArrayType.of(value) if dtype is None else ArrayType(dtype, tuple(value.shape))
        op = Op(self, None, (), {"value": value}, type, source="constant")
        self.ops.append(op)
        return op

    def input(self, kind: str, name: str, type: ArrayType) -> Op:
        """The op of what is given to the graph from outside; the same for the same name."""
        found = self.sources.get((kind, name))
        if found is None:
            found = Op(self, None, (), {"name": name}, type, source=kind)
            self.ops.append(found)
            self.sources[kind, name] = found
        return found

    def adopt(self, x: Value) -> Op:
        """A computed array as a constant of the graph, once; an op as it is."""
        if x.emitter is self:
            assert isinstance(x, Op)
            return x
        data = getattr(x, "data", None)
        if data is None:
            raise codes.ESCAPED.at(self.span)
        found = self._adopted.get(id(x))
        if found is None:
            found = self._adopted[id(x)] = (x, self.constant(data, x.dtype))
        return found[1]

    def emit_zeros(self, like: Op) -> Op:
        """Zeros of the type of `like`."""
        return PRIMITIVES["zeros-like"](like)  # type: ignore[no-any-return]  # a graph's results are ops

    def needed_for(self, outputs: Iterable[Any]) -> list[Op]:
        """The ops that `outputs` are computed from, in order."""
        wanted = [False] * len(self.ops)
        for x in outputs:
            if isinstance(x, Op):
                wanted[x.index] = True
        for op in reversed(self.ops):
            if wanted[op.index]:
                for x in op.operands:
                    if isinstance(x, Op):
                        wanted[x.index] = True
        return [op for op in self.ops if wanted[op.index]]

    def lines(self, outputs: Iterable[Any] | None = None) -> list[str]:
        """The graph as text, an op a line: `%7 f32[64 10] = (@ %5 %6)`."""
        ops = self.ops if outputs is None else self.needed_for(outputs)
        return [f"%{op.index} {op.type} = {written_call(op)}" for op in ops]


def written_call(op: Op) -> str:
    """An operation as a call, `(@ %5 %6)`, or what it is given as."""
    if op.primitive is None:
        if op.source == "constant":
            value = op.static["value"]
            return f"constant {value}" if isinstance(value, bool | int | float) else "constant"
        return f"{op.source} {op.static['name']}"
    shown = [f"%{x.index}" if isinstance(x, Op) else "nil" if x is None else repr(x) for x in op.operands]
    static = [f":{k.rstrip('_').replace('_', '-')} {_static_text(v)}" for k, v in op.static.items()]
    return f"({' '.join([op.primitive.name, *shown, *static])})"


def _static_text(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"[{' '.join([_static_text(v) for v in value])}]"
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    return repr(value) if isinstance(value, float) else str(value)
