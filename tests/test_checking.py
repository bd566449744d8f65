"""`sxi check`: every error that can be found before a step, in order, once, without those that only follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from sxi.checking import MOST_ERRORS, check_file, check_text
from sxi.errors import SxiError

POINTS = "(generator points (n) {:x (normal [n 3])})\n"
OBJECTIVE = '(objective (batch) (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))\n'
RUN = "(run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))\n"


CURRICULUM = (
    POINTS
    + OBJECTIVE.replace("(mean", '(metric "loss" (mean').replace(")))))", "))))))")
    + '(evaluate late (batch) (metric "held" 1.0)) (evaluate soon (batch) (metric "soon" 1.0))\n'
    + '(curriculum (stage "a" :until UNTIL) (stage "b"))\n'
    + RUN[:-2]
    + " :evaluate [(late :data points :examples 2 :every 2) (soon :data points :examples 2 :every 1)])"
)


def found(errors: list[SxiError]) -> list[tuple[int, str]]:
    return [(e.span.line if e.span else 0, e.code) for e in errors]


CASES = {
    "nothing is wrong": (POINTS + OBJECTIVE + RUN, []),
    "a file without a run is checked for its forms": ("(objective (batch) (if (:x batch) 1 2))", []),
    "an empty file": ("", []),
    "each form that cannot be resolved": (
        "(define a (sqrt 1 2))\n(define b nowhere)\n(define c (let a 1))\n(define d 1)",
        [(1, "E-EVAL-003"), (2, "E-EVAL-001"), (3, "E-EVAL-002")],
    ),
    "a form that is not read, and another": (
        "(define a [1 2)\n(define b (sqrt 1 2))",
        [(1, "E-READ-004"), (2, "E-EVAL-003")],
    ),
    "a name whose definition is not read is no error": ("(define a [1 2)\n(define b (sqrt a))", [(1, "E-READ-004")]),
    "a comment of another language": (
        "# one two\n(define a nowhere)\n// one (two)\nthree #",
        [(1, "E-EVAL-001"), (2, "E-EVAL-001"), (3, "E-EVAL-001"), (4, "E-EVAL-001"), (4, "E-EVAL-001")],
    ),
    "what can be evaluated beside a form that cannot be resolved": (
        "(define a (sqrt 1 2))\n(define b (nth [] 1))\n(define c (+ a 1))\n(define d (nth [] c))",
        [(1, "E-EVAL-003"), (2, "E-EVAL-012")],
    ),
    "a run beside a form that cannot be resolved": (
        "(define (f x) (sqrt x x))\n"
        + POINTS
        + '(objective (batch) (guard "g" true) (mean (square (param "w" [3] :init zeros-init))))\n'
        + '(evaluate held (batch) (metric "m" (f 1.0)))\n'
        + "(run r :data points :steps 2 :optimizer (sgd :lr 0.1) :evaluate [(held :data points :examples 4)])",
        [(1, "E-EVAL-003"), (3, "E-CONTRACT-020")],
    ),
    "no run beside an objective that cannot be resolved": (
        POINTS + '(objective (batch) nowhere)\n(evaluate held (batch) (metric "m" true))\n'
        "(run r :data points :steps 2 :optimizer (sgd :lr 0.1) :evaluate [(held :data points :examples 4)])",
        [(2, "E-EVAL-001")],
    ),
    "nothing is evaluated where a form is not read": (
        "(define (sqrt a b) [a b)\n(define c (quotient 1 0))",
        [(1, "E-READ-004")],
    ),
    "each definition that cannot be evaluated": (
        "(define a (nth [] 0))\n(define b 1)\n(define c (quotient b 0))",
        [(1, "E-EVAL-012"), (3, "E-EVAL-010")],
    ),
    "what uses a failed definition is no error": (
        "(define a (nth [] 0))\n(define b (+ a 1))\n(define (f) b)\n(define c (f))",
        [(1, "E-EVAL-012")],
    ),
    "a name whose declaration is written like a function's is no error": (
        "(initializer (like) 2)\n(define a like)",
        [(1, "E-EVAL-002")],
    ),
    "a guard in a gradient at the top of a file": (
        '(define a ((grad (lambda (y) (begin (guard "g" 0.0) (* y y)))) 1.0))',
        [(1, "E-CONTRACT-016")],
    ),
    "a tap's diagnostic there": (
        '(define a ((grad (lambda (y) (* y (tap-gradient y (lambda (g) (diagnostic "d" g)))))) 1.0))',
        [(1, "E-CONTRACT-016")],
    ),
    "a guard in a gradient in an initializer": (
        POINTS
        + "(define (checked y)\n"
        + '  (begin (guard "g" 0.0) (* y y)))\n'
        + "(initializer own (shape) (+ (zeros shape) ((grad checked) 1.0)))\n"
        + '(objective (batch) (mean (* (:x batch) (param "w" [3] :init own))))\n'
        + RUN,
        [(3, "E-CONTRACT-019")],
    ),
    "a stage's setting in a file without a run": (
        '(setting rate 0.1)\n(curriculum (stage "a" :set {:rat 0.2}))',
        [(2, "E-EVAL-016")],
    ),
    "a function that calls itself without end, met by the objective and a pass": (
        POINTS
        + "(define (f x)\n"
        + "  (+ 1.0 (f x)))\n"
        + '(objective (batch) (+ (f (mean (:x batch))) (sum (param "w" [1] :init zeros-init))))\n'
        + '(evaluate held (batch) (metric "m" (f (* 2.0 (sum (:x batch))))))\n'
        + "(run r :data points :steps 2 :optimizer (sgd :lr 0.1) :evaluate [(held :data points :examples 4)])",
        [(3, "E-EVAL-009")],
    ),
    "a use before the definition is one": ("(define b (+ a 1))\n(define a 1)", [(1, "E-EVAL-008")]),
    "so is a use in its own definition": ("(define b (+ b 1))", [(1, "E-EVAL-008")]),
    "the run is walked behind a failed definition": (
        "(define a (nth [] 0))\n" + POINTS + '(objective (batch) (guard "g" true))\n' + RUN,
        [(1, "E-EVAL-012"), (3, "E-CONTRACT-020")],
    ),
    "but not told of what failed": (
        "(define a (nth [] 0))\n" + POINTS + "(objective (batch) (+ a 1))\n" + RUN,
        [(1, "E-EVAL-012")],
    ),
    "the objective, a pass and an optimizer": (
        POINTS
        + '(objective (batch) (let ((w (param "w" [3 1] :init zeros-init))) (@ (:x batch) w)))\n'
        + '(evaluate held (batch) (metric "m" (:x batch)))\n'
        + "(optimizer o (p g) (+ p g))\n"
        + "(run r :data points :steps 2 :optimizer o :evaluate [(held :data points :examples 4)])",
        [(2, "E-CONTRACT-008"), (3, "E-CONTRACT-004"), (4, "E-CONTRACT-013")],
    ),
    "an error of a helper is told once": (
        POINTS
        + '(define (f x) (metric "m" x))\n'
        + '(objective (batch) (+ (f (:x batch)) (sum (param "w" [1] :init zeros-init))))\n'
        + "(evaluate held (batch) (f (:x batch)))\n"
        + "(run r :data points :steps 2 :optimizer (sgd :lr 0.1) :evaluate [(held :data points :examples 4)])",
        [(2, "E-CONTRACT-004")],
    ),
    "a parameter that the failed objective would have made is no error": (
        POINTS
        + '(objective (batch) (guard "g" true) (sum (param "w" [1] :init zeros-init)))\n'
        + '(evaluate held (batch) (metric "m" (sum (param "w"))))\n'
        + "(run r :data points :steps 2 :optimizer (sgd :lr 0.1) :evaluate [(held :data points :examples 4)])",
        [(2, "E-CONTRACT-020")],
    ),
    "initializers": (
        POINTS
        + "(initializer one (shape) (ones [1]))\n(initializer two (shape) (ones [2]))\n"
        + '(objective (batch) (+ (sum (param "a" [3] :init one))\n (sum (param "b" [3] :init two))))\n'
        + RUN,
        [(4, "E-CONTRACT-012"), (5, "E-CONTRACT-012")],
    ),
    "a test that cannot be computed after the first step": (
        CURRICULUM.replace("UNTIL", '(< (reported "held") 0.5)'),
        [(4, "E-EVAL-014")],
    ),
    "a test of what is reported by then": (CURRICULUM.replace("UNTIL", '(< (reported "soon") 0.5)'), []),
    "a test that waits for what it reads": (
        CURRICULUM.replace("UNTIL", '(and (> (step) 2) (< (reported "held") 0.5))'),
        [],
    ),
    "a test that some value of the first step would break": (
        CURRICULUM.replace("UNTIL", '(nth [false] (if (> (reported "loss") 50.0) 1 0))'),
        [],
    ),
    "a run of two": (POINTS + OBJECTIVE + RUN + RUN.replace("run r", "run s"), [(4, "E-CONTRACT-025")]),
    "a run without an objective": (POINTS + RUN, [(2, "E-CONTRACT-025")]),
    "each stage": (
        "(setting n 1)\n"
        + POINTS
        + '(objective (batch) (fold (s (sum (param "w" [3] :init zeros-init))) (i (range n)) (metric "m" s :i i)))\n'
        + '(curriculum (stage "a" :until (> (stage-step) 3) :set {:n 2})\n (stage "b" :set {:m 4}))\n'
        + RUN.replace(":batch 4", ":batch 4 :report-limit 1"),
        [(5, "E-EVAL-016"), (6, "E-CONTRACT-023")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_found(case: str) -> None:
    text, errors = CASES[case]
    assert found(check_text(text)) == errors


def test_at_most_twenty_errors_are_told() -> None:
    text = "\n".join([f"(define a{i} nowhere)" for i in range(30)])
    assert found(check_text(text)) == [(i, "E-EVAL-001") for i in range(1, MOST_ERRORS + 1)]


def test_the_errors_of_the_file_come_before_those_of_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "part.sx").write_text("(define b (sqrt 1 2))\n")
    file = tmp_path / "main.sx"
    file.write_text('(import "part.sx")\n(define c (+ b (sqrt 1 2)))\n')
    errors = check_file(str(file))
    assert [Path(e.span.source.path).name for e in errors if e.span] == ["main.sx", "part.sx"]


def test_settings_given_are_checked(tmp_path: Path) -> None:
    file = tmp_path / "main.sx"
    file.write_text("(setting n 1)\n(define m (nth [1 2 3] n))\n")
    assert check_file(str(file), {"n": 2}) == []
    assert found(check_file(str(file), {"n": 3})) == [(2, "E-EVAL-012")]
    assert found(check_file(str(file), {"n": "x"})) == [(1, "E-EVAL-016")]
    (error,) = check_file(str(file), {"nn": 3})
    assert (error.code, error.span, error.help) == ("E-EVAL-016", None, "did you mean n?")


def test_a_setting_that_cannot_be_evaluated_is_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "main.sx"
    for broken, code in (("(nth [] 0)", "E-EVAL-012"), ("nowhere", "E-EVAL-001")):
        file.write_text(f"(setting n {broken})\n")
        assert found(check_file(str(file), {"n": 2})) == [(1, code)]


def test_what_uses_the_failed_definition_of_an_import_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "inner.sx").write_text("(define a (nth [] 0))\n")
    (tmp_path / "outer.sx").write_text('(import "inner.sx")\n(define b (+ a 1))\n')
    (tmp_path / "main.sx").write_text('(import "outer.sx")\n(define c (+ b 1))\n')
    assert found(check_file(str(tmp_path / "main.sx"))) == [(1, "E-EVAL-012")]


def test_missing_data_is_found(tmp_path: Path) -> None:
    file = tmp_path / "main.sx"
    file.write_text('(data d (npz "none.npz"))\n' + OBJECTIVE + RUN.replace("points", "d"))
    assert found(check_file(str(file))) == [(1, "E-RUN-001")]


def test_a_fault_of_the_interpreter_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("sxi.checking.check_stages", fail)
    with pytest.raises(ZeroDivisionError):
        check_text(POINTS + OBJECTIVE + RUN)


@pytest.mark.parametrize(
    ("text", "column", "first"),
    [
        ("(define (f a a) 1)", 14, 12),
        ("(define (f a :b 1 :a 2) 1)", 19, 12),
        ("(define (f) (define x 1) (define x 2) x)", 34, 21),
        ("(fold (x 1) (x [1 2]) x)", 14, 8),
        ("(let (([a a] [1 2])) a)", 11, 9),
    ],
)
def test_a_name_bound_twice_is_told_with_the_first_place(text: str, column: int, first: int) -> None:
    (error,) = check_text(text)
    assert error.span
    assert (error.code, error.span.column) == ("E-EVAL-007", column)
    assert [(label.span.column, label.text) for label in error.labels] == [(first, "first bound here")]
