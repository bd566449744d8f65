"""What the programs of tutorials/runs reach, beside what each says of itself, and the CPU time that it takes.

A program says it in the comment at its head, `Reaches 0.96 …`: the last value of the series that stands here.
Run it as `python -m bench.figures [NAME …]`; each program is a `sxi run` of its own, on one thread.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import harness
from bench.programs import RUNS

# The series whose last value is a program's figure.
SERIES = {
    "adding": "error",
    "autoencoder": "loss",
    "bandit": "regret",
    "batchnorm": "accuracy",
    "clusters": "purity",
    "contrastive": "accuracy",
    "convolution": "accuracy",
    "early": "accuracy",
    "flow": "log-density",
    "gan": "hits/share",
    "graph": "auc",
    "lstm": "bits",
    "mixture": "log-density",
    "physics": "error",
    "predict": "accuracy",
    "process": "scale/length",
    "transformer": "right/ema",
    "warm": "negative/accuracy",
}
STARTS_FROM = {"warm": "predict"}


class Failed(Exception):
    """A program that did not run to its end, with what it said."""


@dataclass(frozen=True, slots=True)
class Reached:
    """What a run of a program came to: its figure, the step of it, CPU seconds with the start of the interpreter."""

    figure: float
    step: int
    seconds: float


def written(name: str) -> float:
    """The figure that the program's head gives."""
    head = "\n".join(_head((RUNS / f"{name}.sx").read_text(encoding="utf-8")))
    found = re.search(r"Reaches (-?[0-9.]*[0-9])", head)
    if found is None:
        raise Failed(f"{name}.sx does not say what it reaches")
    return float(found[1])


def _head(text: str) -> Iterator[str]:
    """The comment that a program begins with, line after line."""
    for line in text.splitlines():
        if not line.startswith(";"):
            return
        yield line.lstrip("; ")


def figure_of(folder: Path, series: str) -> tuple[float, int]:
    """The last value of a series in a run's stream, and its step."""
    points = [
        line
        for line in map(json.loads, (folder / "stream.jsonl").read_text(encoding="utf-8").splitlines())
        if line["kind"] == "point" and line["series"] == series
    ]
    return float(points[-1]["value"]), int(points[-1]["step"])


def command(name: str, folder: Path, more: Sequence[str] = ()) -> list[str]:
    """What runs a program into its folder in `folder`, the run that it starts from beside it."""
    given = ["run", str(RUNS / f"{name}.sx"), "--out", str(folder / name), "--quiet", *more]
    if name in STARTS_FROM:
        known = max((folder / STARTS_FROM[name] / "checkpoints").iterdir())
        given += ["--set", f"known={known}"]
    return given


def reach(name: str, folder: Path, more: Sequence[str] = ()) -> Reached:
    """Run a program to its end.  Raises Failed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(
        [sys.executable, "-m", "sxi", *command(name, folder, more)], capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode:
        raise Failed(f"{name}: {ended.stderr.strip()}")
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Reached(*figure_of(folder / name, SERIES[name]), seconds)


def table(names: Sequence[str], folder: Path, more: Sequence[str] = ()) -> Iterator[str]:
    """A line for each program, as soon as it has run."""
    yield f"{'program':<12} {'series':<18} {'written':>9} {'reached':>9} {'step':>5} {'CPU s':>6}"
    for name in names:
        found = reach(name, folder, more)
        yield (
            f"{name:<12} {SERIES[name]:<18} {written(name):>9.4g} {found.figure:>9.4g} {found.step:>5} "
            f"{found.seconds:>6.1f}"
        )


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs, all by default")
    parser.add_argument("--quick", action="store_true", help="three steps each: the figures mean nothing")
    chosen = parser.parse_args(given)
    names = [n for n in SERIES if not chosen.names or n in chosen.names]
    needed = [STARTS_FROM[n] for n in names if n in STARTS_FROM and STARTS_FROM[n] not in names]
    with tempfile.TemporaryDirectory() as folder:
        for line in table([*needed, *names], Path(folder), ["--steps", "3"] if chosen.quick else []):
            print(line, flush=True)


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
