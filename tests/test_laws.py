"""Laws of random programs: a naive evaluator agrees, totals are sums over any cut, guards change no number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from sxi.backends import open_backend
from sxi.errors import SxiError
from sxi.program import load_source
from sxi.run import Failure, Report, Runner
from sxi.source import Source
from sxi.stages import check_run
from tests.naive import Inexact, Naive, Series, Step, series_of

FEW = settings(
    phases=[Phase.generate, Phase.shrink],
    max_examples=80,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
# A text as it stands, and the same without what reports.
Pair: TypeAlias = tuple[str, str]
Draw: TypeAlias = Any
Env: TypeAlias = dict[str, tuple[str, ...]]

# Kinds of values: an array of a microbatch of n rows, f32[n 2], f32[n] or f32[n 1]; a scalar array; a host number.
ROWS, COLUMN, KEPT, SCALAR, HOST = "rows", "column", "kept", "scalar", "host"
ARRAYS = (ROWS, COLUMN, KEPT, SCALAR)
BROADCAST = {
    ROWS: (ROWS, KEPT, SCALAR, HOST),
    COLUMN: (COLUMN, SCALAR, HOST),
    KEPT: (KEPT, SCALAR, HOST),
    SCALAR: (SCALAR, HOST),
}
START: Env = {ROWS: ("x",), COLUMN: ("y",), KEPT: (), SCALAR: ("w",), HOST: ()}
GUARDS = ("g", "h/x", "m.mean-1", "m.sum")
METRICS = {
    "m.mean-1": "",
    "m.sum": ":reduce :sum",
    "m/max": ":reduce :max",
    "m/min": ":reduce :min",
    "m/last": ":reduce :last",
}
NUMBERS = ("0", "1", "2", "-3", "0.5", "-1.0", "0.25", "1.5")
BOUNDS = ("0", "1", "2.5", "-1.0", "inf", "-inf", "1000")


def join(template: str, *parts: Pair) -> Pair:
    return template.format(*[p[0] for p in parts]), template.format(*[p[1] for p in parts])


def plain(text: str) -> Pair:
    return text, text


@st.composite
def metadata(draw: Draw, env: Env) -> str:
    values = [
        *[f":k {v}" for v in ("0", "1", "1.0", "true", '"s"', ":s")],
        *[f":i {v}" for v in env[HOST]],
        ":layer -2",
    ]
    chosen = draw(st.lists(st.sampled_from(values), max_size=2, unique_by=lambda pair: pair.split()[0]))
    return "".join([f" {pair}" for pair in chosen])


@st.composite
def report(draw: Draw, env: Env, depth: int) -> Pair:
    """A reporting form of a scalar; without it, the scalar."""
    value = draw(expression(SCALAR, env, depth))
    if "loose" in env and draw(st.integers(0, 9)):
        value = join("(sum {})", value)
    meta = draw(metadata(env))
    if draw(st.booleans()):
        name = draw(st.sampled_from(GUARDS))
        return f'(guard "{name}" {value[0]}{meta})', value[1]
    name = draw(st.sampled_from(list(METRICS)))
    bounds = draw(st.lists(st.sampled_from([f":{k} {b}" for k in ("below", "above") for b in BOUNDS]), max_size=2,
                           unique_by=lambda pair: pair.split()[0]))  # fmt: skip
    parts = [METRICS[name], *bounds, meta.strip()]
    return f'(metric "{name}" {value[0]} {" ".join([p for p in parts if p])})', value[1]


@st.composite
def mask(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    choice = draw(st.integers(0, 6))
    if choice == 0 and depth:
        op = draw(st.sampled_from(["logical-and", "logical-or"]))
        return join(f"({op} {{}} {{}})", draw(mask(kind, env, depth - 1)), draw(mask(kind, env, depth - 1)))
    if choice == 1 and depth:
        return join("(logical-not {})", draw(mask(kind, env, depth - 1)))
    if choice == 2:
        return join(
            f"({draw(st.sampled_from(['finite?', 'nan?', 'inf?']))} {{}})", draw(expression(kind, env, depth - 1))
        )
    op = draw(st.sampled_from(["<", "<=", ">", ">=", "=", "/="]))
    second = draw(st.sampled_from(BROADCAST[kind]))
    return join(f"({op} {{}} {{}})", draw(expression(kind, env, depth - 1)), draw(expression(second, env, depth - 1)))


@st.composite
def host(draw: Draw, env: Env, depth: int) -> Pair:
    names = [*env[HOST], *NUMBERS]
    if depth > 0 and draw(st.integers(0, 3)) == 0:
        op = draw(st.sampled_from(["+", "-", "*", "minimum", "maximum"]))
        return join(f"({op} {{}} {{}})", draw(host(env, depth - 1)), draw(host(env, depth - 1)))
    if draw(st.integers(0, 4)) == 0:
        return plain(draw(st.sampled_from(["(dim x 1)", "(dim x 0)", "(dim y 0)", "(size x)"])))
    return plain(draw(st.sampled_from(names)))


@st.composite
def leaf(draw: Draw, kind: str, env: Env) -> Pair:
    if kind == HOST:
        return draw(host(env, 0))  # type: ignore[no-any-return]  # a strategy's value
    if env[kind] and draw(st.integers(0, 3)):
        return plain(draw(st.sampled_from(env[kind])))
    made = {
        ROWS: ["x", "(- x)", "(* x 0.5)"],
        COLUMN: ["y", "(sum x :axis 1)", "(max x :axis -1)", "(mean x :axis 1)"],
        KEPT: ["(sum x :axis 1 :keep true)", "(min x :axis 1 :keep true)"],
        SCALAR: ["w", "(sum y)", "(max x)", "(min y)", "(* 1.0 (sum x))"],
    }
    return plain(draw(st.sampled_from(made[kind])))


@st.composite
def expression(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    """An expression of that kind, often exact in f32; of any kind where `env` is loose."""
    if "loose" in env and draw(st.integers(0, 5)) == 0:
        kind = draw(st.sampled_from([*ARRAYS, HOST]))
    if kind == HOST:
        return draw(host(env, depth))  # type: ignore[no-any-return]  # a strategy's value
    if depth <= 0:
        return draw(leaf(kind, env))  # type: ignore[no-any-return]  # a strategy's value
    makers = [two, one, where, bound, folded, chosen, reported, reduced, called, leaf_of]
    make = draw(st.sampled_from([*makers, loose, loose] if "loose" in env else makers))
    return draw(make(kind, env, depth - 1))  # type: ignore[no-any-return]  # a strategy's value


@st.composite
def leaf_of(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    return draw(leaf(kind, env))  # type: ignore[no-any-return]  # a strategy's value


@st.composite
def two(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    op = draw(st.sampled_from(["+", "-", "*", "minimum", "maximum"]))
    parts = [draw(expression(kind, env, depth)), draw(expression(draw(st.sampled_from(BROADCAST[kind])), env, depth))]
    return join(f"({op} {{}} {{}})", *(parts[::-1] if draw(st.booleans()) else parts))


@st.composite
def one(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    form = draw(st.sampled_from(["(abs {})", "(neg {})", "(- {})", "(/ {} 2.0)", "(/ {} -4)", "(square {})"]))
    return join(form, draw(expression(kind, env, depth)))


@st.composite
def where(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    other = draw(st.sampled_from([kind, HOST]))
    return join("(where {} {} {})", draw(mask(kind, env, depth)), draw(expression(kind, env, depth)),
                draw(expression(other, env, depth)))  # fmt: skip


LOOSE = (
    "(reshape {} [-1])", "(@ {} x)", "(at y 0)", "(slice {} 0 0 1)", "(concat [{} {}] :axis 0)", "(expand {} 0)",
    "(sum {} :axis 0)", "(max {} :axis 2)", "(cast {} :i32)", "(argmax {})", "(sort {})", "(softmax {})", "(norm {})",
    "(/ {} {})", "(sqrt {})", "(log {})", "(exp {})", "(one-hot {} 3)", "(take x {})", "(cross-entropy x {})",
    "(quotient {} {})", "(mod {} {})", "(pow {} {})", "(cholesky {})", "(zeros [{}])", "(if {} {} 1.0)", "(str {})",
    "((grad (lambda (v) (sum (* v {})))) {})", "((value-and-grad (lambda (v) {})) {})", "(stop-gradient {})",
    "(tap-gradient {} (lambda (g) (diagnostic \"t\" (norm g))))", "(dropout {} 0.5)", "(normal (shape {}))",
    "(bf16 {})",
    "(diagnostic \"d\" {} :below 3.0)", "(frozen {})", "(fold (z {}) (i (range 2)) (+ z {}))", "(map neg [{}])",
    "(metric \"m.sum\" {} :k {})", "(guard (str \"g\" {}) {})", "(next \"s\" {})", "(gather x {} :axis 1)", "[{} {}]",
)  # fmt: skip


@st.composite
def loose(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    """A call that may fit or not."""
    template = draw(st.sampled_from(LOOSE))
    parts = [
        draw(expression(draw(st.sampled_from([kind, *ARRAYS, HOST])), env, depth)) for _ in range(template.count("{}"))
    ]
    return join(template, *parts)


def with_name(env: Env, kind: str, name: str) -> Env:
    return {**env, kind: (*env[kind], name)}


@st.composite
def bound(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    other = draw(st.sampled_from([*ARRAYS, HOST]))
    name = f"v{sum(map(len, env.values()))}"
    value, body = draw(expression(other, env, depth)), draw(expression(kind, with_name(env, other, name), depth))
    dropped = draw(st.lists(report(with_name(env, other, name), depth - 1), max_size=2))
    reports = "".join([text + " " for text, _ in dropped])
    return f"(let (({name} {value[0]})) {reports}{body[0]})", f"(let (({name} {value[1]})) {body[1]})"


@st.composite
def folded(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    at = sum(map(len, env.values()))
    inner = with_name(with_name(env, kind, f"a{at}"), HOST, f"i{at}")
    first, body = draw(expression(kind, env, depth)), draw(expression(kind, inner, depth))
    turns = draw(st.sampled_from(["(range 2)", "(range 1 4)", "(range 0)", "[2 -1]"]))
    return join(f"(fold (a{at} {{}}) (i{at} {turns}) {{}})", first, body)


@st.composite
def chosen(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    op = draw(st.sampled_from(["<", "=", ">="]))
    return join(f"(if ({op} {{}} {{}}) {{}} {{}})", draw(host(env, 1)), draw(host(env, 1)),
                draw(expression(kind, env, depth)), draw(expression(kind, env, depth)))  # fmt: skip


@st.composite
def reported(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    if kind == SCALAR and draw(st.booleans()):
        return draw(report(env, depth))  # type: ignore[no-any-return]  # a strategy's value
    value = draw(expression(kind, env, depth))
    return f'(assert-finite "{draw(st.sampled_from(GUARDS))}" {value[0]}{draw(metadata(env))})', value[1]


@st.composite
def reduced(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    if kind == SCALAR:
        inner = draw(st.sampled_from([ROWS, COLUMN, KEPT]))
        if draw(st.booleans()):
            return join("(count-where {})", draw(mask(inner, env, depth)))
        return join(
            f"({draw(st.sampled_from(['sum', 'max', 'min', 'mean']))} {{}})", draw(expression(inner, env, depth))
        )
    if kind == ROWS:
        return join("(+ x {})", draw(expression(KEPT, env, depth)))
    keep = " :keep true" if kind == KEPT else ""
    op = draw(st.sampled_from(["sum", "max", "min", "mean"]))
    return join(
        f"({op} {{}} :axis {draw(st.sampled_from(['1', '-1', '[1]']))}{keep})", draw(expression(ROWS, env, depth))
    )


@st.composite
def called(draw: Draw, kind: str, env: Env, depth: int) -> Pair:
    return join(f"({draw(st.sampled_from(['twice', 'watched']))} {{}})", draw(expression(kind, env, depth)))


TEXT = """(data d (npz "d.npz"))
(define (twice v) (+ v v))
(define (watched v) {watching})
(optimizer still (p g) (update p))
(objective (batch)
  (let ((x (:x batch)) (y (:y batch)) (w (param "w" [] :init ones-init)))
    {reports}
    (+ (* 0.0 w) {loss})))
