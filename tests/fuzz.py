"""Texts that nobody would write, and what the interpreter may do with them: run them, or refuse them by an SxiError.

Three kinds of texts, in turn: a program of the corpus (golden programs, the programs of all codes and rules, the
tutorials' runs) changed in a few places; a training run whose objective is a random expression; random tokens.
A text is a function of its number, so a failure is found again by its number alone.
"""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sxi import contracts, explain_program, program, render
from sxi.backends import open_backend
from sxi.builtins import BUILTINS
from sxi.checking import check_text, deep_calls
from sxi.errors import CODES, SxiError
from sxi.eval import FORMS
from sxi.forms.declare import DECLARATIONS
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Param, Primitive
from sxi.program import Loader, load_source
from sxi.reader import Group, Keyword, read_all
from sxi.run import Runner
from sxi.source import Source
from sxi.stages import check_run

ROOT = Path(__file__).parents[1]
# Sizes of the tutorials' runs, made small: what is tested is what a text does, not how long it trains.
SMALLER = (
    ("(define layers 4)", "(define layers 1)"), ("(define width 128)", "(define width 4)"),
    ("(define heads 4)", "(define heads 2)"), ("(setting span 128", "(setting span 6"), ("{:span 64}", "{:span 4}"),
    ("{:span 128}", "{:span 6}"), ("[128 width]", "[6 width]"), ("(define nodes 1182)", "(define nodes 6)"),
    ("(define negatives 50)", "(define negatives 3)"), ("h 128)", "h 4)"),
    ("../data/", ""),
)  # fmt: skip


class Hang(BaseException):
    """A text took too long; nothing in sxi catches it."""


# Forms whose operands are computed, and forms whose last one is their value.
CALLED = {*PRIMITIVES, *BUILTINS, "guard", "metric", "diagnostic", "assert-finite", "with", "if", "not", "and", "or"}
BODIES = {
    "let",
    "lambda",
    "define",
    "objective",
    "prepare",
    "model",
    "evaluate",
    "generator",
    "fold",
    "begin",
    "bf16",
    "scope",
}

# The corpus


@cache
def corpus() -> list[str]:
    texts = [code.breaks for code in CODES.values()] + [code.fixed for code in CODES.values()]
    texts += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests/golden").rglob("*.sx"))]
    for path in sorted((ROOT / "tutorials/runs").glob("*.sx")):
        text = path.read_text(encoding="utf-8")
        for long, short in SMALLER:
            text = text.replace(long, short)
        text = re.sub(r":(batch|examples) \d+", r":\1 4", text)
        texts.append(text)
    texts = [re.sub(r"(?m)^;.*\n?|\s*; *\^ E-.*$", "", text) for text in texts]
    # a graph of 200,000 operations is refused, but takes its time
    return [text for text in texts if text.strip() and "250_000" not in text]


@cache
def spans() -> list[Places]:
    """For each text of the corpus where its forms are."""
    return [places_in(text) for text in corpus()]


@dataclass(frozen=True)
class Places:
    """Where the forms of a text are, and those of them that are computed: operands and last forms of bodies."""

    forms: list[tuple[int, int]]
    computed: list[tuple[int, int]]


def places_in(text: str) -> Places:
    forms: list[tuple[int, int]] = []
    computed: list[tuple[int, int]] = []
    for top in read_all(Source("c.sx", text))[0]:
        for form, is_computed in walk(top, False):
            (computed if is_computed else forms).append((form.span.start, form.span.end))
    return Places([*forms, *computed], computed)


@cache
def accepted() -> list[int]:
    """Which texts of the corpus have a run: a change of one is most often still a whole program."""
    return [n for n, text in enumerate(corpus()) if "(run " in text]


@cache
def words() -> dict[str, list[str]]:
    """The keywords and strings of the runs of the corpus, by their first character."""
    texts = {corpus()[n][a:b] for n in accepted() for a, b in spans()[n].forms}
    return {first: sorted([t for t in texts if t.startswith(first)]) for first in ':"'}


