"""`failure/`: what a guard looked at, computed again, is what NumPy makes of the same rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sxi import evidence
from sxi.evidence import Evidence, Part, Seen
from sxi.session import Session
from sxi.source import Source, Span
from tests import running
from tests.running import Finished, Program

program = running.program
device_program = running.device_program

# Twelve rows: with a batch of four in two microbatches, step 1 takes the first four, two a microbatch.
ROWS = 12
X = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3) / 4


def text_of(
    body: str, *, before: str = "", run: str = "", optimizer: str = "(sgd :lr 0.5)", loss: str = "(sum (* 0.0 w))"
) -> str:
    """A program over the rows of `d.npz` in the file's order.

    body:  `batch`, its `x` and the parameter `w`, ones at first, are bound there
    """
    return f"""(data d (npz "d.npz"))
{before}
(objective (batch)
  (let ((x (:x batch)) (w (param "w" [3] :init ones-init)))
    {body}
    {loss}))
(run r :data d :shuffle off :batch 4 :microbatches 2 :steps 3 :optimizer {optimizer} {run})
"""


def kept(done: Finished) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `failure/` has: the facts, the arrays."""
    facts = json.loads((done.folder / "failure/failure.json").read_text())
    return facts, load_file(done.folder / "failure/arrays.safetensors")


