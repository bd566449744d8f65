"""Values and gradients against PyTorch where it is installed: what `test_primitives_neural.py` does not compare.

A factorisation of a symmetric matrix reads the lower triangle alone, so its gradient is compared symmetrized;
vectors that are given up to their sign are compared by what does not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sxi.primitives import PRIMITIVES
from tests.eager import Eager, call
from tests.parts import require

RNG = np.random.default_rng(11)
pytestmark = pytest.mark.filterwarnings("default")  # torch's own warnings are not this project's


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def symmetric(*shape: int, positive: bool = False) -> Any:
    """Symmetric matrices with eigenvalues that differ, positive ones where asked for."""
    x = normal(*shape)
    transposed = np.swapaxes(x, -1, -2)
    return x @ transposed + np.eye(shape[-1]) if positive else x + transposed


@dataclass(frozen=True)
class Compared:
    """A primitive of f64 and whole-number arrays, and the same of torch's.

    after:      what is compared of the results, of ours and of torch's, in primitives and in torch's functions
    symmetric:  whether the first operand is a symmetric matrix that is read below its diagonal
    """

    name: str
    operands: tuple[Any, ...]
    theirs: Callable[..., Any]
    static: dict[str, Any] = field(default_factory=dict)
    ours: Callable[[Any], Any] = lambda out: out
    symmetric: bool = False


def squared(vectors: Any) -> Any:
    return PRIMITIVES["square"](vectors)


X, Y, V = normal(3, 4), normal(4, 5), normal(4)
PLACES = np.array([[2, 0, 2, 1], [0, 0, 1, 2]], "i8")
CASES = {
    "gelu": Compared("gelu", (normal(3, 4) * 3,), lambda t, x: t.nn.functional.gelu(x, approximate="tanh")),
    "silu": Compared("silu", (normal(3, 4) * 3,), lambda t, x: t.nn.functional.silu(x)),
    "softplus": Compared("softplus", (normal(3, 4) * 9,), lambda t, x: t.nn.functional.softplus(x)),
    "erf": Compared("erf", (normal(9),), lambda t, x: t.erf(x)),
    "lgamma": Compared("lgamma", (np.abs(normal(9)) + 0.1,), lambda t, x: t.lgamma(x)),
    "atan2": Compared("atan2", (normal(9), normal(9)), lambda t, y, x: t.atan2(y, x)),
    "logaddexp": Compared("logaddexp", (normal(9) * 9, normal(9)), lambda t, a, b: t.logaddexp(a, b)),
    "einsum, a product": Compared("einsum", (X, Y), lambda t, x, y: t.einsum("bi,ij->bj", x, y),
                                  {"subscripts": "bi,ij->bj"}),
    "einsum, heads": Compared("einsum", (normal(2, 3, 2, 4), normal(2, 5, 2, 4)),
                              lambda t, q, k: t.einsum("bthd,bshd->bhts", q, k), {"subscripts": "bthd,bshd->bhts"}),
    "einsum, three": Compared("einsum", (X, Y, normal(5)), lambda t, x, y, z: t.einsum("ij,jk,k->i", x, y, z),
                              {"subscripts": "ij,jk,k->i"}),
    "norm": Compared("norm", (X,), lambda t, x: t.linalg.vector_norm(x, dim=1), {"axis": 1}),
    "std": Compared("std", (X,), lambda t, x: t.std(x, dim=0, correction=0), {"axis": 0}),
    "logsumexp": Compared("logsumexp", (X * 30,), lambda t, x: t.logsumexp(x, dim=-1), {"axis": -1}),
    "prod": Compared("prod", (X,), lambda t, x: t.prod(x, dim=1), {"axis": 1}),
    "cumsum": Compared("cumsum", (X,), lambda t, x: t.cumsum(x, dim=0), {"axis": 0}),
    "sort": Compared("sort", (X,), lambda t, x: t.sort(x, dim=-1).values, {"axis": -1}),
    "top-k": Compared("top-k", (normal(3, 6),), lambda t, x: t.topk(x, 4).values, {"k": 4}, lambda out: out[0]),
    "scatter-add": Compared("scatter-add", (normal(3, 5), PLACES[0], normal(4, 5)),
                            lambda t, x, i, v: x.index_add(0, i, v)),
    "scatter": Compared("scatter", (normal(3, 5), np.array([2, 0], "i8"), normal(2, 5)),
                        lambda t, x, i, v: x.index_copy(0, i, v)),
    "take": Compared("take", (normal(3, 5), PLACES[0]), lambda t, x, i: t.index_select(x, 0, i), {"axis": 0}),
    "gather": Compared("gather", (normal(2, 3), PLACES), lambda t, x, i: t.gather(x, 1, i), {"axis": 1}),
    "cholesky": Compared("cholesky", (symmetric(2, 4, 4, positive=True),), lambda t, a: t.linalg.cholesky(a),
                         symmetric=True),
    "solve": Compared("solve", (normal(2, 4, 4), normal(2, 4, 3)), lambda t, a, b: t.linalg.solve(a, b)),
    "solve, a vector": Compared("solve", (normal(4, 4), V), lambda t, a, b: t.linalg.solve(a, b)),
    "triangular-solve": Compared("triangular-solve", (np.tril(normal(4, 4)) + 3 * np.eye(4), normal(4, 2)),
                                 lambda t, a, b: t.linalg.solve_triangular(t.tril(a), b, upper=False), {"lower": True}),
    "logdet": Compared("logdet", (symmetric(3, 4, 4, positive=True) + 0.1 * normal(4, 4),), lambda t, a: t.logdet(a)),
    "eigh, values": Compared("eigh", (symmetric(2, 4, 4),), lambda t, a: t.linalg.eigh(a).eigenvalues, {},
                             lambda out: out[0], symmetric=True),
    "eigh, vectors": Compared("eigh", (symmetric(2, 4, 4),), lambda t, a: t.linalg.eigh(a).eigenvectors.square(), {},
                              lambda out: squared(out[1]), symmetric=True),
    "svd, values": Compared("svd", (normal(3, 5),), lambda t, a: t.linalg.svd(a, full_matrices=False).S, {},
                            lambda out: out[1]),
    "svd, vectors": Compared("svd", (normal(3, 5),), lambda t, a: t.linalg.svd(a, full_matrices=False).Vh.square(), {},
                             lambda out: squared(out[2])),
}  # fmt: skip


def symmetrized(g: Any) -> Any:
    return (g + np.swapaxes(g, -1, -2)) / 2


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_torch_s(case: str) -> None:
    torch = require("torch")
    c = CASES[case]
    eager = Eager()
    values = [eager.value(a) for a in c.operands]
    out = c.ours(call(PRIMITIVES[c.name], eager, values, **c.static))
    tensors = [torch.tensor(a, requires_grad=a.dtype == np.float64) for a in c.operands]
    expected = c.theirs(torch, *tensors)
    np.testing.assert_allclose(out.array, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    weights = np.random.default_rng(3).normal(size=out.shape)
    found = eager.gradients(PRIMITIVES["*"](out, eager.value(weights)), values)
    (expected * torch.tensor(weights)).sum().backward()
    for i, (g, t) in enumerate(zip(found, tensors, strict=True)):
        if t.requires_grad:
            ours, theirs = g.array, t.grad.numpy()
            if c.symmetric and i == 0:
                ours, theirs = symmetrized(ours), symmetrized(theirs)
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
