"""The rules of what a graph is and makes: E-CONTRACT-008 to 015."""

# ruff: noqa: ARG001 -- a fact may be there for the message alone

from __future__ import annotations

from collections.abc import Mapping

from sxi.arraytype import ArrayType
from sxi.contracts.rule import is_numeric_scalar, rule, written

# What is made for a parameter or a state, whose type is that of the parameter or the state.
OF_ITS_TYPE = ("first value", "next value")


@rule(
    8,
    "the objective gives {loss!r}, and a loss is a numeric scalar",
    help="reduce what it gives to one number, the loss of the microbatch: (mean …)",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))
        ; ^ E-CONTRACT-008
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def objective_is_a_numeric_scalar(loss: object) -> bool:
    """Training moves the parameters down the gradient of one number. An array of losses has no gradient,
    only one for each element, and a bool or a record has none at all.

    The last form of the objective is the loss: take the mean over the examples, or the sum of the
    losses that you mean to add.
    """
    return is_numeric_scalar(loss)


def _repair_of_branch(form: str, test: object) -> str:
    if form in ("and", "or", "not"):
        return f"combine arrays elementwise: (logical-{form} …)"
    return "choose by an array with (where test a b)"


@rule(
    9,
    "{form} tests an array, and a graph never reads an array's numbers",
    help=_repair_of_branch,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (if (> loss 9.0) 9.0 loss)))
            ;   ^ E-CONTRACT-009
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (where (> loss 9.0) 9.0 loss)))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def branches_are_static(form: str, test: object) -> bool:
    """A graph is recorded once, before its first step, and runs as recorded in every step. `if` and its
    like choose while it is recorded, when an array has a type but no numbers yet, so they can test a
    setting, a length or a loop's variable, and not an array.

    `where` computes both sides and takes each element from one of them, step by step.
    """
    return not isinstance(test, ArrayType)


