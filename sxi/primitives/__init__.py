"""The array primitives, one module a group; `PRIMITIVES` is the table of all.

`declare.py` says how to add one.
"""

from sxi.primitives import compare, elementwise
from sxi.primitives.declare import PRIMITIVES, Primitive

__all__ = ["PRIMITIVES", "Primitive", "compare", "elementwise"]
