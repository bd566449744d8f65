"""E-GUARD: the run's verdicts.  A guard's failure is exactly this one line."""

from __future__ import annotations

from sxi.codes.entry import entry

GUARD_FAILED = entry(
    "GUARD-001",
    "guard {guard} counted {count} {where}, expected 0; it is written at {source}",
    "A guard is a count of violations that must stay zero. It was not zero, so the run stopped at that very step: "
    "nothing of a failing training step is saved, and the last checkpoint stands.",
)
NOT_FINITE = entry(
    "GUARD-002",
    "the {what} has {count} values that are not finite at step {step}",
    "The finite guard looks at the loss, at every gradient and at every update before the step is committed. "
    "One that is NaN or infinite would spread to every parameter, so the run stops before it does.",
)
