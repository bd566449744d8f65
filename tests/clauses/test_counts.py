"""What each form counts: the clauses G01 to G12, through `sxi run` and `sxi check`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sxi.prompt import main as prompt
from tests.running import Program, column, only, training

NAN, INF = math.nan, math.inf


@pytest.mark.clause(1)
def test_g01_a_total_other_than_zero_stops_the_run_at_that_step(device_program: Program) -> None:
    body = f'(guard "data/bad" (count-where (> {column("bad")} 0.5)) :kind :row) still'
    done = device_program.run(training(body, batch=4, steps=3), bad=[0.0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1])
    assert done.status == 3
    assert done.message == (
        "E-GUARD-001: guard data/bad kind=row counted 3 at step 2, expected 0; it is written at program.sx:6:1"
    )
    assert done.points("guard/data/bad") == [(1, 0.0), (2, 3.0)]


@pytest.mark.clause(2)
def test_g02_guard_returns_its_count_with_its_gradient(program: Program) -> None:
    # the loss is Σw − 2, so each gradient is 1 and w becomes 1 − 0.5; a copy without a gradient would leave 1
    done = program.run(training('(guard "sum" (- (sum w) 2.0))', steps=1), bad=[0.0])
    assert done.status == 0
    assert done.saved(1)["param/w"].tolist() == [0.5, 0.5]
    assert done.values("guard/sum") == [0.0]


@pytest.mark.clause(2)
def test_g02_the_program_with_guards_computes_what_it_computes_without(device_program: Program) -> None:
    def body(*, guarded: bool) -> str:
        def wrapped(form: str, x: str) -> str:
            return f'({form} "{form}/{len(x)}" {x})' if guarded else x

        drawn = wrapped("assert-finite", "(* (+ 1.0 (dropout w 0.5)) (normal [2]))")
        return f"(+ (mean (square (- {drawn} {column('x')}))) {wrapped('guard', '(* 0.0 (sum (square w)))')})"

    rows = [0.1 * i for i in range(12)]
    options: dict[str, Any] = {"batch": 4, "steps": 3, "optimizer": "(adamw :lr 0.1)"}
    bare = device_program.run(training(body(guarded=False), **options), x=rows)
    held = device_program.run(training(body(guarded=True), **options), x=rows)
    assert bare.status == held.status == 0
    assert len(held.names) == 2
    assert bare.saved_bytes(3) == held.saved_bytes(3)
    assert bare.saved(3)["param/w"].tolist() != [1.0, 1.0]


@pytest.mark.clause(3)
def test_g03_assert_finite_counts_nan_and_both_infinities_and_returns_its_operand(device_program: Program) -> None:
    # used as the loss's factor: where it gave its count instead, the loss would be 3 · 2
    body = '(assert-finite "x" (:x batch)) (metric "loss" (+ (sum (assert-finite "y" w)) still))'
    bad = [[1.0, 0.0, -2.0, 5.0], [NAN, INF, -INF, 1.0]]
    done = device_program.run(training(body, steps=2), x=bad)
    assert done.values("loss") == [2.0, 1.0]  # Σw, and a step along it: w is 1 − 0.5
    assert done.values("guard/x") == [0.0, 3.0]
    assert done.error["count"] == 3
    assert done.error["guard"] == "x"


@pytest.mark.clause(3)
def test_g03_assert_finite_keeps_integers_integers_and_never_counts_them(program: Program) -> None:
    # an integer array is given on as one: it still indexes
    body = '(metric "at" (at (array [5.0 7.0]) (sum (assert-finite "i" (:i batch))))) still'
    done = program.run(training(body, steps=2), i=[0, 1])
    assert done.status == 0
    assert done.values("at") == [5.0, 7.0]


@pytest.mark.clause(3)
def test_g03_an_empty_array_counts_nothing(program: Program) -> None:
    done = program.run(training('(assert-finite "none" (slice w 0 0 0)) still', steps=1), x=[0.0])
    assert done.values("guard/none") == [0.0]


@pytest.mark.clause(3)
@pytest.mark.parametrize("arguments", [(), ("--no-plan",)])
def test_g03_a_value_is_tested_as_f32(device_program: Program, arguments: tuple[str, ...]) -> None:
    # 1e300, 1e100 and 3.5e38 are finite in f64 and infinite in f32; 1e-300 is 0 there, and finite
    before = "(define wide (array [1e300 -1e300 1e-300 3.0] :dtype :f64))"
    body = '(assert-finite "wide" wide) (assert-finite "computed" (* 1.0 wide)) still'
    done = device_program.run(training(body, before=before, steps=1), *arguments, x=[0.0])
    assert (done.values("guard/wide"), done.values("guard/computed")) == ([2.0], [2.0])
    for value, count in (("1e100", 1.0), ("-3.5e38", 1.0), ("3.4028235e38", 0.0)):
        before = f"(define wide (array [{value}] :dtype :f64))"
        assert device_program.run(training(body, before=before, steps=1), *arguments).values("guard/wide") == [count]


@pytest.mark.clause(3)
def test_g03_a_host_number_is_tested_too(program: Program) -> None:
    body = '(assert-finite "n" 7) (assert-finite "m" 0.5) (assert-finite "long" (pow 10 400)) still'
    assert program.run(training(body, steps=1), x=[0.0]).status == 0
    huge = program.run(training('(assert-finite "n" inf) still', steps=1), x=[0.0])
    assert huge.error["count"] == 1


@pytest.mark.clause(4)
@pytest.mark.scenario(28)
@pytest.mark.parametrize("n", [255, 256, 257, 300, 1001])
def test_g04_s28_counts_in_a_bf16_region_are_exact(device_program: Program, n: int) -> None:
    # added up in bf16, ones stick at 256, and 257 and 1001 are no bf16 numbers at all
    body = """
    (bf16
      (assert-finite "nan" (* 2.0 (:x batch)))
      (guard "nan/where" (count-where (nan? (:x batch))))
      (guard "sum" (sum (* 1.0 (:one batch)))))
    still"""
    x = np.full((1, n), NAN, np.float32)
    done = device_program.run(training(body, steps=1), x=x, one=np.ones((1, n), np.float32))
    assert done.values("guard/nan") == [n]
    assert done.values("guard/nan/where") == [n]
    assert done.error["count"] == n
    # the region's own sum of ones is gathered in f32 and rounded to bf16 once: 8 bits
    assert done.values("guard/sum") == [float(_bf16(n))]


def _bf16(x: float) -> float:
    """`x` rounded to the nearest bf16, by its definition: 8 significant bits, ties to even."""
    fraction, exponent = math.frexp(x)
    return math.ldexp(round(fraction * 256), exponent - 8)


@pytest.mark.clause(4)
@pytest.mark.scenario(27)
def test_g04_s27_an_overflow_to_the_regions_infinity_counts(device_program: Program) -> None:
    # 3.4e38 is below f32's largest number and rounds past bf16's
    body = """
    (assert-finite "before" (:x batch))
    (bf16
      (assert-finite "within" (:x batch))
      (assert-finite "computed" (* 1.0 (:x batch))))
    still"""
    done = device_program.run(training(body, steps=1), x=[3.4e38])
    assert [done.values(f"guard/{n}") for n in ("before", "within", "computed")] == [[0.0], [0.0], [1.0]]
    assert done.error["guard"] == "computed"


# Bounds, compared in f32

BELOW_20 = [(19.999999, 0), (20.0, 1), (21.0, 1), (NAN, 1), (INF, 1), (-INF, 0), (19.9999999, 1)]
ABOVE_0 = [(0.0, 1), (-0.0, 1), (1e-40, 0), (1e-46, 1), (NAN, 1), (INF, 0), (-INF, 1)]
NEAREST_BELOW = float(np.nextafter(np.float32(0.7), np.float32(0.0)))
BELOW_0_7 = [(0.7, 1), (float(np.float32(0.7)), 1), (NEAREST_BELOW, 0)]
BELOW_MINUS_1 = [(-2.0, 0), (-1.0000001, 0), (-1.0, 1), (-0.5, 1), (0.0, 1), (2.0, 1), (-INF, 0), (NAN, 1)]
ABOVE_MINUS_1 = [(-2.0, 1), (-1.0000001, 1), (-1.0, 1), (-0.5, 0), (0.0, 0), (2.0, 0), (-INF, 1), (NAN, 1)]
BELOW_INF = [(3e38, 0), (INF, 1), (-INF, 0), (NAN, 1)]
TABLES = [
    (":below 20.0", BELOW_20), (":above 0.0", ABOVE_0), (":below 0.7", BELOW_0_7), (":below -1.0", BELOW_MINUS_1),
    (":above -1.0", ABOVE_MINUS_1), (":below inf", BELOW_INF),
]  # fmt: skip


@pytest.mark.clause(5)
@pytest.mark.clause(6)
@pytest.mark.clause(11)
@pytest.mark.scenario(3)
@pytest.mark.scenario(4)
@pytest.mark.parametrize(("bound", "table"), TABLES)
@pytest.mark.parametrize("kind", ["f32", "f64", "host"])
def test_g05_g06_g11_values_of_bounds(
    device_program: Program, bound: str, table: list[tuple[float, int]], kind: str
) -> None:
    values = [v for v, _ in table]
    texts = [repr(v) if kind == "host" else f"(at (:v batch) 0 {i})" for i, v in enumerate(values)]
    forms = " ".join(f'(metric "v" {text} {bound} :i {i})' for i, text in enumerate(texts))
    # the column is f64 in the file: f32 by default, f64 where the program asks
    source = "(npz 'd.npz' :dtype {:v :f64})" if kind == "f64" else "(npz 'd.npz')"
    text = training(f"{forms} still", steps=1).replace('(npz "d.npz")', source.replace("'", '"'))
    done = device_program.run(text, v=np.array([values]))
    assert [only(done.values("guard/v", i=i)) for i in range(len(values))] == [float(n) for _, n in table]


@pytest.mark.clause(11)
def test_g11_a_bf16_value_is_compared_as_f32(device_program: Program) -> None:
    # bf16's neighbours of 0.7 are 0.69921875 and 0.703125; a bound rounded to bf16 would make the first count
    body = """
    (bf16
      (metric "low" (* 1.0 (at (:v batch) 0 0)) :below 0.7)
      (metric "high" (* 1.0 (at (:v batch) 0 1)) :below 0.7))
    still"""
    done = device_program.run(training(body, steps=1), v=[[0.7, 0.702]])
    assert done.values("guard/low") == [0.0]
    assert done.values("guard/high") == [1.0]
    assert done.values("low") == [0.69921875]
    # what comes into the region as f32 is compared as it is: rounded to bf16 it would be below
    body = f'(let ((v {column("v")})) (bf16 (metric "raw" v :below 0.7))) still'
    done = device_program.run(training(body, steps=1), v=[0.7])
    assert (done.values("raw"), done.values("guard/raw")) == ([0.7], [1.0])


@pytest.mark.clause(11)
def test_g11_a_bound_past_f32_is_infinite(program: Program) -> None:
    # 1e39 rounds to f32's infinity: everything finite is below it, and an infinity is not
    body = '(metric "a" 3e38 :below 1e39) (metric "b" inf :below 1e39) still'
    done = program.run(training(body, steps=1), x=[0.0])
    assert (done.values("guard/a"), done.values("guard/b")) == ([0.0], [1.0])
    # f32's largest number is below an infinity
    body = '(metric "a" 3.4028235e38 :below 1e39) (metric "b" -3.4028235e38 :above -1e39) still'
    done = program.run(training(body, steps=1), x=[0.0])
    assert (done.values("guard/a"), done.values("guard/b")) == ([0.0], [0.0])


@pytest.mark.clause(11)
def test_g11_integers_are_compared_as_f32(program: Program) -> None:
    # 2^24 + 1 is no f32: it rounds to 2^24, which is not above 2^24
    body = f'(metric "i" {column("i")} :above 16777216) still'
    done = program.run(training(body, steps=2), i=[16777218, 16777217])
    assert done.values("guard/i") == [0.0, 1.0]


@pytest.mark.clause(11)
def test_g11_a_whole_number_past_f64_is_a_value_and_a_bound(program: Program) -> None:
    body = '(metric "huge" (pow 10 400) :below 5.0) (metric "x" 1.0 :below (pow 10 400)) still'
    done = program.run(training(body, steps=1), x=[0.0])
    assert (done.values("guard/huge"), done.values("guard/x")) == ([1.0], [0.0])
    assert done.values("huge") == [INF]


@pytest.mark.clause(1)
@pytest.mark.parametrize(("count", "said"), [("(pow 10 400)", "Infinity"), ("seven", "7"), ("0.5", "0.5")])
def test_g01_a_count_may_be_known_before_the_walk(program: Program, count: str, said: str) -> None:
    # an array of the top level, and numbers of the host
    before = "(define seven (sum (array [3.0 4.0])))"
    body = f'(metric "seven" seven :below 8.0) (guard "n" {count}) (+ still seven)'
    done = program.run(training(body, before=before, steps=1), x=[0.0])
    assert f"guard n counted {said} at step 1," in done.message
    assert done.values("seven") == [7.0]


@pytest.mark.clause(7)
def test_g07_count_where_alone_is_no_guard(device_program: Program) -> None:
    body = f'(metric "half" (* 0.5 (count-where (> (:x batch) 0.5)))) (count-where (> {column("x")} 0.0)) still'
    done = device_program.run(training(body, steps=1), x=[[1.0, 1.0, 1.0, 0.0]])
    assert done.status == 0
    assert done.names == ["half"]
    assert done.values("half") == [1.5]


@pytest.mark.clause(7)
def test_g07_count_where_gives_an_f32_scalar(capsys: Any) -> None:
    for text, shown in (
        ("(count-where (> (array [[1.0 3.0] [4.0 0.0]]) 2.0))", "f32[] cpu 2.0"),
        ("(bf16 (count-where (> (ones [257]) 0.5)))", "f32[] cpu 257.0"),
        ("(count-where (> (zeros [0]) 0.0))", "f32[] cpu 0.0"),
    ):
        assert prompt(["-e", text]) == 0
        assert capsys.readouterr().out == f"{shown}\n"


@pytest.mark.clause(8)
def test_g08_metadata_is_evaluated_where_the_form_stands_and_shown_in_the_order_written(program: Program) -> None:
    body = """(fold (acc still) (layer (range 3))
      (begin
        (guard "geometry/off" (count-where (> (at (:x batch) 0 layer) 0.5))
          :zeta "z" :layer layer :kind :down :fine true)
        acc))"""
    done = program.run(training(body, steps=2), x=[[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    assert done.message == (
        "E-GUARD-001: guard geometry/off zeta=z layer=1 kind=down fine=true counted 1 at step 2, expected 0; "
        "it is written at program.sx:8:9"
    )
    shared = {"zeta": "z", "kind": "down", "fine": True}
    assert done.metas("guard/geometry/off") == [{**shared, "layer": layer} for layer in range(3)]
    assert [done.values("guard/geometry/off", layer=i) for i in range(3)] == [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    assert done.error["meta"] == {**shared, "layer": 1}
    assert list(done.error["meta"]) == ["zeta", "layer", "kind", "fine"]
    assert [e["meta"]["layer"] for e in done.error["also"]] == [2]


@pytest.mark.clause(8)
def test_g08_metadata_in_another_order_is_the_same_series(program: Program) -> None:
    body = f"""(guard "g" {column("x")} :a 1 :b 2) (guard "g" {column("y")} :b 2 :a 1) still"""
    done = program.run(training(body, steps=1), x=[0.0], y=[3.0])
    assert done.metas("guard/g") == [{"a": 1, "b": 2}]
    # the series' total; source and order are those of the form that counted
    assert done.message.startswith("E-GUARD-001: guard g b=2 a=1 counted 3 at step 1,")


@pytest.mark.clause(8)
def test_g08_values_that_python_takes_for_equal_are_different_metadata(program: Program) -> None:
    body = f"""(guard "g" 0 :a 1) (guard "g" {column("x")} :a 1.0) (guard "g" 0 :a true) still"""
    done = program.run(training(body, steps=1), x=[1.0])
    assert [repr(m["a"]) for m in done.metas("guard/g")] == ["1", "1.0", "True"]
    assert done.values("guard/g") == [0.0, 1.0, 0.0]
    assert done.message.startswith("E-GUARD-001: guard g a=1.0 counted 1 at step 1,")


@pytest.mark.clause(9)
def test_g09_a_bounds_guard_has_the_name_and_metadata_of_its_metric(program: Program) -> None:
    body = f'(metric "train/loss" {column("x")} :below 20.0 :reduce :max :layer 2) still'
    done = program.run(training(body, steps=2), x=[1.0, 30.0])
    assert done.names == ["train/loss", "guard/train/loss"]
    assert done.metas("guard/train/loss") == done.metas("train/loss") == [{"layer": 2}]
    assert done.error["guard"] == "train/loss"
    assert done.error["meta"] == {"layer": 2}


@pytest.mark.clause(10)
def test_g10_two_bounds_are_two_guards_in_one_series(device_program: Program) -> None:
    body = f'(metric "lr" {column("x")} :above 0.0 :below 20.0) still'
    rows = [1.0, 1.0, 0.0, 20.0, NAN, 30.0]
    done = device_program.run(training(body, batch=2, steps=2), x=rows[:4])
    assert done.values("guard/lr") == [0.0, 2.0]  # one row of each bound
    # one NaN is neither above nor below: 2, and 1 for the row past 20
    done = device_program.run(training(body, batch=2, steps=1), x=rows[4:])
    assert done.values("guard/lr") == [3.0]
    assert done.error["count"] == 3


@pytest.mark.clause(12)
@pytest.mark.scenario(30)
@pytest.mark.parametrize(
    ("count", "given", "repair"),
    [
        ("(> (mean (:x batch)) 9.0)", "a bool", "(count-where (> (mean (:x batch)) 9.0))"),
        ("(> (:x batch) 9.0)", "bool[1]", "(count-where (> (:x batch) 9.0))"),
        ("(:x batch)", "f32[1]", "(sum (:x batch))"),
        ("true", "true", "(count-where true)"),
        ('"three"', '"three"', ""),
        ("nil", "nil", ""),
    ],
)
def test_g12_s30_a_count_is_a_numeric_scalar(program: Program, count: str, given: str, repair: str) -> None:
    found = only(program.refused(training(f'(guard "x" {count}) still', steps=1), x=[0.0]))
    assert found["code"] == "E-CONTRACT-020"
    assert found["message"] == f"the count of guard x is {given}, and a count is a numeric scalar"
    assert repair in found["help"]
    # the place is the count, not the form
    assert found["span"]["start"] == {"line": 6, "column": 1 + len('(guard "x" ')}


@pytest.mark.clause(12)
def test_g12_count_where_is_the_repair(program: Program) -> None:
    done = program.run(training('(guard "x" (count-where (> (mean (:x batch)) 9.0))) still', steps=2), x=[9.0, 9.5])
    assert done.values("guard/x") == [0.0, 1.0]
