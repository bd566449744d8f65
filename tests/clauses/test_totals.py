"""What section 5 of the language fixes besides the seed: totals, their order, their text, what does not count twice."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.clauses.programs import optimized, passing
from tests.running import Program, column, only, training

NAN, INF = math.nan, math.inf


@pytest.mark.clause(10)
def test_one_nan_under_both_bounds_counts_2(device_program: Program) -> None:
    done = device_program.run(training(f'(metric "x" {column("x")} :above 0.0 :below 1.0) still', steps=1), x=[NAN])
    assert (done.values("guard/x"), done.error["count"]) == ([2.0], 2)


@pytest.mark.clause(1)
def test_several_failing_in_one_step_are_told_in_the_order_of_the_walk(device_program: Program) -> None:
    # the later form counts in an earlier microbatch, prepare comes before the objective, the model where it is called
    before = f"""
    (prepare (batch) (guard "prepared" {column("p")}) batch)
    (model net (batch) (guard "net" {column("n")}) (sum (* 0.0 (param "v" [1] :init ones-init))))"""
    body = f"""(guard "first" {column("f")}) (let ((out (net batch))) (guard "last" {column("l")}) (+ out still))"""
    text = training(body, before=before, batch=4, steps=1)
    names = ["prepared", "first", "net", "last"]
    late_first: dict[str, Any] = {"l": [1.0, 0, 0, 0], "n": [0.0, 1, 0, 0], "f": [0.0, 0, 1, 0], "p": [0.0, 0, 0, 1]}
    done = device_program.run(text, **late_first)
    assert [e["guard"] for e in [done.error, *done.error["also"]]] == names
    assert done.message.startswith("E-GUARD-001: guard prepared counted 1 at step 1,")
    assert done.texts[0] == "guard prepared failed"
    assert len(done.annotations) == 2
    for i in range(1, 4):
        fewer: dict[str, Any] = {k: [0.0] * 4 if k in "pfnl"[:i] else v for k, v in late_first.items()}
        done = device_program.run(text, **fewer)
        assert [e["guard"] for e in [done.error, *done.error["also"]]] == names[i:]


@pytest.mark.clause(1)
def test_the_total_is_of_the_series_and_the_source_its_first_form_that_counted(device_program: Program) -> None:
    body = f"""
    (guard "g" {column("a")} :k 1)
    (guard "g" {column("b")} :k 1)
    (metric "g" {column("b")} :above -100.0 :below 5.0 :k 1)
    (guard "g" {column("a")} :k 2)
    still"""
    done = device_program.run(training(body, batch=2, steps=1), a=[0.0, 0.0], b=[2.0, 6.0])
    # 2 + 6 of the second form, and 1 of the bound that 6 is not below
    assert done.message == ("E-GUARD-001: guard g k=1 counted 9 at step 1, expected 0; it is written at program.sx:8:5")
    assert done.values("guard/g", k=1) == [9.0]
    assert done.error["also"] == []
    done = device_program.run(training(body, batch=2, steps=1), a=[1.0, 0.0], b=[2.0, 6.0])
    assert (done.error["source"], done.error["count"]) == ("program.sx:7:5", 10)
    assert [(e["meta"], e["count"]) for e in done.error["also"]] == [({"k": 2}, 1)]


@pytest.mark.clause(1)
def test_the_order_is_that_of_the_forms_that_counted(device_program: Program) -> None:
    # the series `late` begins before `early`, and what counts of it stands behind
    body = f"""
    (guard "late" {column("a")})
    (guard "early" {column("b")})
    (guard "late" {column("b")})
    still"""
    done = device_program.run(training(body, steps=1), a=[0.0], b=[1.0])
    assert [(e["guard"], e["source"]) for e in [done.error, *done.error["also"]]] == [
        ("early", "program.sx:8:5"),
        ("late", "program.sx:9:5"),
    ]


@pytest.mark.clause(1)
def test_a_form_whose_own_total_is_negative_is_a_source(device_program: Program) -> None:
    body = f"""
    (guard "g" {column("a")})
    (guard "g" {column("b")})
    still"""
    done = device_program.run(training(body, steps=1), a=[-3.0], b=[1.0])
    assert (done.error["source"], done.error["count"]) == ("program.sx:7:5", -2)
    # forms that take each other back leave a total that is zero
    assert device_program.run(training(body, steps=1), a=[-1.0], b=[1.0]).status == 0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([-3.0, 0.0], "-3"),
        ([-1.0, 0.5], "-0.5"),
        ([NAN, 0.0], "NaN"),
        ([INF, 0.0], "Infinity"),
        ([-INF, 5], "-Infinity"),
    ],
)
def test_any_total_that_is_not_zero_fails(device_program: Program, rows: list[float], said: str) -> None:
    done = device_program.run(training(f'(guard "n" {column("n")}) still', batch=2, steps=1), n=rows)
    assert f"guard n counted {said} at step 1," in done.message


@pytest.mark.parametrize("rows", [[1.0, -1.0], [-0.0, 0.0], [0.25, -0.25]])
def test_a_total_that_is_equal_to_zero_does_not(device_program: Program, rows: list[float]) -> None:
    done = device_program.run(training(f'(guard "n" {column("n")}) still', batch=2, steps=1), n=rows)
    assert (done.status, done.values("guard/n")) == (0, [0.0])


def test_a_count_may_be_an_integer(device_program: Program) -> None:
    done = device_program.run(training(f'(guard "n" {column("n")}) still', batch=2, steps=1), n=[3, 4])
    assert done.error["count"] == 7


# How often


def test_a_guard_evaluated_twice_in_a_fold_counts_twice(device_program: Program) -> None:
    body = f'(fold (acc still) (i (range 3)) (begin (guard "g" {column("x")}) acc))'
    done = device_program.run(training(body, steps=1), x=[2.0])
    assert (done.values("guard/g"), done.error["count"]) == ([6.0], 6)


def test_a_helper_that_holds_a_guard_counts_at_every_call(device_program: Program) -> None:
    before = '(define (seen x) (guard "g" (count-where (> x 0.5))))'
    done = device_program.run(
        training("(seen (:x batch)) (seen (* 2.0 (:x batch))) still", before=before, steps=1), x=[0.4]
    )
    assert done.values("guard/g") == [1.0]
    done = device_program.run(
        training("(seen (:x batch)) (seen (* 2.0 (:x batch))) still", before=before, steps=1), x=[0.6]
    )
    assert done.values("guard/g") == [2.0]


@pytest.mark.scenario(23)
@pytest.mark.parametrize(
    "form",
    [
        '(guard "g" (count-where (> (:x batch) 0.5)))',
        '(assert-finite "g" (/ (:x batch) 0.0))',
        f'(metric "g" {column("x")} :below 1.0)',
        '(let ((unused (guard "g" (sum (:x batch))))) 0)',
        '(when false 0) (begin (guard "g" (sum (:x batch))) 0)',
        '(* 0.0 (guard "g" (sum (:x batch))))',
    ],
)
def test_s23_a_guard_whose_value_is_not_used_counts(device_program: Program, form: str) -> None:
    done = device_program.run(training(f"{form} still", steps=1), x=[1.0])
    assert done.values("guard/g") == [1.0]
    assert done.status == 3


@pytest.mark.scenario(24)
def test_s24_a_constant_guard_counts_every_microbatch(device_program: Program) -> None:
    body = '(guard "host" 1) (guard "array" (count-where (> (ones [3]) 0.0))) (assert-finite "nan" nan) still'
    done = device_program.run(training(body, batch=4, steps=1), x=[0.0] * 4)
    assert [done.values(f"guard/{n}") for n in ("host", "array", "nan")] == [[4.0], [12.0], [4.0]]
    done = device_program.run(training('(guard "host" 0) (metric "m" 1.0 :below 2.0) still', steps=1), x=[0.0])
    assert (done.status, done.values("guard/host"), done.values("guard/m")) == (0, [0.0], [0.0])


@pytest.mark.parametrize(
    "call",
    ["((grad f) w)", "((value-and-grad f) w)", "((grad (lambda (v) (sum ((grad f) v)))) w)"],
)
def test_differentiating_a_function_that_holds_a_guard_counts_it_once(device_program: Program, call: str) -> None:
    before = '(define (f v) (begin (guard "g" (count-where (> v 0.5))) (sum (* v v v))))'
    done = device_program.run(training(f"{call} still", before=before, steps=1), x=[0.0])
    assert done.values("guard/g") == [2.0]  # both elements of w are 1


def test_a_guard_in_the_objective_is_not_counted_again_by_its_gradient(device_program: Program) -> None:
    body = '(sum (assert-finite "g" (* (:x batch) (square w))))'
    done = device_program.run(training(body, steps=1), x=[INF])
    assert done.values("guard/g") == [2.0]


def test_a_branch_that_is_not_taken_holds_no_guard(program: Program) -> None:
    done = program.run(training('(if false (guard "g" 1) 0) still', steps=1), x=[0.0])
    assert (done.status, done.names) == (0, [])


def test_a_guard_may_stand_in_what_only_a_ragged_batch_has(device_program: Program) -> None:
    # a row of the pass is a guard of its own: the last batch has two of them, the others three
    evaluate = """
    (fold (acc 0.0) (i (range (dim (:x batch) 0)))
      (begin (guard "row" (at (:x batch) i) :i i) (metric "row" (at (:x batch) i) :i i :reduce :sum) acc))
    (metric "mean" (mean (:x batch)))
    (guard "behind" (max (:x batch)))"""
    done = device_program.run(passing(evaluate, batch=3, steps=1), x=[0.0, 0, 0, 0, 0, 0, 0, 7.0])
    assert [done.values("guard/row", i=i) for i in range(3)] == [[0.0], [7.0], [0.0]]
    assert [done.values("row", i=i) for i in range(3)] == [[0.0], [7.0], [0.0]]
    assert done.values("guard/behind") == [7.0]
    assert done.values("mean") == [0.875]
    assert (done.error["guard"], done.error["meta"]) == ("row", {"i": 1})


def test_a_pass_smaller_than_its_batch_has_the_ragged_one_alone(device_program: Program) -> None:
    done = device_program.run(passing('(guard "g" (sum (:x batch)))', batch=50, steps=1), x=[1.0, 2.0])
    assert done.error["count"] == 3


# Text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('"plain"', "plain"),
        (":down", "down"),
        ('"two words"', '"two words"'),
        ('"a=b"', '"a=b"'),
        (r'"say \"hi\""', r'"say \"hi\""'),
        ('""', '""'),
        ("3", "3"),
        ("-0.5", "-0.5"),
        ("1e-3", "0.001"),
        ("true", "true"),
        ("off", "false"),
        ('"geometry/x-1"', "geometry/x-1"),
        ('"größe"', "größe"),
        (r'"two\nlines"', r'"two\nlines"'),
        (r'"a\tb"', r'"a\tb"'),
    ],
)
@pytest.mark.clause(8)
def test_g08_metadata_in_a_message_is_quoted_only_where_it_must_be(program: Program, value: str, shown: str) -> None:
    done = program.run(training(f'(guard "g" 1 :key {value} :n 1) still', steps=1), x=[0.0])
    assert done.err.splitlines() == [
        f"sxi run: E-GUARD-001: guard g key={shown} n=1 counted 1 at step 1, expected 0; "
        "it is written at program.sx:6:1"
    ]


def test_a_message_is_of_the_file_that_the_guard_is_written_in(program: Program) -> None:
    program.write('\n(define (look x)\n  (guard "g" (count-where (> x 0.5))))\n', file="lib/looks.sx")
    done = program.run(training("(look (:x batch)) still", before='(import "lib/looks.sx")', steps=1), x=[1.0])
    assert done.message.endswith("it is written at lib/looks.sx:3:3")


@pytest.mark.clause(25)
def test_g25_param_stands_last_in_the_message(program: Program) -> None:
    done = program.run(optimized('(guard "g" (sum g) :a 1 :zz 2)', steps=1), a=[1.0], b=[0.0])
    assert done.message.startswith("E-GUARD-001: guard g a=1 zz=2 param=one counted 2 at step 1,")
    assert done.error["meta"] == {"a": 1, "zz": 2, "param": "one"}


# What looking changes: nothing


DRAWS = """
(metric "drawn" (sum (normal [3])))
{first}
(let ((a {wrap}) (b (uniform [2])))
  (metric "a" (sum a))
  (metric "b" (sum b))
  {last}
  (+ still (sum (dropout w 0.5))))