(run r :data d :shuffle off :steps {steps} :batch {batch} :microbatches {microbatches}
  :guard-finite off :optimizer {optimizer})
"""
WATCHING = '(begin (guard "watched" (count-where (> v 2.0))) (assert-finite "watched" v :in "helper"))'


class Case:
    """A program and its data.

    text, bare:  as written, and without what reports
    rows:        f32[rows 2] and f32[rows]
    """

    def __init__(self, forms: list[Pair], loss: Pair, n: int, microbatches: int, steps: int, data: Any) -> None:
        self.n, self.microbatches, self.steps = n, microbatches, steps
        self.forms, self.loss = forms, loss
        self.x, self.y = data

    def text(self, *, reports: bool = True, optimizer: str = "(still)", steps: int | None = None) -> str:
        return TEXT.format(
            watching=WATCHING if reports else "v",
            reports="\n    ".join([text for text, _ in self.forms]) if reports else "",
            loss=self.loss[0 if reports else 1], steps=self.steps if steps is None else steps,
            batch=self.n * self.microbatches, microbatches=self.microbatches, optimizer=optimizer,
        )  # fmt: skip

    def batches(self, step: int) -> Iterator[dict[str, Any]]:
        """The microbatches of a step, from 0."""
        for m in range(self.microbatches):
            at = (step * self.microbatches + m) * self.n
            yield {"x": self.x[at : at + self.n], "y": self.y[at : at + self.n]}

    def __repr__(self) -> str:
        return f"{self.text()}\nx = {self.x.tolist()}\ny = {self.y.tolist()}"


NUMBER = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0, 3.0, 0.5, -0.0, -2.5]),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0]),
)


@st.composite
def cases(draw: Draw, *, depth: int = 3, finite: bool = False) -> Case:
    n, microbatches, steps = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    rows = n * microbatches * steps
    numbers = st.sampled_from([0.0, 1.0, -1.0, 2.0, 0.5, -2.5]) if finite else NUMBER
    flat = draw(st.lists(numbers, min_size=3 * rows, max_size=3 * rows))
    x = np.array(flat[: 2 * rows], np.float32).reshape(rows, 2)
    forms = draw(st.lists(report(START, depth), min_size=1, max_size=3))
    loss = draw(expression(SCALAR, START, depth))
    return Case(forms, loss, n, microbatches, steps, (x, np.array(flat[2 * rows :], np.float32)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


def runner_of(folder: Path, text: str, **columns: Any) -> Runner:
    """A run that has begun, over these columns."""
    np.savez(folder / "d.npz", **columns)
    loaded = load_source(Source(str(folder / "law.sx"), text))
    assert not loaded.errors, loaded.errors
    host = open_backend("cpu")
    made = Runner(check_run(loaded, host), host, host)
    made.begin()
    return made


def taken(made: Runner) -> list[Report]:
    """The reports of the run, each once, the failing one last."""
    found: list[Report] = []
    for r in made.reports():
        if not found or found[-1] is not r:
            found.append(r)
    return found


def shown(report: Report) -> dict[Series, float]:
    return {series_of(p.label.name, p.label.meta): p.value for p in report.points}


def same(a: dict[Series, float], b: dict[Series, float]) -> bool:
    return a.keys() == b.keys() and all(a[k] == b[k] or (math.isnan(a[k]) and math.isnan(b[k])) for k in a)


def naively(case: Case) -> list[Step]:
    """What the naive evaluator says of each step, to the first whose verdict is not good."""
    found = []
    for step in range(case.steps):
        try:
            found.append(Naive(case.text()).evaluate(list(case.batches(step))))
        except Inexact:
            assume(False)
        if found[-1].verdict() is not None:
            break
    return found


def failure_of(failure: Failure | None) -> tuple[Series, float, int] | None:
    if failure is None:
        return None
    error = failure.error
    assert error.code == "E-GUARD-001"
    assert failure.guard is not None
    count = failure.error.data["count"]
    assert error.span is not None
    return series_of(failure.guard.name, dict(failure.guard.metadata)), float(count), error.span.start


@FEW
@given(case=cases())
def test_a_naive_evaluator_agrees(folder: Path, case: Case) -> None:
    expected = naively(case)
    found = taken(runner_of(folder, case.text(), x=case.x, y=case.y))
    assert len(found) == len(expected)
    for i, (step, mine) in enumerate(zip(expected, found, strict=True)):
        assert mine.step == i + 1
        assert same(shown(mine), step.points()), (shown(mine), step.points())
    assert repr(failure_of(found[-1].failure)) == repr(expected[-1].verdict())


# Guards change no number


def held(made: Runner, steps: int = 0) -> dict[str, bytes]:
    """The bytes of what the run holds after so many steps more."""
    end = made.step + steps
    for report in made.reports() if steps else ():
        if report.ends_step and report.step == end:
            break
    assert made.step == end
    return {name: x.tobytes() for name, x in made.state.to_host(made.backend).items()}


@settings(FEW, max_examples=60)
@given(case=cases())
def test_guards_change_no_number_of_the_program(folder: Path, case: Case) -> None:
    def begun(reports: bool) -> Runner:
        text = case.text(reports=reports, optimizer="(momentum :lr 0.5)")
        return runner_of(folder, text, x=case.x, y=case.y)

    guarded = begun(True)
    found = taken(guarded)
    # a step that fails changes nothing
    assert guarded.step == found[-1].step - (found[-1].failure is not None)
    assert held(guarded) == held(begun(False), guarded.step)


# Totals are sums over any cut


@st.composite
def of_a_row(draw: Draw, kind: str, depth: int) -> str:
    """An expression each of whose rows comes from that row alone."""
    leaves = {ROWS: ["x", "(* 2.0 x)"], COLUMN: ["y", "(sum x :axis 1)", "(max x :axis 1)"]}
    if depth == 0:
        return draw(st.sampled_from(leaves[kind]))  # type: ignore[no-any-return]  # a strategy's value
    a, b = draw(of_a_row(kind, depth - 1)), draw(st.one_of(of_a_row(kind, depth - 1), st.sampled_from(NUMBERS)))
    return draw(  # type: ignore[no-any-return]  # a strategy's value
        st.sampled_from(
            [f"(+ {a} {b})", f"(* {b} {a})", f"(- {a} {b})", f"(maximum {a} {b})", f"(where (> {a} {b}) {b} {a})"]
        )
    )


LOOK = """
  (guard "rows" (count-where (> {a} 0.5)))
  (guard "columns" (count-where (logical-or (nan? {b}) (< {b} -0.25))) :k 1)
  (assert-finite "finite" {a})
  (metric "sum" (sum (where (> {b} 0.0) 1.0 0.0)) :reduce :sum)"""
CUT = """(data d (npz "d.npz"))
(define (look x y) {look})
(objective (batch) {objective} (* 0.0 (param "w" [] :init ones-init)))
(evaluate held (batch) {evaluate})
(run r :data d :shuffle off :steps 1 :batch 12 :microbatches {microbatches} :optimizer (sgd :lr 1.0)
  :evaluate [(held :data d :batch {batch})])
