"""The rules of where reporting forms and guards stand and what they count: E-CONTRACT-016 to 022."""

# ruff: noqa: ARG001 -- a fact may be there for the message alone

from __future__ import annotations

from math import isnan

from sxi.arraytype import ArrayType
from sxi.contracts.rule import is_number, is_numeric_scalar, rule

_WITHOUT_A_STEP = ("generator", "initializer", "curriculum")
# reporting form -> the contexts that refuse it
_REPORTS_NOTHING = {"metric": _WITHOUT_A_STEP, "diagnostic": ("initializer", "curriculum")}
# A longer operand is left out of a repair, which is one line.
_LONGEST_OPERAND = 60


@rule(
    16,
    "{form} stands in no graph, so there is no step that it could report",
    help="move it into the objective, the model, prepare, evaluate or an optimizer",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (define rate (metric "lr" 0.1 :above 0.0))
        ;            ^ E-CONTRACT-016
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr rate))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (define rate 0.1)
        (objective (batch)
          (metric "lr" rate :above 0.0)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr rate))
    """,
)
def reporting_stands_in_a_graph(form: str, context: str | None) -> bool:
    """A metric, a diagnostic and a guard report what happens in a step or a pass, and a guard stops the run
    there. The top of a file is evaluated once, before there is any step, so what stands there would report
    nothing and stop nothing.

    Write it in the graph whose value it watches. A function that holds it may be defined anywhere and
    called from there. At the prompt each input counts as a step.
    """
    return context is not None


@rule(
    17,
    "{form} stands in the lambda of tap-gradient, which holds diagnostics only",
    help="report the gradient with (diagnostic …), and bound that: :below 9.0",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((w (tap-gradient (param "w" [3 1] :init zeros-init)
                     (lambda (g)
                       (guard "gradient/large" (count-where (> (abs g) 9.0)))))))
                     ; ^ E-CONTRACT-017
            (mean (square (@ (:x batch) w)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :diagnostics ["gradient/*"] :sample-every 1)
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((w (tap-gradient (param "w" [3 1] :init zeros-init)
                     (lambda (g)
                       (diagnostic "gradient/large" (max (abs g)) :reduce :max :below 9.0)))))
            (mean (square (@ (:x batch) w)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :diagnostics ["gradient/*"] :sample-every 1)
    """,
)
def a_tap_holds_diagnostics_only(form: str) -> bool:
    """The gradient that a tap looks at is handed to it on sampled steps only. A guard or a metric promises a
    number at every step, and between the samples the tap could not keep that promise: a flat zero would
    mean nothing.

    A diagnostic is by its nature sampled, and its bound with it: bound the gradient's norm or its largest
    element. To stop at every step where a gradient is not finite, leave `:guard-finite` on.
    """
    return form == "diagnostic"


@rule(
    18,
    "{form} stands in the {context}, which reports nothing",
    help="report the value from the objective, prepare or evaluate, where it is used",
    breaks="""
        (generator points (n)
          (let ((x (normal [n 3])))
            (metric "points/largest" (max x) :reduce :max)
          ; ^ E-CONTRACT-018
            {:x x}))
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n)
          (let ((x (normal [n 3])))
            {:x x}))
        (objective (batch)
          (metric "points/largest" (max (:x batch)) :reduce :max)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def these_contexts_report_nothing(form: str, context: str | None) -> bool:
    """A point of a series belongs to a step or a pass. An initializer runs before the first step, the
    curriculum between steps, and a generator's examples are made ahead of the step that uses them and again
    for every pass, so none of them has a number of its own to report under.

    Report the value where the step uses it. A diagnostic in a generator is allowed, so that a function may
    be shared, and reports nothing there.
    """
    return context not in _REPORTS_NOTHING.get(form, ())


@rule(
    19,
    "{form} stands in the {context}, which has no step to stop",
    help="guard the value where a step uses it: in prepare, the objective, the model or an optimizer",
    breaks="""
        (generator points (n)
          (let ((x (normal [n 3])))
            (guard "points/far" (count-where (> (abs x) 9.0)))
          ; ^ E-CONTRACT-019
            {:x x}))
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n)
          (let ((x (normal [n 3])))
            {:x x}))
        (prepare (batch)
          (guard "points/far" (count-where (> (abs (:x batch)) 9.0)))
          batch)
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def guard_has_a_step(form: str, context: str | None) -> bool:
    """A guard stops the run at the step where its count is not zero, and the error names that step. A
    generator, an initializer and the curriculum run outside of steps: a guard there could count, and there
    would be nothing for it to stop. The same holds when the guard stands in a function that one of them
    calls, and for a metric's bound, which is a guard.

    Guard the value where it is used: `prepare` sees every microbatch that a generator made, and the
    objective every parameter that an initializer filled.
    """
    return context not in _WITHOUT_A_STEP


