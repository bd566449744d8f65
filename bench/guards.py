"""What ten guards cost a step, and what the finite guard's test costs beside reading the data at all.

The model is the digits' one in a size where products of matrices dominate: 784-512-512-10, batch 256,
Adam.  Its ten guards are five `assert-finite`, three counts of what is too large, and the two bounds of the loss.
The finite guard is on in both programs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness, peers, programs
from bench.harness import Candidate, repeated
from bench.peers import Tests
from bench.steps import PeerSteps, candidate, columns, first_values, rows_of, same_rows
from sxi.backends import open_backend

_PROGRAM = """
(data examples (npz "examples.npz"))
(define (watched name x) {watched})
(define (checked name x) {checked})
(model net (x)
  (let ((z0 (checked "hidden0/in" (linear "hidden0" x 512)))
        (h0 (watched "hidden0/out" (relu z0)))
        (z1 (checked "hidden1/in" (linear "hidden1" h0 512)))
        (h1 (watched "hidden1/out" (relu z1)))
        (z2 (watched "logits" (linear "logits" h1 10))))
    z2))
(objective (batch)
  (let ((loss (cross-entropy (net (:x batch)) (:y batch))))
    (metric "train/loss" loss {bounds})
    loss))
(run wide :data examples :batch 256 :steps 1000000 :optimizer (adamw :lr 1e-3 :decay 0.0))
"""
_GUARDED = {
    "watched": '(begin (guard (str name "/large") (count-where (> (abs x) 1e4))) (assert-finite name x))',
    "checked": "(assert-finite name x)",
    "bounds": ":below 20.0 :above -1.0",
}
_BARE = {"watched": "x", "checked": "x", "bounds": ""}
LAYERS = ["net/hidden0", "net/hidden1", "net/logits"]


def write_examples(folder: Path) -> None:
    """Two thousand random examples of ten classes."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2048, 784), dtype=np.float32)
    np.savez(folder / "examples.npz", x=x, y=rng.integers(0, 10, 2048).astype(np.int32))


def guards(torch: Any, n: int, rounds: int) -> str:
    """The tables of the guarded and the bare step, the interpreter's and PyTorch's."""
    with tempfile.TemporaryDirectory() as folder:
        write_examples(Path(folder))
        path = Path(folder) / "wide.sx"
        bare = programs.stages(path, _PROGRAM.format(**_BARE))
        guarded = programs.stages(path, _PROGRAM.format(**_GUARDED))
        off = programs.stages(path, _PROGRAM.format(**_BARE), {"guard_finite": False})
        data, first = columns(bare, ["x", "y"]), first_values(bare)
        candidates = {
            "sxi": candidate(programs.Steps(bare, n), n),
            "sxi, ten guards": candidate(programs.Steps(guarded, n), n),
            "sxi, :guard-finite off": candidate(programs.Steps(off, n), n),
        }
        if torch is not None:
            checking = _peer(torch, first, data, same_rows(torch, bare), Tests(finite=True))
            steps = min(n, 10)
            programs.agree("wide", programs.losses(guarded, steps), [checking.step() for _ in range(steps)], 2e-3)
            for name, tests in (("torch", Tests(written=False)), ("torch, ten counts, one read", Tests(written=True))):
                candidates[name] = candidate(_steps(torch, bare, first, data, tests, n), n)
        measured = harness.measure(candidates, rounds)
    text = harness.table("784-512-512-10, batch 256", measured, "sxi" if torch is None else "torch")
    ratios = [f"sxi {_over(measured, 'sxi, ten guards', 'sxi')}"]
    if torch is not None:
        ratios.append(f"torch {_over(measured, 'torch, ten counts, one read', 'torch')}")
    return f"{text}\n  guarded / bare: {'  '.join(ratios)}"


def _over(measured: dict[str, harness.Times], name: str, peer: str) -> str:
    low, high = harness.quartiles(measured[name].ratios(measured[peer]))
    return f"{measured[name].ratio(measured[peer]):.3f} [{low:.3f} {high:.3f}]"


def _peer(torch: Any, first: dict[str, Any], data: tuple[Any, Any], rows: Callable[[int], Any], tests: Tests) -> Any:
    x, y = data
    return peers.Mlp(
        torch, peers.mlp_layers(first, LAYERS), (x, y.astype(np.int64)), rows, tests=tests, microbatches=1,
        rate=peers.constant(1e-3), decay=0.0, bounds=(20.0, -1.0), ten=True,
    )  # fmt: skip


def _steps(torch: Any, program: Any, first: dict[str, Any], data: tuple[Any, Any], tests: Tests, n: int) -> PeerSteps:
    return PeerSteps(lambda: _peer(torch, first, data, rows_of(torch, program), tests), n)


def finite_test(torch: Any, size: int, rounds: int, times: int) -> str:
    """The table of the count of values not finite, in clean data, beside the largest value: one read."""
    backend = open_backend("cpu")
    x = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    parts: dict[str, Callable[[], object]] = {
        "the largest value (one read)": x.max,
        "count of not finite": lambda: backend.count_nonfinite_own(x),
        "numpy, count of ~isfinite": lambda: np.count_nonzero(~np.isfinite(x)),
    }
    if torch is not None:
        same = torch.from_numpy(x)
        parts["torch.isfinite(x).all()"] = lambda: bool(torch.isfinite(same).all())
    candidates = {name: Candidate(repeated(run, times), times=times) for name, run in parts.items()}
    peer = next(iter(parts))
    return harness.table(f"f32[{size}], clean", harness.measure(candidates, rounds), peer, unit="us")


def main(given: Sequence[str] | None = None) -> None:
    """Print what guards cost."""
    quick = harness.arguments(__doc__, given).quick
    torch = harness.torch_or_none()
    if torch is None:
        print("torch is not installed: its rows are left out")
    for size, times in ((1_000, 1),) if quick else ((1_000_000, 50), (10_000_000, 5)):
        print(f"{finite_test(torch, size, 1 if quick else 15, times)}\n")
    print(programs.skipping("ten guards", guards, torch, 1 if quick else 20, 1 if quick else 15))


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
