"""What the tutorials reach: the digits' held-out accuracy over ten splits, the mammals' rank over three seeds.

A split is a fixed permutation of the rows, whatever the seed; another split of the same data is the same
file with its rows in another order.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench import harness, programs
from sxi.stages import CheckedStage

_DIGITS = "../data/digits.npz"


def last_value(program: list[CheckedStage], name: str, pass_name: str) -> float:
    """What the series `name` of a pass reports at the end of the run.  Raises what stopped the run."""
    value = float("nan")
    for report in programs.begun(program).reports():
        if report.failure is not None:
            raise report.failure.error
        if report.pass_name == pass_name:
            value = next(p.value for p in report.points if p.label.name == name)
    return value


def reordered(npz: Path, seed: int, folder: Path) -> Path:
    """A copy of `npz` with the rows of all its arrays in one other order, which `seed` fixes."""
    with np.load(npz) as file:
        arrays = {name: file[name] for name in file.files}
    order = np.random.default_rng(seed).permutation(len(next(iter(arrays.values()))))
    path = folder / f"{npz.stem}-{seed}.npz"
    np.savez(path, **{name: x[order] for name, x in arrays.items()})
    return path


def digits(splits: int, steps: int) -> list[float]:
    """The held-out accuracy after `steps` steps for each of the splits."""
    reached = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(splits):
            path = reordered(programs.RUNS / _DIGITS, seed, Path(folder))
            program = programs.tutorial("digits", {_DIGITS: str(path)}, {"steps": steps})
            reached.append(last_value(program, "accuracy", "accuracy"))
    return reached


def lorentz(seeds: int, steps: int) -> list[float]:
    """How many of the 1182 nodes are on average nearer than the true ancestor, for each of the seeds."""
    return [
        last_value(programs.tutorial("lorentz", options={"steps": steps, "seed": seed}), "rank/mean", "rank")
        for seed in range(1, seeds + 1)
    ]


def summary(title: str, values: Sequence[float]) -> str:
    """The mean and each value."""
    each = " ".join([f"{x:.4f}" for x in values])
    return f"{title}: mean {statistics.mean(values):.4f}  least {min(values):.4f}  each {each}"


def main(given: Sequence[str] | None = None) -> None:
    """Print what each tutorial reaches."""
    quick = harness.arguments(__doc__, given).quick
    splits, seeds = (1, 1) if quick else (10, 3)
    print(summary("digits, held-out accuracy", digits(splits, 20 if quick else 400)), flush=True)
    print(summary("lorentz, mean rank of the ancestor", lorentz(seeds, 2 if quick else 2000)))


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
