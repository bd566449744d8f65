"""A second evaluator of a part of the language, which shares nothing with the first but the reader.

It walks the forms of an objective over NumPy arrays, once for each microbatch, with no graph, no types and no
plan; what it reports of a step is what the reference says, computed the plainest way.  Its numbers are meant to be
exact, so that an order of additions makes no difference: where one is not, it raises `Inexact`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from sxi.reader import Group, Keyword, Number, Symbol, Text, read_all
from sxi.source import Source

Env: TypeAlias = dict[str, Any]
Series: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
CONSTANTS = {"true": True, "false": False, "nil": None, "inf": math.inf, "-inf": -math.inf, "nan": math.nan}
LARGEST, SMALLEST = 2.0**20, 2.0**-12


class Inexact(Exception):
    """A number that f32 sums may round."""


def series_of(name: str, meta: dict[str, Any]) -> Series:
    """A series whatever the order of its metadata; 1, 1.0 and true are three values."""
    return name, tuple(sorted([(k, repr(v)) for k, v in meta.items()]))


@dataclass
class Step:
    """What is reported in one step.

    values:  of each metric, with its reduction, in the order of evaluation
    counts:  of each guard form, in the order of the walk: (where it stands, bound, series) -> total
    """

    values: dict[Series, tuple[str, list[float]]] = field(default_factory=dict)
    counts: dict[tuple[int, str, Series], float] = field(default_factory=dict)

    def points(self) -> dict[Series, float]:
        """The value of each series; of guards under `guard/`."""
        found = {series: float(np.float32(REDUCE[how](values))) for series, (how, values) in self.values.items()}
        return found | {(f"guard/{name}", meta): total for (name, meta), total in self.totals().items()}

    def totals(self) -> dict[Series, float]:
        totals: dict[Series, float] = {}
        for (_, _, series), count in self.counts.items():
            totals[series] = totals.get(series, 0.0) + count
        return totals

    def verdict(self) -> tuple[Series, float, int] | None:
        """The series that stops the run, its total, and where its first form that counted stands."""
        totals = self.totals()
        for (at, _, series), count in self.counts.items():
            if count != 0 and totals[series] != 0:
                return series, totals[series], at
        return None


def _extreme(pick: Callable[..., float]) -> Callable[[list[float]], float]:
    return lambda values: math.nan if any(map(math.isnan, values)) else pick(values)


REDUCE: dict[str, Callable[[list[float]], float]] = {
    "mean": lambda values: sum(values) / len(values), "sum": sum, "last": lambda values: values[-1],
    "min": _extreme(min), "max": _extreme(max),
}  # fmt: skip


def _chain(two: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *xs: reduce(two, xs)


def _reduction(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axis=None, keep=False: f(x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keep)


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "+": _chain(operator.add), "*": _chain(operator.mul), "/": _chain(operator.truediv),
    "-": lambda a, *rest: reduce(operator.sub, rest, a) if rest else -a, "neg": operator.neg, "abs": abs,
    "square": lambda x: x * x,
    "minimum": lambda a, b: np.minimum(a, b) if _is_array(a) or _is_array(b) else min(a, b),
    "maximum": lambda a, b: np.maximum(a, b) if _is_array(a) or _is_array(b) else max(a, b),
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "/=": operator.ne,
    "logical-and": np.logical_and, "logical-or": np.logical_or, "logical-not": np.logical_not,
    "finite?": np.isfinite, "nan?": np.isnan, "inf?": np.isinf,
    "where": lambda mask, a, b: np.asarray(np.where(mask, a, b), np.float32),
    "sum": _reduction(np.sum), "mean": _reduction(np.mean), "max": _reduction(np.max), "min": _reduction(np.min),
    "count-where": lambda mask: np.float32(np.count_nonzero(mask)),
    "dim": lambda x, axis: x.shape[axis], "size": np.size,
    "range": lambda *ends: list(range(*ends)), "str": lambda *parts: "".join(map(str, parts)),
}  # fmt: skip


class Naive:
    """The objective of a program, with the functions that it calls."""

    def __init__(self, text: str) -> None:
        forms: Any
        forms, errors = read_all(Source("naive.sx", text))
        assert not errors, errors
        self.functions: dict[str, tuple[list[str], Any]] = {}
        self.step = Step()
        for form in forms:
            head, target, *body = form.items
            if head.name == "objective":
                self.objective = [f.name for f in target.items], body
            elif head.name == "define":
                name, *parameters = [f.name for f in target.items]
                self.functions[name] = parameters, body

    def evaluate(self, microbatches: list[dict[str, Any]]) -> Step:
        """What the objective reports of the microbatches of one step."""
        self.step = Step()
        (name,), body = self.objective
        with np.errstate(all="ignore"):
            for batch in microbatches:
                self.body(body, {name: batch})
        return self.step

    def body(self, forms: Any, env: Env) -> Any:
        return [self.value(f, env) for f in forms][-1]

    def value(self, form: Any, env: Env) -> Any:
        match form:
            case Number(value) | Text(value):
                return value
            case Keyword(name):
                return name
            case Symbol(name):
                return CONSTANTS[name] if name in CONSTANTS else env[name]
            case Group(bracket="["):
                return [self.value(f, env) for f in form.items]
            case Group(items=(Keyword(name), record)):
                return self.value(record, env)[name]
        head, *rest = form.items
        special = getattr(self, "_" + head.name.replace("-", "_"), None)
        if special is not None:
            return special(form, rest, env)
        keys = [i for i, f in enumerate(rest) if isinstance(f, Keyword)][:1] or [len(rest)]
        given = [self.value(f, env) for f in rest[: keys[0]]]
        options = {k.name: self.value(v, env) for k, v in zip(rest[keys[0] :: 2], rest[keys[0] + 1 :: 2], strict=True)}
        if head.name in self.functions:
            parameters, body = self.functions[head.name]
            return self.body(body, dict(zip(parameters, given, strict=True)))
        return exact(OPERATIONS[head.name](*given, **options))

    def _param(self, form: Any, rest: Any, env: Env) -> Any:
        return np.float32(1.0)

    def _begin(self, form: Any, rest: Any, env: Env) -> Any:
        return self.body(rest, env)

    def _if(self, form: Any, rest: Any, env: Env) -> Any:
        test, then, other = rest
        return self.value(other if self.value(test, env) in (None, False) else then, env)

    def _let(self, form: Any, rest: Any, env: Env) -> Any:
        bindings, *body = rest
        for binding in bindings.items:
            env = {**env, binding.items[0].name: self.value(binding.items[1], env)}
        return self.body(body, env)

    def _fold(self, form: Any, rest: Any, env: Env) -> Any:
        (carried, first), (item, items) = rest[0].items, rest[1].items
        value = self.value(first, env)
        for x in self.value(items, env):
            value = self.body(rest[2:], {**env, carried.name: value, item.name: x})
        return value

    # Reports

    def _report(self, form: Any, rest: Any, env: Env) -> tuple[str, Any, dict[str, Any], dict[str, Any]]:
        name, value = self.value(rest[0], env), self.value(rest[1], env)
        given = {k.name: self.value(v, env) for k, v in zip(rest[2::2], rest[3::2], strict=True)}
        options = {k: given.pop(k) for k in list(given) if k in ("below", "above", "reduce")}
        return name, value, given, options

    def _count(self, form: Any, kind: str, series: Series, count: float) -> None:
        key = form.span.start, kind, series
        self.step.counts[key] = self.step.counts.get(key, 0.0) + float(np.float32(count))

    def _guard(self, form: Any, rest: Any, env: Env) -> Any:
        name, value, meta, _ = self._report(form, rest, env)
        self._count(form, "", series_of(name, meta), value)
        return value

    def _assert_finite(self, form: Any, rest: Any, env: Env) -> Any:
        name, value, meta, _ = self._report(form, rest, env)
        self._count(form, "", series_of(name, meta), float(np.count_nonzero(~np.isfinite(value))))
        return value

    def _metric(self, form: Any, rest: Any, env: Env) -> Any:
        name, value, meta, options = self._report(form, rest, env)
        series = series_of(name, meta)
        self.step.values.setdefault(series, (options.get("reduce", "mean"), []))[1].append(float(np.float32(value)))
        for kind, holds in (("below", operator.lt), ("above", operator.gt)):
            if kind in options:
                self._count(form, kind, series, not holds(np.float32(value), np.float32(options[kind])))
        return value


def exact(x: Any) -> Any:
    """`x`, whose finite numbers are few enough bits long that sums of them are exact."""
    if isinstance(x, list | str | bool):
        return x
    finite = np.asarray(x, np.float64)
    finite = finite[np.isfinite(finite)]
    if finite.size and (np.abs(finite).max() > LARGEST or (finite % SMALLEST).any()):
        raise Inexact
    return x
