"""Applying a primitive, the same for every kind of walk: conversions, the type rule, bf16 regions.

A graph and an eager backend differ only in what `emit` does with the checked operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType, fits, of_literal, promote, with_literal
from sxi.codes import Refusal
from sxi.primitives import PRIMITIVES, host
from sxi.primitives.declare import Primitive, Static, Value

# What gives f32 in a `bf16` region too: a count past 256 has no place on bf16's grid.
_EXACT = frozenset({"count-where"})


class BaseEmitter:
    """What `Graph` and `EagerEmitter` share.

    rounding:  whether operations stand in a `bf16` region
    """

    rounding = False

    def emit(self, primitive: Primitive, operands: tuple[Any, ...], static: Static, type: ArrayType) -> Value:
        """Record or compute one checked operation; `operands` are values, numbers or None."""
        raise NotImplementedError

    def constant(self, value: Any, dtype: str | None = None) -> Value:
        """A host number or a host array as a value."""
        raise NotImplementedError

    def adopt(self, x: Value) -> Value:
        """An array of another emitter as one of this."""
        raise NotImplementedError

    def apply(self, primitive: Primitive, operands: Sequence[Any], static: Static) -> Any:
        """The result of `primitive`: a value, or a host number where every operand is one.

        Raises codes.Refusal where types or shapes do not fit, ZeroDivisionError for a whole-number
        division of host numbers by zero.
        """
        if primitive.elementwise and not any([isinstance(x, Value) for x in operands]):
            if all([isinstance(x, bool) for x in operands]):
                _check_takes_masks(primitive, operands, static)
            return host.evaluate(primitive, list(operands), **static)
        taken = operands
        try:
            if primitive.needs_emitter:  # such a composite tells host numbers from arrays itself
                taken = [self.adopt(x) if isinstance(x, Value) else x for x in operands]
            else:
                taken = self._converted(primitive, operands)
            if self.rounding:
                return self._rounded(primitive, taken, static)
            return self._applied(primitive, taken, static)
        except Refusal as refusal:
            _place(refusal, operands, taken)
            raise

    def _applied(self, primitive: Primitive, operands: Sequence[Any], static: Static) -> Any:
        if primitive.expand is not None:
            first = (self,) if primitive.needs_emitter else ()
            return primitive.expand(*first, *operands, **static)
        assert primitive.rule is not None
        types = [_type_of(x) for x in operands]
        result = primitive.rule(*_completed(primitive, types), **static)
        out = self.emit(primitive, tuple(operands), static, result)
        if result.dtype == "bf16" and not primitive.moves and primitive.name != "round-bf16":
            return self.emit(PRIMITIVES["round-bf16"], (out,), {}, result)
        return out

    def _converted(self, primitive: Primitive, operands: Sequence[Any]) -> list[Any]:
        """The operands brought to the types that the primitive computes in."""
        operands = [self.adopt(x) if isinstance(x, Value) and x.emitter is not self else x for x in operands]
        shared: str | None = None
        for i, x in enumerate(operands):
            if isinstance(x, Value) and primitive.policy(i) != "-":
                shared = x.dtype if shared is None else promote(shared, x.dtype)
        if shared is not None:
            for i, x in enumerate(operands):
                if not isinstance(x, Value) and x is not None and primitive.policy(i) != "-":
                    shared = with_literal(shared, x)
        out: list[Any] = []
        for i, x in enumerate(operands):
            policy = primitive.policy(i)
            dtype = shared
            if policy == "f" and dtype is not None and dtype in ("i32", "i64"):
                dtype = "f32"
            out.append(self._operand(x, policy, dtype, i))
        return out

    def _operand(self, x: Any, policy: str, dtype: str | None, index: int) -> Any:
        if x is None:
            return None
        if isinstance(x, Value):
            return x if policy == "-" or dtype is None or x.dtype == dtype else self.cast(x, dtype)
        if isinstance(x, list | tuple):
            raise Refusal(codes.NOT_AN_ARRAY, index, given="a list")
        if policy == "-" or dtype is None:
            made = of_literal(x)
            if policy == "f" and made == "i32":
                x, made = host.real(x), "f32"
            _check_fits(x, made, index)
            return self.constant(x, made)
        _check_fits(x, dtype, index)
        if dtype == "bool" or isinstance(x, bool):
            return self.constant(x, dtype)
        return host.real(x) if dtype not in ("i32", "i64") else x

    def cast(self, x: Value, dtype: str) -> Value:
        """`x` in another dtype; itself where it has that one."""
        if x.dtype == dtype:
            return x
        cast: Value = self._applied(PRIMITIVES["cast"], [x], {"dtype": dtype})
        return cast

    # A bf16 region: float operands and results are rounded to the bf16 grid and carried in f32.

    def _rounded(self, primitive: Primitive, operands: Sequence[Any], static: Static) -> Any:
        self.rounding = False  # a composite rounds at its edges only
        try:
            rounded = [self.round_bf16(x) for x in operands]
            out = self._applied(primitive, rounded, static)
            exact = primitive.moves or primitive.name in _EXACT
            return out if exact else _each(out, self.round_bf16)
        finally:
            self.rounding = True

    def round_bf16(self, x: Any) -> Any:
        """`x` rounded to the bf16 grid, in f32; what is not a real is left as it is."""
        if isinstance(x, float):
            return host.evaluate(PRIMITIVES["round-bf16"], [x])
        if not isinstance(x, Value) or not x.type.is_float:
            return x
        # also where the value is on the grid already: its gradient by this use is rounded, and the plan drops the rest
        return self.emit(PRIMITIVES["round-bf16"], (self.cast(x, "f32"),), {}, ArrayType("f32", x.shape))


def _each(out: Any, f: Any) -> Any:
    return [f(x) for x in out] if isinstance(out, list) else f(out)


def _place(refusal: Refusal, operands: Sequence[Any], taken: Sequence[Any]) -> None:
    """Say which of `operands` a refusal is about: one of a primitive within a composite numbers its own."""
    if refusal.subject is not None:
        refusal.operand = next((i for i, x in enumerate(taken) if x is refusal.subject), None)
    if isinstance(refusal.operand, int):
        refusal.subject = operands[refusal.operand] if refusal.operand < len(operands) else None
    elif refusal.operand is None:
        refusal.subject = _WHOLE


# What a refusal is about that names no operand.
_WHOLE = object()


def _check_takes_masks(primitive: Primitive, operands: Sequence[Any], static: Static) -> None:
    """Refuse bools where an array of them would be refused."""
    if primitive.rule is not None:
        primitive.rule(*[ArrayType("bool")] * len(operands), **static)
    elif primitive.policy(0) == "f":
        raise Refusal(codes.NOT_NUMERIC, 0, type=ArrayType("bool"))


def _check_fits(x: Any, dtype: str, index: int) -> None:
    if not fits(x, dtype):
        raise Refusal(codes.DOES_NOT_FIT, index, value=x, dtype=dtype)


def _type_of(x: Any) -> Any:
    return x.type if isinstance(x, Value) else x


def _completed(primitive: Primitive, types: list[Any]) -> list[Any]:
    """Types for the host numbers among `types`: a scalar of the dtype that the arrays share."""
    shared = [t.dtype for i, t in enumerate(types) if isinstance(t, ArrayType) and primitive.policy(i) != "-"]
    return [t if t is None or isinstance(t, ArrayType) else ArrayType(shared[0]) for t in types]