def walk(form: Any, is_computed: bool) -> Iterator[tuple[Any, bool]]:
    """A form and those in it, each with whether it stands where a value is computed."""
    yield form, is_computed
    items = form.items if isinstance(form, Group) else ()
    calls = isinstance(form, Group) and form.head in CALLED
    for i, inner in enumerate(items):
        is_last = i == len(items) - 1 and isinstance(form, Group) and form.head in BODIES
        yield from walk(inner, not isinstance(inner, Keyword) and ((calls and i > 0) or is_last))


def write_data(folder: Path) -> None:
    """The files that the corpus reads, a few rows each."""
    rows = np.arange(12, dtype=np.float32)
    np.savez(folder / "data.npz", x=rows, y=rows[:, None] * np.ones(3, np.float32), n=rows, i=np.arange(12) % 3)
    np.savez(
        folder / "digits.npz", x=np.outer(rows, np.ones(64)).astype(np.float32), y=(np.arange(12) % 10).astype("i4")
    )
    np.savez(folder / "mammals.npz", child=(np.arange(12) % 6).astype("i4"), parent=(np.arange(12) % 5).astype("i4"))
    (folder / "topics.txt").write_text("the cat sat on the mat\n" * 4, encoding="utf-8")
    (folder / "data.csv").write_text("x,y\n1,2\n3,4\n", encoding="utf-8")
    (folder / "more.sx").write_text("(define (twice x) (* 2.0 x))\n", encoding="utf-8")


# Atoms

GIANTS = ["4294967296", "9223372036854775808", "1e308", "1" * 400, "-9223372036854775809", "2147483648"]
ODD = ["nil", "true", "false", "inf", "nan", "-inf", "pi", "[]", "{}", "()", '""', '"é\\u{1F600}"', ":", "'x", "else"]
KEYWORDS = [
    ":axis", ":keep", ":dtype", ":f32", ":f64", ":f16", ":bf16", ":i32", ":i64", ":bool", ":init", ":reduce", ":mean",
    ":sum", ":max", ":min", ":last", ":below", ":above", ":layer", ":until", ":set", ":state", ":lr", ":data", ":batch",
    ":steps", ":every", ":examples", ":split", ":x", ":n", ":param", ":epochs", ":shuffle", ":microbatches", ":doc",
]  # fmt: skip
NAMES = ["x", "batch", "loss", "w", "g", "p", "net", "points", "n", "f", "acc", "numbers", "step"]


def word(rng: random.Random) -> str:
    """One token, or a small form."""
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(VOCABULARY)
    if kind < 0.45:
        return str(rng.choice([0, 1, 2, 3, 4, 7, -1, -2, 0.0, -0.0, 0.5, 1.5, 9.0, 1e-3, 20]))
    if kind < 0.50:
        return rng.choice(GIANTS)
    if kind < 0.65:
        return rng.choice(KEYWORDS)
    if kind < 0.80:
        return rng.choice(NAMES)
    if kind < 0.88:
        return rng.choice(ODD)
    if kind < 0.94:
        return rng.choice(
            ['"w"', '"x/y"', '"data.npz"', '"*"', '"guard/x"', '"net/w"', '"b i, i j -> b j"', '"ij->ji"']
        )
    return array(rng, 1)


PUBLIC = [p for p in PRIMITIVES.values() if not p.internal]
ELEMENTWISE = [p for p in PUBLIC if p.elementwise]
# Without those that read or write files, or the terminal.
COMMANDS = [
    "doc",
    "apropos",
    "type",
    "graph",
    "guards",
    "series",
    "explain",
    "why",
    "where",
    "value",
    "fix",
    "contracts",
]
COMMANDS += ["help", "set", "reset", "watch", "plot", "step", "reload", "nothing", "", "learn", "time"]
VOCABULARY = [*[p.name for p in PUBLIC], *BUILTINS, *FORMS, *DECLARATIONS]


# Random tokens, changed programs


