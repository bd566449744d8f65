"""Primitives computed at once in NumPy, with the operations kept, so that a test can differentiate them.

Small on purpose: an operation's operands are promoted as its entry says, and reverse mode is one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sxi.arraytype import ArrayType, promote, with_literal
from sxi.primitives.compare import cast
from sxi.primitives.declare import REQUIRED, Primitive, Value
from sxi.primitives.elementwise import add
from sxi.primitives.shape import unbroadcast
from sxi.random import Draws


class Computed(Value):
    """A value whose array is known."""

    __slots__ = ("array",)

    def __init__(self, array: Any, tape: Tape) -> None:
        super().__init__(ArrayType.of(array), tape)
        self.array = array


class Tape:
    """An emitter that computes in NumPy and keeps what it did."""

    def __init__(self, seed: int = 0) -> None:
        self.draws = Draws(seed, np.array)
        self.done: list[tuple[Primitive, tuple[Any, ...], dict[str, Any], Computed]] = []

    def value(self, array: Any) -> Computed:
        return Computed(np.asarray(array), self)

    def apply(self, primitive: Primitive, operands: Sequence[Any], static: dict[str, Any]) -> Computed:
        taken = self.promoted(primitive, operands)
        shared = next((x.dtype for x in taken if isinstance(x, Value)), "f32")
        types = [x.type if isinstance(x, Value) else None if x is None else ArrayType(shared) for x in taken]
        assert primitive.rule is not None
        assert primitive.forward is not None
        expected = primitive.rule(*types, **static)
        arrays = [x.array if isinstance(x, Computed) else x for x in taken]
        drawn = [self.draws] if primitive.draws else []
        out = self.value(primitive.forward(np, *drawn, *arrays, **static))
        assert out.type == expected, f"{primitive.name}: {out.type}, its rule says {expected}"
        self.done.append((primitive, tuple(taken), static, out))
        return out

    def promoted(self, primitive: Primitive, operands: Sequence[Any], numbers: bool = False) -> list[Any]:
        """Operands as `primitive` takes them; host numbers as they are where `numbers`."""
        shared = [i for i, x in enumerate(operands) if x is not None and primitive.policy(i) in "sf"]
        dtype = ""
        for i in shared:
            if isinstance(operands[i], Value):
                dtype = promote(dtype, operands[i].dtype) if dtype else operands[i].dtype
        for i in shared:
            if not isinstance(operands[i], Value) and dtype:
                dtype = with_literal(dtype, operands[i])
        if dtype in ("i32", "i64") and any(primitive.policy(i) == "f" for i in shared):
            dtype = "f32"
        return [
            x if numbers and not isinstance(x, Value) else self._taken(x, dtype if i in shared else "")
            for i, x in enumerate(operands)
        ]

    def _taken(self, x: Any, dtype: str) -> Any:
        if not isinstance(x, Computed):
            return x if dtype or x is None else self.value(np.asarray(x, "int32" if isinstance(x, int) else "float32"))
        if not dtype or dtype == x.dtype:
            return x
        return self.apply(cast, (x,), {"dtype": dtype})

    def gradients(self, out: Computed, inputs: Sequence[Computed]) -> list[Computed]:
        """The cotangents of `inputs` when that of `out` is ones; values again, to be differentiated."""
        total: dict[int, Any] = {id(out): self.value(np.ones_like(out.array))}
        for done in reversed(tuple(self.done)):
            g = total.get(id(done[3]))
            for x, part in _cotangents(g, *done) if g is not None else ():
                total[id(x)] = add(total[id(x)], part) if id(x) in total else part
        return [total[id(x)] if id(x) in total else self.value(np.zeros_like(x.array)) for x in inputs]


def _cotangents(
    g: Computed, primitive: Primitive, operands: Sequence[Any], static: dict[str, Any], out: Computed
) -> list[tuple[Computed, Computed]]:
    """What flows into each operand that is a value and has a gradient."""
    parts = []
    for i, x in enumerate(operands):
        many = not isinstance(primitive.vjp, tuple)
        rule: Any = primitive.vjp[i] if isinstance(primitive.vjp, tuple) else primitive.vjp
        if isinstance(x, Computed) and rule is not None:
            part = rule(g, out, *operands, **static, **({"index": i} if many else {}))
            parts.append((x, unbroadcast(part, x)))
    return parts


def call(primitive: Primitive, *operands: Any, tape: Tape | None = None, **static: Any) -> Any:
    """The array that `primitive` gives for NumPy arrays, host numbers and None, as a program would call it."""
    tape = tape or Tape()
    values = [tape.value(x) if isinstance(x, np.ndarray) else x for x in operands]
    result = emit(primitive, values, tape, **static)
    return result.array if isinstance(result, Computed) else result


def emit(primitive: Primitive, values: Sequence[Any], tape: Tape, **static: Any) -> Any:
    """The value of `primitive` for values of `tape`; keywords left out take their defaults, a draw the place `t`."""
    for p in primitive.params:
        if p.kind != "array" and p.default is not REQUIRED:
            static.setdefault(p.python_name, p.default)
    given = list(values)
    given += [p.default for p in primitive.arrays[len(given) :]] if not any(p.many for p in primitive.arrays) else []
    if primitive.draws:
        static.setdefault("place", "t")
    if primitive.uses_training:
        static.setdefault("training", True)
    if primitive.expand is None:
        return tape.apply(primitive, given, static)
    if primitive.needs_emitter:
        return primitive.expand(tape, *tape.promoted(primitive, given, numbers=True), **static)
    return primitive.expand(*tape.promoted(primitive, given), **static)


def numeric_gradient(f: Callable[..., Any], arrays: Sequence[Any], index: int, step: float = 1e-5) -> Any:
    """The gradient of the sum of `f` by `arrays[index]`, f64, by central differences."""
    out = np.zeros_like(arrays[index])
    for at in np.ndindex(out.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[index][at] += sign * step
            ends.append(np.sum(f(*moved)))
        out[at] = (ends[0] - ends[1]) / (2 * step)
    return out