def same(a: Any, b: Any) -> bool:
    """Whether two arrays are of one type, one shape and the same bits, but for a NaN's."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "f":
        a, b = [np.where(np.isnan(x), x.dtype.type(np.nan), x) for x in (a, b)]
    return bool(a.tobytes() == b.tobytes())


def shown(program: Program, done: Finished) -> list[str]:
    status, out, err = program.command("replay", str(done.folder))
    assert (status, err) == (0, "")
    return out.splitlines()


# A count-where


def test_a_mask_with_what_it_compared_and_the_microbatch_it_came_from(device_program: Program) -> None:
    x = X.copy()
    x[6:8] = [[50, 1, 60], [2, 3, 70]]  # step 2, microbatch 1
    done = device_program.run(text_of('(guard "big" (count-where (> (* x w) 40.0)) :layer 2)'), x=x)
    facts, arrays = kept(done)
    message = "guard big layer=2 counted 3 at step 2, expected 0; it is written at program.sx:5:5"
    assert (facts["code"], facts["message"], facts["count"], facts["counted"]) == ("E-GUARD-001", message, 3, 3)
    assert (facts["where"], facts["step"], facts["guard"]) == ("microbatch 1", 2, "big")
    assert sorted(arrays) == ["batch/x", "guard/compared", "guard/mask", "rows"]
    assert arrays["rows"].tolist() == [6, 7]
    assert same(arrays["batch/x"], x[6:8])
    assert same(arrays["guard/compared"], x[6:8])  # w is ones
    assert same(arrays["guard/mask"], x[6:8] > 40)
    assert shown(device_program, done) == [
        f"E-GUARD-001: {message}",
        "  in microbatch 1, counted from 0",
        "the mask: bool[2 3], 3 violating",
        "  (> (* x w) 40.0)",
        "what was compared: f32[2 3], from 1 to 70, 3 violating: > 40.0",
        "  [0 0] 50.0",
        "  [0 2] 60.0",
        "  [1 2] 70.0",
        "the microbatch it came from: x f32[2 3]",
    ]


def test_of_a_total_over_microbatches_the_first_that_counted_is_shown(program: Program) -> None:
    x = X.copy()
    x[1, 1], x[2] = 50, 60
    done = program.run(text_of('(guard "big" (count-where (> x 40.0)))'), x=x)
    facts, arrays = kept(done)
    assert (facts["count"], facts["counted"], facts["where"]) == (4, 1, "microbatch 0")
    assert same(arrays["batch/x"], x[:2])
    assert shown(program, done)[1] == "  in microbatch 0, counted from 0; this evaluation counted 1"


def test_no_more_than_ten_are_listed(program: Program) -> None:
    x = np.full((ROWS, 7), 0.1, np.float32)
    x[1, 0] = 9
    done = program.run(text_of('(guard "small" (count-where (< x 1.0)))', loss="(sum (* 0.0 w))"), x=x)
    facts, _ = kept(done)
    figure = facts["arrays"]["compared"]
    wanted = [[int(i), int(j)] for i, j in np.argwhere(x[:2] < 1)]
    assert figure["violations"] == len(wanted) == 13
    assert figure["first"] == [[place, 0.1] for place in wanted[:10]]  # as written, not as f64 has it
    assert shown(program, done)[-3:] == [
        "  [1 3] 0.1",
        "  … and 3 more",
        "the microbatch it came from: x f32[2 7]",
    ]


# the mask, what NumPy makes of it, how the elements are said to violate, what was compared
Mask = tuple[str, Callable[..., Any], str, list[Callable[..., Any]]]
MASKS: dict[str, Mask] = {
    "above a number": ("(> x 1.0)", lambda x, **_: x > 1, "> 1.0", [lambda x, **_: x]),
    "a number before": ("(<= 1.0 x)", lambda x, **_: x >= 1, ">= 1.0", [lambda x, **_: x]),
    "a name of a number": ("(> x limit)", lambda x, **_: x > 0.75, "> 0.75", [lambda x, **_: x]),
    "a scalar array": ("(> x (array 0.75))", lambda x, **_: x > 0.75, "> 0.75", [lambda x, **_: x]),
    "a scalar array defined before": ("(> x bound)", lambda x, **_: x > 0.75, "> 0.75", [lambda x, **_: x]),
    "an array of numbers": (
        "(> x (array [0.0 0.75 9.0]))", lambda x, **_: x > np.array([0, 0.75, 9], np.float32), "",
        [lambda x, **_: x, lambda x, **_: np.array([0, 0.75, 9], np.float32)],
    ),
    "whole numbers": ("(= i 3)", lambda i, **_: i == 3, "= 3", [lambda i, **_: i]),
    "not a number": ("(nan? x)", lambda x, **_: np.isnan(x), "nan?", [lambda x, **_: x]),
    "not finite": ("(logical-not (finite? x))", lambda x, **_: ~np.isfinite(x), "not finite?", [lambda x, **_: x]),
    "outside": (
        "(logical-or (< x 0.25) (> x 1.0))", lambda x, **_: (x < 0.25) | (x > 1), "< 0.25 or > 1.0",
        [lambda x, **_: x],
    ),
    "not inside": (
        "(logical-not (logical-and (>= x 0.25) (<= x 1.0)))", lambda x, **_: ~((x >= 0.25) & (x <= 1)),
        "not (>= 0.25 and <= 1.0)", [lambda x, **_: x],
    ),
    "two arrays": ("(< x y)", lambda x, y, **_: x < y, "", [lambda x, **_: x, lambda y, **_: y]),
    "two arrays and a number": (
        "(logical-and (< x y) (> x 0.0))", lambda x, y, **_: (x < y) & (x > 0), "",
        [lambda x, **_: x, lambda y, **_: y],
    ),
    "one wider than the other": (
        "(> x (max (* 0.125 y) :axis 1 :keep true))", lambda x, y, **_: x > y.max(axis=1, keepdims=True) / 8, "",
        [lambda x, **_: x, lambda y, **_: y.max(axis=1, keepdims=True) / 8],
    ),
    "rows of which one is": (
        "(any (> x 1.0) :axis 1)", lambda x, **_: (x > 1).any(axis=1), "", [lambda x, **_: x],
    ),
    "a scalar": ("(> (max x) 1.0)", lambda x, **_: np.asarray(x.max() > 1), "> 1.0", [lambda x, **_: x.max()]),
    "a column of the data": ("bad", lambda bad, **_: bad, "", []),
    "chosen elsewhere": ("(where bad (> x 0.1) (> x 9.0))", lambda x, bad, **_: np.where(bad, x > 0.1, x > 9), "", []),
    "in a bf16 region": ("(bf16 (> (* x 1.0) 1.0))", lambda x, **_: x > 1, "> 1.0", [lambda x, **_: x]),
}  # fmt: skip


@pytest.mark.parametrize("what", MASKS)
def test_what_a_mask_compared_and_with_what(program: Program, what: str) -> None:
    mask, violates, test, compared = MASKS[what]
    x = X.copy()
    if what.startswith("not "):
        x[0, 1], x[1, 2] = np.nan, -np.inf
    columns: dict[str, Any] = {
        "x": x,
        "y": X[::-1].copy(),
        "i": np.arange(36, dtype=np.int32).reshape(12, 3),
        "bad": X > 0.5,
    }
    text = text_of(f'(guard "g" (count-where {mask}))', before="(setting limit 0.75) (define bound (array limit))")
    names = "(y (:y batch)) (i (:i batch)) (bad (:bad batch))"
    done = program.run(text.replace("(x (:x batch))", f"(x (:x batch)) {names}"), **columns)
    facts, arrays = kept(done)
    first = {name: column[:2] for name, column in columns.items()}
    wanted = violates(**first)
    assert same(arrays["guard/mask"], wanted)
    assert facts["counted"] == wanted.sum() > 0
    found = sorted(name for name in arrays if name.startswith("guard/compared"))
    assert len(found) == len(compared)
    for name, of in zip(found, compared, strict=True):
        value = np.asarray(of(**first))
        assert same(arrays[name], value)
        figure = facts["arrays"][name.removeprefix("guard/")]
        assert figure["test"] == test
        if value.ndim > wanted.ndim:  # another shape's elements violate nothing
            assert "first" not in figure
            continue
        listed = [[int(i) for i in place] for place in np.argwhere(wanted)[:10]] if wanted.shape else [[]]
        assert [place for place, _ in figure["first"]] == listed
        given = np.array([float(v) for _, v in figure["first"]])
        assert np.array_equal(given, np.broadcast_to(value, wanted.shape)[wanted][:10], equal_nan=True)


def test_arrays_that_were_compared_with_each_other_stand_beside_each_other(program: Program) -> None:
    x = X.copy()
    x[0, 0] = 8
    done = program.run(text_of('(guard "g" (count-where (> x (+ 3.0 (* x 0.5)))))'), x=x)
    assert shown(program, done)[2:-1] == [
        "the mask: bool[2 3], 1 violating",
        "  (> x (+ 3.0 (* x 0.5)))",
        "what was compared: f32[2 3], from 0.25 to 8, 1 violating",
        "  batch x",
        "what was compared: f32[2 3], from 3.125 to 7, 1 violating",
        "  (+ 3.0 (* x 0.5))",
        "  [0 0] 8.0, 7.0",
    ]


def test_a_mask_that_is_no_comparison_is_listed_itself(program: Program) -> None:
    done = program.run(text_of('(guard "g" (count-where (any (> x 1.0) :axis 1)))'), x=X)
    assert shown(program, done)[2:-1] == [
        "the mask: bool[2], 1 violating",
        "  (any (> x 1.0) :axis 1)",
        "  [1] true",
        "what was compared: f32[2 3], from 0 to 1.25",
    ]


def test_a_scalar_is_told_in_a_line(program: Program) -> None:
    done = program.run(text_of('(guard "g" (count-where (> (max x) 1.0)))'), x=X)
    assert shown(program, done)[2:-1] == [
        "the mask: bool[] true",
        "  (> (max x) 1.0)",
        "what was compared: f32[] 1.25, > 1.0",
    ]


def test_a_mask_of_masks_of_any_depth_is_gone_through_in_no_time(program: Program) -> None:
    body = '(guard "g" (count-where (fold (m (> x 1.0)) (i (range 3000)) (logical-or m m))))'
    facts, arrays = kept(program.run(text_of(body), x=X))
    assert same(arrays["guard/mask"], X[:2] > 1)
    assert facts["arrays"]["mask"]["violations"] == 1


def test_a_long_form_is_told_on_one_line_and_cut(program: Program) -> None:
    form = "(> (+ x " + " ".join(["x"] * 40) + ")\n   1.0)"
    done = program.run(text_of(f'(guard "g" (count-where {form}))'), x=X)
    told = shown(program, done)[3]
    assert told.startswith("  (> (+ x x x")
    assert told.endswith("x…")
    assert len(told) == 2 + evidence.LONGEST_FORM_SHOWN


# The other forms: (form, columns' change, kept under, as NumPy has it, the line that tells it)

HUGE = 10**30
with np.errstate(divide="ignore"):
    LOGARITHMS = np.log(X[:2])
FORMS: dict[str, tuple[str, dict[str, Any], str, Any, str]] = {
    "not finite": (
        '(assert-finite "g" (/ x 0.0))', {}, "operand", np.array([[np.nan] + [np.inf] * 2, [np.inf] * 3], np.float32),
        "what was looked at: f32[2 3], 1 NaN, 5 +inf, 6 violating: not finite",
    ),
    "not finite below": (
        '(assert-finite "g" (log x))', {}, "operand", LOGARITHMS,
        "what was looked at: f32[2 3], from -1.38629 to 0.223144, 1 -inf, 1 violating: not finite",
    ),
    "past f32": (
        '(assert-finite "g" (:wide batch))', {"wide": np.array([1.0, 1e300] * 6)}, "operand", np.array([1.0, 1e300]),
        "what was looked at: f64[2], from 1 to 1e+300, 1 violating: not finite",
    ),
    "a number that is not finite": (
        '(assert-finite "g" (- inf))', {}, "operand", np.array(-np.inf),
        "what was looked at: f64[] -Infinity, not finite",
    ),
    "below": (
        '(metric "g" (max x) :below 1.25)', {}, "operand", np.array(1.25, np.float32),
        "what was looked at: f32[] 1.25, not < 1.25",
    ),
    "above": (
        '(metric "g" (min x) :above 0 :below 9.0)', {}, "operand", np.array(0.0, np.float32),
        "what was looked at: f32[] 0.0, not > 0.0",
    ),
    "NaN under a bound": (
        '(metric "g" (* nan (min x)) :below 9.0)', {}, "operand", np.array(np.nan, np.float32),
        "what was looked at: f32[] NaN, not < 9.0",
    ),
    "a count": ('(guard "g" (sum x))', {}, "count", X[:2].sum(), "the count: f32[] 3.75"),
    "a negative count": ('(guard "g" (sum (- x)))', {}, "count", -X[:2].sum(), "the count: f32[] -3.75"),
    "a NaN": ('(guard "g" (* nan (sum x)))', {}, "count", np.array(np.nan, np.float32), "the count: f32[] NaN"),
    "an infinite one": (
        '(guard "g" (/ (sum x) 0.0))', {}, "count", np.array(np.inf, np.float32), "the count: f32[] Infinity",
    ),
    "a whole one": ('(guard "g" (sum (:i batch)))', {"i": np.arange(12)}, "count", np.array(1), "the count: i64[] 1"),
    "a number": ('(guard "g" 3)', {}, "count", np.array(3), "the count: i64[] 3"),
    "a number of thirty digits": (f'(guard "g" {HUGE})', {}, "count", np.array(1e30), "the count: f64[] 1e+30"),
    "twice a mask's": (
        '(guard "g" (* 2.0 (count-where (> x 1.0))))', {}, "count", np.array(2, np.float32), "the count: f32[] 2.0",
    ),
    "a mask's along an axis": (
        '(guard "g" (max (count-where (> x 0.0) :axis 0)))', {}, "count", np.array(2, np.float32),
        "the count: f32[] 2.0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FORMS)
def test_what_the_other_forms_looked_at(device_program: Program, what: str) -> None:
    form, columns, name, wanted, line = FORMS[what]
    done = device_program.run(
        text_of(form).replace('"d.npz")', '"d.npz" :dtype {:wide :f64})' if "wide" in columns else '"d.npz")'),
        x=X,
        **columns,
    )
    facts, arrays = kept(done)
    assert facts["where"] == "microbatch 0"
    assert [name for name in arrays if name.startswith("guard/")] == [f"guard/{name}"]
    assert same(arrays[f"guard/{name}"], np.asarray(wanted))
    assert shown(device_program, done)[2] == line


def test_the_elements_of_an_assert_finite_are_told_with_their_places(program: Program) -> None:
    done = program.run(text_of('(assert-finite "g" (log (- 1.0 x)))'), x=X)
    assert shown(program, done)[2:-1] == [
        "what was looked at: f32[2 3], from -1.38629 to 0, 1 NaN, 1 -inf, 2 violating: not finite",
        "  [1 1] -Infinity",
        "  [1 2] NaN",
    ]


# Where a guard stands


def test_a_guard_of_prepare_with_the_microbatch_as_it_left_it(device_program: Program) -> None:
    before = """(prepare (batch)
  (guard "g" (count-where (> (:x batch) 2.5)))
  {:doubled (* 2.0 (:x batch)) :pair [(:x batch) {:n 3}] :none (zeros [0 2])})"""
    text = text_of("", before=before).replace("(x (:x batch))", "(x (:doubled batch))")
    facts, arrays = kept(device_program.run(text, x=X))
    assert (facts["where"], facts["step"]) == ("microbatch 1", 1)
    assert facts["batch"] == {"doubled": "f32[2 3]", "pair/0": "f32[2 3]", "none": "f32[0 2]"}
    assert same(arrays["batch/doubled"], X[2:4] * 2)
    assert same(arrays["batch/pair/0"], X[2:4])
    assert arrays["batch/none"].shape == (0, 2)
    assert same(arrays["guard/compared"], X[2:4])


def test_of_several_calls_of_a_model_the_failing_one(program: Program) -> None:
    before = """(define (inner h) (guard "g" (count-where (> h 2.25))) h)
