"""Reverse mode, graph to graph: the cotangents of a scalar are recorded behind the ops it came from.

A gradient is written in primitives, so it is planned like any other part of the graph and can be
differentiated again.  No guard is recorded here: differentiating does not count twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from sxi.graph import Graph, Op
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import VJP

# What a tap does with the cotangent that flows through it.
TapHandler = Callable[[Op, Op], None]


def gradients(
    graph: Graph, output: Op, wrt: Sequence[Op], *, seed: Op | None = None, on_tap: TapHandler | None = None
) -> list[Op]:
    """The cotangents of `wrt` where that of `output` is `seed` (1 by default), each of its operand's type.

    output: f32[] (any float type)      wrt: ops of a float type
    An operand that the output does not depend on has zeros.
    """
    flow = _Flow(graph, output, wrt)
    span, call = graph.span, graph.call
    flow.dense[output.index] = seed if seed is not None else graph.constant(1.0, output.dtype)
    for op in reversed(graph.ops[: output.index + 1]):
        if not flow.reaches[op.index]:
            continue
        g = flow.cotangent(op)
        if g is None or op.primitive is None:
            continue
        graph.span, graph.call = op.span, op.call
        if op.primitive.name == "tap" and on_tap is not None:
            on_tap(op, g)
        flow.into_operands(op, g)
    graph.span, graph.call = span, call
    return [flow.result(x) for x in wrt]


class _Flow:
    """The cotangents gathered so far.

    reaches:  by op number, whether the op depends on one of `wrt`
    dense:    op number -> its cotangent
    indexed:  op number -> what adds further contributions into an array, for indexing primitives
    """

    def __init__(self, graph: Graph, output: Op, wrt: Sequence[Op]) -> None:
        self.graph = graph
        self.reaches = [False] * len(graph.ops)
        for x in wrt:
            self.reaches[x.index] = True
        for op in graph.ops[: output.index + 1]:
            if not self.reaches[op.index]:
                self.reaches[op.index] = any([isinstance(x, Op) and self.reaches[x.index] for x in op.operands])
        self.dense: dict[int, Op] = {}
        self.indexed: dict[int, list[Callable[[Op], Op]]] = {}

    def cotangent(self, op: Op) -> Op | None:
        """All that has flowed into `op`, as one array; it is complete once later ops are done."""
        g, adds = self.dense.get(op.index), self.indexed.pop(op.index, [])
        if adds:
            g = PRIMITIVES["zeros-like"](op) if g is None else g
            for add in adds:
                assert g is not None
                g = add(g)
            assert g is not None
            self.dense[op.index] = g
        return g

    def result(self, x: Op) -> Op:
        g = self.cotangent(x)
        return g if g is not None else PRIMITIVES["zeros-like"](x)

    def into_operands(self, op: Op, g: Op) -> None:
        """Pass the cotangent of `op` on to its operands."""
        primitive = op.primitive
        assert primitive is not None
        for i, x in enumerate(op.operands):
            if not isinstance(x, Op) or not self.reaches[x.index] or not x.type.is_float:
                continue
            into = _entry(primitive.into, i)
            if into is not None:
                self._index(op, g, x, into, i)
                continue
            vjp = _entry(primitive.vjp, i)
            if vjp is not None:
                self._add(x, _like(vjp(g, op, *op.operands, **_static(primitive.vjp, op, i)), x))

    def _index(self, op: Op, g: Op, x: Op, into: VJP, i: int) -> None:
        static = _static(op.primitive.into, op, i)  # type: ignore[union-attr]  # a source has no operands
        self.indexed.setdefault(x.index, []).append(lambda acc: into(acc, g, op, *op.operands, **static))

    def _add(self, x: Op, g: Op) -> None:
        known = self.dense.get(x.index)
        self.dense[x.index] = g if known is None else PRIMITIVES["+"](known, g)


def _entry(table: Any, i: int) -> VJP | None:
    """The function of operand `i` in a `vjp` or `into`."""
    if table is None or callable(table):
        return table  # type: ignore[no-any-return]  # callable: one function for all operands
    return table[i] if i < len(table) else None


def _static(table: Any, op: Op, i: int) -> dict[str, Any]:
    return {**op.static, "index": i} if callable(table) else op.static


def _like(g: Op, x: Op) -> Op:
    """The cotangent summed to the shape of `x` and brought to its type."""
    if g.shape != x.shape:
        g = _summed_to(g, x.shape)
    return g if g.dtype == x.dtype else PRIMITIVES["cast"](g, dtype=x.dtype)


def _summed_to(g: Op, shape: tuple[int, ...]) -> Op:
    """`g` as the cotangent of an array of `shape`: summed where that was broadcast, broadcast where it is smaller."""
    extra = g.ndim - len(shape)
    axes = (
        [*range(extra), *[i + extra for i, n in enumerate(shape) if n == 1 and g.shape[i + extra] != 1]]
        if extra >= 0
        else []
    )
    out = PRIMITIVES["sum"](g, axis=tuple(axes), keep=False) if axes else g
    if out.type.size != prod(shape):
        return PRIMITIVES["broadcast-to"](out, shape=shape)  # type: ignore[no-any-return]  # an op
    return out if out.shape == shape else PRIMITIVES["reshape"](out, shape=shape)
