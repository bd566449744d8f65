"""No text makes the interpreter raise anything but its own errors, hang, or answer in two ways.

`SXI_FUZZ` texts are tried, 20,000 by default, from number `SXI_FUZZ_FROM` on; a failure names its number and its text.
With `--junitxml` each part's property `outcomes` says how many ran and how many each code refused.
"""

from __future__ import annotations

import faulthandler
import os
import random
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sxi import codes
from sxi.session import Session
from tests import fuzz

TEXTS = int(os.environ.get("SXI_FUZZ", "20000"))
FIRST = int(os.environ.get("SXI_FUZZ_FROM", "0"))
PARTS = 20
# Beyond what the process has: more than a text of small arrays needs, less than a machine would miss.
MEMORY = 4 << 30
STAGES = (
    "(generator points (n) {{:x (normal [n 3])}})\n"
    '(objective (batch) (metric "loss" (sum (square (param "w" [3] :init ones-init)))))\n'
    '(curriculum (stage "a" :until {}) (stage "b"))\n'
    "(run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))"
)

# What the fuzzing found once, made small, and the code that it must give (None: it is run).
RUN = "(generator points (n) {{:x (normal [n 3])}})\n(objective (batch) {})\n(run r :data points :steps 2 :batch 4 {})"
SGD = ":optimizer (sgd :lr 0.1)"
W = '(param "w" [3] :init ones-init)'
FOUND = [
    # the gradient by an integer past binary64
    (RUN.format(f"(+ (sum {W}) (sum ((grad (lambda (x) (sum (square x)))) (square {'1' * 200}))))", SGD), None),
    # the gradient of atan2 by an array, the other operand a host number
    (RUN.format(f"(sum (atan2 2 {W}))", SGD), None),
    # an integer past binary64 meets an array of reals
    (RUN.format(f"(+ (mean {W}) (count-where (> {'1' * 400} (:x batch))))", SGD), None),
    # a local name in an option of the run
    (RUN.format(f"(sum {W})", ":optimizer (let ((rate 0.1)) (sgd :lr rate))"), None),
    ("(define (f) (param :split))", "E-EVAL-002"),
    # a message of two lines
    ("(run r :data 1 (\n1))", "E-EVAL-002"),
    # a loop that doubles a number, a string, a list
    ("(define x (fold (x 2) (i (range 60)) (* x x))) (print x)", "E-CONTRACT-025"),
    ("(define x (fold (x 1) (i (range 20000)) (+ x x))) (print x)", "E-CONTRACT-025"),
    ('(define x (fold (x "ab") (i (range 60)) (str x x)))', "E-EVAL-005"),
    ("(define x (fold (x [1]) (i (range 60)) (append x x)))", "E-EVAL-005"),
    # a list longer than Python counts
    ("(define x (range (pow 10 3000)))", "E-EVAL-005"),
    # a file without an end, and paths that are none
    ('(import "/dev/zero")', "E-READ-002"),
    ('(import "a\\u{0}b")', "E-READ-002"),
    ('(data d (npz "a\\u{0}b"))', "E-RUN-002"),
    # a parameter past any memory: its gradient has no place for the refusal
    (RUN.format('(sum (param "v" [1000000 1000000] :init ones-init))', SGD), "E-SHAPE-005"),
    # the step in a generator that a pass calls
    (
        "(generator points (n) {:x (* (ones [n]) (cast (step) :f32))})\n"
        f"(objective (batch) (sum {W}))\n(evaluate look (batch) (metric \"x\" (sum (:x batch))))\n"
        f"(run r :data points :steps 2 {SGD} :evaluate [(look :data points :examples 3)])",
        None,
    ),
    # a function of a gradient prints
    ('((grad (lambda (y) (print "a"))) 1.0)', "E-CONTRACT-015"),
    # a stage's setting without a run
    ('(setting rate 0.1) (curriculum (stage "a" :set {:rat 0.2}))', "E-EVAL-016"),
    # what is around a gradient's function is around what it holds: the step, a stage's steps, no parameter
    ("((grad (lambda (y) (* y (step)))) 1.0)", "E-EVAL-023"),
    ("((grad (lambda (y) (* y (param \"w\")))) 1.0)", "E-CONTRACT-011"),
    (STAGES.format("(> ((grad (lambda (y) (* y y))) (stage-step)) 3)"), "E-CONTRACT-009"),
    (STAGES.format("((grad (lambda (y) (stage-step))) (stage-step))"), "E-CONTRACT-009"),
    (STAGES.format("(state \"s\" [] :init zeros-init)"), "E-CONTRACT-011"),
    # a first test that cannot be computed: neither checked nor run
    (STAGES.format("(and (reported \"loss\") (< <= 2.0))"), "E-EVAL-014"),
    # a declaration without a shape
    (RUN.format(f'(begin (state "s" :init zeros-init) (sum {W}))', SGD), "E-EVAL-002"),
    (RUN.format(f'(+ (sum {W}) (sum (param "w" :init zeros-init)))', SGD), "E-EVAL-002"),
    # a text of documentation that is to be computed
    ('(setting rate 2.0 :doc (str "a" "b"))', "E-EVAL-002"),
    ("(setting rate 2.0 :doc rate)", "E-EVAL-002"),
    # a guard, thousands of calls deep: looking at the calls that lead to each took minutes
    (
        '(define (deeper x) (begin (guard "g" (count-where (> x 0.0))) (deeper (+ x 1.0))))\n'
        + RUN.format(f"(deeper (sum {W}))", SGD),
        "E-EVAL-009",
    ),
    # an objective that is a number past binary64
    (RUN.format(f"(begin {W} {'1' * 400})", SGD), None),
]  # fmt: skip