def tokens(rng: random.Random, depth: int = 4) -> str:
    if depth == 0 or rng.random() < 0.3:
        return (
            word(rng)
            if rng.random() < 0.97
            else rng.choice(["(", ")", "[", "]", "{", "}", '"', "#|", "|#", "#;", "\\", "\x00", "\u202e"])
        )
    opening, closing = rng.choice([("(", ")"), ("(", ")"), ("(", ")"), ("[", "]"), ("{", "}")])
    head = [rng.choice(VOCABULARY)] if opening == "(" and rng.random() < 0.8 else []
    return opening + " ".join(head + [tokens(rng, depth - 1) for _ in range(rng.randint(0, 4))]) + closing


def changed(rng: random.Random) -> str:
    """A program of the corpus with one to four of its forms, or of its characters, changed."""
    which = rng.choice(accepted()) if rng.random() < 0.8 else rng.randrange(len(corpus()))
    text = corpus()[which]
    places = spans()[which]
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        if not places.forms or rng.random() < 0.05:
            return characters(rng, text)
        start, end = rng.choice(places.computed if places.computed and rng.random() < 0.75 else places.forms)
        own = [text[a:b] for a, b in rng.choices(places.computed or places.forms, k=8)]
        text = text[:start] + replacement(rng, text[start:end], own) + text[end:]
        places = places_in(text)
    return text


def replacement(rng: random.Random, form: str, own: list[str]) -> str:
    """What stands in place of a form; `own` are other forms of its program."""
    kind = rng.random()
    if kind < 0.50:
        return alike(rng, form, own)
    if kind < 0.62:
        return rng.choice(own)
    if kind < 0.70:
        return word(rng)
    if kind < 0.76:
        return other_form(rng)
    if kind < 0.82:
        return ""
    if kind < 0.86:
        return f"{form} {form}"
    if kind < 0.90:
        return f"({rng.choice(VOCABULARY)} {form} {rng.choice(own)})"
    if kind < 0.94:
        return f"({rng.choice(VOCABULARY)} {form})"
    return tokens(rng, 2) if kind < 0.97 else array(rng, 2)


def alike(rng: random.Random, form: str, own: list[str]) -> str:
    """A form of the same kind: the change that is least often refused."""
    if re.fullmatch(r"-?[\d.]+", form):
        return rng.choice(["0", "1", "2", "3", "-1", "0.5", "4", form + "0", "-" + form, rng.choice(GIANTS)])
    if form.startswith("("):
        other = rng.choice([o for o in own if o.startswith("(")] or ["1.0"])
        wrapped = [f"(* 2.0 {form})", f"(let ((y {form})) y)", f'(assert-finite "a" {form})', f"(abs {form})"]
        wrapped += [f"(frozen {form})", f"(bf16 {form})", f'(scope "s" {form})', f"(sum {form})", f"(+ {form} {other})"]
        wrapped += [
            f"(begin {other} {form})",
            f"((lambda (x) x) {form})",
            f'(metric "m" {form})',
            f"(stop-gradient {form})",
        ]
        wrapped += [
            f"(where (> {other} 0.0) {form} 0.0)",
            f"(if (training?) {form} {other})",
            f'(diagnostic "d" {form})',
        ]
        wrapped += [
            f"(fold (y {form}) (i (range 2)) y)",
            f"(tap-gradient {form} (lambda (g) g))",
            f'(reading "m" {form})',
        ]
        wrapped += [f"((value-and-grad (lambda (y) {form})) {other})", f"((grad (lambda (y) {form})) {other})"]
        return rng.choice(wrapped)
    same = [word for word in words().get(form[:1], []) if word != form]
    if form[:1] in ':"' and same:
        return rng.choice(same)
    return rng.choice([o for o in own if re.fullmatch(r"[a-z][\w/-]*", o)] or NAMES)


def other_form(rng: random.Random) -> str:
    which = rng.randrange(len(corpus()))
    places = spans()[which]
    if not places.forms:
        return "x"
    start, end = rng.choice(places.computed or places.forms)
    return corpus()[which][start:end]