@rule(
    10,
    "a length or bound that {form} takes is {value}, and a graph's shapes are static",
    help="take it from a host value: a number, a setting, (dim x 0) or (shape x)",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((far (count-where (> (:x batch) 1.0))))
            (+ (mean (zeros [far]))
               ;             ^ E-CONTRACT-010
               (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((all (dim (:x batch) 0)))
            (+ (mean (zeros [all]))
               (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def shapes_are_static(form: str, value: object) -> bool:
    """Every shape of a graph is known before its first step: that is how shapes are checked then, and how
    memory is laid out once. A length computed by the graph would differ from step to step.

    Use a host value, and where the number of elements depends on the data, keep them all and mask:
    `where` puts a zero for those that do not count.
    """
    if isinstance(value, list | tuple):
        return not any(isinstance(item, ArrayType) for item in value)
    return not isinstance(value, ArrayType)


# Where parameters can be read: elsewhere no walk of a model has come before.
_READ_PARAMETERS = frozenset({"objective", "evaluate", "optimizer"})


def _where_it_is_made(form: str, context: str) -> str:
    if context in _READ_PARAMETERS:
        return "make it in the model or the objective; here, name an existing parameter without a shape"
    return "make it and read it in the model or the objective: before these are walked, no parameter exists"


@rule(
    11,
    "{form} stands in the {context}, which makes no parameter and no state",
    help=_where_it_is_made,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (evaluate held (batch)
          (metric "held/loss" (mean (square (@ (:x batch) (param "v" [3 1] :init zeros-init))))))
          ;                                               ^ E-CONTRACT-011
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :evaluate [(held :data points :examples 8 :batch 4 :every 1)])
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (evaluate held (batch)
          (metric "held/loss" (mean (square (@ (:x batch) (param "w"))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :evaluate [(held :data points :examples 8 :batch 4 :every 1)])
    """,
)
def parameters_are_made_by_the_model(form: str, context: str) -> bool:
    """What is trained is what the objective's walk finds, in it and in the models it calls. A parameter
    made in an evaluation, a generator or an optimizer would never get a gradient, and it would first
    exist in the middle of a run.

    Elsewhere `(param "net/w")`, the full name without a shape, gives the one that the model made.
    """
    return context in ("objective", "model")


def _conflict_in_words(name: str, what: str, first: object, second: object, form: str) -> str:
    one, other = (x if isinstance(x, str) else written(x) for x in (first, second))
    if what in OF_ITS_TYPE:
        return f"is {one}, and its {what} is {other}"
    return f"has {what} {one} and also {what} {other}"


def _repair_of_conflict(name: str, what: str, first: object, second: object, form: str) -> str:
    if what in OF_ITS_TYPE:
        return f"make it {first}"
    return "give the two different names, or declare them alike"


@rule(
    12,
    "{form} {name} {conflict}",
    conflict=_conflict_in_words,
    help=_repair_of_conflict,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((a (@ (:x batch) (param "w" [3 1] :init zeros-init)))
                (b (@ (:x batch) (param "w" [3 2] :init zeros-init))))
                ;                ^ E-CONTRACT-012
            (mean (square (+ a b)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((a (@ (:x batch) (param "w" [3 1] :init zeros-init)))
                (b (@ (:x batch) (param "v" [3 2] :init zeros-init))))
            (mean (square (+ a b)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def a_parameter_is_declared_alike(name: str, what: str, first: object, second: object, form: str = "parameter") -> bool:
    """The same name is the same parameter, wherever it is written, so that a model can be called from
    several places. Then its shape, its type and its initializer must be the same in all of them, and
    what the initializer makes must be of that shape and type.

    Two parameters need two names: `scope` puts one before all that are made in it.
    """
    return first == second


@rule(
    13,
    "the body of optimizer {name} does not end in its update: {what}",
    help="end it in (update new-p :state new-state …), every declared state once",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (optimizer downhill (p g :lr 0.1)
          (- p (* lr g)))
        ; ^ E-CONTRACT-013
        (run r :data points :steps 2 :batch 4 :optimizer (downhill :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (optimizer downhill (p g :lr 0.1)
          (update (- p (* lr g))))
        (run r :data points :steps 2 :batch 4 :optimizer (downhill :lr 0.1))
    """,
)
def an_optimizer_ends_in_update(name: str, what: str) -> bool:
    """An optimizer's body gives the new parameter and the new value of each of its states, and nothing of
    them is committed before the verdict of the step. `update` names them, so that a state left out is a
    mistake found before the first step and not one that stands still for the whole run.

    The new parameter has the shape and type of the old one; for a state that does not change, give it back.
    """
    return not what


def _sizes_in_words(name: str, sizes: Mapping[str, int | None], asked: int | None) -> str:
    rows = [f":{key} has {'none' if size is None else size}" for key, size in sizes.items()]
    return ", ".join(rows) + (f", and {asked} examples were asked for" if asked is not None else "")


@rule(
    14,
    "the arrays of {name} have not one leading size: {listed}",
    listed=_sizes_in_words,
    help="give every array one row for each example",
    breaks="""
        (generator points (n)
          {:x (normal [n 3]) :weight (ones [3])})
        ; ^ E-CONTRACT-014
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n)
          {:x (normal [n 3]) :weight (ones [n])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def leading_sizes_agree(name: str, sizes: Mapping[str, int | None], asked: int | None = None) -> bool:
    """A run takes examples by their number: the same rows of every array go into one microbatch. So all the
    arrays that it iterates over have as many rows as there are examples, along their first axis.

    What is not one for each example, as a table that all examples share, belongs into a `define` or a data
    source of its own, which is read by its name.
    """
    found = {*sizes.values(), *([] if asked is None else [asked])}
    return len(found) == 1 and None not in found


@rule(
    15,
    "{form} stands in the {context}, and a graph does nothing to the host",
    help="report a number with metric, write an array with output in evaluate; declare at the top of the file",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (print loss)
          ; ^ E-CONTRACT-015
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
def graphs_do_nothing_to_the_host(form: str, context: str | None) -> bool:
    """A graph is walked once and then runs as recorded: a `print` in it would print once, before the first
    step, a type without numbers. `import`, a top-level `define` and `run` change what the program is, which
    is settled by then.

    They stand at the top of a file or at the prompt. What a step computes is seen through `metric`,
    `diagnostic` and `output`.
    """
    return context is None