"""


@settings(FEW, max_examples=40)
@given(
    a=of_a_row(ROWS, 2), b=of_a_row(COLUMN, 2), flat=st.lists(NUMBER, min_size=36, max_size=36),
    microbatches=st.sampled_from([1, 2, 3, 4, 6, 12]), batch=st.integers(1, 13),
)  # fmt: skip
def test_totals_are_sums_of_counts_over_any_cut(
    folder: Path, a: str, b: str, flat: list[float], microbatches: int, batch: int
) -> None:
    x, y = np.array(flat[:24], np.float32).reshape(12, 2), np.array(flat[24:], np.float32)
    look, call = LOOK.format(a=a, b=b), "(look (:x batch) (:y batch))"
    alone = Naive(f"(objective (batch) (let ((x (:x batch)) (y (:y batch))) {look}))")
    expected: dict[Series, float] = {}
    for row in range(12):
        try:
            step = alone.evaluate([{"x": x[row : row + 1], "y": y[row : row + 1]}])
        except Inexact:
            assume(False)
        for series, value in step.points().items():
            expected[series] = expected.get(series, 0.0) + value
    for objective, evaluate in ((call, "0.0"), ("0.0", call)):
        text = CUT.format(look=look, objective=objective, evaluate=evaluate, microbatches=microbatches, batch=batch)
        points: dict[Series, float] = {}
        for report in taken(runner_of(folder, text, x=x, y=y)):
            for p in report.points:
                points[series_of(p.label.name, {k: v for k, v in p.label.meta.items() if k != "pass"})] = p.value
        assert same(points, expected)


# What check accepts raises verdicts only


ANYTHING = """(data d (npz "d.npz"))
(setting shift 0.5)
(define (twice v) (+ v v))
(define (watched v) {watching})
(optimizer own (p g :lr 0.1)
  (guard "update" (count-where (> (abs g) 1e6)))
  (diagnostic "d" (norm g))
  (update (- p (* lr g))))
