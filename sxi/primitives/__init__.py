"""The array primitives, one module a group; `PRIMITIVES` is the table of all.

`declare.py` says how to add one.
"""

from sxi.primitives import (
    compare,
    convolution,
    count,
    einsum,
    elementwise,
    factor,
    index,
    join,
    linalg,
    make,
    neural,
    order,
    random,
    reduce,
    shape,
    special,
    transcendental,
    walk,
)
from sxi.primitives.declare import PRIMITIVES, Primitive

__all__ = [
    "PRIMITIVES",
    "Primitive",
    "compare",
    "convolution",
    "count",
    "einsum",
    "elementwise",
    "factor",
    "index",
    "join",
    "linalg",
    "make",
    "neural",
    "order",
    "random",
    "reduce",
    "shape",
    "special",
    "transcendental",
    "walk",
]
