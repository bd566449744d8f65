"""Programs of a test run through the runner, their parameters given and read as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sxi.backends import open_backend
from sxi.program import load_source
from sxi.run import Report, Runner
from sxi.source import Source
from sxi.stages import CheckedStage, check_run


def checked(text: str, path: str = "program.sx") -> list[CheckedStage]:
    """The program's run with every contract checked; its first error is raised."""
    loaded = load_source(Source(path, text))
    if loaded.errors:
        raise loaded.errors[0]
    return check_run(loaded, open_backend("cpu"))


@dataclass
class Run:
    """A run that has begun, and what it has reported.

    points:   (series, pass) -> its values in order
    outputs:  what `output` gave in the last pass, by name
    """

    runner: Runner
    points: dict[tuple[str, str | None], list[float]] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        return self.runner.state.current.params

    @property
    def states(self) -> dict[str, Any]:
        return self.runner.state.current.states

    @property
    def optimizer(self) -> dict[str, Any]:
        return self.runner.state.current.optimizer

    def to_the_end(self) -> Run:
        """Take every step, none of which may fail."""
        seen: list[Report] = []
        for report in self.runner.reports():
            if any(report is r for r in seen):  # a step's report may come again, as its end
                continue
            seen.append(report)
            assert report.failure is None, report.failure
            for p in report.points:
                self.points.setdefault((p.label.name, report.pass_name), []).append(p.value)
            self.outputs.update({name: np.concatenate(batches) for name, batches in report.outputs.items()})
        return self


def begun(folder: Path, text: str, data: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> Run:
    """A run of `text`, whose data is `points`, the arrays of `data`, with `params` in place of the first values.

    An averaged parameter's average begins as the parameter that is given.
    """
    np.savez(folder / "points.npz", **data)
    program = f'(data points (npz "points.npz"))\n{text}'
    cpu = open_backend("cpu")
    runner = Runner(checked(program, str(folder / "program.sx")), cpu, cpu)
    runner.begin()
    values = runner.state.current
    for name, x in (params or {}).items():
        assert values.params[name].shape == np.shape(x), name
        values.params[name] = np.array(x, dtype=np.float32)
        if f"ema/{name}" in values.optimizer:
            values.optimizer[f"ema/{name}"] = np.array(x, dtype=np.float32)
    return Run(runner)
