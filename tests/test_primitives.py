"""What every primitive satisfies, from its entry alone: its rule, its gradients, its documentation."""

from __future__ import annotations

import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from sxi.arraytype import CARRIERS, ArrayType
from sxi.backends import open_backend
from sxi.backends.strict import StrictBackend
from sxi.builtins import BUILTINS
from sxi.codes import Refusal
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Case, Domain, Primitive, Value
from sxi.primitives.host import evaluate
from sxi.random import Draws
from sxi.reader import read
from sxi.session import Session
from sxi.source import Source
from sxi.values import written
from sxi.workspace import Workspace
from tests.eager import Eager, completed, entry

# Those that need more than an expression: data, a run's options, a curriculum.
HOST_EXAMPLES = [name for name in BUILTINS if name not in ("part", "group", "stage-step")]
SHAPES = ((), (0,), (3,), (1,), (2, 3), (2, 1))
SHAPES_OF_THREE = ((), (0,), (1,), (2, 3), (2, 1))


def each(holds: Callable[[Primitive], bool] = lambda p: True) -> pytest.MarkDecorator:
    """A test of each primitive for which `holds`."""
    return pytest.mark.parametrize("p", [p for p in PRIMITIVES.values() if holds(p)], ids=lambda p: p.name)


def computes(p: Primitive) -> bool:
    return p.forward is not None


def differentiable(p: Primitive) -> bool:
    """Whether it has a gradient that is a derivative: `round-bf16` passes the cotangent through its steps."""
    if p.draws or p.name == "round-bf16":
        return False
    return p.expand is not None or any(
        entry(table, i) is not None for table in (p.vjp, p.into) for i in range(len(p.arrays))
    )


def meets_numbers(p: Primitive) -> bool:
    return computes(p) and p.elementwise and len([i for i in range(len(p.sample)) if p.policy(i) != "-"]) > 1


def cases_of(p: Primitive) -> tuple[Case, ...]:
    """The shapes and static operands to try `p` on: all pairs of shapes where it is elementwise."""
    if p.cases or not p.elementwise:
        return p.cases
    shapes = SHAPES if len(p.sample) < 3 else SHAPES_OF_THREE
    return tuple(Case(shapes) for shapes in itertools.product(shapes, repeat=len(p.sample)))


def drawn(domain: Domain, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> Any:
    if domain.dtype in ("bool", "i32", "i64"):
        return rng.integers(int(np.ceil(domain.low)), int(np.ceil(domain.high)), shape).astype(CARRIERS[dtype])
    return rng.uniform(domain.low, domain.high, shape).astype(CARRIERS[dtype])


def operands_of(p: Primitive, case: Case, reals: str | None = None) -> list[Any]:
    """Arrays for a case; those of reals in the dtype `reals`."""
    rng = np.random.default_rng(zlib.crc32(p.name.encode()))
    domains = [p.sample[min(i, len(p.sample) - 1)] for i in range(len(case.shapes))]
    given = [
        drawn(d, shape, reals if reals and d.dtype == "f32" else d.dtype, rng)
        for d, shape in zip(domains, case.shapes, strict=True)
    ]
    optional = 0 if any(q.many or q.listed for q in p.arrays) else len(p.arrays) - len(given)
    return given + [None] * optional


def run(p: Primitive, xp: Any, operands: list[Any], static: dict[str, Any], backend: Any = None) -> Any:
    assert p.forward is not None
    draws = [Draws(0, backend.asarray if backend else np.array)] if p.draws else []
    with np.errstate(all="ignore"):
        return p.forward(xp, *draws, *operands, **completed(p, static))


def types(operands: list[Any]) -> list[ArrayType | None]:
    return [None if x is None else ArrayType.of(x) for x in operands]


# Type rules


@each(computes)
def test_the_rule_promises_what_the_function_gives(p: Primitive) -> None:
    assert p.rule is not None
    accepted = 0
    for case in cases_of(p):
        operands = operands_of(p, case)
        try:
            promised = p.rule(*types(operands), **completed(p, case.static))
        except Refusal:
            with pytest.raises((ValueError, TypeError, IndexError)):
                run(p, np, operands, case.static)
            continue
        out = run(p, np, operands, case.static)
        assert (str(out.dtype), tuple(out.shape)) == (promised.carrier, promised.shape), case
        accepted += 1
    assert accepted


@each(computes)
def test_the_function_asks_a_device_for_nothing_and_gives_the_same_there(p: Primitive) -> None:
    strict = StrictBackend()
    for case in cases_of(p):
        operands = operands_of(p, case)
        try:
            expected = run(p, np, operands, case.static)
        except (ValueError, TypeError, IndexError):
            continue
        there = [None if x is None else strict.asarray(x) for x in operands]
        with strict.forbid_reads():
            out = run(p, strict.xp, there, case.static, strict)
        # Not the same bits: what is added at indices is added in another order.
        np.testing.assert_allclose(strict.to_host(out), expected, rtol=1e-6)
        assert str(out.dtype) == str(expected.dtype)


def dtypes_after_promotion(p: Primitive, dtype: str, n: int) -> list[str]:
    return ["f32" if p.policy(i) == "f" and dtype in ("i32", "i64") else dtype for i in range(n)]


@each(lambda p: computes(p) and bool(p.sample))
@pytest.mark.parametrize("dtype", CARRIERS)
def test_each_dtype_is_computed_as_promised_or_refused(p: Primitive, dtype: str) -> None:
    assert p.rule is not None
    for case in [c for c in cases_of(p) if len(c.shapes) > 0][-3:]:
        operands = operands_of(p, case)
        given = [
            x if x is None or d.dtype != "f32" else x.astype(CARRIERS[t])
            for x, d, t in zip(
                operands,
                [*p.sample, *[p.sample[-1]] * len(operands)],
                dtypes_after_promotion(p, dtype, len(operands)),
                strict=False,
            )
        ]
        try:
            promised = p.rule(*types(given), **completed(p, case.static))
        except Refusal:
            continue
        out = run(p, np, given, case.static)
        assert (str(out.dtype), tuple(out.shape)) == (promised.carrier, promised.shape), given


@each(meets_numbers)
@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "i32", "i64"])
def test_a_host_number_takes_the_type_of_the_array_it_meets(p: Primitive, dtype: str) -> None:
    assert p.rule is not None
    shared = [i for i in range(len(p.sample)) if p.policy(i) != "-"]
    array = dtypes_after_promotion(p, dtype, 2)[-1]
    number: Any = 2 if array[0] == "i" else 2.0
    for shape, place in itertools.product(((), (2, 3)), shared):
        operands = [drawn(d, shape, array if d.dtype == "f32" else d.dtype, np.random.default_rng(1)) for d in p.sample]
        if p.sample[place].dtype == "i32":
            operands = [x.astype(CARRIERS[array]) for x in operands]
        promised = p.rule(*[t if i != place else ArrayType(array) for i, t in enumerate(types(operands))])
        for mixed in (
            [number if i == place else x for i, x in enumerate(operands)],
            [number if i != place and i in shared else x for i, x in enumerate(operands)],
        ):
            assert str(run(p, np, mixed, {}).dtype) == promised.carrier, mixed