(model net (x) (inner (* x (param "w" [3] :init ones-init))))"""
    body = "(net (* 0.5 x))\n(net (* 2.0 x))\n(net (* 8.0 x))"
    text = text_of(body, before=before)
    facts, arrays = kept(program.run(text, x=X))
    line = text.splitlines().index("(net (* 2.0 x))") + 1
    assert facts["calls"] == ["inner called at program.sx:3:16", f"net called at program.sx:{line}:1"]
    assert same(arrays["guard/compared"], X[:2] * 2)
    assert facts["counted"] == (X[:2] * 2 > 2.25).sum()
    first, second = X[:2], X[2:4]
    assert facts["count"] == sum((x * k > 2.25).sum() for x in (first, second) for k in (0.5, 2, 8))


def test_of_the_turns_of_a_fold_the_failing_one(device_program: Program) -> None:
    body = '(fold (h x) (i (range 4)) (let ((twice (* 2.0 h))) (guard "g" (count-where (> twice 9.0))) twice))'
    facts, arrays = kept(device_program.run(text_of(body), x=X))
    turns = [X[:2] * 2**i for i in range(1, 5)]
    first = next(t for t in turns if (t > 9).any())
    assert first is turns[2]
    assert same(arrays["guard/compared"], first)
    assert facts["counted"] == (first > 9).sum()


def test_of_two_forms_of_one_series_the_one_that_counted(program: Program) -> None:
    body = '(guard "g" (count-where (> x 9.0)))\n(guard "g" (count-where (= x 0.5)))'
    facts, arrays = kept(program.run(text_of(body), x=X))
    assert facts["source"] == "program.sx:6:1"
    assert same(arrays["guard/mask"], X[:2] == 0.5)


def test_a_bound_of_a_gradient_on_a_sampled_step(device_program: Program) -> None:
    tap = '(tap-gradient (* x w) (lambda (g) (diagnostic "tap" (max g) :reduce :max :below 0.5)))'
    text = text_of(
        "", loss=f"(sum (* 2.0 {tap}))", run=':diagnostics ["tap"] :sample-every 2', optimizer="(sgd :lr 0.0)"
    )
    facts, arrays = kept(device_program.run(text, x=X))
    assert (facts["where"], facts["step"]) == ("microbatch 0", 2)
    assert same(arrays["guard/operand"], np.array(2, np.float32))
    assert arrays["rows"].tolist() == [4, 5]


PASS = '(evaluate held (batch) (guard "g" (count-where (> (:x batch) 8.4))) (output "x" (* 2.0 (:x batch))))'


def test_a_guard_of_a_pass_with_its_ragged_batch(device_program: Program) -> None:
    text = text_of("", before=PASS, run=":evaluate [(held :data d :batch 5 :every 2)]")
    done = device_program.run(text, x=X)
    facts, arrays = kept(done)
    assert (facts["where"], facts["step"]) == ("batch 2", 2)
    assert arrays["rows"].tolist() == [10, 11]
    assert same(arrays["batch/x"], X[10:])
    assert same(arrays["guard/compared"], X[10:])
    assert shown(device_program, done)[-1] == "the batch it came from: x f32[2 3]"


def test_the_rows_of_a_split_are_those_of_the_file(program: Program) -> None:
    text = text_of("", before=PASS, run=":split :a :evaluate [(held :data d :split :b :batch 4 :every 1)]")
    text = text.replace('(npz "d.npz")', '(npz "d.npz") :split {:a 0.5 :b 0.5}')
    x = X + 9
    facts, arrays = kept(program.run(text, x=x))
    assert facts["where"] == "batch 0"
    assert len(arrays["rows"]) == 4
    assert same(arrays["batch/x"], x[arrays["rows"]])  # no two rows are alike
    training = text_of('(guard "g" (count-where (> x 0.0)))', run=":split :a")
    training = training.replace('(npz "d.npz")', '(npz "d.npz") :split {:a 0.5 :b 0.5}').replace(":shuffle off", "")
    _, other = kept(program.run(training, x=x))
    assert same(other["batch/x"], x[other["rows"]])
    assert not set(other["rows"]) & set(arrays["rows"])


def test_a_pass_over_a_generator_shows_what_it_made(device_program: Program) -> None:
    made = "(generator made (n) {:x (normal [n 3])})"
    run = ":evaluate [(held :data made :examples 6 :batch 4)]"
    good = device_program.run(text_of("", before=f"{made}\n{PASS}", run=run), x=X)
    assert good.status == 0
    x = load_file(good.folder / "outputs/held/000003.safetensors")["x"] / 2
    highest = int(x.argmax()) // 3
    bad = PASS.replace("8.4", f"{np.nextafter(x.max(), np.float32(0)):.9g}")
    facts, arrays = kept(device_program.run(text_of("", before=f"{made}\n{bad}", run=run), x=X))
    number = highest // 4
    assert facts["where"] == f"batch {number}"
    assert same(arrays["batch/x"], x[4 * number : 4 * number + 4])
    assert "rows" not in arrays


OPTIMIZER = """(optimizer own (p g :lr 0.5) :state ((m (zeros-like p)))
  FORM
  (update (- p (* lr g)) :m (+ m g)))"""
# the gradient of a parameter is the mean of the microbatches' sums of rows
LINEAR = '(+ (sum (* x w)) (sum (* x (param "v" [3] :init ones-init))))'
GRADIENT = (X[:2].sum(axis=0) + X[2:4].sum(axis=0)) / 2


@pytest.mark.parametrize(
    ("form", "name", "wanted", "told"),
    [
        (
            '(guard "g" (count-where (> g 2.5)))', "compared", GRADIENT,
            "what was compared: f32[3], from 2.25 to 3.25, 2 violating: > 2.5",
        ),
        (
            '(assert-finite "g" (/ g 0.0))', "operand", GRADIENT * np.float32(np.inf),
            "what was looked at: f32[3], 3 +inf, 3 violating: not finite",
        ),
        (
            '(metric "g" (max g) :below 1e9 :above 1e8)', "operand", GRADIENT.max(),
            "what was looked at: f32[] 3.25, not > 100000000.0",
        ),
        ('(guard "g" (min (+ g m)))', "count", GRADIENT.min(), "the count: f32[] 2.25"),
    ],
)  # fmt: skip
def test_a_guard_of_an_optimizer(device_program: Program, form: str, name: str, wanted: Any, told: str) -> None:
    text = text_of("", before=OPTIMIZER.replace("FORM", form), optimizer="(own)", loss=LINEAR)
    done = device_program.run(text, x=X)
    facts, arrays = kept(done)
    assert facts["meta"]["param"] == "w"
    assert (facts["where"], facts["batch"]) == ("", {})
    assert same(arrays[f"guard/{name}"], np.asarray(wanted))
    assert told in shown(device_program, done)


def test_a_guard_of_an_optimizer_for_a_later_parameter(program: Program) -> None:
    form = '(guard "g" (count-where (> (* p g) 5.0)))'
    loss = LINEAR.replace("ones-init", "(constant-init :value 2.0)")
    facts, arrays = kept(
        program.run(text_of("", before=OPTIMIZER.replace("FORM", form), optimizer="(own)", loss=loss), x=X)
    )
    assert facts["meta"]["param"] == "v"
    assert same(arrays["guard/compared"], GRADIENT * 2)
    assert facts["counted"] == facts["count"] == (GRADIENT * 2 > 5).sum()


# The finite guard


def test_a_loss_that_is_not_finite(device_program: Program) -> None:
    x = X.copy()
    x[6, 1] = np.nan
    done = device_program.run(text_of("", loss="(sum (* x w))", optimizer="(sgd :lr 0.0)"), x=x)
    facts, arrays = kept(done)
    assert (facts["code"], facts["step"], facts["where"]) == ("E-GUARD-002", 2, "microbatch 1")
    assert same(arrays["batch/x"], x[6:8])
    assert np.isnan(arrays["guard/operand"])
    assert shown(device_program, done) == [
        "E-GUARD-002: the loss has 1 values that are not finite at step 2",
        "  in microbatch 1, counted from 0",
        "the loss: f32[] NaN, not finite",
        "the microbatch it came from: x f32[2 3]",
    ]


# The loss is the sum of c, its gradient a hundred times c
STEEP = "(sum (* (:c batch) (exp (* 100.0 (- w 1.0)))))"


@pytest.mark.parametrize(
    ("c", "where"), [([0, 0, 1e37, 0], "microbatch 1"), ([3e36, 0, 3e36, 0], "")], ids=["one", "the sum alone"]
)
def test_a_gradient_that_is_not_finite(device_program: Program, c: list[float], where: str) -> None:
    column = np.zeros((ROWS, 1), np.float32)
    column[4:8, 0] = c
    done = device_program.run(text_of("", loss=STEEP), x=X, c=column)
    facts, arrays = kept(done)
    assert (facts["message"], facts["where"]) == ("the gradient of w has 3 values that are not finite at step 2", where)
    assert np.isposinf(arrays["guard/operand"]).tolist() == [True] * 3
    assert facts["arrays"]["operand"]["title"] == "the gradient"
    assert ("batch/c" in arrays) == bool(where)
    if where:
        assert arrays["rows"].tolist() == [6, 7]


@pytest.mark.parametrize(
    ("update", "title", "violations"),
    [
        ("(update (- p (* 1e38 (* 4.0 g))) :m (/ m 0.0))", "the new value", 2),
        ("(update p :m (- (/ g 0.0)))", "the new state m", 3),
    ],
)
def test_an_update_that_is_not_finite(device_program: Program, update: str, title: str, violations: int) -> None:
    """Another parameter's name ends in the name of the one at fault, and its state is not finite either."""
    before = f"(optimizer own (p g) :state ((m (ones-like p))) {update})"
    loss = '(+ (sum (* w (array [0.5 1.0 2.0]))) (sum (* 0.0 (scope "a" (param "w" [3] :init ones-init)))))'
    done = device_program.run(text_of("", before=before, optimizer="(own)", loss=loss), x=X)
    facts, arrays = kept(done)
    assert facts["message"].startswith("the update of w has ")
    figure = facts["arrays"]["operand"]
    assert (figure["title"], figure["violations"]) == (title, violations)
    gradient = np.array([0.5, 1, 2], np.float32)
    with np.errstate(over="ignore"):
        wanted = 1 - np.float32(1e38) * (4 * gradient) if title == "the new value" else gradient * -np.inf
    assert same(arrays["guard/operand"], wanted.astype(np.float32))


