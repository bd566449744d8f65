"""With CuPy imported and no device: what the primitives and backends call is there, and takes and gives the same."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import sxi
from sxi.backends import lacking
from tests.parts import require

ROOT = Path(sxi.__file__).parent
FILES = sorted([*(ROOT / "primitives").glob("*.py"), ROOT / "backends" / "device.py", ROOT / "backends" / "cupy.py"])


class Use(NamedTuple):
    """One place where the array module is used: `sum` or `linalg.solve`, and the call where it is one."""

    name: str
    place: str
    call: ast.Call | None


def dotted(node: ast.AST) -> str | None:
    """`linalg.solve` for `xp.linalg.solve` and `self.xp.linalg.solve`."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and node.attr != "xp":
        parts.append(node.attr)
        node = node.value
    is_module = (isinstance(node, ast.Name) and node.id in ("xp", "cupy")) or isinstance(node, ast.Attribute)
    return ".".join(reversed(parts)) if parts and is_module else None


def uses() -> Iterator[Use]:
    for path in FILES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        calls = {id(n.func): n for n in ast.walk(tree) if isinstance(n, ast.Call)}
        for node in ast.walk(tree):
            name = dotted(node)
            if name and id(node) not in inner:
                yield Use(name, f"{path.name}:{node.lineno}", calls.get(id(node)))  # type: ignore[attr-defined]  # an expression has a line


def found(cupy: Any, name: str) -> Any:
    """The object called `name` in CuPy, or None."""
    for part in name.split("."):
        cupy = getattr(cupy, part, None)
    return cupy


def test_the_uses_are_found() -> None:
    names = {use.name for use in uses()}
    assert {"where", "exp", "add.at", "cuda.Stream", "count_nonzero"} <= names
    assert len(names) > 30


def test_every_name_is_in_cupy() -> None:
    cupy = require("cupy")
    assert [f"{use.place} {use.name}" for use in uses() if found(cupy, use.name) is None] == []


def misfit(cupy: Any, use: Use) -> str:
    """Why CuPy's function does not take the call's arguments, or ""."""
    function, call = found(cupy, use.name), use.call
    if function is None or call is None:
        return ""
    keywords = [k.arg for k in call.keywords if k.arg is not None]
    if isinstance(function, cupy.ufunc):
        unknown = set(keywords) - lacking.UFUNC_KEYWORDS
        return f"keywords {sorted(unknown)}" if unknown else ""
    starred = any(isinstance(a, ast.Starred) for a in call.args) or len(keywords) < len(call.keywords)
    try:
        signature = inspect.signature(function)
    except ValueError:  # compiled code without one
        return ""
    try:
        (signature.bind_partial if starred else signature.bind)(
            *[None for a in call.args if not isinstance(a, ast.Starred)], **dict.fromkeys(keywords)
        )
    except TypeError as error:
        return str(error)
    return ""


def test_every_call_fits_cupys_signature() -> None:
    cupy = require("cupy")
    assert [f"{use.place} {use.name}: {why}" for use in uses() if (why := misfit(cupy, use))] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("xp.sum(x, where=m)", "unexpected keyword argument 'where'"),
        ("xp.take(x, i, mode='clip')", "unexpected keyword argument 'mode'"),
        ("xp.add(x, y, where=m)", "keywords ['where']"),
        ("xp.sort(x, 0, None, 1)", "too many positional arguments"),
        ("xp.sum(x, axis=0, keepdims=True)", ""),
        ("self.xp.linalg.solve(a, b)", ""),
        ("xp.concatenate(*x, axis=0)", ""),
    ],
)
def test_a_call_that_does_not_fit_is_noticed(text: str, why: str) -> None:
    cupy = require("cupy")
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    name = dotted(call.func)
    assert name
    assert why in misfit(cupy, Use(name, "here:1", call))
    assert bool(why) == bool(misfit(cupy, Use(name, "here:1", call)))


def test_no_attribute_is_one_that_only_numpys_arrays_have() -> None:
    cupy = require("cupy")
    only = {n for n in set(dir(np.ndarray)) - set(dir(cupy.ndarray)) if not n.startswith("_")}
    assert only == lacking.METHODS - {"data", "flat"}
    for path in FILES:
        used = {n.attr for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Attribute)}
        assert not used & only, path.name


# The strict backend's tables against the package.


def test_the_names_said_to_be_lacking_are() -> None:
    cupy = require("cupy")
    for module, names in lacking.NAMES.items():
        there = {"numpy": cupy, "numpy.linalg": cupy.linalg}[module]
        assert {name for name in names if hasattr(there, name)} == set(), module


