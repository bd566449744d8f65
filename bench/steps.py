"""The time of a step of the tutorials, beside the same models in PyTorch.

The interpreter takes its steps as a run does: every guard of the program, the finite guard, one read, a
verdict, a commit that can be refused.  Sinks (stream, status, progress) are measured in `reporting`.
Before anything is timed, the losses of both must agree over the first steps.

Each tutorial is measured twice: alone, as the command runs it, and beside PyTorch.  What else a process
has allocated decides how often the C library hands memory back, so the two may differ; the page faults tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from bench import harness, peers, programs
from bench.harness import Candidate
from bench.peers import Tests
from sxi.options import Run
from sxi.stages import CheckedStage
from sxi.values import DataRecord

Program: TypeAlias = list[CheckedStage]

# The draws of the two libraries differ, so their agreement is tested with numbers that are not drawn.
_DRAWN = "(integers [n negatives] :low 0 :high nodes)"
_NOT_DRAWN = "(mod (+ (* 7 (expand (:child batch) 1)) (* 13 (expand (arange negatives) 0))) nodes)"

_WINDOWS = "(integers [n 1] :low 0 :high (- (dim text 0) (+ 1 span)))"
_FIXED_WINDOWS = "(* 5003 (expand (arange n) 1))"
# The first stage of the curriculum has short windows; measured is the size of the second.
_LONG = {":set {:span 64}": ":set {:span 128}"}
_F32 = {"(bf16": "(begin"}

# tutorial -> how many of its steps a round takes, and how many rounds
STEPS = {"digits": (100, 15), "lorentz": (50, 11), "characters": (2, 5)}
CHANGES = {"characters": _LONG}


class PeerSteps:
    """The first `n` steps of a peer, again and again."""

    def __init__(self, make: Callable[[], Any], n: int) -> None:
        self._make, self._n = make, n
        self._peer = make()

    def begin(self) -> None:
        """Return to before the first step."""
        self._peer = self._make()

    def run(self) -> list[float]:
        """Take the steps: their losses."""
        return [self._peer.step() for _ in range(self._n)]


def candidate(steps: programs.Steps | PeerSteps, n: int) -> Candidate:
    """Steps as a candidate: the time is that of one of the `n`."""
    return Candidate(steps.run, steps.begin, times=n)


def own(name: str, n: int) -> dict[str, Candidate]:
    """The tutorial `name` as it is, and without the finite guard."""
    changes = CHANGES.get(name, {})
    bare = programs.tutorial(name, changes, {"guard_finite": False})
    return {
        "sxi": candidate(programs.Steps(programs.tutorial(name, changes), n), n),
        "sxi, :guard-finite off": candidate(programs.Steps(bare, n), n),
    }


def run_of(program: Program) -> Run:
    """The options of its run."""
    return program[0].checked.run


def data_of(program: Program) -> DataRecord:
    """The data that the file declares."""
    data = run_of(program).data
    if isinstance(data, DataRecord):
        return data
    return next(x for x in program[0].checked.program.globals if isinstance(x, DataRecord))


def columns(program: Program, names: Sequence[str]) -> tuple[Any, Any]:
    """Two columns of the data of a run, as NumPy arrays."""
    held = data_of(program).columns
    first, second = [held[name].rows(slice(None)) for name in names]
    return first, second


def first_values(program: Program) -> dict[str, Any]:
    """The first value of every parameter, as NumPy arrays."""
    return {name: np.asarray(x).copy() for name, x in programs.begun(program).state.current.params.items()}


def same_rows(torch: Any, program: Program) -> Callable[[int], Any]:
    """Which rows the run takes, as the peer takes them."""
    order, batch = programs.begun(program).order, run_of(program).batch
    assert order is not None
    return lambda step: torch.as_tensor(order.rows((step - 1) * batch, batch))


def rows_of(torch: Any, program: Program) -> peers.Rows:
    """Rows in an order of the peer's own: the cost of permuting is part of a step."""
    run = run_of(program)
    data = data_of(program)
    n = next(iter(data.columns.values())).type.shape[0]
    return peers.Rows(torch, data.splits[run.split] if run.split else np.arange(n), run.batch)


KINDS = {
    "torch": Tests(written=True),
    "torch, finite guard": Tests(written=True, finite=True),
    "torch, no guards": Tests(written=False),
}


