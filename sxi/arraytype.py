"""What is known of an array before it exists: its dtype and its shape, written `f32[3 4]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any

# dtype in the language -> the array module's dtype that carries it.  A bf16 array is carried in f32,
# its values rounded to the bf16 grid: NumPy has no bf16, and the carrier makes every count exact.
CARRIERS = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "bf16": "float32",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}
OF_CARRIER = {carrier: name for name, carrier in reversed(CARRIERS.items())}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
INTEGERS = frozenset({"i32", "i64"})
# bool < i32 < i64 < {f16, bf16} < f32 < f64
_ORDER = {"bool": 0, "i32": 1, "i64": 2, "f16": 3, "bf16": 3, "f32": 4, "f64": 5}
_INTEGER_LIMITS = {"i32": 2**31, "i64": 2**63}


@dataclass(frozen=True, slots=True)
class ArrayType:
    """`f32[3 4]`: the dtype and the shape of an array."""

    dtype: str
    shape: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ArrayType:
        """The type written in `text`.  Raises ValueError where that is not one."""
        found = re.fullmatch(r"(\w+)\[([\d ]*)\]", text)
        if not found or found[1] not in CARRIERS:
            raise ValueError(f"not an array type: {text}")
        return cls(found[1], tuple(map(int, found[2].split())))

    @classmethod
    def of(cls, x: Any) -> ArrayType:
        """The type of an array of any array module.  A bf16 array reads as its carrier, f32."""
        return cls(OF_CARRIER[str(x.dtype)], tuple(x.shape))

    @property
    def carrier(self) -> str:
        return CARRIERS[self.dtype]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_integer(self) -> bool:
        return self.dtype in INTEGERS

    @property
    def is_numeric(self) -> bool:
        return self.dtype != "bool"

    def with_shape(self, shape: tuple[int, ...]) -> ArrayType:
        return ArrayType(self.dtype, shape)

    def with_dtype(self, dtype: str) -> ArrayType:
        return ArrayType(dtype, self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{' '.join(map(str, self.shape))}]"


def promote(a: str, b: str) -> str:
    """The dtype of two arrays together: the higher one, and f32 for f16 with bf16."""
    if {a, b} == {"f16", "bf16"}:
        return "f32"
    return a if _ORDER[a] >= _ORDER[b] else b


def with_literal(dtype: str, value: bool | int | float) -> str:
    """The dtype of an array of `dtype` together with a host number, which takes the array's type.

    A real that meets an integer or bool array makes f32; an integer that meets a bool array, i32.
    """
    if isinstance(value, bool) or dtype in FLOATS:
        return dtype
    if isinstance(value, float):
        return "f32"
    return "i32" if dtype == "bool" else dtype


def of_literal(value: bool | int | float) -> str:
    """The dtype of an array made from a host number alone."""
    return "bool" if isinstance(value, bool) else "i32" if isinstance(value, int) else "f32"


def fits(value: bool | int | float, dtype: str) -> bool:
    """Whether a host number can be held by `dtype` (a float dtype takes any, rounded)."""
    limit = _INTEGER_LIMITS.get(dtype)
    return limit is None or -limit <= value < limit


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that `shapes` broadcast to, or None where they do not."""
    ndim = max(map(len, shapes))
    out = [1] * ndim
    for shape in shapes:
        for axis, length in enumerate(shape, ndim - len(shape)):
            if length == 1 or length == out[axis]:
                continue
            if out[axis] != 1:
                return None
            out[axis] = length
    return tuple(out)
