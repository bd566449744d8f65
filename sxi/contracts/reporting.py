"""The rules of names, metadata and values: E-CONTRACT-001 to 007."""

# ruff: noqa: ARG001 -- a fact may be there for the message alone

from __future__ import annotations

import re

from sxi.contracts.rule import is_numeric_scalar, keyword_name, rule
from sxi.suggest import suggest

_NAME = re.compile(r"[A-Za-z0-9/_.-]+")
REDUCTIONS = ("mean", "sum", "min", "max", "last")
OF_THE_RUNTIME = ("split", "pass", "stage", "param", "step", "rank")


def _repair_of_name(form: str, name: object) -> str:
    if not isinstance(name, str):
        return 'a name is a string that is known before the first step, as (str "layer" 3) is'
    if name.startswith("guard/"):
        return "guard/ begins the series of guards: choose another beginning"
    repaired = re.sub(r"[^A-Za-z0-9/_.-]+", "-", name).strip("-")
    advice = f'write "{repaired}": ' if re.search("[A-Za-z0-9]", repaired) else ""
    return f"{advice}a name is of letters, digits and / _ - ."


@rule(
    1,
    "{form} cannot be named {name!r}",
    help=_repair_of_name,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train loss" loss)
            ;       ^ E-CONTRACT-001
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss)
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def name_is_valid(form: str, name: object) -> bool:
    """A name is a key: of a series in the stream, of a parameter in a checkpoint, of a file in the
    run's folder. So it is known before the first step, and it holds only letters, digits and
    `/ _ - .`, which every one of these places can hold and an error can print without quotes.

    `guard/` begins the series of guards, so no metric and no diagnostic takes such a name. A name
    that differs from turn to turn of a loop is made with `str`, or the turn is given as metadata.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return False
    return not (form in ("metric", "diagnostic") and name.startswith("guard/"))


@rule(
    2,
    "the metadata of {form} is not in pairs: {what}",
    help="write each keyword once, its value after it: :layer 3",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :layer)
            ;                         ^ E-CONTRACT-002
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :layer 1)
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def metadata_is_pairs(form: str, what: str) -> bool:
    """What follows the value of a reporting form says which of the values of that name this one is.
    Each item is a keyword and its value, and each keyword comes once: with two values for one
    keyword there would be no telling which series a point belongs to.
    """
    return not what


@rule(
    3,
    "the metadata :{key} of {form} is {value!r}, and metadata is static",
    help="give a number, string, keyword or bool known before the first step; report the array itself with metric",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :positive (count-where (> (:x batch) 0.0)))
            ;                                   ^ E-CONTRACT-003
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :examples (dim (:x batch) 0))
            (metric "points/positive" (count-where (> (:x batch) 0.0)))
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def metadata_is_static(form: str, key: str, value: object) -> bool:
    """A name and its metadata are one series, and every series is known before the first step. A
    number that is computed by the graph exists only in a step, so it cannot say which series it
    is in; nor can a list, a record or nil, which have no place in a message's `layer=3`.

    Use a number, a string, a keyword or a bool: a loop's variable, a length, a setting.
    """
    return isinstance(value, bool | int | float | str) or keyword_name(value) is not None


def _repair_of_value(form: str, name: str, value: object) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return ""
    if not getattr(value, "is_numeric", True):
        return "count the mask with (count-where …), or take its share with (mean (cast … :f32))"
    return "reduce it to one number: (mean …), (max …), (sum …) or (norm …)"


@rule(
    4,
    "the value of {form} {name} is {value!r}, and a value is a numeric scalar",
    help=_repair_of_value,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (metric "points/radius" (norm (:x batch) :axis -1))
          ;                       ^ E-CONTRACT-004
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (metric "points/radius" (max (norm (:x batch) :axis -1)) :reduce :max)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def value_is_a_numeric_scalar(form: str, name: str, value: object) -> bool:
    """A series has one number a step, and a bound is compared with one number. How an array becomes
    one is a choice that only its author can make: its mean and its largest element are different
    news.

    Reduce the array in the form, and cast or count a mask.
    """
    return is_numeric_scalar(value)


def _repair_of_reduce(form: str, name: str, reduce: object) -> str:
    near = suggest(keyword_name(reduce) or str(reduce), REDUCTIONS)
    return f"did you mean :{near}?" if near else f"write one of {' '.join([f':{r}' for r in REDUCTIONS])}"


@rule(
    5,
    "{form} {name} is reduced by {reduce!r}, which is not a reduction",
    help=_repair_of_reduce,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :reduce :average)
            ;                                 ^ E-CONTRACT-005
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :reduce :mean)
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def reduce_is_known(form: str, name: str, reduce: object) -> bool:
    """A step computes the value once in each microbatch, on each rank and at each turn of a loop, and
    `:reduce` says how these become the one number of the step. The run knows five ways, and it must
    know the way before the first step, so the keyword is written out.

    Write `:mean` (what stands for no `:reduce`), `:sum`, `:min`, `:max` or `:last`.
    """
    return keyword_name(reduce) in REDUCTIONS


@rule(
    6,
    "{name} is a {kind} reduced by :{reduce}, and elsewhere a {first_kind} by :{first_reduce}",
    help="give one of the two another name, or make them alike",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((r (norm (:x batch) :axis -1)))
            (metric "points/radius" (max r) :reduce :max)
            (diagnostic "points/radius" (min r) :reduce :min)
          ; ^ E-CONTRACT-006
            (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((r (norm (:x batch) :axis -1)))
            (metric "points/radius-max" (max r) :reduce :max)
            (diagnostic "points/radius-min" (min r) :reduce :min)
            (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def one_name_one_kind(name: str, kind: str, reduce: str, first_kind: str, first_reduce: str) -> bool:
    """Whoever reads a series by its name must know what its numbers are. A metric is there at every
    step and a diagnostic at sampled ones, and a mean beside a maximum under one name would be read as
    one curve.

    Forms of one name may stand in several places, with other metadata too, as long as they are of one
    kind and reduce alike. A guard may share the name: its series is `guard/NAME`.
    """
    return (kind, reduce) == (first_kind, first_reduce)


@rule(
    7,
    "the metadata :{key} of {form} is written by the runtime",
    help="choose another keyword: split, pass, stage, param, step and rank are taken",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :stage 1)
            ;                         ^ E-CONTRACT-007
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss :block 1)
            loss))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def metadata_is_not_the_runtimes(form: str, key: str) -> bool:
    """A run adds to each series where it came from: the split, the pass, the stage of the curriculum, the
    optimizer's group. It keeps these words, and `step` and `rank` with them, so that a reader of the
    stream can trust that they were not written by the program.

    Take another word for your own.
    """
    return key not in OF_THE_RUNTIME