def alone(name: str, quick: bool) -> str:
    """The table of a tutorial by itself."""
    n, rounds = (1, 1) if quick else STEPS[name]
    return harness.table(f"{name} alone", harness.measure(own(name, n), rounds), "sxi")


def digits(torch: Any, quick: bool) -> str:
    """The table of digits.sx."""
    n, rounds = (1, 1) if quick else STEPS["digits"]
    program = programs.tutorial("digits")
    candidates = own("digits", n)
    data, first = columns(program, ["x", "y"]), first_values(program)
    checking = peers.digits(torch, first, data, same_rows(torch, program), Tests(finite=True))
    steps = 3 if quick else 40
    programs.agree("digits", programs.losses(program, steps), [checking.step() for _ in range(steps)], 2e-3)

    def make(tests: Tests, fused: bool | None = None) -> PeerSteps:
        return PeerSteps(lambda: peers.digits(torch, first, data, rows_of(torch, program), tests, fused), n)

    for name, tests in KINDS.items():
        candidates[name] = candidate(make(tests), n)
    candidates["torch, fused optimizer"] = candidate(make(Tests(written=True), fused=True), n)
    return harness.table("digits beside torch", harness.measure(candidates, rounds), "torch")


def lorentz(torch: Any, quick: bool) -> str:
    """The table of lorentz.sx."""
    n, rounds = (1, 1) if quick else STEPS["lorentz"]
    program = programs.tutorial("lorentz")
    candidates = own("lorentz", n)
    data, first = columns(program, ["child", "parent"]), first_values(program)

    def not_drawn(child: Any) -> Any:
        return (7 * child[:, None] + 13 * torch.arange(50)[None]) % 1182

    fixed = programs.tutorial("lorentz", {_DRAWN: _NOT_DRAWN})
    checking = peers.Lorentz(torch, first, data, same_rows(torch, fixed), Tests(finite=True), not_drawn)
    steps = 3 if quick else 40
    programs.agree("lorentz", programs.losses(fixed, steps), [checking.step() for _ in range(steps)], 2e-3)
    for name, tests in KINDS.items():
        candidates[name] = candidate(_lorentz_peer(torch, program, first, data, tests, n), n)
    return harness.table("lorentz beside torch", harness.measure(candidates, rounds), "torch")


def _lorentz_peer(
    torch: Any, program: Program, first: dict[str, Any], data: tuple[Any, Any], tests: Tests, n: int
) -> PeerSteps:
    return PeerSteps(lambda: peers.Lorentz(torch, first, data, rows_of(torch, program), tests), n)


def characters(torch: Any, quick: bool) -> str:
    """The table of characters.sx."""
    if quick:
        raise programs.Refused("--quick leaves it out")
    n, rounds = STEPS["characters"]
    f32 = programs.tutorial("characters", _LONG | _F32)
    tokens, first = data_of(f32).columns["tokens"].rows(slice(None)).astype(np.int64), first_values(f32)

    def peer(tests: Tests, **options: Any) -> peers.Characters:
        return peers.Characters(torch, first, tokens, tests, span=128, **options)

    fixed = programs.tutorial("characters", _LONG | _F32 | {_WINDOWS: _FIXED_WINDOWS})
    checking = peer(Tests(finite=True), windows=lambda n: 5003 * torch.arange(n)[:, None])
    programs.agree("characters", programs.losses(fixed, 5), [checking.step() for _ in range(5)], 2e-3)
    candidates = own("characters", n)
    candidates["sxi, f32"] = candidate(programs.Steps(f32, n), n)
    for name, tests in KINDS.items():
        candidates[f"{name}, f32"] = candidate(PeerSteps(partial(peer, tests), n), n)
    candidates["torch, autocast to bf16"] = candidate(PeerSteps(lambda: peer(Tests(), bf16=True), n), n)
    return harness.table("characters beside torch, span 128", harness.measure(candidates, rounds), "torch, f32")


TABLES = (("digits", digits), ("lorentz", lorentz), ("characters", characters))


def main(given: Sequence[str] | None = None) -> None:
    """Print a table for each tutorial."""
    quick = harness.arguments(__doc__, given).quick
    for name in STEPS:
        print(f"{programs.skipping(name, alone, name, quick)}\n", flush=True)
    torch = harness.torch_or_none()
    if torch is None:
        print("torch is not installed: there is nothing to compare with")
        return
    for name, table in TABLES:
        print(f"{programs.skipping(name, table, torch, quick)}\n", flush=True)


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
