"""Products of vectors and matrices, and diagonals.  `einsum.py` contracts by subscripts, `factor.py` factors."""

from __future__ import annotations

from math import prod
from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType, broadcast
from sxi.codes import Refusal
from sxi.primitives.declare import REAL, Array, case, composite, primitive
from sxi.primitives.elementwise import mul
from sxi.primitives.reduce import sum_
from sxi.primitives.rows import is_host
from sxi.primitives.rules import numeric
from sxi.primitives.shape import expand, reshape, shape_of, sized, squeeze, transpose, unbroadcast


def _matmul_type(a: ArrayType, b: ArrayType) -> ArrayType:
    numeric(a, b)
    for i, t in enumerate((a, b)):
        if t.ndim == 0:
            raise Refusal(codes.WRONG_NDIM, i, wanted="1 or more", ndim=0)
    inner = b.shape[0] if b.ndim == 1 else b.shape[-2]
    if a.shape[-1] != inner:
        raise Refusal(codes.SHAPES_DIFFER, left=a.shape[-1], right=inner)
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        left, right = unequal(a.shape[:-2], b.shape[:-2])
        raise Refusal(codes.SHAPES_DIFFER, left=left, right=right)
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return a.with_shape(sized(batch + rows + columns))


def unequal(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, int]:
    """The last two lengths that keep `left` and `right` from being broadcast together."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return next((m, n) for m, n in pairs if m != n and 1 not in (m, n))


def _as_matrices(g: Any, a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Cotangent and operands of a product, vectors as matrices of one row or one column."""
    if b.ndim == 1:
        g, b = expand(g, axis=-1), expand(b, axis=1)
    if a.ndim == 1:
        g, a = expand(g, axis=-2), expand(a, axis=0)
    return g, a, b


def _matmul_back_a(g: Any, out: Any, a: Any, b: Any) -> Any:
    g2, a2, b2 = _as_matrices(g, a, b)
    back = unbroadcast(matmul(g2, transpose(b2)), a2)
    return back if a.ndim > 1 else squeeze(back, axis=0)


def _matmul_back_b(g: Any, out: Any, a: Any, b: Any) -> Any:
    g2, a2, b2 = _as_matrices(g, a, b)
    if b2.ndim == 2 and a2.ndim > 2:
        # all rows of the batch in one product, whose sum is over the batch as well
        a2 = reshape(a2, shape=(prod(a2.shape[:-1]), a2.shape[-1]))
        g2 = reshape(g2, shape=(a2.shape[0], g2.shape[-1]))
    back = unbroadcast(matmul(transpose(a2), g2), b2)
    return back if b.ndim > 1 else squeeze(back, axis=1)


@primitive(
    "@", "a b", type=_matmul_type, promote="s", vjp=(_matmul_back_a, _matmul_back_b), sample=(REAL, REAL),
    cases=(
        case((2, 3), (3, 4)),
        case((3,), (3,)),
        case((3,), (3, 2)),
        case((2, 3), (3,)),
        case((2, 2, 3), (3, 2)),
        case((2, 3), (4, 3, 2)),
        case((3, 1, 2, 2), (2, 2, 3)),
        case((3,), (2, 3, 2)),
        case((2, 2, 3), (3,)),
        case((0, 3), (3, 2)),
        case((2, 0), (0, 3)),
        case((2, 3, 0), (0, 2)),
    ),
)  # fmt: skip
def matmul(xp: Any, a: Array, b: Array) -> Array:
    """The product of matrices, of a vector with a matrix, or of two vectors; leading axes are batches.

    a:      t[*b n k] or t[k]
    b:      t[*b k m] or t[k]
    gives:  t[*b n m], without the axis of a vector

    (@ (array [[1 2] [3 4]]) (array [1 1])) ; => i32[2] [3 7]
    """
    if a.dtype.char == "e" and is_host(xp):
        # NumPy has no fast product of binary16 and would round every partial sum to it
        return _product(xp, a.astype("float32"), b.astype("float32")).astype("float16")
    return _product(xp, a, b)