def _repair_of_count(name: str, count: object, text: str) -> str:
    text = " ".join(text.split())
    if not text or len(text) > _LONGEST_OPERAND:
        text = "…"
    if isinstance(count, ArrayType):
        return f"sum the counts: (sum {text})" if count.is_numeric else f"count the mask: (count-where {text})"
    return f"count it: (count-where {text})" if isinstance(count, bool) else ""


@rule(
    20,
    "the count of guard {name} is {count!r}, and a count is a numeric scalar",
    help=_repair_of_count,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (guard "loss/high" (> loss 9.0))
            ;                  ^ E-CONTRACT-020
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (guard "loss/high" (count-where (> loss 9.0)))
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def count_is_a_number(name: str, count: object, text: str = "") -> bool:
    """A guard's counts are added up: over the microbatches of a step, over the ranks, over the batches of a
    pass. A bool is not a count, since true and true do not add up to two violations, and an array does not
    say whether its elements or their number is meant.

    `count-where` gives the number of true elements of a mask, in f32; for an array of counts, take its
    `sum`.
    """
    return is_numeric_scalar(count)


def _wanted_operand(form: str, operand: object) -> str:
    return "a bool array, whose true elements it counts" if form == "count-where" else "numbers"


def _repair_of_operand(form: str, operand: object) -> str:
    if form == "count-where":
        return "make a mask of it by a comparison: (count-where (> … 0.0))"
    return "test the numbers that the mask was made from"


@rule(
    21,
    "the operand of {form} is {operand!r}, and it takes {wanted}",
    wanted=_wanted_operand,
    help=_repair_of_operand,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (guard "points/far" (count-where (abs (:x batch))))
          ;                                ^ E-CONTRACT-021
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (guard "points/far" (count-where (> (abs (:x batch)) 9.0)))
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def counts_take_the_right_operand(form: str, operand: object) -> bool:
    """`count-where` counts what is true. A number is neither true nor false, and whether a small one is
    a violation is for the program to say, by a comparison. `assert-finite` tests numbers for NaN and
    infinity; a mask holds neither, so the test could never fail and would guard nothing.

    Compare before counting, and test the numbers before comparing.
    """
    if form == "count-where":
        return operand.dtype == "bool" if isinstance(operand, ArrayType) else isinstance(operand, bool)
    return operand.is_numeric if isinstance(operand, ArrayType) else is_number(operand)


def _repair_of_bound(form: str, key: str, value: object, text: str) -> str:
    if form not in ("metric", "diagnostic"):
        given = "bound" if key in ("below", "above") else f":{key}"
        return f"{form} counts by itself and takes no {given}; metric and diagnostic do"
    if isinstance(value, float):
        return "nothing is above or below nan, so every value would count: write a number"
    if not isinstance(value, ArrayType):
        return f"write a number that is known before the first step: :{key} 9.0"
    comparison = ">=" if key == "below" else "<="
    bound = text if 0 < len(text) <= _LONGEST_OPERAND else "bound"
    return f"compare with an array in a guard: (guard … (count-where ({comparison} value {bound})))"


@rule(
    22,
    "{form} takes no :{key} {value!r}",
    help=_repair_of_bound,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :below (max (:x batch)))
            ;                                ^ E-CONTRACT-022
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :below 20.0)
            (guard "train/loss" (count-where (>= loss (max (:x batch)))))
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def bound_is_a_static_number(form: str, key: str, value: object, text: str = "") -> bool:
    """A bound is part of what the program promises, so it is a number known before the first step: a literal,
    a setting, an expression of host values. NaN is none, since no value is above or below it. A `guard` and
    an `assert-finite` are counts already, so they take no bound, and counts are summed, so they take no
    `:reduce`.

    To compare with what the graph computes, write a guard that counts where the comparison fails.
    """
    if form not in ("metric", "diagnostic"):
        return False
    return is_number(value) and not (isinstance(value, float) and isnan(value))
