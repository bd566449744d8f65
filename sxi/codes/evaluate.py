"""E-EVAL-001 to 014: a name, a form or a call means nothing."""

from __future__ import annotations

from sxi.codes.entry import entry

UNKNOWN_NAME = entry(
    "EVAL-001",
    "{name} is not defined",
    "A name is bound by the file, by a form around it, by an import, by the library, or it is a primitive.",
    breaks="""
        (define x (sqare 3.0))
        ;          ^ E-EVAL-001
    """,
    fixed="""
        (define x (square 3.0))
    """,
)
MALFORMED = entry(
    "EVAL-002",
    "{form}: {what}",
    "A special form has a fixed shape, which its page in the reference shows.",
    breaks="""
        (define x (let (a 1) a))
        ;              ^ E-EVAL-002
    """,
    fixed="""
        (define x (let ((a 1)) a))
    """,
)
WRONG_COUNT = entry(
    "EVAL-003",
    "{name} takes {wanted}, not {given}",
    "A call gives every positional argument that the function names, and no more.",
    breaks="""
        (define x (sqrt 1.0 2.0))
        ;         ^ E-EVAL-003
    """,
    fixed="""
        (define x (sqrt 1.0))
    """,
)
NOT_A_FUNCTION = entry(
    "EVAL-004",
    "{given} is not a function",
    "The first element of a call is what is called: a function, a model, a primitive or a keyword.",
    breaks="""
        (define x (3 4))
        ;          ^ E-EVAL-004
    """,
    fixed="""
        (define x [3 4])
    """,
)
WRONG_KIND = entry(
    "EVAL-005",
    "{what} is {given}, expected {wanted}",
    "The operand is of another kind than the form or the function takes.",
    breaks="""
        (define x (nth 3 0))
        ;              ^ E-EVAL-005
    """,
    fixed="""
        (define x (nth [3] 0))
    """,
)
UNKNOWN_KEYWORD = entry(
    "EVAL-006",
    "{name} takes no keyword :{keyword}",
    "A function takes the keywords that its definition names.",
    breaks="""
        (define x (sum (ones [3]) :axes 0))
        ;                         ^ E-EVAL-006
    """,
    fixed="""
        (define x (sum (ones [3]) :axis 0))
    """,
)
DEFINED_TWICE = entry(
    "EVAL-007",
    "{name} is defined twice",
    "A name is bound once in its scope, so that what it means does not depend on where one reads.",
    breaks="""
        (define x 1)
        (define x 2)
        ;       ^ E-EVAL-007
    """,
    fixed="""
        (define x 1)
        (define y 2)
    """,
)
USED_BEFORE = entry(
    "EVAL-008",
    "{name} is used before it is defined",
    "Values are computed in the order of the file; only functions may refer forward.",
    breaks="""
        (define x (+ y 1))
        ;            ^ E-EVAL-008
        (define y 2)
    """,
    fixed="""
        (define y 2)
        (define x (+ y 1))
    """,
    help="move the definition of {name} before this",
)
TOO_DEEP = entry(
    "EVAL-009",
    "calls nest deeper than {limit}",
    "A recursion without end is stopped there; a fold does what a long recursion would.",
    help="end the recursion by a host value, as (if (= n 0) … …), or write a fold",
    breaks="""
        (define (f n) (+ 1 (f n)))
        ;                  ^ E-EVAL-009
        (define x (f 1))
    """,
    fixed="""
        (define (f n) (if (<= n 0) 0 (+ 1 (f (- n 1)))))
        (define x (f 10))
    """,
)
DIVIDED_BY_ZERO = entry(
    "EVAL-010",
    "a whole number is divided by zero",
    "Reals give inf or nan; whole numbers have neither.",
    breaks="""
        (define x (quotient 3 0))
        ;         ^ E-EVAL-010
    """,
    fixed="""
        (define x (/ 3 0.0))
    """,
)
NO_SUCH_KEY = entry(
    "EVAL-011",
    "the record has no :{key}",
    "A record has the keys that it was made with; `(get record :key default)` allows for a missing one.",
    breaks="""
        (define x (:b {:a 1}))
        ;          ^ E-EVAL-011
    """,
    fixed="""
        (define x (:a {:a 1}))
    """,
)
NO_SUCH_ELEMENT = entry(
    "EVAL-012",
    "the list has {count} elements, and none at {index}",
    "Elements count from 0, or from the end as negative numbers.",
    breaks="""
        (define x (nth [1 2] 2))
        ;                    ^ E-EVAL-012
    """,
    fixed="""
        (define x (nth [1 2] 1))
    """,
)
MISSING_KEYWORD = entry(
    "EVAL-013",
    "{name} needs :{keyword}",
    "That keyword has no default.",
    help="add :{keyword}",
    breaks="""
        (define s (warmup-cosine :peak 1.0 :warmup 10))
        ;         ^ E-EVAL-013
    """,
    fixed="""
        (define s (warmup-cosine :peak 1.0 :warmup 10 :total 100))
    """,
)
NOT_AN_ARRAY = entry(
    "EVAL-014",
    "expected an array or a number, not {given}",
    "An array operation takes arrays and numbers; `array` makes an array of a list.",
    breaks="""
        (define x (sum [1.0 2.0]))
        ;              ^ E-EVAL-014
    """,
    fixed="""
        (define x (sum (array [1.0 2.0])))
    """,
)
