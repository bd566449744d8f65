"""Programs that several tests of clauses share."""

from __future__ import annotations

from tests.running import training

LARGE = '(guard "large" (count-where (> (abs g) 1.0)))'

_TWO = """
(data d (npz "d.npz"))
{guarded}
(objective (batch)
  (+ (* (sum (:a batch)) (sum (param "one" [2] :init ones-init)))
     (* (sum (:b batch)) (sum (param "two" [3] :init ones-init)))))
(run r :data d :shuffle off :batch {batch} :microbatches {batch} :steps {steps} :checkpoint-every 1 :keep-checkpoints 9
  :optimizer {optimizer} {run})
"""
PLAIN = "(optimizer guarded (p g) {body} (update (- p (* 0.5 g))))"
STATEFUL = "(optimizer guarded (p g) :state ((m (zeros-like p))) {body} (update (- p g) :m (+ m g)))"


def optimized(
    body: str, *, steps: int = 3, batch: int = 1, optimizer: str = "(guarded)", run: str = "", guarded: str = PLAIN
) -> str:
    """A program whose gradients are `a`, for each of the 2 elements of `one`, and `b`, for the 3 of `two`.

    body:  stands in the optimizer's
    """
    return _TWO.format(guarded=guarded.format(body=body), steps=steps, batch=batch, optimizer=optimizer, run=run)


def passing(
    evaluate: str, *, every: int = 1, batch: int = 2, before: str = "", body: str = "still", steps: int = 3,
    checkpoints: bool = False,
) -> str:  # fmt: skip
    """A program with one pass, `held`, over all rows: after each step or each `every`."""
    options = f":evaluate [(held :data d :batch {batch} :every {every})]"
    if checkpoints:
        options += " :checkpoint-every 1 :keep-checkpoints 9"
    return training(body, before=f"{before}\n(evaluate held (batch) {evaluate})", run=options, steps=steps)
