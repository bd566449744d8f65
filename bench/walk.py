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
from sxi.reader import load
from sxi.source import Source
from sxi.stages import check_run

# Host arithmetic and tests, as schedules and shapes are made of.  Each text with how many nodes it evaluates: in the
# fold the test always holds, 21 a turn; `fib` of 15 calls itself 986 times with 15 nodes and ends 987 times with 5.
_HOST = {
    "a node of host code, in a fold, the turn counted in": (
        """(define (f n a)
             (fold (x 1) (i (range n)) (if (< (+ i 2) (* a 3000)) (- (+ (* 2 i) (* a 3)) (- x (+ a 5))) x)))
           (define y (f 3000 7))""",
        3000 * 21,
    ),
    "a node of host code, in a function that calls itself": (
        """(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
           (define y (fib 15))""",
        986 * 15 + 987 * 5,
    ),
}
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


def host_node(text: str, nodes: int, rounds: int) -> float:
    """Seconds for each of the `nodes` that evaluating a text comes by."""
    host = open_backend("cpu")
    loaded = load_source(Source("host.sx", text))
    return least(lambda: loaded.evaluate(host), rounds) / nodes


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of little, to see that it works")
    quick = parser.parse_args(arguments).quick
    rounds, turns = (1, 100) if quick else (5, 33_333)
    with deep_calls():
        characters = least(checking(load(str(RUNS / "characters.sx"))), rounds)
        operations = least(checking(Source("operations.sx", _OPERATIONS.format(turns=turns))), rounds)
        print(f"characters.sx traced, checked and differentiated        {characters * 1000:5.0f} ms")
        print(f"a graph of {3 * turns:,} operations with its gradient        {operations:5.2f} s")
        for what, (text, nodes) in _HOST.items():
            print(f"{what:<54}{host_node(text, nodes, rounds) * 1e9:5.0f} ns")


if __name__ == "__main__":
    main()