def characters(rng: random.Random, text: str) -> str:
    at, kind = rng.randrange(len(text) + 1), rng.random()
    if kind < 0.4:
        return text[:at] + text[at + rng.randint(1, 3) :]
    if kind < 0.8:
        return text[:at] + rng.choice("()[]{}\";:'#|\\\t\r\n\x00é٣ -.0e\u202e\U0001f600") + text[at:]
    return text[:at]


# Random expressions


def expression(rng: random.Random, depth: int) -> str:
    """An expression of arrays that often has a type."""
    if depth == 0 or rng.random() < 0.15:
        return leaf(rng)
    kind = rng.random()
    if kind < 0.06:
        return f"(let ((x {expression(rng, depth - 1)})) {expression(rng, depth - 1)})"
    if kind < 0.10:
        return f"(fold (x {expression(rng, depth - 1)}) (i (range {rng.randint(0, 3)})) {expression(rng, depth - 1)})"
    if kind < 0.13:
        return f"(bf16 {expression(rng, depth - 1)})"
    if kind < 0.16:
        return f"((grad (lambda (x) (sum {expression(rng, depth - 1)}))) {array(rng, depth - 1)})"
    if kind < 0.19:
        return f'(assert-finite "a" {expression(rng, depth - 1)} :layer {rng.randint(0, 2)})'
    if kind < 0.22:
        return f'(metric "m" (sum {expression(rng, depth - 1)}) :below {rng.choice(["1e9", "inf", "2"])})'
    if kind < 0.25:
        return f'(tap-gradient {expression(rng, depth - 1)} (lambda (g) (diagnostic "g" (norm g))))'
    return call(rng, rng.choice(ELEMENTWISE if rng.random() < 0.4 else PUBLIC), depth)


def leaf(rng: random.Random) -> str:
    return rng.choice([
        '(param "d" [3] :init ones-init :dtype :f64)',
        "(:x batch)", "(:x batch)", "(:i batch)", "1.5", "2", "-0.5", "0", "(step)", "x", array(rng, 0),
        '(param "w" [3 3] :init glorot)', '(param "v" [3] :init ones-init)',
        '(state "s" [3] :init zeros-init)',
    ])  # fmt: skip


def array(rng: random.Random, depth: int) -> str:
    if depth > 0 and rng.random() < 0.5:
        return expression(rng, depth)
    shape = rng.choice(
        ["[3 3]"] * 4
        + ["[]", "[3]", "[3]", "[1]", "[0]", "[3 3]", "[2 3]", "[3 1]", "[2 3 3]", "[1 4 4 2]", "[0 3]", "[3 0]"]
    )
    dtype = rng.choice([""] * 9 + [":dtype :f64", ":dtype :f16", ":dtype :i32", ":dtype :bf16", ":dtype :bool"])
    made = rng.choice(
        [f"(ones {shape} {dtype})", f"(zeros {shape} {dtype})", f"(normal {shape})", f"(full {shape} nan)"]
    )
    return made if rng.random() < 0.8 else rng.choice(["(arange 3)", "(eye 3)", f"(integers {shape} :low 0 :high 3)"])


def call(rng: random.Random, primitive: Primitive, depth: int) -> str:
    """A call of `primitive` by its signature, its operands mostly of the right kind."""
    parts = [primitive.name]
    for param in primitive.params:
        if param.by_keyword:
            if rng.random() < 0.4:
                parts += [f":{param.name}", operand(rng, param, depth)]
        else:
            many = rng.choice([1, 2, 2, 3]) if param.many else 1
            parts += [operand(rng, param, depth) for _ in range(many)]
    return f"({' '.join(parts)})"