def _product(xp: Any, a: Array, b: Array) -> Array:
    """The product of two arrays of one dtype."""
    if a.ndim > 2 and b.ndim == 2:
        # one large product in place of one for each matrix of the batch
        rows = xp.reshape(a, (prod(a.shape[:-1]), a.shape[-1]))
        return xp.reshape(xp.matmul(rows, b), (*a.shape[:-1], b.shape[-1]))
    return xp.matmul(a, b)


def _need_ndim(operands: tuple[Any, ...], wanted: int) -> None:
    for i, x in enumerate(operands):
        if len(shape_of(x)) != wanted:
            raise Refusal(codes.WRONG_NDIM, i, wanted=wanted, ndim=len(shape_of(x)))


@composite("dot", "a b", promote="s", sample=(REAL, REAL), cases=(case((3,), (3,)), case((0,), (0,))))
def dot(a: Any, b: Any) -> Any:
    """The scalar product of two vectors.

    a:      t[n]
    b:      t[n]
    gives:  t[]

    (dot (array [1 2 3]) (array [1 0 2])) ; => i32[] 7
    """
    _need_ndim((a, b), 1)
    return matmul(a, b)


@composite("outer", "a b", promote="s", sample=(REAL, REAL), cases=(case((3,), (2,)), case((0,), (2,))))
def outer(a: Any, b: Any) -> Any:
    """All products of an element of one vector with an element of another.

    a:      t[n]
    b:      t[m]
    gives:  t[n m]

    (outer (array [1 2]) (array [10 20])) ; => i32[2 2] [[10 20] [20 40]]
    """
    _need_ndim((a, b), 1)
    return mul(expand(a, axis=1), b)


def _diagonal_type(x: ArrayType) -> ArrayType:
    if x.ndim < 2:
        raise Refusal(codes.WRONG_NDIM, 0, wanted="2 or more", ndim=x.ndim)
    return x.with_shape((*x.shape[:-2], min(x.shape[-2:])))


def _diagonal_back(g: Any, out: Any, x: Any) -> Any:
    return from_diagonal(g, rows=x.shape[-2], columns=x.shape[-1])


@primitive(
    "diagonal", "x", type=_diagonal_type, promote="-", moves=True, vjp=(_diagonal_back,), sample=(REAL,),
    cases=(case((3, 3)), case((2, 3)), case((2, 3, 2)), case((0, 3))),
)  # fmt: skip
def diagonal(xp: Any, x: Array) -> Array:
    """The diagonal of matrices.

    x:      t[*b n m]
    gives:  t[*b k], k the smaller of n and m

    (diagonal (array [[1 2] [3 4]])) ; => i32[2] [1 4]
    """
    n = min(x.shape[-2:])
    places = xp.arange(n)
    return x[..., places, places]


def _from_diagonal_type(x: ArrayType, *, rows: int, columns: int) -> ArrayType:
    return x.with_shape((*x.shape[:-1], rows, columns))


@primitive(
    "from-diagonal", "x rows:int columns:int", type=_from_diagonal_type, promote="-", moves=True, internal=True,
    vjp=(lambda g, out, x, *, rows, columns: diagonal(g),), sample=(REAL,),
    cases=(case((3,), rows=3, columns=3), case((2,), rows=2, columns=3), case((3, 2), rows=4, columns=2)),
)  # fmt: skip
def from_diagonal(xp: Any, x: Array, *, rows: int, columns: int) -> Array:
    """Matrices of zeros but for their diagonal: the adjoint of `diagonal`.

    x:             t[*b k]
    rows columns:  of a matrix; k is the smaller one
    gives:         t[*b rows columns]
    """
    matrices = xp.zeros((*x.shape[:-1], rows, columns), dtype=x.dtype)
    places = xp.arange(x.shape[-1])
    matrices[..., places, places] = x
    return matrices


@composite("trace", "x", promote="-", sample=(REAL,), cases=(case((3, 3)), case((2, 2, 3)), case((0, 0))))
def trace(x: Any) -> Any:
    """The sum of the diagonal of matrices.

    x:      t[*b n m]
    gives:  t[*b]

    (trace (array [[1 2] [3 4]])) ; => i32[] 5
    """
    if x.ndim < 2:
        raise Refusal(codes.WRONG_NDIM, 0, wanted="2 or more", ndim=x.ndim)
    return sum_(diagonal(x), axis=-1)
