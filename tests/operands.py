"""Calls of every primitive as the language writes them: good ones, and each with one thing wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import REQUIRED, Case, Param, Primitive
from sxi.values import Key, written

NAMED = [p for p in PRIMITIVES.values() if not p.internal]
# What an operand may be in place of a good one.
KINDS = {
    "a list": "[1 2]",
    "the empty list": "[]",
    "a list of lists": "[[1] [2 3]]",
    "a string": '"text"',
    "nil": "nil",
    "a keyword": ":below",
    "a type": ":bf16",
    "a bool": "true",
    "a function": "(lambda (x) x)",
    "a primitive": "tanh",
    "a builtin": "nth",
    "a record": "{:x 1}",
    "a form": "'(+ 1 2)",
}
NUMBERS = [
    "-1", "0", "1", "3", "99", "-99", "2147483649", "-2147483649", "9223372036854775808", "(pow 10 400)",
    "(neg (pow 10 400))", "0.5", "-1.5", "1e39", "1e308", "-0.0", "inf", "-inf", "nan",
]  # fmt: skip
ARRAYS = [
    "(ones [])", "(ones [3])", "(ones [5 7])", "(zeros [0])", "(zeros [2 0 3])", "(ones [2 3 4 1 1])",
    "(ones [2 3] :dtype :i64)", "(ones [3 3] :dtype :f16)", "(cast (ones [2 3]) :bf16)", "(ones [2 3] :dtype :f64)",
    "(> (ones [2 3]) 0.5)", "(array [-99 0 99])", "(array [2147483647 -2147483648])", "(full [3] nan)",
]  # fmt: skip
LISTS = [
    "[-1]", "[0 0]", "[99 0]", "[2147483649]", "[9223372036854775808]", "[(pow 10 400)]", "[100000 100000 100000]",
    "[1.5]", "[true]", "[nil]", "[1 [2]]", "[[0 1] [2 3]]", "[[-1 0] [0 0]]", "[(ones [2])]", "[1 1 1 1 1 1 1 1]",
]  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call as it is written: `(name 1 2 :k 3)`.

    changed:  the operand that was put in place of a good one, or ""
    """

    name: str
    positional: tuple[str, ...]
    keywords: tuple[tuple[str, str], ...] = ()
    changed: str = ""

    @property
    def text(self) -> str:
        return f"({' '.join([self.name, *self.positional, *[f':{k} {v}' for k, v in self.keywords]])})"


def array_text(dtype: str, shape: tuple[int, ...]) -> str:
    lengths = f"[{' '.join(map(str, shape))}]"
    if dtype == "bool":
        return f"(> (ones {lengths}) 0.5)"
    return f"(full {lengths} {'0.75' if dtype == 'f32' else '1'})"


def static_text(param: Param, value: Any) -> str:
    if value is None:
        return "nil"
    if param.kind in ("dtype", "keyword") or (param.kind == "padding" and isinstance(value, str)):
        return written(Key(value))
    return written(value)


def good(p: Primitive, case: Case) -> Call:
    """The call of a case."""
    positional: list[str] = []
    keywords: list[tuple[str, str]] = []
    operands = [array_text(p.sample[min(i, len(p.sample) - 1)].dtype, shape) for i, shape in enumerate(case.shapes)]
    for param in p.params:
        if param.kind != "array":
            if param.python_name not in case.static and param.default is not REQUIRED:
                continue
            text = static_text(param, case.static.get(param.python_name))
        elif param.listed:
            text, operands = f"[{' '.join(operands)}]", []
        elif param.many:
            positional += operands
            continue
        elif operands:
            text = operands.pop(0)
        else:
            continue
        if param.by_keyword:
            keywords.append((param.name, text))
        else:
            positional.append(text)
    return Call(p.name, tuple(positional), tuple(keywords))


def good_calls(p: Primitive) -> list[Call]:
    many = len(p.sample) or 1
    cases = p.cases or tuple(Case((shape,) * many) for shape in ((2, 3), (), (0,)))
    return [good(p, case) for case in cases]


def calls_with_one_operand_changed(p: Primitive, call: Call) -> Iterator[Call]:
    positional = [q for q in p.params if not q.by_keyword]
    for i in range(len(call.positional)):
        for bad in bad_for(positional[min(i, len(positional) - 1)]):
            yield Call(call.name, (*call.positional[:i], bad, *call.positional[i + 1 :]), call.keywords, bad)
    for param in [q for q in p.params if q.by_keyword]:
        others = tuple([(k, v) for k, v in call.keywords if k != param.name])
        for bad in bad_for(param):
            yield Call(call.name, call.positional, (*others, (param.name, bad)), bad)


def bad_for(param: Param) -> list[str]:
    """What to put in its place: a list is none of the arrays, an array none of the static operands."""
    if param.kind == "array" and not param.listed:
        return [*KINDS.values(), *NUMBERS, *ARRAYS]
    return [*KINDS.values(), *NUMBERS, *LISTS, *ARRAYS[:2]]


def calls_with_a_wrong_count(call: Call) -> Iterator[Call]:
    for n in range(len(call.positional)):
        yield Call(call.name, call.positional[:n], call.keywords)
    yield Call(call.name, (*call.positional, *["1"] * 4), call.keywords)
    yield Call(call.name, call.positional, (*call.keywords, ("bogus", "1")))