def operand(rng: random.Random, param: Param, depth: int) -> str:
    if rng.random() < 0.02:
        return word(rng)
    if param.listed:
        return f"[{' '.join([expression(rng, depth - 1) for _ in range(rng.randint(0, 3))])}]"
    axis = str(rng.choice([0, 0, -1, -1, 1, 2, -3, 5]))
    shape = rng.choice(
        ["[3]", "[3 3]", "[]", "[0]", "[-1]", "[3 -1]", "[1 3]", "[2 2]", "[9]", "[-1 0]", "[2147483648 4]"]
    )
    kinds = {
        "array": lambda: expression(rng, depth - 1),
        "int": lambda: axis,
        "ints": lambda: rng.choice([axis, "[1 0]", "[2 2]", "[0 1]", "1", "2", "[]"]),
        "axes": lambda: rng.choice([axis, "[0 1]", "nil", "[-1]", "[]", "[0 0]"]),
        "shape": lambda: shape,
        "dtype": lambda: rng.choice([":f32", ":f64", ":f16", ":bf16", ":i32", ":i64", ":bool"]),
        "bool": lambda: rng.choice(["true", "false"]),
        "number": lambda: rng.choice(["0.5", "0.0", "1", "2", "-1.0", "inf", "nan", "1e-5", "1e300"]),
        "string": lambda: rng.choice(['"ij->ji"', '"ii->i"', '"bi,ij->bj"', '"i,i->"', '"...i->i"', '""', '"ij,jk"']),
        "keyword": lambda: rng.choice([":same", ":valid", ":mean", ":none", ":sum"]),
        "pairs": lambda: rng.choice(["[[1 1] [0 2]]", "[[0 0]]", "[[1 2] [3]]", "[1 2]", "[]", "[[] []]", "nil"]),
        "padding": lambda: rng.choice([":same", ":valid", "1", "[[1 1] [0 2]]", "[1 0]", "[[0 0]]", "nil"]),
        "numbers": lambda: rng.choice(["1", "[1 2 3]", "[1.5 nan]", "[]", "[[] []]", "[[1] [2 3]]", "[true 2]", "nil"]),
    }
    return kinds[param.kind]()


def training(rng: random.Random) -> str:
    """A run whose objective is a sum of random expressions of its batch, parameters and arrays, each on a line."""
    terms = "\n".join([f"  (sum {expression(rng, rng.randint(1, 4))})" for _ in range(rng.randint(1, 6))])
    looks = "\n".join([f'  (metric "look{n}" (sum {expression(rng, 2)}))' for n in range(rng.randint(0, 2))])
    optimizer = rng.choice(
        ["(sgd :lr 0.1)", "(sgd :lr 0.1)", "(adamw :lr 0.1 :clip 1.0)", "(momentum :lr 0.1 :ema 0.9)"]
    )
    return f"""
(generator points (n) {{:x (normal [n 3]) :i (integers [n] :low 0 :high 3)}})
(prepare (batch) (with batch :y
{expression(rng, 1) if rng.random() < 0.1 else 0}
))
(objective (batch) (let ((x (:x batch)) (s (state "s" [3] :init zeros-init))) (next "s" (mean x :axis 0))
(diagnostic "d" (param "scale" [] :init ones-init)) (+ 0.0
{terms}
)))
(evaluate look (batch) (let ((x (:x batch))) (list
{looks}
)))
(run r :data points :batch 4 :microbatches {rng.choice([1, 2, 4])} :steps 2 :seed {rng.randint(0, 9)}
  :optimizer {optimizer}
  :guard-finite {rng.choice(["on", "off", "off"])} :diagnostics ["*"] :sample-every 2
  :evaluate [(look :data points :batch 2 :examples 5 :every 1)])
"""


def repaired(text: str, error: SxiError) -> str | None:
    """A text of `training` without the lines that its error is about; None where that repairs nothing."""
    if error.span is None or not text.startswith("\n(generator"):
        return None
    lines = text.split("\n")
    at = error.span.line - 1
    if lines[at].startswith("  (sum") or lines[at].startswith("  (metric"):
        return "\n".join(lines[:at] + lines[at + 1 :])
    return None


def inputs(rng: random.Random) -> list[str]:
    """What somebody types at a prompt: definitions, expressions, commands, whole programs."""
    found = ["(define x (normal [3 3]))", "(define batch {:x x :i (arange 3)})"]
    for _ in range(rng.randint(1, 5)):
        kind = rng.random()
        if kind < 0.6:
            found.append(expression(rng, rng.randint(1, 4)))
        elif kind < 0.75:
            found.append(tokens(rng))
        elif kind < 0.85:
            found.append(f"(define {rng.choice(NAMES)} {expression(rng, 2)})")
        elif kind < 0.95:
            found.append(f",{rng.choice(COMMANDS)} {rng.choice(['', word(rng), expression(rng, 1), 'x', '2', '*'])}")
        else:
            found.append(changed(rng))
    return found


