"""Every primitive called wrongly: an error of ours, in words, at the operand; what is accepted computes without one.

`operands.py` says what is put in place of a good operand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from sxi.backends import open_backend
from sxi.builtins import BUILTINS
from sxi.checking import check_text
from sxi.eager import Eager, EagerArray, EagerEmitter
from sxi.errors import SxiError
from sxi.eval import call_value
from sxi.graph import Graph
from sxi.primitives.declare import REQUIRED, Primitive, Value
from sxi.program import Program, load_source
from sxi.random import Draws
from sxi.source import Source
from sxi.trace import Recording, Registry, Trace
from tests.fuzz import library_kept
from tests.operands import KINDS, NAMED, Call, calls_with_a_wrong_count, calls_with_one_operand_changed, good_calls

FAMILIES = {"EVAL", "SHAPE", "DTYPE", "CONTRACT"}
# How the kinds are told, wherever in the message.
WORDS = {
    KINDS["a list"]: "list", KINDS["the empty list"]: "list", KINDS["a list of lists"]: "list",
    KINDS["a string"]: '"text"', KINDS["nil"]: "nil", KINDS["a keyword"]: ":below", KINDS["a type"]: ":bf16",
    KINDS["a bool"]: "true", KINDS["a function"]: "function", KINDS["a primitive"]: "the function tanh",
    KINDS["a builtin"]: "the function nth", KINDS["a record"]: "record", KINDS["a form"]: "a quoted form",
}  # fmt: skip
# What only Python would say.
FOREIGN = re.compile(r"object at 0x|\bNone\b|\bTrue\b|\bFalse\b|<class|<function|Span\(|\bnp\.|\(\d+,|\d{60}")
NO_ARRAY = "E-EVAL-014"
WRONG_KIND = "E-EVAL-005"


@pytest.fixture(scope="module", autouse=True)
def _library() -> Iterator[None]:
    with library_kept():
        yield


each = pytest.mark.parametrize("p", NAMED, ids=lambda p: p.name)


@dataclass(frozen=True)
class Outcome:
    """What a call came to: the type of its value, or the code, the message and the place of its error."""

    gives: str = ""
    code: str = ""
    message: str = ""
    place: str = ""


def refused(error: SxiError, call: Call) -> Outcome:
    assert error.family in FAMILIES, (call.text, str(error))
    assert error.span is not None, (call.text, str(error))
    assert error.span.text in call.text, (call.text, error.span.text)
    assert not FOREIGN.search(error.message), (call.text, error.message)
    return Outcome(code=error.code, message=error.message, place=error.span.text)


def outcomes(calls: list[Call]) -> Iterator[tuple[Call, Outcome]]:
    """What each call comes to, which is the same computed at once and recorded in a graph."""
    lines = [f"(define (f{i}) {call.text})" for i, call in enumerate(calls)]
    unread: dict[int, SxiError] = {}
    for error in load_source(Source("calls.sx", "\n".join(lines))).errors:
        assert error.span is not None
        unread[error.span.line - 1] = error
    kept = "\n".join([line for i, line in enumerate(lines) if i not in unread])
    program = load_source(Source("calls.sx", kept)).evaluate(open_backend("cpu"))
    for i, call in enumerate(calls):
        if i in unread:
            yield call, refused(unread[i], call)
            continue
        computed = outcome(program, f"f{i}", call, eager=True)
        assert computed == outcome(program, f"f{i}", call, eager=False), call.text
        yield call, computed


def written(text: str) -> Call:
    """The call of a text."""
    name, _, operands = text[1:-1].partition(" ")
    return Call(name, (operands,))


def outcome(program: Program, name: str, call: Call, *, eager: bool) -> Outcome:
    host = open_backend("cpu")
    frame: Any
    if eager:
        frame = Eager(EagerEmitter(host, Draws(0, host.asarray)), program.globals, "prompt", "x")
    else:
        frame = Trace(Graph("x"), program.globals, "prompt", "x", Registry(), Recording())
    function = program.value(name)
    try:
        value = call_value(frame, function, [], {}, function.body.span, "")
    except SxiError as error:
        return refused(error, call)
    parts = value if isinstance(value, list) else [value]
    for part in parts:
        assert call.name in BUILTINS or isinstance(part, Value) or type(part) in (bool, int, float), (call.text, part)
        if isinstance(part, EagerArray):
            array = host.to_host(part.data)
            assert (array.shape, str(array.dtype)) == (part.shape, part.type.carrier), call.text
    return Outcome(gives=" ".join([str(getattr(part, "type", part)) for part in parts]))


@cache
def good(p: Primitive) -> tuple[Call, ...]:
    return tuple(good_calls(p))


@each
def test_a_good_call_is_accepted(p: Primitive) -> None:
    for call, found in outcomes(list(good(p))):
        assert not found.code, (call.text, found)


@each
def test_a_wrong_count_is_told_at_the_call(p: Primitive) -> None:
    takes_any = any(q.many for q in p.arrays)
    optional = any(not q.by_keyword and q.default is not REQUIRED for q in p.params)
    told = 0
    for call, found in outcomes(list(calls_with_a_wrong_count(good(p)[0]))):
        if "bogus" in call.text and p.name not in ("=", "/="):  # these compare keywords too
            assert (found.code, found.place) == ("E-EVAL-006", ":bogus"), call.text
        elif found.code == "E-EVAL-003":
            assert found.place == call.text
            told += 1
        else:
            assert takes_any or optional, (call.text, found)
    assert told


@each
def test_a_wrong_operand_is_told_in_words_where_it_stands(p: Primitive) -> None:
    call = max(good(p), key=lambda c: len(c.positional) + len(c.keywords))
    for made, found in outcomes(list(calls_with_one_operand_changed(p, call))):
        if made.changed not in WORDS or found.code not in (NO_ARRAY, WRONG_KIND, "E-CONTRACT-021"):
            continue
        assert found.place in made.changed, (made.text, found)
        if found.code != "E-CONTRACT-021":  # which writes what it was given as the program does
            assert WORDS[made.changed] in found.message or made.changed in found.message, (made.text, found)


@each
def test_what_is_no_array_is_never_taken_for_one(p: Primitive) -> None:
    """At each operand that is an array, by position: only a bool and a number are arrays too."""
    call = good(p)[0]
    array_places = [i for i, q in enumerate([q for q in p.params if not q.by_keyword]) if q.kind == "array"]
    wrong = [text for kind, text in KINDS.items() if kind not in ("a bool", "a keyword", "a type")]
    listed = any(q.listed for q in p.arrays)
    calls = [
        Call(p.name, (*call.positional[:i], text, *call.positional[i + 1 :]), call.keywords, text)
        for i in array_places
        if i < len(call.positional) and not (listed and i == 0)
        for text in wrong
    ]
    for made, found in outcomes(calls):
        if p.name in ("=", "/=") and not found.code:  # of any two host values, for which both operands must be some
            continue
        assert found.code in (NO_ARRAY, "E-CONTRACT-021"), (made.text, found)


@pytest.mark.parametrize("name", [name for name in BUILTINS if name not in ("part", "group", "stage-step")])
def test_a_function_of_host_values_takes_or_refuses_anything(name: str) -> None:
    builtin = BUILTINS[name]
    some = [
        *KINDS.values(),
        "0",
        "-1",
        "2.5",
        "(pow 10 400)",
        "(neg (pow 10 400))",
        "nan",
        "(ones [2 3])",
        "(zeros [0])",
    ]
    most = builtin.least + 1 if builtin.most is None else builtin.most
    calls = [Call(name, (a,) * n) for a in some for n in range(most + 2)]
    calls += [Call(name, (a, b), (), b) for a in some for b in some if builtin.most is None or builtin.most > 1]
    told = [found for _, found in outcomes(calls) if found.code]
    assert told or name in ("list", "str")


# The place of what does not fit, operand by operand, composites too: the caret's text


@pytest.mark.parametrize(
    ("call", "code", "place"),
    [
        ("(+ (ones [2 3]) (ones [2 4]))", "E-SHAPE-001", "(ones [2 4])"),
        ("(where (> (ones [3]) 0.5) 1.0 (ones [4]))", "E-SHAPE-001", "(ones [4])"),
        ("(clip (ones [3]) 0.0 (ones [2]))", "E-SHAPE-001", "(ones [2])"),
        ("(sum (ones [3]) :axis -2)", "E-SHAPE-002", "-2"),
        ("(softmax (ones [3]) :axis 2)", "E-SHAPE-002", "2"),
        ("(sum (ones [3 4]) :axis [0 -2])", "E-EVAL-005", "[0 -2]"),
        ("(reshape (ones [3]) [2 -1])", "E-SHAPE-003", "[2 -1]"),
        ("(zeros [2 -1])", "E-SHAPE-005", "[2 -1]"),
        ("(eye -1)", "E-SHAPE-005", "-1"),
        ("(tile (ones [3]) [-1])", "E-SHAPE-005", "[-1]"),
        ("(one-hot (array [1]) -1)", "E-SHAPE-005", "-1"),
        ("(one-hot (ones [1]) 3)", "E-DTYPE-002", "(ones [1])"),
        ("(at (ones [3 3]) (array [1]) (ones [1]))", "E-DTYPE-002", "(ones [1])"),
        ("(take (ones [3]) (ones [1]))", "E-DTYPE-002", "(ones [1])"),
        ("(gather (ones [3]) (zeros [1]))", "E-DTYPE-002", "(zeros [1])"),
        ("(scatter-add (ones [3]) (zeros [1]) (ones [1]))", "E-DTYPE-002", "(zeros [1])"),
        ("(normal [3] :scale (ones [2]))", "E-SHAPE-001", "(ones [2])"),
        ("(normal [3] :mean (ones [2 3]))", "E-SHAPE-001", "[3]"),
        ("(integers [3])", "E-EVAL-013", "(integers [3])"),
        ("(integers [3] :high 0)", "E-SHAPE-005", "0"),
        ("(dropout (ones [3]) 1.5)", "E-SHAPE-005", "1.5"),
        ("(bernoulli [3] :p (pow 10 400))", "E-SHAPE-005", "(pow 10 400)"),
        ("(layer-norm (ones [2 3]) (ones [3]) (ones [4]))", "E-SHAPE-001", "(ones [4])"),
        ("(layer-norm (ones [2 3]) (ones [4]) (ones [3]))", "E-SHAPE-001", "(ones [4])"),
        ("(layer-norm (ones [2 3]) (ones [5 2 3]) (ones [3]))", "E-SHAPE-001", "(ones [5 2 3])"),
        ("(cross-entropy (ones [4 3]) (ones [4]))", "E-DTYPE-002", "(ones [4])"),
        ("(cross-entropy (ones [4 3]) (array [0 1]))", "E-SHAPE-001", "(array [0 1])"),
        ("(cross-entropy (ones [2 3]) (array [0 1]) :weights (ones [3]))", "E-SHAPE-001", "(ones [3])"),
        ("(cross-entropy (ones [2 3]) (array [0 1]) :reduce :sum)", "E-EVAL-005", ":sum"),
        ("(cross-entropy (ones [2 3]) (array [0 1]) :smoothing 1.5)", "E-SHAPE-005", "1.5"),
        ("(conv2d (ones [1 4 4 2]) (ones [3 3 1 1]))", "E-SHAPE-001", "(ones [3 3 1 1])"),
        ("(conv2d (ones [1 4 4 1]) (ones [3 3 1 1]) :stride 0)", "E-SHAPE-005", "0"),
        ("(conv2d (ones [1 4 4 1]) (ones [3 3 1 1]) :padding -1)", "E-EVAL-005", "-1"),
        ("(conv2d (ones [1 4 4 1]) (ones [3 3 1 1]) :padding :full)", "E-EVAL-005", ":full"),
        ("(einsum \"ij,jk->ik\" (ones [2 3]) (ones [2 3]))", "E-SHAPE-001", "(ones [2 3])"),
        ("(einsum \"ij->k\" (ones [2 3]))", "E-EVAL-005", '"ij->k"'),
        ("(pad (ones [2]) [[1 -1]])", "E-SHAPE-005", "[[1 -1]]"),
        ("(pad (ones [2] :dtype :i32) [[1 1]] :value 0.5)", "E-DTYPE-005", "0.5"),
        ("(array [1 [2 3]])", "E-EVAL-005", "[1 [2 3]]"),
        ("(array [[1 2] [3]])", "E-SHAPE-001", "[[1 2] [3]]"),
        ("(array [1 nil])", "E-EVAL-005", "[1 nil]"),
        ("(array [1.5] :dtype :i32)", "E-DTYPE-005", "[1.5]"),
        ("(arange 0 inf)", "E-EVAL-005", "inf"),
        ("(arange 0 1 0)", "E-EVAL-005", "0"),
        ("(full [2] 2147483648)", "E-DTYPE-005", "2147483648"),
        ("(+ (array [1]) 2147483648)", "E-DTYPE-005", "2147483648"),
        ("(+ (cast (array [1]) :i64) 9223372036854775808)", "E-DTYPE-005", "9223372036854775808"),
        ("(sqrt true)", "E-DTYPE-001", "true"),
        ("(gelu true)", "E-DTYPE-001", "true"),
        ("(sqrt (> (ones [3]) 0.5))", "E-DTYPE-001", "(> (ones [3]) 0.5)"),
        ("(split (ones [4]) 3)", "E-SHAPE-003", "3"),
        ("(top-k (ones [3]) 4)", "E-SHAPE-005", "4"),
        ("(slice (ones [3]) 0 2 9)", "E-SHAPE-005", "9"),
        ("(max (zeros [0]))", "E-SHAPE-006", "(zeros [0])"),
        ("(attention (ones [2 3]) (ones [4 3]) (ones [5 3]))", "E-SHAPE-001", "(ones [5 3])"),
        ("(attention (ones [2 3]) (ones [4 2]) (ones [4 3]))", "E-SHAPE-001", "(ones [4 2])"),
        ("(solve (ones [2 3]) (ones [2]))", "E-SHAPE-001", "(ones [2 3])"),
        ("(embedding (ones [4 2]) (ones [3]))", "E-DTYPE-002", "(ones [3])"),
        ("(max-pool2d (ones [1 4 4 1]) 5)", "E-SHAPE-005", "5"),
    ],
)  # fmt: skip
def test_the_place_is_the_operand_that_does_not_fit(call: str, code: str, place: str) -> None:
    ((_, found),) = outcomes([written(call)])
    assert (found.code, found.place) == (code, place), found.message


def test_types_are_told_of_all_operands() -> None:
    (error,) = check_text("(define x (where (> (ones [3]) 0.5) 1.0 (ones [4])))")
    assert "bool[3], the number 1.0 with f32[4]: 3 and 4 differ" in error.message
    (error,) = check_text('(define x (+ (ones [3]) "three"))')
    assert 'f32[3] with the string "three"' in error.message


@pytest.mark.parametrize(
    "call",
    [
        "(tril (ones [2 2]) :offset (pow 10 400))",
        "(layer-norm (ones [2]) 1.0 0.0 :eps (pow 10 400))",
        "(pad (ones [2]) [[1 1]] :value (pow 10 400))",
        "(uniform [2] :high (pow 10 400))",
        "(normal [2] :scale (pow 10 400))",
        "(* (ones [2]) (pow 10 400))",
        "(full [2] (pow 10 400) :dtype :f16)",
        "(pow 10 (pow 10 400))",
        "(exp (pow 10 400))",
    ],
)
def test_a_number_past_every_type_is_infinite(call: str) -> None:
    ((_, found),) = outcomes([written(call)])
    assert found.gives