# The same bits


def test_what_is_kept_is_of_the_state_before_the_step(device_program: Program) -> None:
    """Two steps of descent, then a guard: the product of the rows with the parameter of checkpoint 2, to the bit."""
    x = np.random.default_rng(5).normal(size=(ROWS, 3)).astype(np.float32)
    x[10] = 7.7
    body = '(guard "g" (count-where (> (* x w) 5.0)))'
    text = text_of(body, loss="(mean (square (* x w)))", optimizer="(sgd :lr 0.01)", run=":checkpoint-every 1")
    done = device_program.run(text, x=x)
    facts, arrays = kept(done)
    w = done.saved(2)["param/w"]
    assert (facts["step"], facts["where"]) == (3, "microbatch 1")
    assert not np.array_equal(w, np.ones(3, np.float32))
    assert same(arrays["guard/compared"], x[10:12] * w)


def test_the_draws_are_those_of_the_step(device_program: Program) -> None:
    """What a state remembers of the same microbatch in a run without the guard."""
    before = "(setting limit 1e9) (prepare (batch) (with batch :noise (normal [2 3])))"
    body = """(let ((h (+ (dropout x 0.5) (:noise batch))))
      (state "seen" [2 3] :init zeros-init) (next "seen" h :reduce :last)
      (guard "g" (count-where (> h limit))))"""
    x = np.ones((ROWS, 3), np.float32)
    x[6:8] = 1000
    text = text_of(body, before=before, run=":checkpoint-every 1 :seed 8")
    good, bad = device_program.run(text, x=x), device_program.run(text, "--set", "limit=500.0", x=x)
    assert (good.status, bad.status) == (0, 3)
    facts, arrays = kept(bad)
    assert (facts["step"], facts["where"]) == (2, "microbatch 1")
    assert same(arrays["guard/compared"], good.saved(2)["state/seen"])
    assert 0 < (arrays["guard/compared"] > 500).sum() < 6
    assert same(arrays["batch/x"], x[6:8])