KINDS = (changed, training, changed, tokens, changed, training, changed, tokens)


def text_of(number: int) -> str:
    """The text of a number."""
    return KINDS[number % len(KINDS)](random.Random(number))


# What may happen


@contextmanager
def library_kept() -> Iterator[None]:
    """Read the library once for all texts."""
    first = Loader()
    first.load_library()

    def load_library(loader: Loader) -> None:
        loader.steps, loader.size, loader.library = list(first.steps), first.size, first.library

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program.Loader, "load_library", load_library)
        yield


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Raise Hang where the body takes longer."""

    def ring(number: int, frame: Any) -> None:
        raise Hang(f"longer than {seconds} s")

    # the process's own time: another process on the machine makes no text hang
    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def behave(text: str, path: str, *, twice: bool = True) -> SxiError | None:
    """Check `text`, print its errors, run it for two steps: what refused or stopped it, if anything did.

    twice:  whether a text that the check refuses is given to the run too
    Raises whatever else than an SxiError escapes, and AssertionError where two of sxi's answers differ.
    """
    errors = check_text(text, path)
    for error in errors:
        render.frame(error, width=60, colour=True, unicode=True)
        render.github(error)
        render.as_json(error)
        assert error.message.isprintable(), error.message
        assert error.code in CODES
    if errors and not twice:
        return errors[0]
    with deep_calls():
        stages, refused = checked(text, path)
        if refused is not None:
            # a file without a run is checked, and cannot be run
            may_be = errors or refused.code == contracts.run_options_are_consistent.code.code
            assert may_be, f"check accepts, run does not: {refused}"
            return errors[0] if errors else refused
        assert not errors, f"check refuses, run does not: {errors[0]}"
        try:
            planned = steps(stages, plain=False)
        except SxiError as error:
            return error
        assert planned == steps(stages, plain=True), "with and without a plan differ"
        if twice:
            look_at(stages, planned)
        return None


def look_at(stages: Any, planned: list[Any]) -> None:
    """What is said of an accepted program, and what it gives under a device's rules: the same to the last bit.

    Only sums of rows by their numbers may differ.
    """
    explain_program.explain_file(stages[0].checked, 60)
    json.dumps(explain_program.as_json(stages[0].checked))
    for name in ("step", "update"):
        explain_program.graph_lines(explain_program.graph_of_run(stages, name))
    names = {op.name for _, graph in stages[0].checked.graphs for op in graph.graph.ops}
    if not names & ADDED_IN_ANOTHER_ORDER:
        assert planned == steps(stages, plain=False, device="strict"), "the host and a device differ"


# What adds rows by their numbers: a device sorts them first, and a sum of f32 depends on its order.
ADDED_IN_ANOTHER_ORDER = {"add-at", "add-take", "add-gather", "scatter-add"}


def checked(text: str, path: str) -> tuple[Any, SxiError | None]:
    """The stages of a program's run, or why it has none."""
    try:
        loaded = load_source(Source(path, text))
        if loaded.errors:
            return None, loaded.errors[0]
        return check_run(loaded, open_backend("cpu"), {}, {"steps": 2}), None
    except SxiError as error:
        return None, error


def steps(stages: Any, *, plain: bool, device: str = "cpu") -> list[Any]:
    """Every point and failure of the first two steps and of their passes."""
    runner = Runner(stages, open_backend(device), open_backend("cpu"), plain=plain)
    runner.begin()
    found: list[Any] = []
    for report in runner.reports():
        values = [repr((p.label.name, p.label.meta, p.value)) for p in report.points]
        found.append((report.step, values, None if report.failure is None else str(report.failure.error)))
        if report.step >= 2 and report.ends_step:
            break
    return found
