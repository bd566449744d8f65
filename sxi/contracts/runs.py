"""The rules of a run and its curriculum: E-CONTRACT-023 to 026."""

# ruff: noqa: ARG001 -- a fact may be there for the message alone

from __future__ import annotations

from sxi.contracts.rule import rule


@rule(
    23,
    "the fullest step reports {count} values, past the :report-limit of {limit}",
    help="report less in loops, or raise the limit: :report-limit {count}",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (fold (x (:x batch)) (layer (range 3))
            (metric "layer/mean" (mean x) :layer layer)
            (* x 0.5))
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :report-limit 2)
          ;             ^ E-CONTRACT-023
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (fold (x (:x batch)) (layer (range 3))
            (metric "layer/mean" (mean x) :layer layer)
            (* x 0.5))
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :report-limit 20)
    """,
)
def run_reports_within_its_limit(count: int, limit: int) -> bool:
    """Each name with its metadata is a series, each guard one too, and a loop makes many of them without
    looking like it. A run that writes tens of thousands of values a step spends its time and its disk on
    them, and nobody reads them; the limit is there to have that noticed before the first step.

    `sxi explain FILE` lists the series. Reduce over the loop, or report a diagnostic on sampled steps.
    """
    return count <= limit


def _metric_in_words(name: str, kind: str | None, of_pass: str) -> str:
    return f"{name} of the pass {of_pass}" if of_pass else name


def _repair_of_reading(name: str, kind: str | None, of_pass: str) -> str:
    if kind == "guard":
        return "a guard stops the run by itself; to steer by its count, report that with metric too"
    if kind == "diagnostic":
        return "report the value with metric, which every step has"
    return ""


@rule(
    24,
    "the curriculum reads {name}, which is not a metric",
    name=_metric_in_words,
    help=_repair_of_reading,
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (diagnostic "train/loss" loss)
            loss))
        (curriculum
          (stage "first" :until (reported "train/loss"))
          ;                               ^ E-CONTRACT-024
          (stage "rest"))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((loss (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init))))))
            (metric "train/loss" loss)
            loss))
        (curriculum
          (stage "first" :until (reported "train/loss"))
          (stage "rest"))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
def the_curriculum_reads_metrics(name: str, kind: str | None, of_pass: str = "") -> bool:
    """The curriculum decides what is trained next, so what it reads must be the same in every run of the file.
    A metric is reported at every step or pass. A diagnostic is there only where the run selects and samples
    it, and looking must not change what is looked at. A guard is zero for as long as there is a run.

    Report what the decision rests on as a metric, in training or in a pass.
    """
    return kind == "metric"


@rule(
    25,
    "the run cannot be made: {what}",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :microbatches 3)
          ;             ^ E-CONTRACT-025
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1)
          :microbatches 2)
    """,
)
def run_options_are_consistent(what: str) -> bool:
    """The file alone says what a run does, so all of it is there, fits together and is spelled as the run knows
    it: an option that is quietly ignored, or rounded until it fits, would be a run other than the one that was
    written. The ranks divide the microbatches and these the batch, so that all chunks are equal and the mean
    over them is the mean over the batch. For the same reason there is at most one objective, `prepare`
    and curriculum.

    The message says what does not fit, and the repair names a value that does.
    """
    return not what


@rule(
    26,
    "the optimizer's groups do not fit the parameters: {what}",
    help='end the list with a group that takes the rest: (group "rest" "*" …); sxi explain FILE lists the names',
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4
          :optimizer [(group "weights" "*/w" (sgd :lr 0.1))
                      ;                ^ E-CONTRACT-026
                      (group "rest" "*" (sgd :lr 0.2))])
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4
          :optimizer [(group "weights" "w" (sgd :lr 0.1))])
    """,
)
def every_parameter_has_a_group(what: str) -> bool:
    """Groups give some parameters another optimizer or other settings. A parameter that no group takes would
    stay at its first value for the whole run, and a glob that matches nothing is nearly always a misspelled
    name, whose parameters then go to another group unnoticed.

    A parameter is taken by the first group whose glob matches its full name, `net/block0/w`; `*` matches any
    characters, `/` too.
    """
    return not what
