"""Programs made ready to be measured: read, checked, compiled for the CPU, their steps taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sxi.backends import open_backend
from sxi.errors import SxiError
from sxi.program import load_source
from sxi.run import Runner
from sxi.source import Source
from sxi.stages import CheckedStage, check_run

RUNS = Path(__file__).resolve().parent.parent / "tutorials" / "runs"


class Refused(Exception):
    """A program that cannot be measured, with the reason."""


class NotTheSame(Exception):
    """Two models that are to be compared and do not compute the same."""


def text_of(name: str, changes: Mapping[str, str] | None = None) -> str:
    """The text of the tutorial `name`, each key of `changes`, which must stand in it, replaced."""
    text = (RUNS / f"{name}.sx").read_text(encoding="utf-8")
    for old, new in (changes or {}).items():
        if old not in text:
            raise Refused(f"{name}.sx no longer holds {old}")
        text = text.replace(old, new)
    return text


def stages(path: Path, text: str, options: Mapping[str, Any] | None = None) -> list[CheckedStage]:
    """The program `text` as if it stood in `path`, checked: its stages, one without a curriculum.

    options:  what replaces options of its run, by their names in `Run`
    Raises Refused, or the SxiError of its check.
    """
    loaded = load_source(Source(str(path), text))
    if loaded.errors:
        raise Refused("; ".join([str(e) for e in loaded.errors]))
    made = check_run(loaded, open_backend("cpu"))
    for stage in made:
        for name, value in (options or {}).items():
            setattr(stage.checked.run, name, value)
    return made


def tutorial(
    name: str, changes: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> list[CheckedStage]:
    """A tutorial, checked."""
    return stages(RUNS / f"{name}.sx", text_of(name, changes), options)


def begun(program: list[CheckedStage]) -> Runner:
    """A run of the program on the CPU before its first step."""
    runner = Runner(program, open_backend("cpu"), open_backend("cpu"))
    runner.begin()
    return runner


class Steps:
    """The first `n` steps of a program, again and again: `begin` returns to the first, `run` takes them.

    Always the same steps, since what a step costs may depend on its numbers.
    """

    def __init__(self, program: list[CheckedStage], n: int) -> None:
        self._program, self._n = program, n
        self._runner = begun(program)

    def begin(self) -> None:
        """Return to before the first step."""
        self._runner = begun(self._program)

    def run(self) -> Runner:
        """Take the steps: microbatches, update, verdict, commit; no passes.  Raises what stopped one of them."""
        runner = self._runner
        with runner.backend.computing():
            for _ in range(self._n):
                report = runner.take_step()
                if report.failure is not None:
                    raise report.failure.error
        return runner


def losses(program: list[CheckedStage], n: int, name: str = "train/loss") -> list[float]:
    """What the series `name` reports in the first `n` steps."""
    runner = begun(program)
    values: list[float] = []
    with runner.backend.computing():
        for _ in range(n):
            report = runner.take_step()
            values += [p.value for p in report.points if p.label.name == name]
    return values


def agree(name: str, own: list[float], peer: list[float], tolerance: float) -> None:
    """Refuse to compare the time of two models that do not compute the same.  Raises NotTheSame."""
    apart = [abs(a - b) / max(abs(a), 1e-3) for a, b in zip(own, peer, strict=True)]
    if not max(apart) <= tolerance:
        raise NotTheSame(f"{name}: the losses differ by {max(apart):.2g} of their size")


def skipping(name: str, what: Callable[..., str], *given: object) -> str:
    """What `what` gives, or the reason why it gives nothing."""
    try:
        return what(*given)
    except (Refused, SxiError) as reason:
        return f"{name}: skipped: {reason}"