"""


@pytest.mark.clause(2)
@pytest.mark.parametrize(
    "parts",
    [
        {"first": '(guard "g" (count-where (> (normal [8]) 99.0)))'},
        {"first": '(assert-finite "g" (normal [8]))'},
        {"first": '(metric "extra" (sum (normal [8])) :below 99.0)'},
        {"first": '(diagnostic "extra" (sum (normal [8])) :below 99.0)'},
        {"wrap": '(assert-finite "g" (normal [2]))'},
        {"last": '(guard "g" (count-where (> (normal [8]) 99.0)) :layer 1)'},
    ],
)
def test_g02_a_form_that_looks_changes_no_other_draw(program: Program, parts: dict[str, str]) -> None:
    run = ':diagnostics ["*"] :sample-every 2' if "diagnostic" in str(parts) else ""
    bare = training(DRAWS.format(first="", wrap="(normal [2])", last=""), steps=2, batch=2)
    looking = training(
        DRAWS.format(**{"first": "", "wrap": "(normal [2])", "last": "", **parts}), steps=2, batch=2, run=run
    )
    plain, looked = program.run(bare, x=[0.0] * 4), program.run(looking)
    assert plain.status == looked.status == 0
    for name in ("drawn", "a", "b"):
        assert plain.points(name) == looked.points(name)
        assert len(set(plain.values(name))) == 2
    assert plain.saved_bytes(2) == looked.saved_bytes(2)


def test_a_recursion_that_reports_is_one_series_for_each_metadata(program: Program) -> None:
    before = '(define (down n x) (guard "g" (* n x) :n n) (if (= n 0) x (down (- n 1) x)))'
    done = program.run(training(f"(down 3 {column('x')}) still", before=before, steps=1), x=[1.0])
    assert [only(done.values("guard/g", n=n)) for n in range(4)] == [0.0, 1.0, 2.0, 3.0]
    assert done.error["meta"] == {"n": 3}
