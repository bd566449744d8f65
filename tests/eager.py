"""Primitives computed at once in NumPy, as a test wants them: checked against their rules, and differentiable.

An oracle of its own: it shares with the interpreter only what a primitive's entry says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sxi.arraytype import CARRIERS, ArrayType, of_literal, promote, with_literal
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import REQUIRED, Primitive, Static, Value
from sxi.random import Draws


class Computed(Value):
    """A value whose array is known."""

    __slots__ = ("array",)

    def __init__(self, array: Any, emitter: Eager, dtype: str | None = None) -> None:
        found = ArrayType.of(array)
        super().__init__(found.with_dtype(dtype or found.dtype), emitter)
        self.array = array


class Eager:
    """An emitter that computes, and keeps what it did for `gradients`."""

    def __init__(self) -> None:
        self.draws = Draws(0, np.array)
        self.done: list[tuple[Primitive, list[Any], Static, Computed]] = []

    def value(self, x: Any, dtype: str | None = None) -> Computed:
        return Computed(np.asarray(x), self, dtype)

    def apply(self, primitive: Primitive, operands: Sequence[Any], static: Static) -> Any:
        operands = self.promoted(primitive, operands)
        if primitive.expand is not None:
            return primitive.expand(*([self] if primitive.needs_emitter else []), *operands, **static)
        assert primitive.rule is not None
        assert primitive.forward is not None
        types = types_of(primitive, operands)
        promised = primitive.rule(*types, **static)
        arrays = [x.array if isinstance(x, Computed) else x for x in operands]
        with np.errstate(all="ignore"):
            array = primitive.forward(np, *([self.draws] if primitive.draws else []), *arrays, **static)
            if promised.dtype == "bf16":
                array = PRIMITIVES["round-bf16"].forward(np, array)  # type: ignore[misc]  # it is no composite
        assert (str(array.dtype), array.shape) == (promised.carrier, promised.shape), (primitive.name, promised)
        out = self.value(array, promised.dtype)
        self.done.append((primitive, operands, static, out))
        return out

    def promoted(self, primitive: Primitive, operands: Sequence[Any]) -> list[Any]:
        """The operands as the primitive takes them."""
        taking = [i for i, x in enumerate(operands) if x is not None and primitive.policy(i) != "-"]
        common = common_dtype([operands[i].dtype if isinstance(operands[i], Value) else operands[i] for i in taking])
        has_array = any(isinstance(operands[i], Value) for i in taking)
        if common in ("i32", "i64") and any(primitive.policy(i) == "f" for i in taking):
            common = "f32"
        out = list(operands)
        for i, x in enumerate(operands):
            if isinstance(x, Value):
                if i in taking and x.dtype != common:
                    out[i] = PRIMITIVES["cast"](x, dtype=common)
            elif x is not None and not primitive.needs_emitter and not (i in taking and has_array):
                dtype = common if i in taking else of_literal(x)
                out[i] = self.value(np.asarray(x, CARRIERS[dtype]), dtype)
        return out

    def gradients(self, out: Computed, inputs: Sequence[Computed]) -> list[Computed]:
        """The cotangents of `inputs`, that of the scalar `out` being 1; values, which may be differentiated again."""
        flowed: dict[int, Any] = {id(out): self.value(np.ones_like(out.array))}
        for primitive, operands, static, result in reversed(list(self.done)):
            g = flowed.get(id(result))
            if g is None:
                continue
            for i, x in enumerate(operands):
                if not isinstance(x, Computed) or not x.type.is_float:
                    continue
                into, vjp = entry(primitive.into, i), entry(primitive.vjp, i)
                if into is not None:
                    more = flowed.get(id(x)) or self.value(np.zeros_like(x.array))
                    flowed[id(x)] = into(more, g, result, *operands, **static)
                elif vjp is not None:
                    part = self.like(vjp(g, result, *operands, **static), x)
                    flowed[id(x)] = PRIMITIVES["+"](flowed[id(x)], part) if id(x) in flowed else part
        return [flowed.get(id(x)) or self.value(np.zeros_like(x.array)) for x in inputs]

    def like(self, g: Computed, x: Computed) -> Any:
        """A cotangent summed, or repeated, to the shape of its operand."""
        lead = max(g.ndim - x.ndim, 0)
        lengths = (1,) * (g.ndim - x.ndim) + x.shape[-g.ndim :] if g.ndim else ()
        axes = [i for i, (given, wanted) in enumerate(zip(g.shape, lengths, strict=True)) if wanted == 1 != given]
        summed = PRIMITIVES["sum"](g, axis=tuple(axes), keep=True)
        summed = PRIMITIVES["reshape"](summed, shape=summed.shape[lead:])
        return summed if summed.shape == x.shape else PRIMITIVES["broadcast-to"](summed, shape=x.shape)


def entry(table: Any, i: int) -> Callable[..., Any] | None:
    """The function of operand `i` in a `vjp` or an `into`."""
    if callable(table):
        return lambda *xs, **static: table(*xs, index=i, **static)
    return table[i] if table and i < len(table) else None


def common_dtype(xs: Sequence[Any]) -> str:
    """The dtype of dtypes and host numbers taken together; "" of nothing."""
    dtype = ""
    for x in xs:
        if isinstance(x, str):
            dtype = promote(dtype, x) if dtype else x
    for x in xs:
        if not isinstance(x, str):
            dtype = with_literal(dtype, x) if dtype else of_literal(x)
    return dtype


def types_of(primitive: Primitive, operands: Sequence[Any]) -> list[Any]:
    """What the rule gets: a host number is a scalar of the arrays' dtype."""
    shared = [x.dtype for i, x in enumerate(operands) if isinstance(x, Value) and primitive.policy(i) != "-"]
    return [x.type if isinstance(x, Value) else None if x is None else ArrayType(shared[0]) for x in operands]


def completed(primitive: Primitive, static: Static) -> Static:
    """Static operands with the defaults of those left out."""
    defaults = {p.python_name: p.default for p in primitive.params if p.kind != "array" and p.default is not REQUIRED}
    marks = {"place": "t"} if primitive.draws else {}
    return {**defaults, **marks, **({"training": True} if primitive.uses_training else {}), **static}


def call(primitive: Primitive, eager: Eager, operands: Sequence[Any], **static: Any) -> Any:
    """`primitive` of values, host numbers and None, keyword operands left out at their defaults."""
    left_out = [p.default for p in primitive.arrays[len(operands) :] if p.by_keyword]
    return eager.apply(primitive, [*operands, *left_out], completed(primitive, static))


def compute(primitive: Primitive, *operands: Any, **static: Any) -> Any:
    """The array, or the list of arrays, that `primitive` gives for NumPy arrays, host numbers and None."""
    eager = Eager()
    out = call(primitive, eager, [eager.value(x) if hasattr(x, "dtype") else x for x in operands], **static)
    return [v.array for v in out] if isinstance(out, list) else out.array


def gradient(primitive: Primitive, *operands: Any, g: Any = 1.0, **static: Any) -> list[Any]:
    """The cotangents of the arrays among `operands` where that of each element of the result is `g`."""
    eager = Eager()
    values = [eager.value(x) if hasattr(x, "dtype") else x for x in operands]
    out = eager.apply(primitive, values, completed(primitive, static))
    total = PRIMITIVES["sum"](PRIMITIVES["*"](out, eager.value(np.asarray(g, out.array.dtype))))
    return [v.array for v in eager.gradients(total, [v for v in values if isinstance(v, Computed)])]
