"""E-EVAL from 015 on: a form means nothing where it stands, in a graph, a file or a curriculum."""

from __future__ import annotations

from sxi.codes.entry import entry

GRAPH_TOO_LARGE = entry(
    "EVAL-015",
    "the graph has more than {limit} operations",
    "A fold in a graph is unrolled: each turn records its operations. A turn a thousand times over is a shape.",
    help="make the turns fewer, or one operation on a larger array of them",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (fold (x (@ (:x batch) (param "w" [3 1] :init zeros-init))) (i (range 250_000))
        ; ^ E-EVAL-015
            (mean x)))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (fold (x (@ (:x batch) (param "w" [3 1] :init zeros-init))) (i (range 25))
            (mean x)))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
WRONG_SETTING = entry(
    "EVAL-016",
    "setting {name}: {what}",
    "A setting is a constant, and it is overridden by a constant of the same kind.",
    breaks="""
        (setting rates (ones [3]))
        ;              ^ E-EVAL-016
    """,
    fixed="""
        (setting rates [1.0 1.0 1.0])
    """,
)
BAD_IMPORT = entry(
    "EVAL-017",
    "{what}",
    "An import is of a file beside the importing one, which does not import it in turn.",
    breaks="""
        (import "example.sx") ; in example.sx
        ;       ^ E-EVAL-017
    """,
    fixed="""
        (define width 3) ; in example.sx
    """,
)
TOP_LEVEL_ONLY = entry(
    "EVAL-018",
    "{form} stands at the top level of a file only",
    "A declaration describes the run as a whole, so it cannot stand inside another form.",
    breaks="""
        (define (f x) (run r :steps 1))
        ;             ^ E-EVAL-018
    """,
    fixed="""
        (define (f x) x)
    """,
    help="write it at the top level of the file",
)
UNKNOWN_PARAMETER = entry(
    "EVAL-019",
    "there is no parameter {name}: {known}",
    "Without a shape, `param` names an existing parameter by its full name, model and scopes included.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (model net (x)
          (@ x (param "w" [3 1] :init zeros-init)))
        (objective (batch)
          (+ (mean (square (net (:x batch)))) (sum (square (param "w")))))
          ;                                                ^ E-EVAL-019
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (model net (x)
          (@ x (param "w" [3 1] :init zeros-init)))
        (objective (batch)
          (+ (mean (square (net (:x batch)))) (sum (square (param "net/w")))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
NO_DRAWS = entry(
    "EVAL-020",
    "a file's top level draws no random numbers: {form}",
    "A draw is a function of the run's seed, the step and the place in a graph; at the top level of a file "
    "there is no step. Draw in a generator, an initializer, `prepare` or the model.",
    breaks="""
        (define x (normal [3]))
        ;         ^ E-EVAL-020
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
    """,
    help="draw in a generator, an initializer, prepare or the model",
)
ESCAPED = entry(
    "EVAL-021",
    "an array of one graph is used in another",
    "A graph's arrays exist while it runs; a parameter or a state carries values from one graph to the next.",
)
OUT_OF_MEMORY = entry(
    "EVAL-022",
    "there is no memory for {type}",
    "The array does not fit the memory of the machine.",
)
OUT_OF_PLACE = entry(
    "EVAL-023",
    "{form} stands {where}, where it means nothing; it belongs to {wanted}",
    "Each of these forms is about the graph it stands in: an update is an optimizer's, an output a pass's.",
    breaks="""
        (define x (step))
        ;         ^ E-EVAL-023
    """,
    fixed="""
        (define (rate) (* 0.1 (step)))
    """,
)
UNKNOWN_STATE = entry(
    "EVAL-024",
    "there is no state {name}: {known}",
    "`next` gives a value to a state that a `state` form has declared, under the same scopes. `reading` reads a "
    "state that the parameter's optimizer keeps, of the parameter's own type: (adamw :lr 1e-3 :ema 0.999) keeps `ema`.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (next "centre" (mean (:x batch) :axis 0))
          ;              ^ E-EVAL-024
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((centre (state "centre" [3] :init zeros-init)))
            (next "centre" (mean (:x batch) :axis 0))
            (mean (square (@ (- (:x batch) centre) (param "w" [3 1] :init zeros-init))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
)
SEVERAL_SERIES = entry(
    "EVAL-025",
    "{name} is several series: {series}",
    "`reported` reads one series; metadata or several passes make several of one name. `:pass` names a pass.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((y (@ (:x batch) (param "w" [3 1] :init zeros-init))))
            (metric "size" (norm (:x batch)) :of :input)
            (metric "size" (norm y) :of :output)
            (mean (square y))))
        (curriculum
          (stage "first" :until (> (reported "size") 2.0))
          ;                                  ^ E-EVAL-025
          (stage "rest"))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((y (@ (:x batch) (param "w" [3 1] :init zeros-init))))
            (metric "input/size" (norm (:x batch)))
            (metric "output/size" (norm y))
            (mean (square y))))
        (curriculum
          (stage "first" :until (> (reported "output/size") 2.0))
          (stage "rest"))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    help="name a pass with :pass, or report each under a name of its own",
)
STAGE_CHANGES_STATE = entry(
    "EVAL-026",
    "stage {stage} changes {what} from {first} to {second}",
    "A stage goes on with the parameters and states of the one before, so these must have the same names and types.",
    breaks="""
        (setting width 1)
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 width] :init zeros-init)))))
        (curriculum
          (stage "narrow" :until (> (stage-step) 5))
          (stage "wide" :set {:width 2}))
        ; ^ E-EVAL-026
        (run r :data points :steps 9 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (setting rate 0.1)
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
        (curriculum
          (stage "fast" :until (> (stage-step) 5))
          (stage "slow" :set {:rate 0.01}))
        (run r :data points :steps 9 :batch 4 :optimizer (sgd :lr rate))
    """,
    help="set only what no shape and no name depends on",
)