(define (all batch)
  (let ((x (:x batch)) (y (:y batch)) (w (param "w" [] :init ones-init)) (s (state "s" [] :init zeros-init)))
    {reports}
    (+ (* shift w) (mean {loss}))))
(objective (batch) (all batch))
(evaluate held (batch) (all batch))
(curriculum (stage "a" :until (= (step) 1)) (stage "b" :set {{:shift 0.25}}))
(run r :data d :steps {steps} :batch {batch} :microbatches {microbatches} :guard-finite {finite} :optimizer (own)
  :diagnostics {diagnostics} :sample-every 2 :evaluate [(held :data d :batch 2 :every 1)])
"""


@st.composite
def anything(draw: Draw) -> Case:
    made = draw(cases(depth=2))
    env = {**START, "loose": ()}
    made.forms = draw(st.lists(report(env, 3), max_size=2))
    made.loss = draw(expression(SCALAR, env, 3))
    made.steps = 3
    return made  # type: ignore[no-any-return]  # a strategy's value


def test_what_check_accepts_raises_verdicts_only(folder: Path) -> None:
    outcomes: dict[str, int] = {}

    @settings(FEW, max_examples=160)
    @given(case=anything(), finite=st.sampled_from(["on", "off"]), sampled=st.booleans())
    def law(case: Case, finite: str, sampled: bool) -> None:
        text = ANYTHING.format(
            watching=WATCHING, reports=" ".join([t for t, _ in case.forms]), loss=case.loss[0], steps=case.steps,
            batch=case.n * case.microbatches, microbatches=case.microbatches, finite=finite,
            diagnostics='["*"]' if sampled else "[]",
        )  # fmt: skip
        try:
            made = runner_of(folder, text, x=case.x, y=case.y)
        except SxiError as refused:
            outcome = refused.code.split("-")[1]
        else:
            failure = taken(made)[-1].failure
            outcome = "done" if failure is None else failure.error.code
            assert outcome in ("done", "E-GUARD-001", "E-GUARD-002")
        assert outcome not in ("READ", "RUN", "USE")
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    law()
    assert min([outcomes[o] for o in ("done", "E-GUARD-001", "EVAL", "SHAPE", "DTYPE", "CONTRACT")]) >= 5, outcomes
