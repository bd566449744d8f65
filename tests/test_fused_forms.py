"""The forms of elementwise primitives for fused kernels, compiled for the processor and compared with NumPy in f32."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Primitive

COMPILER = shutil.which("c++") or shutil.which("g++")
FORMED = [p for p in PRIMITIVES.values() if p.cuda]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.0, 1e-40, -1e-40, 88.0, -104.0, 3e38, np.inf, -np.inf, np.nan]
# What CUDA has and C++ has not.
HEAD = """
#include <cmath>
#include <cstring>
using std::isfinite;
using std::isinf;
static float __uint_as_float(unsigned x) { float y; std::memcpy(&y, &x, 4); return y; }
static unsigned __float_as_uint(float x) { unsigned y; std::memcpy(&y, &x, 4); return y; }
"""
LOOP = """
extern "C" void form_{number}(int n, const {kind}* a, const {kind}* b, const {kind}* c, float* out) {{
    for (int i = 0; i < n; i++) out[i] = (float)({form});
}}
"""


def kinds(p: Primitive) -> tuple[str, ...]:
    """The types of its operands: the masks of `where` and of the logical ones."""
    return tuple("bool" if d.dtype == "bool" else "float32" for d in p.sample)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if COMPILER is None:
        pytest.skip("there is no C++ compiler")
    folder: Path = tmp_path_factory.mktemp("forms")
    loops = []
    for number, p in enumerate(FORMED):
        kind = "bool" if set(kinds(p)) == {"bool"} else "float"
        loops.append(LOOP.format(number=number, kind=kind, form=p.cuda.format("a[i]", "b[i]", "c[i]")))
    (folder / "forms.cc").write_text(HEAD + "".join(loops), encoding="utf-8")
    command = [COMPILER, "-O1", "-ffp-contract=off", "-shared", "-fPIC", "forms.cc", "-o", "forms.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "forms.so"))


def grid(p: Primitive) -> list[Any]:
    """Every combination of special operands, and of random ones from where the primitive is sampled."""
    rng = np.random.default_rng(1)
    columns = []
    for drawn, d in zip(range(len(p.sample)), p.sample, strict=True):
        own = rng.uniform(d.low, d.high, 12 if len(p.sample) < 3 else 4).tolist()
        columns.append([0.0, 1.0] if d.dtype == "bool" else [*SPECIAL, *own])
        assert drawn < 3
    rows = np.array(list(itertools.product(*columns)), "float32")
    return [rows[:, i].astype(kind) for i, kind in enumerate(kinds(p))]


@pytest.mark.parametrize("p", FORMED, ids=lambda p: p.name)
def test_a_form_gives_what_the_function_gives(p: Primitive, library: ctypes.CDLL) -> None:
    assert p.forward is not None
    operands = grid(p)
    with np.errstate(all="ignore"):
        expected = p.forward(np, *operands).astype("float32")
    kind = np.dtype("bool" if set(kinds(p)) == {"bool"} else "float32")
    given = [np.ascontiguousarray(x, kind) for x in operands]
    given += [given[0]] * (3 - len(given))
    out = np.empty(len(expected), "float32")
    pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*given, out)]
    getattr(library, f"form_{FORMED.index(p)}")(len(out), *pointers)
    np.testing.assert_allclose(out, expected, rtol=3e-6, atol=1e-43)


def test_every_elementwise_primitive_has_a_form_or_is_made_of_others() -> None:
    """`cast` has none: a kernel converts between the types of what it loads."""
    without = {p.name for p in PRIMITIVES.values() if p.elementwise and not p.cuda}
    assert without == {p.name for p in PRIMITIVES.values() if p.elementwise and p.expand is not None} | {"cast"}
