"""`einsum`, taken apart into transpositions, sums and products, so that a matrix product does the work.

Its gradient, of any order, is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from sxi import codes
from sxi.codes import Refusal
from sxi.primitives.declare import REAL, case, composite
from sxi.primitives.elementwise import mul
from sxi.primitives.linalg import matmul
from sxi.primitives.reduce import sum_
from sxi.primitives.shape import expand, reshape, shape_of, transpose


def _malformed(subscripts: str, wanted: str) -> Refusal:
    return Refusal(codes.WRONG_KIND, "subscripts", what="the subscripts", given=f'"{subscripts}"', wanted=wanted)


def _read(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """The letters of each operand and of the result.  Refused where they do not describe `shapes`."""
    left, arrow, result = subscripts.replace(" ", "").partition("->")
    if not arrow:
        raise _malformed(subscripts, 'an arrow and the axes of the result, "ij,jk->ik"')
    terms = left.split(",")
    for text in (*terms, result):
        if text and not (text.isascii() and text.isalpha()):
            raise _malformed(subscripts, "a letter for each axis, a comma between operands and one arrow")
        if len(set(text)) != len(text):
            raise _malformed(subscripts, f"each letter once in `{text}`; `diagonal` takes a diagonal")
    if len(terms) != len(shapes):
        raise _malformed(subscripts, f"subscripts of {len(shapes)} operands")
    lengths: dict[str, int] = {}
    for i, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(term) != len(shape):
            raise Refusal(codes.WRONG_NDIM, i, wanted=len(term), ndim=len(shape))
        for letter, length in zip(term, shape, strict=True):
            if lengths.setdefault(letter, length) != length:
                raise Refusal(codes.SHAPES_DIFFER, i, left=lengths[letter], right=length)
    for letter in result:
        if letter not in lengths:
            raise _malformed(subscripts, f"`{letter}` of the result in an operand too")
    return terms, result


def _ordered(x: Any, letters: str, wanted: str) -> Any:
    """`x`, whose axes are `letters`, with its axes in the order `wanted`."""
    return x if letters == wanted else transpose(x, axes=tuple(letters.index(c) for c in wanted))


def _summed(x: Any, letters: str, keep: set[str]) -> tuple[Any, str]:
    """`x` summed over the axes that are not in `keep`."""
    axes = tuple(i for i, c in enumerate(letters) if c not in keep)
    return (sum_(x, axis=axes) if axes else x), "".join(c for c in letters if c in keep)


def _contracted(a: Any, la: str, b: Any, lb: str, keep: set[str]) -> tuple[Any, str]:
    """The product of two operands, summed over the letters they share that are not in `keep`."""
    if not la or not lb:
        return mul(a, b), la + lb
    batch = "".join(c for c in la if c in lb and c in keep)
    shared = "".join(c for c in la if c in lb and c not in keep)
    left = "".join(c for c in la if c not in lb)
    right = "".join(c for c in lb if c not in la)
    if not shared or not (left or right):
        a = _widened(_ordered(a, la, batch + left + shared), len(batch + left), len(right))
        b = _widened(_ordered(b, lb, batch + right + shared), len(batch), len(left))
        return _summed(mul(a, b), batch + left + right + shared, keep)
    a = _ordered(a, la, batch + left + shared)
    b = _ordered(b, lb, batch + shared + right)
    outside = a.shape[: len(batch)]
    rows, columns = a.shape[len(batch) : a.ndim - len(shared)], b.shape[b.ndim - len(right) :] if right else ()
    inner = prod(a.shape[a.ndim - len(shared) :])
    product = matmul(
        _reshaped(a, (*outside, prod(rows), inner)),
        _reshaped(b, (*outside, inner, prod(columns))),
    )
    return _reshaped(product, (*outside, *rows, *columns)), batch + left + right


def _widened(x: Any, axis: int, n: int) -> Any:
    """`x` with `n` axes of length 1 before `axis`."""
    for _ in range(n):
        x = expand(x, axis=axis)
    return x


def _reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else reshape(x, shape=shape)


@composite(
    "einsum", "subscripts:string x...", promote="s", sample=(REAL, REAL),
    cases=(
        case((2, 3), (3, 4), subscripts="bi,ij->bj"),
        case((2, 3, 2, 4), (2, 5, 2, 4), subscripts="bthd,bshd->bhts"),
        case((2, 3), (2, 3), subscripts="bi,bi->b"),
        case((2,), (3,), subscripts="i,j->ji"),
        case((2, 3, 4), subscripts="abc->ca"),
        case((2, 3), (3, 2), (2, 2), subscripts="ij,jk,kl->il"),
        case((2, 0), (0, 3), subscripts="ij,jk->ik"),
    ),
)  # fmt: skip
def einsum(*xs: Any, subscripts: str) -> Any:
    """The products of elements whose axes carry one letter together, summed over the letters not kept.

    subscripts:  a letter an axis, operands apart by commas, then `->` and the axes of the result
    x:           t[*n] each
    gives:       t[*m]

    (einsum "ij,j->i" (array [[1 2] [3 4]]) (array [1 1])) ; => i32[2] [3 7]
    """
    terms, result = _read(subscripts, [shape_of(x) for x in xs])
    product, letters = xs[0], terms[0]
    for i, (x, term) in enumerate(zip(xs[1:], terms[1:], strict=True), 2):
        later = set(result).union(*terms[i:])
        product, letters = _summed(product, letters, later | set(term))
        x, term = _summed(x, term, later | set(letters))  # the same operand, made smaller
        product, letters = _contracted(product, letters, x, term, later)
    product, letters = _summed(product, letters, set(result))
    return _ordered(product, letters, result)
