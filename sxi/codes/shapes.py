"""E-SHAPE and E-DTYPE: shapes or types do not fit.  The message follows the call and the types of its arguments."""

from __future__ import annotations

from sxi.codes.entry import entry

SHAPES_DIFFER = entry(
    "SHAPE-001",
    "{left} and {right} differ",
    "Shapes broadcast when, aligned at their last axes, each pair of lengths is equal or one of them is 1.",
    breaks="""
        (define x (ones [64 128]))
        (define y (@ x (ones [64 10])))
        ;         ^ E-SHAPE-001
    """,
    fixed="""
        (define x (ones [64 128]))
        (define y (@ x (ones [128 10])))
    """,
)
AXIS_OUT_OF_RANGE = entry(
    "SHAPE-002",
    "{axis} is not one of its {ndim} axes",
    "An axis counts from 0, or from the end as a negative number, and the array must have it.",
    breaks="""
        (define x (sum (ones [3 4]) :axis 2))
        ;                                 ^ E-SHAPE-002
    """,
    fixed="""
        (define x (sum (ones [3 4]) :axis 1))
    """,
)
WRONG_SIZE = entry(
    "SHAPE-003",
    "its {given} elements do not make {wanted}",
    "A reshape keeps every element: the product of the new lengths is that of the old ones.",
    breaks="""
        (define x (reshape (ones [3 4]) [5 2]))
        ;                               ^ E-SHAPE-003
    """,
    fixed="""
        (define x (reshape (ones [3 4]) [6 2]))
    """,
)
WRONG_NDIM = entry(
    "SHAPE-004",
    "expected {wanted} axes, not {ndim}",
    "The operation is defined for arrays with that many axes.",
    breaks="""
        (define x (@ (ones [3]) 2.0))
        ;                       ^ E-SHAPE-004
    """,
    fixed="""
        (define x (* (ones [3]) 2.0))
    """,
)
OUT_OF_BOUNDS = entry(
    "SHAPE-005",
    "{what} {given} is not within {low} to {high}",
    "What is known before the first step is checked there: a slice's ends, a length, a number of parts.",
    breaks="""
        (define x (slice (ones [3 4]) 1 2 9))
        ;                                 ^ E-SHAPE-005
    """,
    fixed="""
        (define x (slice (ones [3 4]) 1 2 4))
    """,
)
NOTHING_TO_REDUCE = entry(
    "SHAPE-006",
    "there is no {what} of nothing",
    "An empty array has a sum, which is 0, but no largest element and none that stands anywhere.",
    breaks="""
        (define x (max (zeros [0 3]) :axis 0))
        ;              ^ E-SHAPE-006
    """,
    fixed="""
        (define x (max (zeros [2 3]) :axis 0))
    """,
)
NOT_NUMERIC = entry(
    "DTYPE-001",
    "{type} holds no numbers",
    "Arithmetic is on numbers; a bool array is a mask, which `cast`, `where` and `count-where` turn into numbers.",
    breaks="""
        (define x (sqrt (> (ones [3]) 0.5)))
        ;               ^ E-DTYPE-001
    """,
    fixed="""
        (define x (sqrt (cast (> (ones [3]) 0.5) :f32)))
    """,
    help="make numbers of the mask: (cast … :f32)",
)
NOT_INTEGER = entry(
    "DTYPE-002",
    "{type} holds no integers",
    "An index, a label or a count is an integer.",
    breaks="""
        (define x (at (ones [3]) (zeros [2])))
        ;                        ^ E-DTYPE-002
    """,
    fixed="""
        (define x (at (ones [3]) (zeros [2] :dtype :i32)))
    """,
    help="make integers of it: (cast … :i32)",
)
NOT_BOOL = entry(
    "DTYPE-003",
    "{type} is not a mask",
    "`where`, `logical-and` and their like take bool arrays, which the comparisons give.",
    breaks="""
        (define x (where (ones [3]) 1.0 2.0))
        ;                ^ E-DTYPE-003
    """,
    fixed="""
        (define x (where (> (ones [3]) 0.5) 1.0 2.0))
    """,
    help="compare it with something: (> … 0.0)",
)
NOT_FLOAT = entry(
    "DTYPE-004",
    "{type} is not a type of reals",
    "The operation is defined on reals.",
    breaks="""
        (define x (softmax (> (ones [3]) 0.0)))
        ;                  ^ E-DTYPE-004
    """,
    fixed="""
        (define x (softmax (cast (> (ones [3]) 0.0) :f32)))
    """,
    help="make reals of it: (cast … :f32)",
)
DOES_NOT_FIT = entry(
    "DTYPE-005",
    "{value} does not fit {dtype}",
    "An integer that an array meets takes the array's type, which must be able to hold it.",
    breaks="""
        (define x (+ (arange 3) 5_000_000_000))
        ;                       ^ E-DTYPE-005
    """,
    fixed="""
        (define x (+ (cast (arange 3) :i64) 5_000_000_000))
    """,
    help="give the array a type that holds it, as :i64",
)
TYPES_DIFFER = entry(
    "DTYPE-006",
    "{left} and {right} differ",
    "These arrays are taken together without a conversion, so their types must be the same.",
    breaks="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((i (integers [4] :low 0 :high (cast (step) :i64))))
                ;                             ^ E-DTYPE-006
            (mean (square (@ (take (:x batch) i) (param "w" [3 1] :init zeros-init))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    fixed="""
        (generator points (n) {:x (normal [n 3])})
        (objective (batch)
          (let ((i (integers [4] :low 0 :high (step))))
            (mean (square (@ (take (:x batch) i) (param "w" [3 1] :init zeros-init))))))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """,
    help="make it like the other: (cast … :i32)",
)