@each(lambda p: computes(p) and p.moves and bool(p.sample))
def test_moving_elements_leaves_them_on_the_bf16_grid(p: Primitive) -> None:
    grid = PRIMITIVES["round-bf16"].forward
    assert grid is not None
    for case in cases_of(p):
        if case.static.get("dtype", "f32") != "f32":
            continue
        operands = [x if x is None or x.dtype != np.float32 else grid(np, x) for x in operands_of(p, case)]
        try:
            out = run(p, np, operands, case.static)
        except (ValueError, TypeError, IndexError):
            continue
        if out.dtype == np.float32:
            np.testing.assert_array_equal(grid(np, out), out)


# Gradients


def real_results(out: Any) -> list[Any]:
    return [v for v in (out if isinstance(out, list) else [out]) if v.type.is_float]


def weighed(p: Primitive, arrays: list[Any], static: dict[str, Any]) -> tuple[Eager, list[Any], Any]:
    """An emitter, values of `arrays`, and a scalar that depends on every element of what `p` gives for them."""
    eager = Eager()
    values = [None if a is None else eager.value(a) for a in arrays]
    results = real_results(eager.apply(p, values, completed(p, static)))
    rng = np.random.default_rng(1)
    sums = [PRIMITIVES["sum"](PRIMITIVES["*"](v, eager.value(rng.normal(size=v.shape)))) for v in results]
    return eager, values, PRIMITIVES["+"](*sums)


def first_order(p: Primitive, arrays: list[Any], static: dict[str, Any]) -> tuple[Eager, list[Any], Any]:
    """The same for a scalar that depends on every element of the gradient."""
    eager, values, total = weighed(p, arrays, static)
    wrt = [v for v in values if v is not None and v.type.is_float]
    rng = np.random.default_rng(2)
    cotangents = eager.gradients(total, wrt)
    sums = [PRIMITIVES["sum"](PRIMITIVES["*"](g, eager.value(rng.normal(size=g.shape)))) for g in cotangents]
    return eager, values, PRIMITIVES["+"](*sums)


def differentiable_cases(p: Primitive) -> Iterator[tuple[Case, list[Any]]]:
    for case in cases_of(p):
        operands = operands_of(p, case, "f64")
        if any(x is not None and x.dtype == np.float64 for x in operands) and case.static.get("dtype", "f64") == "f64":
            yield case, operands


