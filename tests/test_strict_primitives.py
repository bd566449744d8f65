"""Every primitive under a device's rules: NumPy's bits, and nothing read on the host."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import sxi.primitives
from sxi.backends import Backend, open_backend
from sxi.backends.strict import HostRead, StrictBackend
from sxi.codes import Refusal
from sxi.primitives.declare import PRIMITIVES, REQUIRED, Case, Domain, Primitive
from sxi.random import Draws
from tests.eager import Computed, Eager, call, types_of

for module in pkgutil.iter_modules(sxi.primitives.__path__):
    importlib.import_module(f"sxi.primitives.{module.name}")

ELEMENTWISE = (Case(((2, 3), (2, 3))), Case(((), ())), Case(((0, 4), (0, 4))), Case(((2, 1), (3,))))
# No -0.0 where numbers are added: a sum in another order may end in the other zero.
SPECIAL = [0.0, np.nan, np.inf, -np.inf]
EXTREME = [*SPECIAL, -0.0, 1e-45, -1e-40, 3e38, 88.8, -103.9]
DTYPES = {"f32": ("f4", "f8", "f2", "i4"), "i32": ("i4", "i8"), "bool": ("?",)}


class On(Eager):
    """An emitter that computes with a backend."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.backend = backend
        self.draws = Draws(0, backend.asarray)

    def value(self, x: Any, dtype: str | None = None) -> Computed:
        is_here = isinstance(x, self.backend.xp.ndarray)
        return Computed(x if is_here else self.backend.asarray(np.asarray(x)), self, dtype)

    def apply(self, primitive: Primitive, operands: Sequence[Any], static: dict[str, Any]) -> Any:
        operands = self.promoted(primitive, operands)
        if primitive.expand is not None:
            return primitive.expand(*([self] if primitive.needs_emitter else []), *operands, **static)
        assert primitive.rule is not None
        promised = primitive.rule(*types_of(primitive, operands), **static)
        arrays = [x.array if isinstance(x, Computed) else x for x in operands]
        drawn = [self.draws] if primitive.draws else []
        return self.value(self.backend.function(primitive)(self.backend.xp, *drawn, *arrays, **static), promised.dtype)


def operand(
    rng: np.random.Generator, special: Sequence[float], domain: Domain, shape: tuple[int, ...], dtype: str
) -> Any:
    """Numbers of the domain in 64ths, whose sums are exact, so that the order of a sum does not show.

    special:  what most of the floats are replaced by, if not empty
    """
    x = np.floor(rng.uniform(domain.low, domain.high, shape) * 64) / 64
    if special and dtype[0] == "f":
        with np.errstate(over="ignore"):
            return np.where(rng.uniform(size=shape) < 0.7, rng.choice(special, shape), x).astype(dtype)
    return (np.floor(x) if dtype[0] != "f" else x).astype(dtype)


def trials(primitive: Primitive) -> Iterator[tuple[Case, list[Any]]]:
    """Operands to try it on: its cases over its dtypes, and special numbers."""
    rng = np.random.default_rng(crc32(primitive.name.encode()))
    many = any(p.many for p in primitive.arrays)
    for case in primitive.cases or ELEMENTWISE:
        n = len(case.shapes) if primitive.cases or many else len(primitive.arrays)
        shapes = [case.shapes[min(i, len(case.shapes) - 1)] for i in range(n)]
        domains = [primitive.sample[min(i, len(primitive.sample) - 1)] for i in range(n)]
        for dtype in DTYPES[domains[0].dtype] if n else ("f4",):
            for special in ([], EXTREME if primitive.elementwise else SPECIAL):
                types = [dtype if d.dtype == domains[0].dtype else DTYPES[d.dtype][0] for d in domains]
                yield case, [operand(rng, special, *each) for each in zip(domains, shapes, types, strict=True)]


def computed(primitive: Primitive, backend: Backend, operands: list[Any], case: Case) -> list[Any]:
    """The arrays it gives on `backend`."""
    eager = On(backend)
    transposed = [eager.value(x.T.copy()).array.T for x in operands]  # in Fortran's order, as no array is made
    required = {p.python_name: 0 for p in primitive.params if p.kind == "int" and p.default is REQUIRED}
    with backend.computing():
        out = call(primitive, eager, [Computed(x, eager) for x in transposed], **(required | case.static))
    return [x.array if isinstance(x, Computed) else x for x in (out if isinstance(out, list) else [out])]


def same(here: Any, there: Any) -> bool:
    """Equal bits, but for which NaN it is."""
    here, there = np.asarray(here), np.asarray(there)
    if (here.dtype, here.shape) != (there.dtype, there.shape):
        return False
    if here.dtype.kind != "f":
        return bool((here == there).all())
    nan = np.isnan(here)
    return bool((nan == np.isnan(there)).all() and here[~nan].tobytes() == there[~nan].tobytes())


@pytest.mark.parametrize("name", PRIMITIVES)
def test_a_primitive_keeps_a_devices_rules(name: str) -> None:
    primitive = PRIMITIVES[name]
    numpy, strict = open_backend("cpu"), StrictBackend()
    tried = 0
    for case, operands in trials(primitive):
        try:
            expected = computed(primitive, numpy, operands, case)
        except Refusal:  # a dtype that it does not take
            continue
        with strict.forbid_reads():
            given = computed(primitive, strict, operands, case)
        strict.reads.clear()
        given = [strict.to_host(x) if hasattr(x, "get") else x for x in given]
        assert len(given) == len(expected)
        for here, there in zip(expected, given, strict=True):
            assert same(here, there), f"{case} {[x.dtype for x in operands]}: {here} on the host, {there} there"
        tried += 1
    assert tried


def test_a_read_in_a_primitive_would_be_noticed() -> None:
    strict = StrictBackend()
    with strict.forbid_reads(), pytest.raises(HostRead):
        bool(On(strict).value(np.ones(())).array > 0)