def test_the_keywords_said_to_be_lacking_are() -> None:
    cupy = require("cupy")
    wrong = []
    for name in dir(cupy):
        function = getattr(cupy, name)
        if name.startswith("_") or isinstance(function, (type, cupy.ufunc)) or not callable(function):
            continue
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:
            continue
        wrong += [f"{name} {p}" for p in parameters if lacking.keyword(name, p)]
    assert wrong == []


@pytest.mark.parametrize("method", ["accumulate", "at", "reduce", "reduceat"])
def test_the_methods_of_ufuncs_are_those_said(method: str) -> None:
    cupy = require("cupy")
    arguments = {"at": (None, 0, 1), "reduceat": (None, [0])}.get(method, (None,))
    having = set()
    for name in dir(cupy):
        function = getattr(cupy, name)
        if not isinstance(function, cupy.ufunc):
            continue
        try:
            getattr(function, method)(*arguments)
        except NotImplementedError:
            continue
        except AttributeError:  # it went as far as to look into the array, which is None
            having.add(name)
    assert having == lacking.UFUNC_METHODS[method]


def test_the_functions_named_elsewhere_exist() -> None:
    cupy = require("cupy")
    names = lacking.SYNCHRONIZING | lacking.OF_HOST_NUMBERS | lacking.ABOUT_ARRAYS
    assert {name for name in names if not hasattr(cupy, name)} == set()


# Types of results.

TYPES = ("?", "i4", "i8", "f2", "f4", "f8")


def cupys_result(cupy: Any, name: str, operands: tuple[Any, ...]) -> tuple[str, ...] | None:
    """The dtypes that CuPy's ufunc gives, without a device: by its own choice of a loop.  None: it has none."""
    function = getattr(cupy, name)
    numbers = [t if isinstance(t, type) else False for t in operands]
    dtypes = tuple(np.dtype({float: "f8", int: "i8"}.get(t, t)) for t in operands)
    rank = {"b": 0, "i": 1, "f": 2}
    arrays = max([rank[d.kind] for d, n in zip(dtypes, numbers, strict=True) if not n] or [-1])
    hosts = max([rank[d.kind] for d, n in zip(dtypes, numbers, strict=True) if n] or [-1])
    weak = tuple(numbers) if 0 <= hosts <= arrays else (False,) * len(numbers)
    loop = function._ops._guess_routine_from_in_types(dtypes, weak)
    return None if loop is None else tuple(np.dtype(t).name for t in loop.out_types)


def numpys_result(name: str, operands: tuple[Any, ...]) -> tuple[str, ...] | None:
    with np.errstate(all="ignore"):
        try:
            result = getattr(np, name)(*[t(1) if isinstance(t, type) else np.ones(2, t) for t in operands])
        except TypeError:
            return None
    return tuple(x.dtype.name for x in (result if isinstance(result, tuple) else (result,)))


def test_results_have_numpys_types() -> None:
    cupy = require("cupy")
    names = {u.name for u in uses() if u.call and isinstance(found(cupy, u.name), cupy.ufunc) and hasattr(np, u.name)}
    assert len(names) > 10
    differing = []
    for name in sorted(names):
        ufunc = getattr(np, name)
        for dtype in TYPES:
            cases: list[tuple[Any, ...]] = [(dtype,)] if ufunc.nin == 1 else [(dtype, dtype)]
            if ufunc.nin == 2 and dtype != "?":
                cases += [(dtype, int), (int, dtype), *([(dtype, float), (float, dtype)] if dtype[0] == "f" else [])]
            for operands in cases:
                here, there = numpys_result(name, operands), cupys_result(cupy, name, operands)
                if here is not None and here != there:
                    differing.append((name, operands, here, there))
    assert differing == []


def reductions(cupy: Any) -> dict[str, Any]:
    """CuPy's kernels of the reductions that primitives call without saying the type of the result."""
    math = importlib.import_module("cupy._core._routines_math")
    statistics = importlib.import_module("cupy._core._routines_statistics")
    logic = importlib.import_module("cupy._core._routines_logic")
    return {
        "sum": math.sum_auto_dtype, "prod": math.prod_auto_dtype, "max": statistics.amax, "min": statistics.amin,
        "any": logic.any, "all": logic.all,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "any", "all"])
def test_reductions_have_numpys_types(name: str, dtype: str) -> None:
    loop = reductions(require("cupy"))[name]._ops._guess_routine_from_in_types((np.dtype(dtype),))
    assert [np.dtype(t) for t in loop.out_types] == [getattr(np, name)(np.ones(2, dtype)).dtype]