def check_against_differences(build: Any, p: Primitive, case: Case, arrays: list[Any], step: float) -> int:
    """Reverse mode against central differences along a direction, an operand at a time.  How many were compared."""
    try:
        eager, values, total = build(p, arrays, case.static)
    except Refusal:
        return 0
    wrt = [i for i, v in enumerate(values) if v is not None and v.dtype == "f64"]
    found = eager.gradients(total, [values[i] for i in wrt])
    for i, g in zip(wrt, found, strict=True):
        assert g.shape == arrays[i].shape
        if arrays[i].size == 0:
            continue  # there is nothing to move, and what comes of nothing may be infinite
        if p.vjp is not None and p.expand is None and entry(p.vjp, i) is None and entry(p.into, i) is None:
            continue
        direction = np.random.default_rng(3 + i).normal(size=arrays[i].shape)
        ends = []
        for sign in (1, -1):
            moved = [a + sign * step * direction if j == i else a for j, a in enumerate(arrays)]
            ends.append(float(build(p, moved, case.static)[2].array))
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose((g.array * direction).sum(), slope, rtol=1e-5, atol=1e-6, err_msg=f"{case} {i}")
    return len(wrt)


@each(differentiable)
def test_the_gradient_against_central_differences(p: Primitive) -> None:
    compared = [check_against_differences(weighed, p, case, xs, 1e-6) for case, xs in differentiable_cases(p)]
    assert any(compared)


@each(differentiable)
def test_the_second_gradient_against_central_differences(p: Primitive) -> None:
    cases = list(differentiable_cases(p))
    for case, operands in cases[-4:] if p.elementwise else cases:
        check_against_differences(first_order, p, case, operands, 1e-5)


@each()
def test_each_operand_has_a_gradient_or_an_explicit_none(p: Primitive) -> None:
    for table in (p.vjp, p.into):
        assert table is None or callable(table) or 0 < len(table) <= len(p.arrays)


# Host numbers


@each(lambda p: p.elementwise and not p.internal and p.name != "cast")
def test_host_numbers_give_what_arrays_give(p: Primitive) -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        xs = [drawn(d, (), {"f32": "f64"}.get(d.dtype, d.dtype), rng).item() for d in p.sample]
        eager = Eager()
        values = [eager.value(np.asarray(x, "int32" if type(x) is int else None)) for x in xs]
        found, expected = evaluate(p, xs), eager.apply(p, values, {}).array.item()
        assert type(found) is type(expected) or isinstance(expected, float)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


# Documentation


@each()
def test_every_primitive_is_documented(p: Primitive) -> None:
    first, _, rest = p.doc.partition("\n")
    assert re.search(r"[.:]$|\. ", first), "a sentence"
    assert p.sample or not p.arrays, "what to sample its operands from"
    assert p.elementwise or p.cases, "what to try it on"
    if p.internal:
        return
    assert re.search(r"^gives:", rest, re.M), "what it gives"
    assert p.examples, "an example"
    for operand in p.arrays:
        assert re.search(rf"^[\w ]*\b{re.escape(operand.name)}\b[\w ]*:", rest, re.M), operand.name


@pytest.fixture(scope="module", params=["cpu", "strict"])
def prompt(request: pytest.FixtureRequest) -> Iterator[Session]:
    """A prompt that computes on a device."""
    session = Session(device="cpu")
    session.host = open_backend(request.param)
    session.workspace = Workspace.empty(session.host)
    yield session
    session.close()


def shown(value: Any) -> str:
    """A value as docstrings write it: an array's type before its numbers."""
    if not isinstance(value, Value):
        return written(value)
    numbers = value.emitter.backend.to_host(value.data)  # type: ignore[attr-defined]  # the prompt computes
    return f"{value.type} {nested(numbers)}"


def nested(numbers: Any) -> str:
    if numbers.ndim:
        return f"[{' '.join([nested(part) for part in numbers])}]"
    return written(bool(numbers)) if numbers.dtype == bool else str(numbers)


@each(lambda p: not p.internal)
def test_an_example_gives_what_is_written_beside_it(p: Primitive, prompt: Session) -> None:
    assert p.examples
    for expression, value in p.examples:
        assert len(read(Source(p.name, expression))) == 1
        assert p.name in expression
        answer = prompt.answer(expression)
        assert not answer.errors, answer.lines
        assert shown(prompt.workspace.stars()[0]) == value, expression


@pytest.mark.parametrize("name", HOST_EXAMPLES)
def test_an_example_of_a_function_of_host_values_gives_what_is_written_beside_it(name: str, prompt: Session) -> None:
    assert BUILTINS[name].examples
    for expression, value in BUILTINS[name].examples:
        assert f"({name}" in expression
        answer = prompt.answer(expression)
        assert not answer.errors, answer.lines
        assert shown(prompt.workspace.stars()[0]) == value, expression


def test_a_fused_form_is_of_its_operands() -> None:
    for p in PRIMITIVES.values():
        if not p.cuda:
            continue
        used = {int(n) for n in re.findall(r"\{(\d)\}", p.cuda)}
        assert used == set(range(len(p.sample))), p.name
        assert p.cuda.count("(") == p.cuda.count(")"), p.name
