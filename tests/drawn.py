"""Random programs for hypothesis: expressions with their kinds, reports within them, the data of their run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

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
        *[f":i {v}" for v in env[HOST]] * 8,  # a loop's turn, where there is one
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
        form = f'(guard "{name}" {value[0]}{meta})'
        if draw(st.integers(0, 4)) == 0:  # metadata in another order: one series
            form = f'(begin (guard "{name}" 1 :k 0 :layer -2) (guard "{name}" {value[0]} :layer -2 :k 0))'
        return form, value[1]
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
    # both ways round: what takes one for the other is found out
    both = f"(+ ({op} {{0}} {{1}}) (* 2.0 ({op} {{1}} {{0}})))"
    template = both if draw(st.integers(0, 5)) == 0 else f"({op} {{}} {{}})"
    return join(template, *(parts[::-1] if draw(st.booleans()) else parts))


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
    "(bf16 {})", "(logical-not {})", "(+ {} (> x 0.0))",
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
    dropped = draw(st.lists(report(inner, min(depth - 1, 1)), max_size=1))
    form = f"(fold (a{at} {{}}) (i{at} {turns}) {{}}{{}})"
    return join(form, first, ("".join([text + " " for text, _ in dropped]), ""), body)


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
  (let ((w (param "w" [] :init ones-init)) (x (* w (:x batch))) (y (* w (:y batch))))
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


@st.composite
def anything(draw: Draw) -> Case:
    made = draw(cases(depth=2))
    env = {**START, "loose": ()}
    made.forms = draw(st.lists(report(env, 3), max_size=2))
    made.loss = draw(expression(SCALAR, env, 3))
    made.steps = 3
    return made  # type: ignore[no-any-return]  # a strategy's value
