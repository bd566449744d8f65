"""Products and factorisations: against NumPy and SciPy called another way, by hand, and when they fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg  # type: ignore[import-untyped]  # SciPy ships no stubs

from sxi.arraytype import ArrayType
from sxi.backends.strict import StrictBackend
from sxi.codes import Refusal
from sxi.primitives import PRIMITIVES
from tests.eager import Eager, completed, compute

F32 = np.float32
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape)


def positive(*shape: int) -> Any:
    """Positive definite matrices, well conditioned."""
    a = RNG.normal(size=(*shape, shape[-1]))
    return a @ np.swapaxes(a, -1, -2) + 2 * np.eye(shape[-1])


def on_strict(name: str, *operands: Any, **static: Any) -> Any:
    """What a device gives, without a host read."""
    strict, p = StrictBackend(), PRIMITIVES[name]
    assert p.forward is not None
    there = [strict.asarray(x) for x in operands]
    with strict.forbid_reads(), np.errstate(all="ignore"):
        out = p.forward(strict.xp, *there, **completed(p, static))
    return strict.to_host(out)


def on_host(name: str, *operands: Any, **static: Any) -> Any:
    return compute(PRIMITIVES[name], *operands, **static)


BOTH = pytest.mark.parametrize("give", [on_host, on_strict])


# Products


@pytest.mark.parametrize(
    ("left", "right", "subscripts"),
    [
        ((3,), (3,), "k,k->"),
        ((3,), (3, 2), "k,km->m"),
        ((2, 3), (3,), "nk,k->n"),
        ((2, 3), (3, 4), "nk,km->nm"),
        ((5, 2, 3), (3, 4), "bnk,km->bnm"),
        ((2, 3), (5, 3, 4), "nk,bkm->bnm"),
        ((5, 2, 3), (5, 3, 4), "bnk,bkm->bnm"),
        ((3,), (5, 3, 4), "k,bkm->bm"),
        ((5, 2, 3), (3,), "bnk,k->bn"),
        ((5, 0, 3), (3, 4), "bnk,km->bnm"),
        ((5, 2, 0), (0, 4), "bnk,km->bnm"),
    ],
)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
@BOTH
def test_products(give: Any, left: Any, right: Any, subscripts: str, dtype: str) -> None:
    a, b = RNG.integers(-5, 6, left).astype(dtype), RNG.integers(-5, 6, right).astype(dtype)
    found = give("@", a, b)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.einsum(subscripts, a, b))


def test_a_product_of_transposed_batches() -> None:
    a = np.swapaxes(drawn(4, 3, 2), 1, 2)
    b = drawn(5, 3).T
    np.testing.assert_allclose(on_host("@", a, b), np.einsum("bnk,km->bnm", a, b))


def test_a_product_of_f16_is_summed_in_f32() -> None:
    ones = np.ones(4096, "f2")
    found = on_host("@", ones, ones)
    assert found.dtype == "f2"
    assert found == 4096  # in f16 itself the sum of ones stays at 2048


def test_the_gradients_of_a_product_are_products_too() -> None:
    eager = Eager()
    a, b, weights = (eager.value(drawn(*s)) for s in ((4, 2, 3), (3, 5), (4, 2, 5)))
    out = PRIMITIVES["*"](PRIMITIVES["@"](a, b), weights)
    by_a, by_b = eager.gradients(PRIMITIVES["sum"](out), [a, b])
    np.testing.assert_allclose(by_a.array, np.einsum("bnm,km->bnk", weights.array, b.array))
    np.testing.assert_allclose(by_b.array, np.einsum("bnk,bnm->km", a.array, weights.array))
    # of the second order: the gradient by b is linear in a
    (by_a_of_b,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["*"](by_b, b)), [a])
    np.testing.assert_allclose(by_a_of_b.array, by_a.array)


def test_dot_outer_diagonal_and_trace() -> None:
    a, b = drawn(4), drawn(4)
    np.testing.assert_allclose(on_host("dot", a, b), sum(x * y for x, y in zip(a, b, strict=True)))
    np.testing.assert_allclose(on_host("outer", a, b[:2]), [[x * y for y in b[:2]] for x in a])
    x = drawn(2, 3, 4)
    np.testing.assert_array_equal(on_host("diagonal", x), [[m[i, i] for i in range(3)] for m in x])
    np.testing.assert_allclose(on_host("trace", x), [m[0, 0] + m[1, 1] + m[2, 2] for m in x])
    assert on_host("trace", np.zeros((0, 0), F32)) == 0


@BOTH
def test_a_matrix_of_its_diagonal(give: Any) -> None:
    found = give("from-diagonal", np.array([1, 2], F32), rows=2, columns=3)
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 2, 0]])


EINSUMS = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk->ki", [(2, 3), (3, 4)]),
    ("bi,ij->bj", [(5, 3), (3, 2)]),
    ("bi,bi->b", [(5, 3), (5, 3)]),
    ("i,i->", [(3,), (3,)]),
    ("i,j->ij", [(3,), (2,)]),
    ("i,j->", [(3,), (2,)]),
    ("bthd,bshd->bhts", [(2, 3, 2, 4), (2, 5, 2, 4)]),
    ("bhts,bshd->bthd", [(2, 2, 3, 5), (2, 5, 2, 4)]),
    ("abcd->db", [(2, 3, 4, 5)]),
    ("ab->ab", [(2, 3)]),
    ("ab->", [(2, 3)]),
    ("ijx,jky,kl->xil", [(2, 3, 2), (3, 4, 3), (4, 2)]),
    ("a,ab,abc->c", [(2,), (2, 3), (2, 3, 4)]),
    ("b,bij->bij", [(2,), (2, 3, 4)]),
    (",ij->ji", [(), (2, 3)]),
    ("ij, jk -> ik", [(2, 0), (0, 4)]),
    ("nij,kj->nik", [(2, 3, 4), (5, 4)]),
    ("Ai,iA->A", [(2, 3), (3, 2)]),
]


@pytest.mark.parametrize(("subscripts", "shapes"), EINSUMS)
def test_einsum(subscripts: str, shapes: list[tuple[int, ...]]) -> None:
    xs = [np.asarray(drawn(*s)) for s in shapes]
    np.testing.assert_allclose(on_host("einsum", *xs, subscripts=subscripts), np.einsum(subscripts, *xs), atol=1e-12)


def test_einsum_takes_a_host_number() -> None:
    np.testing.assert_array_equal(on_host("einsum", 2, np.ones(3, F32), subscripts=",i->i"), [2, 2, 2])
    np.testing.assert_array_equal(on_host("einsum", np.ones(3, F32), 0.5, subscripts="i,->"), 1.5)


# Refusals

REFUSED: list[tuple[str, list[str], str]] = [
    ("@", ["f32[64 128]", "f32[64 10]"], "E-SHAPE-001"),
    ("@", ["f32[3]", "f32[4]"], "E-SHAPE-001"),
    ("@", ["f32[2 3 4]", "f32[5 4 3]"], "E-SHAPE-001"),
    ("@", ["f32[3]", "f32[]"], "E-SHAPE-004"),
    ("@", ["f32[]", "f32[3]"], "E-SHAPE-004"),
    ("@", ["bool[3]", "bool[3]"], "E-DTYPE-001"),
    ("diagonal", ["f32[3]"], "E-SHAPE-004"),
    ("cholesky", ["f32[2 3]"], "E-SHAPE-001"),
    ("cholesky", ["f32[3]"], "E-SHAPE-004"),
    ("cholesky", ["bool[2 2]"], "E-DTYPE-001"),
    ("solve", ["f32[2 3]", "f32[2]"], "E-SHAPE-001"),
    ("solve", ["f32[2 2]", "f32[3]"], "E-SHAPE-001"),
    ("solve", ["f32[2 2]", "f32[]"], "E-SHAPE-004"),
    ("solve", ["f32[2 2 2]", "f32[3 2 1]"], "E-SHAPE-001"),
    ("logdet", ["f32[2 1]"], "E-SHAPE-001"),
    ("eigh-packed", ["f32[2 1]"], "E-SHAPE-001"),
    ("svd-packed", ["f32[2]"], "E-SHAPE-004"),
]


@pytest.mark.parametrize(("name", "types", "code"), REFUSED)
def test_refused(name: str, types: list[str], code: str) -> None:
    rule = PRIMITIVES[name].rule
    assert rule is not None
    with pytest.raises(Refusal) as refused:
        rule(*map(ArrayType.parse, types))
    assert refused.value.code.code == code
    assert refused.value.error().message


def test_the_lengths_that_differ_are_named() -> None:
    with pytest.raises(Refusal) as refused:
        on_host("@", np.zeros((64, 128)), np.zeros((64, 10)))
    assert refused.value.error().message == "128 and 64 differ"
    with pytest.raises(Refusal) as refused:
        on_host("@", np.zeros((2, 3, 4, 5)), np.zeros((2, 6, 5, 1)))
    assert refused.value.error().message == "3 and 6 differ"


def matrix(*shape: int) -> Any:
    return np.zeros(shape, F32)


REFUSED_COMPOSITES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("dot", [matrix(2, 2), matrix(2)], {}, "E-SHAPE-004"),
    ("dot", [matrix(2), matrix(3)], {}, "E-SHAPE-001"),
    ("dot", [matrix(2), 3.0], {}, "E-SHAPE-004"),
    ("outer", [matrix(2, 2), matrix(2)], {}, "E-SHAPE-004"),
    ("trace", [matrix(2)], {}, "E-SHAPE-004"),
    ("triangular-solve", [matrix(2, 3), matrix(2)], {}, "E-SHAPE-001"),
    ("triangular-solve", [matrix(2, 2), 1.0], {}, "E-SHAPE-004"),
    ("eigh", [matrix(2, 3)], {}, "E-SHAPE-001"),
    ("eigh", [2.0], {}, "E-SHAPE-004"),
    ("svd", [matrix(2)], {}, "E-SHAPE-004"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ij"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ii->i"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ij->ijk"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ij->ii"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "...j->j"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ij->j->i"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ij,jk->ik"}, "E-EVAL-005"),
    ("einsum", [matrix(2, 2)], {"subscripts": "ijk->i"}, "E-SHAPE-004"),
    ("einsum", [matrix(2, 2), matrix(3, 2)], {"subscripts": "ij,jk->ik"}, "E-SHAPE-001"),
]


@pytest.mark.parametrize(("name", "operands", "static", "code"), REFUSED_COMPOSITES)
def test_refused_composites(name: str, operands: list[Any], static: dict[str, Any], code: str) -> None:
    with pytest.raises(Refusal) as refused:
        on_host(name, *operands, **static)
    assert refused.value.code.code == code
    assert refused.value.error().message


# Factorisations


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@BOTH
def test_a_factorisation_gives_back_what_it_factored(give: Any, dtype: str) -> None:
    rough = {"f2": 3e-2, "f4": 1e-4, "f8": 1e-10}[dtype]
    a = positive(2, 3, 3)[0].astype(dtype) if dtype == "f2" else positive(2, 3, 3).astype(dtype)
    lower = give("cholesky", a)
    assert lower.dtype == dtype
    wide = lower.astype("f8")
    np.testing.assert_allclose(wide @ np.swapaxes(wide, -1, -2), a.astype("f8"), rtol=rough, atol=rough)
    assert not np.triu(lower, 1).any()
    packed = give("eigh-packed", a)
    assert packed.dtype == dtype
    values, vectors = packed[..., 0, :].astype("f8"), packed[..., 1:, :].astype("f8")
    assert (np.diff(values) > 0).all()
    np.testing.assert_allclose(
        (vectors * values[..., None, :]) @ np.swapaxes(vectors, -1, -2), a.astype("f8"), rtol=rough, atol=rough
    )


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (2, 3, 1)])
def test_singular_values(shape: tuple[int, ...]) -> None:
    x = drawn(*shape)
    u, s, v = on_host("svd", x)
    k = min(shape[-2:])
    assert (u.shape[-1], s.shape[-1], v.shape[-2]) == (k, k, k)
    np.testing.assert_allclose((u * s[..., None, :]) @ v, x)
    np.testing.assert_allclose(np.swapaxes(u, -1, -2) @ u, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), atol=1e-12)
    np.testing.assert_allclose(v @ np.swapaxes(v, -1, -2), np.broadcast_to(np.eye(k), (*shape[:-2], k, k)), atol=1e-12)
    assert (s > 0).all()
    assert (np.diff(s) < 0).all()


def test_only_the_lower_triangle_is_read() -> None:
    a = positive(3, 3)[0]
    other = np.tril(a) + np.triu(drawn(3, 3), 1)
    np.testing.assert_array_equal(on_host("cholesky", other), on_host("cholesky", a))
    np.testing.assert_array_equal(on_host("eigh", other)[0], on_host("eigh", a)[0])


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 3), (3,)), ((3, 3), (3, 2)), ((4, 3, 3), (3,)), ((3, 3), (4, 3, 2)), ((4, 3, 3), (4, 3, 2))],
)
@BOTH
def test_solve(give: Any, left: Any, right: Any) -> None:
    a, b = drawn(*left), drawn(*right)
    x = give("solve", a, b)
    back = np.einsum("...ij,...j->...i", a, x) if len(right) == 1 else np.einsum("...ij,...jk->...ik", a, x)
    np.testing.assert_allclose(back, np.broadcast_to(b, back.shape), atol=1e-10)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_a_triangular_system_is_solved_by_substitution(lower: bool, columns: tuple[int, ...]) -> None:
    # rows of very different sizes, which a general factorisation would exchange
    a = drawn(6, 6) * 10.0 ** np.arange(6)[:, None] + np.diag(10.0 ** np.arange(6))
    b = drawn(6, *columns)
    found = on_host("triangular-solve", a, b, lower=lower)
    np.testing.assert_allclose(found, scipy.linalg.solve_triangular(a, b, lower=lower), rtol=1e-12)


def test_the_other_triangle_may_hold_anything() -> None:
    a = np.array([[2, np.nan], [1, 4]], F32)
    np.testing.assert_array_equal(on_host("triangular-solve", a, np.array([2, 9], F32)), [1, 2])


@BOTH
def test_logdet(give: Any) -> None:
    a = np.array([np.diag([2.0, 3.0]), np.diag([-2.0, 3.0]), np.diag([0.0, 3.0]), np.diag([-2.0, -3.0])])
    np.testing.assert_allclose(give("logdet", a), [np.log(6), np.nan, -np.inf, np.log(6)])


# Failing: NaN in that member, the others as if it were not there

GOOD = np.array([[4.0, 2.0], [2.0, 5.0]], F32)
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]], F32)
SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]], F32)
HOLED = np.array([[1.0, np.nan], [np.nan, 1.0]], F32)


@pytest.mark.parametrize("bad", [INDEFINITE, -GOOD, HOLED, np.full((2, 2), np.inf, F32), np.zeros((2, 2), F32)])
@BOTH
def test_a_cholesky_that_fails_is_nan(give: Any, bad: Any) -> None:
    found = give("cholesky", np.stack([GOOD, bad, GOOD]))
    np.testing.assert_allclose(found[[0, 2]], [[[2, 0], [1, 2]]] * 2)
    assert np.isnan(found[1]).all()
    assert np.isnan(give("cholesky", bad)).all()


@pytest.mark.parametrize("bad", [SINGULAR, np.zeros((2, 2), F32)])
@BOTH
def test_a_singular_system_has_nan_for_a_solution(give: Any, bad: Any) -> None:
    found = give("solve", np.stack([GOOD, bad, GOOD]), np.array([6, 7], F32))
    np.testing.assert_allclose(found[[0, 2]], [[1, 1]] * 2)
    assert np.isnan(found[1]).all()
    assert np.isnan(give("solve", bad, np.eye(2, dtype=F32))).all()


@pytest.mark.parametrize("lower", [True, False])
def test_a_triangle_with_a_zero_on_its_diagonal_has_no_solution(lower: bool) -> None:
    a = np.array([[0.1, 0.3, 0.7], [0.3, 0.0, 0.2], [0.9, 0.1, 0.3]], F32)
    assert np.isnan(on_host("triangular-solve", a, np.ones(3, F32), lower=lower)).all()


@pytest.mark.parametrize("bad", [HOLED, np.full((2, 2), -np.inf, F32)])
@pytest.mark.parametrize("name", ["eigh-packed", "svd-packed"])
@BOTH
def test_eigenvalues_of_what_is_not_finite_are_nan(give: Any, name: str, bad: Any) -> None:
    found = give(name, np.stack([GOOD, bad]))
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[0], give(name, GOOD))


def test_an_iteration_that_does_not_converge_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    real = np.linalg.eigh

    def eigh(a: Any) -> Any:
        if (np.asarray(a) == INDEFINITE).all(axis=(-2, -1)).any():
            raise np.linalg.LinAlgError("Eigenvalues did not converge")
        return real(a)

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    values, vectors = on_host("eigh", np.stack([GOOD, INDEFINITE]))
    np.testing.assert_array_equal(values[0], real(GOOD)[0])
    assert np.isnan(values[1]).all()
    assert np.isnan(vectors[1]).all()


@pytest.mark.parametrize("name", ["cholesky", "eigh", "svd", "logdet"])
def test_nothing_is_factored(name: str) -> None:
    for shape in ((0, 0), (2, 0, 0), (0, 2, 2)):
        found = on_host(name, np.zeros(shape, F32))
        for x in found if isinstance(found, list) else [found]:
            assert x.shape[: len(shape) - 2] == shape[:-2]
            assert not np.isnan(x).any()


# Gradients, of what does not depend on signs, against central differences


def of_cholesky(a: Any) -> Any:
    return PRIMITIVES["cholesky"](a)


def of_cholesky_gradient(a: Any) -> Any:
    lower = PRIMITIVES["cholesky"](a)
    eager = a.emitter
    return eager.gradients(PRIMITIVES["sum"](PRIMITIVES["sin"](lower)), [a])[0]


def of_inverse(a: Any) -> Any:
    return PRIMITIVES["solve"](a, PRIMITIVES["sin"](a))


def of_triangle(a: Any) -> Any:
    return PRIMITIVES["triangular-solve"](a, PRIMITIVES["sin"](a), lower=True)


def of_logdet(a: Any) -> Any:
    return PRIMITIVES["logdet"](a)


def of_logdet_gradient(a: Any) -> Any:
    return a.emitter.gradients(PRIMITIVES["sum"](PRIMITIVES["logdet"](a)), [a])[0]


def of_eigenvalues(a: Any) -> Any:
    return PRIMITIVES["eigh"](a)[0]


def of_eigenvectors(a: Any) -> Any:
    return PRIMITIVES["square"](PRIMITIVES["eigh"](a)[1])


def of_singular_values(a: Any) -> Any:
    return PRIMITIVES["svd"](a)[1]


def of_singular_vectors(a: Any) -> Any:
    u, s, v = PRIMITIVES["svd"](a)
    return PRIMITIVES["@"](PRIMITIVES["*"](u, PRIMITIVES["expand"](PRIMITIVES["sin"](s), axis=-2)), v)


def of_square_vectors(a: Any) -> Any:
    u, _, v = PRIMITIVES["svd"](a)
    return PRIMITIVES["@"](PRIMITIVES["square"](u), PRIMITIVES["square"](v))


SQUARE = positive(2, 3, 3) / 3
WIDE, TALL = drawn(2, 2, 4), drawn(4, 2)


@pytest.mark.parametrize(
    ("of", "a"),
    [
        (of_cholesky, SQUARE),
        (of_cholesky_gradient, SQUARE),
        (of_inverse, SQUARE),
        (of_triangle, SQUARE),
        (of_logdet, SQUARE),
        (of_logdet_gradient, SQUARE),
        (of_eigenvalues, SQUARE),
        (of_eigenvectors, SQUARE),
        (of_singular_values, SQUARE),
        (of_singular_values, TALL),
        (of_singular_vectors, SQUARE),
        (of_singular_vectors, WIDE),
        (of_singular_vectors, TALL),
        (of_square_vectors, WIDE),
        (of_square_vectors, TALL),
    ],
)
def test_gradients_against_central_differences(of: Any, a: Any) -> None:
    def weighed(x: Any) -> tuple[Eager, Any, Any]:
        eager = Eager()
        value = eager.value(x)
        out = of(value)
        weights = eager.value(np.random.default_rng(7).normal(size=out.shape))
        return eager, value, PRIMITIVES["sum"](PRIMITIVES["*"](out, weights))

    eager, value, total = weighed(a)
    (g,) = eager.gradients(total, [value])
    expected = np.zeros_like(a)
    for i in np.ndindex(a.shape):
        ends = []
        for sign in (1, -1):
            moved = a.copy()
            moved[i] += sign * 1e-6
            ends.append(weighed(moved)[2].array)
        expected[i] = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(g.array, expected, rtol=1e-5, atol=1e-7)


def test_values_that_are_equal_have_the_gradient_of_their_sum() -> None:
    eager = Eager()
    a = eager.value(np.eye(3) * 2)
    (g,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["eigh"](a)[0]), [a])
    np.testing.assert_allclose(g.array, np.eye(3))
    b = eager.value(np.zeros((3, 2)))
    (g,) = eager.gradients(PRIMITIVES["sum"](PRIMITIVES["svd"](b)[1]), [b])
    assert np.isfinite(g.array).all()


def test_the_gradient_of_logdet_is_the_inverse_transposed() -> None:
    a = positive(3, 3)[0] + np.triu(drawn(3, 3), 1)
    eager = Eager()
    value = eager.value(a)
    (g,) = eager.gradients(PRIMITIVES["logdet"](value), [value])
    np.testing.assert_allclose(g.array, np.linalg.inv(a).T)