# Shown


def span_of(text: str) -> Span:
    return Span(Source("a.sx", text), 0, len(text))


FACTS = {"code": "E-GUARD-001", "message": "guard g counted 2 at step 1", "count": 2}


def lines_of(**arrays: Seen) -> list[str]:
    """What is told of these arrays, the error's own line left out."""
    return evidence.shown(FACTS, [], Evidence(arrays=arrays))[1:]


def test_an_empty_array_has_no_range() -> None:
    x = np.zeros((0, 3), np.float32)
    part = Part("operand", "what was looked at", None, "not finite")
    assert lines_of(operand=Seen(part, x, x > 0)) == ["what was looked at: f32[0 3], 0 violating: not finite"]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_real_is_told_in_the_digits_of_its_type(dtype: str) -> None:
    x = np.array([0.1, np.inf], dtype)
    bits = x.dtype.itemsize * 8
    told = lines_of(count=Seen(Part("count", "it", None), x, np.ones(2, bool)))
    assert told == [f"it: f{bits}[2], from 0.1 to 0.1, 1 +inf, 2 violating", "  [0] 0.1", "  [1] Infinity"]


def test_a_whole_number_is_told_whole() -> None:
    x = np.array([2**24 + 1, -(2**53) - 1], np.int64)
    told = lines_of(count=Seen(Part("count", "it", None), x, x > 0))
    assert told == ["it: i64[2], from -9007199254740993 to 16777217, 1 violating", "  [0] 16777217"]


def test_where_nothing_is_found_again_it_is_said() -> None:
    calls = [("net", span_of("(net x)"))]
    assert evidence.shown(FACTS, calls, Evidence()) == [
        "E-GUARD-001: guard g counted 2 at step 1",
        "  in net called at a.sx:1:1",
        "computed again, it does not violate: this device does not give the same bits twice",
    ]


def test_at_the_prompt_the_turn_that_failed_is_shown() -> None:
    session = Session(device="cpu")
    session.respond(
        '(fold (h 1.0) (i (range 4)) (let ((twice (* (array 2.0) h))) (guard "g" (count-where (> twice 5.0))) twice))'
    )
    told = session.respond(",value")
    assert "what was compared: f32[] 8.0, > 5.0" in told
    session.close()
