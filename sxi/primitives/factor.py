"""Factorisations and what is computed by them: `cholesky solve triangular-solve logdet eigh svd`.

One that fails gives NaN in the matrix it fails for and nowhere else, on every array module: a guard's
business.  Those with two or three results compute one array that holds them side by side, which the
composite of the name cuts.

Gradients: M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
differentiation" (2008), and for the reduced singular values J. Townsend, "Differentiating the singular
value decomposition" (2016).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType, broadcast
from sxi.codes import Refusal
from sxi.primitives.compare import eq, where
from sxi.primitives.declare import POSITIVE, REAL, Array, case, composite, primitive
from sxi.primitives.elementwise import add, div, mul, neg, sub
from sxi.primitives.join import slice_
from sxi.primitives.linalg import from_diagonal, matmul, unequal
from sxi.primitives.make import eye, tril, triu
from sxi.primitives.rows import is_host
from sxi.primitives.rules import numeric
from sxi.primitives.shape import expand, flip, reshape, squeeze, transpose, type_of, unbroadcast

# Rules


def _matrices(x: ArrayType, operand: int = 0) -> None:
    numeric(x)
    if x.ndim < 2:
        raise Refusal(codes.WRONG_NDIM, operand, wanted="2 or more", ndim=x.ndim)


def _square(x: ArrayType) -> ArrayType:
    _matrices(x)
    if x.shape[-2] != x.shape[-1]:
        raise Refusal(codes.SHAPES_DIFFER, 0, left=x.shape[-2], right=x.shape[-1])
    return x


# Failing


def _computable(xp: Any, x: Array) -> Array:
    """`x` in a type that factorisations take: binary16 in f32."""
    return x.astype("float32") if x.dtype == "float16" else x


def _mask(xp: Any, bad: Array, x: Array) -> Array:
    """`x` with NaN in the matrices that are `bad`, bool[*b]."""
    return xp.where(xp.reshape(bad, (*bad.shape, 1, 1)), x.dtype.type("nan"), x)


def _one_by_one(xp: Any, function: Callable[[Array], Array], a: Array, shape: tuple[int, ...]) -> Array:
    """`function` of each matrix alone, NaN of `shape` where it fails: for batches one of which has failed."""
    results = []
    matrices = xp.reshape(a, (prod(a.shape[:-2]), *a.shape[-2:]))
    for i in range(matrices.shape[0]):
        try:
            results.append(function(matrices[i]))
        except xp.linalg.LinAlgError:
            results.append(xp.full(shape, a.dtype.type("nan"), dtype=a.dtype))
    return xp.reshape(xp.stack(results), (*a.shape[:-2], *shape))


def _or_nan(xp: Any, function: Callable[[Array], Array], a: Array, shape: tuple[int, ...]) -> Array:
    """`function`, which factors the matrices of `a` to arrays of `shape`; NaN for those that hold a NaN or infinity."""
    bad = xp.logical_not(xp.isfinite(a).all(axis=(-2, -1)))
    identity = xp.eye(a.shape[-2], a.shape[-1], dtype=a.dtype)
    safe = xp.where(xp.reshape(bad, (*bad.shape, 1, 1)), identity, a)
    try:
        result = function(safe)
    except xp.linalg.LinAlgError:  # NumPy: an iteration that did not converge
        result = _one_by_one(xp, function, safe, shape)
    return _mask(xp, bad, result)


# Cholesky


def _half_below(x: Any) -> Any:
    """The lower triangle of `x` with its diagonal halved: the cotangent of a symmetric matrix read below."""
    return mul(0.5, add(tril(x), tril(x, offset=-1)))


def _cholesky_back(g: Any, out: Any, a: Any) -> Any:
    upper = transpose(out)
    inner = _half_below(matmul(upper, tril(g)))
    half = triangular_solve(upper, inner, lower=False)
    whole = triangular_solve(upper, transpose(half), lower=False)
    return _half_below(add(whole, transpose(whole)))


@primitive(
    "cholesky", "a", type=_square, promote="f", vjp=(_cholesky_back,), sample=(POSITIVE,),
    cases=(case((1, 1)), case((0, 0)), case((2, 0, 0))),
)  # fmt: skip
def cholesky(xp: Any, a: Array) -> Array:
    """The lower triangle L whose product with its transpose is a symmetric positive definite matrix.

    a:      f32[*b n n]; only its lower triangle is read, and has a gradient
    gives:  f32[*b n n]; NaN where `a` is not positive definite or not finite

    (cholesky (array [[4.0 2.0] [2.0 5.0]])) ; => f32[2 2] [[2.0 0.0] [1.0 2.0]]
    """
    wide = _computable(xp, a)
    try:
        lower = xp.linalg.cholesky(wide)
    except xp.linalg.LinAlgError:
        lower = _one_by_one(xp, xp.linalg.cholesky, wide, wide.shape[-2:])
    # CuPy reports a failure only by a host read, but leaves on the diagonal what it could not take the root of.
    places = xp.arange(a.shape[-1])
    pivots = lower[..., places, places]
    lower = _mask(xp, xp.logical_not((xp.isfinite(pivots) & (pivots > 0)).all(axis=-1)), lower)
    return lower.astype(a.dtype, copy=False)


# Linear systems


def _solve_type(a: ArrayType, b: ArrayType) -> ArrayType:
    _square(a)
    numeric(b)
    if b.ndim == 0:
        raise Refusal(codes.WRONG_NDIM, 1, wanted="1 or more", ndim=0)
    n = b.shape[0] if b.ndim == 1 else b.shape[-2]
    if n != a.shape[-1]:
        raise Refusal(codes.SHAPES_DIFFER, left=a.shape[-1], right=n)
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        left, right = unequal(a.shape[:-2], b.shape[:-2])
        raise Refusal(codes.SHAPES_DIFFER, left=left, right=right)
    return b.with_shape((*batch, *(b.shape if b.ndim == 1 else b.shape[-2:])))


def _solve_back_a(g: Any, out: Any, a: Any, b: Any) -> Any:
    back = solve(transpose(a), g if b.ndim > 1 else expand(g, axis=-1))
    x = transpose(out) if b.ndim > 1 else expand(out, axis=-2)
    return unbroadcast(neg(matmul(back, x)), a)


def _solve_back_b(g: Any, out: Any, a: Any, b: Any) -> Any:
    if b.ndim > 1:
        return unbroadcast(solve(transpose(a), g), b)
    return unbroadcast(squeeze(solve(transpose(a), expand(g, axis=-1)), axis=-1), b)


@primitive(
    "solve", "a b", type=_solve_type, promote="f", vjp=(_solve_back_a, _solve_back_b), sample=(REAL, REAL),
    cases=(
        case((2, 2), (2,)),
        case((3, 3), (3, 2)),
        case((2, 2, 2), (2, 2, 1)),
        case((3, 2, 2), (2,)),
        case((2, 2), (3, 2, 2)),
        case((0, 0), (0, 2)),
    ),
)  # fmt: skip
def solve(xp: Any, a: Array, b: Array) -> Array:
    """The x whose product with a matrix is given: a x = b.

    a:      f32[*b n n]
    b:      f32[n], or f32[*b n m]
    gives:  f32[*b n] or f32[*b n m]; NaN where `a` is singular

    (solve (array [[2.0 0.0] [0.0 4.0]]) (array [2.0 2.0])) ; => f32[2] [1.0 0.5]
    """
    wide, right = _computable(xp, a), _computable(xp, b)
    columns = xp.expand_dims(right, -1) if b.ndim == 1 else right
    batch = broadcast(wide.shape[:-2], columns.shape[:-2]) or ()
    wide = xp.broadcast_to(wide, (*batch, *wide.shape[-2:]))
    columns = xp.broadcast_to(columns, (*batch, *columns.shape[-2:]))
    x = _solved(xp, wide, columns)
    return (xp.squeeze(x, -1) if b.ndim == 1 else x).astype(b.dtype, copy=False)


def _solved(xp: Any, a: Array, b: Array) -> Array:
    if is_host(xp):
        try:
            return xp.linalg.solve(a, b)
        except xp.linalg.LinAlgError:
            pass
    # The determinant comes from the same factorisation, and is 0 exactly where a pivot is.
    singular = xp.linalg.slogdet(a)[0] == 0
    safe = xp.where(xp.reshape(singular, (*singular.shape, 1, 1)), xp.eye(a.shape[-1], dtype=a.dtype), a)
    return _mask(xp, singular, xp.linalg.solve(safe, b))


@composite(
    "triangular-solve", "a b :lower bool=true", promote="f", sample=(REAL, REAL),
    cases=(case((3, 3), (3, 2), lower=True), case((3, 3), (3,), lower=False), case((2, 2, 2), (2, 2, 1), lower=True)),
)  # fmt: skip
def triangular_solve(a: Any, b: Any, *, lower: bool) -> Any:
    """The x whose product with a triangular matrix is given: a x = b.

    a:      f32[*b n n]; only the triangle meant is read, and has a gradient
    b:      f32[n], or f32[*b n m]
    lower:  whether the triangle is the lower one
    gives:  f32[*b n] or f32[*b n m]; NaN where a diagonal element is 0

    (triangular-solve (array [[2.0 0.0] [1.0 1.0]]) (array [2.0 3.0])) ; => f32[2] [1.0 2.0]
    """
    _solve_type(type_of(a), type_of(b))
    if not lower:
        return solve(triu(a), b)
    # Upside down a lower triangle is an upper one, which a factorisation leaves as it is: no pivot is
    # exchanged and nothing is eliminated, so this is a substitution.
    rows = -1 if b.ndim == 1 else -2
    return flip(solve(triu(flip(a, axis=(-2, -1))), flip(b, axis=rows)), axis=rows)


# Determinants


def _logdet_type(a: ArrayType) -> ArrayType:
    return _square(a).with_shape(a.shape[:-2])


def _logdet_back(g: Any, out: Any, a: Any) -> Any:
    identity = a.emitter.apply(eye, (), {"n": a.shape[-1], "dtype": a.dtype})
    return mul(reshape(g, shape=(*g.shape, 1, 1)), solve(transpose(a), identity))


@primitive(
    "logdet", "a", type=_logdet_type, promote="f", vjp=(_logdet_back,), sample=(POSITIVE,),
    cases=(case((1, 1)), case((0, 0)), case((3, 0, 0))),
)  # fmt: skip
def logdet(xp: Any, a: Array) -> Array:
    """The logarithm of the determinant of matrices.

    a:      f32[*b n n]
    gives:  f32[*b]; -inf where the determinant is 0, NaN where it is negative

    (logdet (array [[1.0 0.0] [0.0 1.0]])) ; => f32[] 0.0
    """
    sign, size = xp.linalg.slogdet(_computable(xp, a))
    return xp.where(sign < 0, size.dtype.type("nan"), size).astype(a.dtype, copy=False)


# Eigenvalues


def _reciprocal_or_zero(x: Any) -> Any:
    zero = eq(x, 0.0)
    return where(zero, 0.0, div(1.0, where(zero, 1.0, x)))


def _eigh_type(a: ArrayType) -> ArrayType:
    n = _square(a).shape[-1]
    return a.with_shape((*a.shape[:-2], n + 1, n))


def _values_and_vectors(packed: Any) -> tuple[Any, Any]:
    n = packed.shape[-1]
    return squeeze(slice_(packed, axis=-2, from_=0, to=1), axis=-2), slice_(packed, axis=-2, from_=1, to=n + 1)


def _eigh_back(g: Any, out: Any, a: Any) -> Any:
    values, vectors = _values_and_vectors(out)
    g_values, g_vectors = _values_and_vectors(g)
    n = a.shape[-1]
    apart = _reciprocal_or_zero(sub(expand(values, axis=-2), expand(values, axis=-1)))
    turned = mul(apart, matmul(transpose(vectors), g_vectors))
    inner = add(from_diagonal(g_values, rows=n, columns=n), turned)
    whole = matmul(vectors, matmul(inner, transpose(vectors)))
    return _half_below(add(whole, transpose(whole)))


@primitive(
    "eigh-packed", "a", type=_eigh_type, promote="f", internal=True, vjp=(_eigh_back,), sample=(REAL,),
    cases=(case((1, 1)), case((3, 1, 1)), case((0, 0))),
)  # fmt: skip
def eigh_packed(xp: Any, a: Array) -> Array:
    """The eigenvalues of symmetric matrices in a row above their eigenvectors, which are columns.

    a:      f32[*b n n]; only its lower triangle is read
    gives:  f32[*b n+1 n]
    """

    def packed(x: Array) -> Array:
        values, vectors = xp.linalg.eigh(x)
        return xp.concatenate([xp.expand_dims(values, -2), vectors], axis=-2)

    n = a.shape[-1]
    return _or_nan(xp, packed, _computable(xp, a), (n + 1, n)).astype(a.dtype, copy=False)


@composite("eigh", "a", promote="f", sample=(REAL,), cases=(case((3, 3)), case((2, 2, 2))))
def eigh(a: Any) -> Any:
    """The eigenvalues and eigenvectors of symmetric matrices.

    The gradient by the eigenvectors is meant for eigenvalues that differ.

    a:      f32[*b n n]; only its lower triangle is read, and has a gradient
    gives:  a list of the values f32[*b n], from the lowest, and the vectors f32[*b n n], the columns;
            NaN where `a` is not finite

    (nth (eigh (array [[2.0 0.0] [0.0 1.0]])) 0) ; => f32[2] [1.0 2.0]
    """
    _square(type_of(a))
    return list(_values_and_vectors(eigh_packed(a)))


# Singular values


def _svd_type(x: ArrayType) -> ArrayType:
    _matrices(x)
    m, n = x.shape[-2:]
    return x.with_shape((*x.shape[:-2], min(m, n), m + 1 + n))


def _singular_parts(packed: Any, m: int) -> tuple[Any, Any, Any]:
    """U, the singular values and Vᵀ of what `svd-packed` gives."""
    end = packed.shape[-1]
    return (
        transpose(slice_(packed, axis=-1, from_=0, to=m)),
        squeeze(slice_(packed, axis=-1, from_=m, to=m + 1), axis=-1),
        slice_(packed, axis=-1, from_=m + 1, to=end),
    )


def _svd_back(g: Any, out: Any, x: Any) -> Any:
    m, n = x.shape[-2:]
    u, s, vt = _singular_parts(out, m)
    gu, gs, gvt = _singular_parts(g, m)
    k = s.shape[-1]
    rows, columns = expand(s, axis=-1), expand(s, axis=-2)
    apart = _reciprocal_or_zero(mul(sub(columns, rows), add(columns, rows)))
    u_gu, v_gv = matmul(transpose(u), gu), matmul(vt, transpose(gvt))
    inner = add(
        mul(mul(apart, sub(u_gu, transpose(u_gu))), columns),
        mul(mul(apart, sub(v_gv, transpose(v_gv))), rows),
        from_diagonal(gs, rows=k, columns=k),
    )
    back = matmul(u, matmul(inner, vt))
    inverse = _reciprocal_or_zero(s)
    if m > k:  # what of the cotangent of U is outside its columns
        outside = sub(gu, matmul(u, u_gu))
        back = add(back, matmul(mul(outside, expand(inverse, axis=-2)), vt))
    if n > k:
        outside = sub(gvt, matmul(transpose(v_gv), vt))
        back = add(back, matmul(u, mul(expand(inverse, axis=-1), outside)))
    return back


@primitive(
    "svd-packed", "x", type=_svd_type, promote="f", internal=True, vjp=(_svd_back,), sample=(REAL,),
    cases=(case((0, 2)), case((2, 1, 0))),
)  # fmt: skip
def svd_packed(xp: Any, x: Array) -> Array:
    """The singular vectors and values of matrices, a row for each value: of U, the value, of Vᵀ.

    x:      f32[*b n m]
    gives:  f32[*b k n+1+m], k the smaller of n and m
    """

    def packed(a: Array) -> Array:
        u, s, vt = xp.linalg.svd(a, full_matrices=False)
        return xp.concatenate([xp.swapaxes(u, -1, -2), xp.expand_dims(s, -1), vt], axis=-1)

    m, n = x.shape[-2:]
    return _or_nan(xp, packed, _computable(xp, x), (min(m, n), m + 1 + n)).astype(x.dtype, copy=False)


@composite("svd", "x", promote="f", sample=(REAL,), cases=(case((3, 2)), case((2, 3)), case((2, 2, 2))))
def svd(x: Any) -> Any:
    """The reduced singular value decomposition: x is u times the diagonal of s times v.

    The signs of a pair of vectors are those that the array module's library chose.  The gradient by the
    vectors is meant for values that differ and are not 0.

    x:      f32[*b n m]
    gives:  a list of u f32[*b n k], s f32[*b k], from the largest, and v f32[*b k m], k the smaller of n
            and m; NaN where `x` is not finite

    (nth (svd (array [[3.0 0.0] [0.0 4.0]])) 1) ; => f32[2] [4.0 3.0]
    """
    _matrices(type_of(x))
    return list(_singular_parts(svd_packed(x), x.shape[-2]))
