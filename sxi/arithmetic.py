"""Arithmetic on two host numbers, quick: schedules, shapes and loops are made of it.

The general way through a frame takes twenty times as long, and most of what is left is Python calling closures.  So
the node of such a call has its operator, its names and its numbers written into it: one call for `(+ i 2)`, not three.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from sxi.names import Scope, Variable
from sxi.primitives.declare import Primitive
from sxi.primitives.host import bounded
from sxi.reader import Form, Number, Symbol
from sxi.values import Node

ARITHMETIC = ("+", "-", "*")
COMPARISONS = ("<", "<=", ">", ">=")

# Two whole numbers or two reals; all else, with what it means and what it refuses, is the frame's.  An integer of one
# digit of Python's is surely short enough: to look is quicker than to ask.
_OUTER = """
def made(first, second, primitive, site, bounded):
    def node(frame, env):
        a = {first}
        b = {second}
"""
_COMPARED = """
        kind = type(a)
        if kind is type(b) and (kind is int or kind is float):
            return a {operator} b
"""
_COMPUTED = """
        if type(a) is int and type(b) is int:
            value = a {operator} b
            if -1073741824 < value < 1073741824:
                return value
            return bounded(value)
        if type(a) is float and type(b) is float:
            return a {operator} b
"""
_GENERAL = """
        return frame.apply(primitive, [a, b], {}, site)
    return node
"""
# How an operand is read: what `first` and `second` are then.
_READ = {"node": "{0}(frame, env)", "slot": "env[{0}]", "number": "{0}"}


def quick_call(primitive: Primitive, forms: list[Form], nodes: list[Node], site: object, scope: Scope) -> Node | None:
    """The node of a call of `primitive` with two operands; None where there is no quick way.

    forms, nodes:  the operands as they are written and as they are evaluated
    site:          what the frame is told of the call
    """
    if len(nodes) != 2 or primitive.name not in ARITHMETIC + COMPARISONS:
        return None
    (first_kind, first), (second_kind, second) = (_operand(f, n, scope) for f, n in zip(forms, nodes, strict=True))
    made = _maker(primitive.name, first_kind, second_kind)
    return made(first, second, primitive, site, bounded)  # type: ignore[no-any-return]  # it comes out of a text


def _operand(form: Form, node: Node, scope: Scope) -> tuple[str, Any]:
    """How an operand is read, and what it is read by: its number, its slot, its node."""
    if isinstance(form, Number):
        return "number", form.value
    found = scope.lookup(form.name) if isinstance(form, Symbol) else None
    if isinstance(found, Variable) and not found.in_cell:
        return "slot", found.slot
    return "node", node


@cache
def _maker(operator: str, first: str, second: str) -> Callable[..., Any]:
    """What makes the node of `operator` for operands that are read so."""
    middle = (_COMPARED if operator in COMPARISONS else _COMPUTED).format(operator=operator)
    outer = _OUTER.format(first=_READ[first].format("first"), second=_READ[second].format("second"))
    names: dict[str, Any] = {}
    exec(outer + middle + _GENERAL, names)
    return names["made"]  # type: ignore[no-any-return]  # of a text