@pytest.fixture(autouse=True)
def within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the data that programs read, bounded memory, a traceback where not even the alarm is heard."""
    fuzz.write_data(tmp_path)
    monkeypatch.chdir(tmp_path)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    with fuzz.library_kept():
        yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    faulthandler.cancel_dump_traceback_later()


@pytest.mark.parametrize("part", range(PARTS))
def test_only_our_own_errors_escape(part: int, record_property: Callable[[str, object], None]) -> None:
    outcomes: Counter[str] = Counter()
    size = TEXTS // PARTS
    for number in range(FIRST + part * size, FIRST + (part + 1) * size):
        text: str | None = fuzz.text_of(number)
        while text is not None:
            faulthandler.dump_traceback_later(60, exit=True)
            try:
                with fuzz.at_most(20):
                    error = fuzz.behave(text, "text.sx", twice=number % 5 == 0)
            except (Exception, fuzz.Hang) as escaped:
                raise AssertionError(f"text {number}: {type(escaped).__name__}: {escaped}\n{text}") from escaped
            outcomes["ran" if error is None else error.code] += 1
            text = None if error is None else fuzz.repaired(text, error)
    record_property("outcomes", dict(outcomes))
    if TEXTS >= 1000:
        # a fuzzer whose texts are all refused at once, or for one reason, tests nothing
        assert outcomes["ran"] > 0.1 * size, outcomes
        assert len(outcomes) > 10, outcomes


@pytest.mark.parametrize("part", range(4))
def test_the_prompt_answers_everything(part: int) -> None:
    """A tenth as many sessions as texts, a few inputs each: no answer is a fault of sxi itself, or of two lines."""
    size = TEXTS // 10 // 4
    for number in range(FIRST + part * size, FIRST + (part + 1) * size):
        session = Session(device="cpu")
        for text in fuzz.inputs(random.Random(number)):
            faulthandler.dump_traceback_later(60, exit=True)
            try:
                with fuzz.at_most(20):
                    answer = session.answer(text)
            except (Exception, fuzz.Hang) as escaped:
                raise AssertionError(f"session {number}: {type(escaped).__name__}: {escaped}\n{text}") from escaped
            faults = [error for error in answer.errors if error.code == codes.INTERNAL.code]
            assert not faults, f"session {number}: {faults[0]}\n{text}"
            assert not [line for _, line in answer.lines if "\n" in line], f"session {number}\n{text}"
        session.close()


@pytest.mark.parametrize(("text", "code"), FOUND)
def test_what_was_found_stays_repaired(text: str, code: str | None) -> None:
    error = fuzz.behave(text, "text.sx")
    assert (error and error.code) == code


def test_the_corpus_itself_behaves() -> None:
    ran = [fuzz.behave(text, "text.sx") is None for text in fuzz.corpus()]
    assert ran.count(True) >= 40
    assert len(ran) >= 100
