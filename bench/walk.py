"""What reading a program for the first time costs: tracing, checking and differentiating, and a node of host code.

    python -m bench.walk [--quick]

The time is CPU time, the least of five; a node is a call, a name or a constant of the text, each evaluated once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from bench.programs import RUNS
from sxi.backends import open_backend
from sxi.checking import deep_calls
from sxi.program import load_source
from sxi.reader import Group, Quote, load, read_all
from sxi.source import Source
from sxi.stages import check_run

# A body of host arithmetic and tests, as schedules and shapes are made of: 1,000 turns of 24 nodes each.
_HOST = """(define (f n a)
  (fold (x 1) (i (range n))
    (if (< (+ i 2) (* x 3))
        (- (+ (* 2 i) (* a 3)) (- (* i 4) (+ a 5)))
        (+ (* i 2) (- a (* 3 i))))))
(define y (f 1000 7))
"""
_OPERATIONS = """(generator points (n) {{:x (normal [n 3])}})
(objective (batch)
  (let ((w (param "w" [3] :init zeros-init)))
    (fold (l (mean (* w (mean (:x batch) :axis 0)))) (i (range {turns})) (+ (* l 0.5) 1.0))))
(run r :data points :steps 1 :optimizer (sgd :lr 0.1))
"""


def least(work: Callable[[], object], rounds: int) -> float:
    """The least CPU time of `work`, in seconds."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


def checking(source: Source) -> Callable[[], object]:
    """Checking a program that is read already."""
    host, loaded = open_backend("cpu"), load_source(source)
    return lambda: check_run(loaded, host, {})


def nodes(form: object) -> int:
    """How many nodes a form has."""
    if isinstance(form, Group):
        return 1 + sum(nodes(f) for f in form.items[1:])
    return nodes(form.form) if isinstance(form, Quote) else 1


def host_node(rounds: int) -> float:
    """Seconds for a node of host code: of the fold's body, its turn and its test counted in."""
    host = open_backend("cpu")
    source = Source("host.sx", _HOST)
    loaded = load_source(source)
    (define, _), _ = read_all(source)
    assert isinstance(define, Group)
    fold = define.items[2]
    assert isinstance(fold, Group)
    test = fold.items[3]
    assert isinstance(test, Group)
    then = nodes(test) - nodes(test.items[3])  # i is small: the test holds for almost all turns
    return least(lambda: loaded.evaluate(host), rounds) / (1000 * then)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of little, to see that it works")
    quick = parser.parse_args(arguments).quick
    rounds, turns = (1, 100) if quick else (5, 33_333)
    with deep_calls():
        characters = least(checking(load(str(RUNS / "characters.sx"))), rounds)
        operations = least(checking(Source("operations.sx", _OPERATIONS.format(turns=turns))), rounds)
        print(f"characters.sx traced, checked and differentiated  {characters * 1000:7.0f} ms")
        print(f"a graph of {3 * turns:,} operations with its gradient  {operations:7.2f} s")
        print(f"a node of host code                                {host_node(rounds) * 1e9:7.0f} ns")


if __name__ == "__main__":
    main()
