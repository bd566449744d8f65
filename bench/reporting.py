"""What reporting costs a step: thirty series written to the stream and flushed, the status, the progress line.

The target is 30 microseconds a step for the sinks.  What the step itself spends on thirty more series
(gathering the values, naming the points) is measured apart, as the difference of two programs.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bench import harness, programs
from bench.harness import Candidate, repeated
from sxi import folder
from sxi.backends import open_backend
from sxi.job import Job
from sxi.progress import Progress
from sxi.run import Report, Runner
from sxi.status import Status
from sxi.stream import Stream

SERIES = 30

_PROGRAM = """
(data points (npz "points.npz"))
(objective (batch)
  (let ((loss (mean (square (- (param "w" [4] :init zeros-init) (:x batch))))))
    (metric "train/loss" loss)
    {more}
    loss))
(run points :data points :batch 8 :steps 1000000 :optimizer (sgd :lr 1e-3))
"""


class Sinks:
    """What a run feeds each step, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.stream = Stream(folder / "stream.jsonl")
        self.status = Status(folder)
        self.progress = Progress(io.StringIO(), 10**9)
        metas = [{"layer": i % 4, "split": "train"} for i in range(SERIES)]
        self._series = [self.stream.series(f"layer/value{i}", meta) for i, meta in enumerate(metas)]
        self._values = np.random.default_rng(0).standard_normal(SERIES).astype(np.float32).tolist()
        self._step = 0

    def points(self) -> None:
        """The points of a step, handed to the operating system."""
        self._step += 1
        self.stream.points(self._step, self._series, self._values)
        self.stream.flush()

    def state(self) -> None:
        """The status of a step; the file follows once a second."""
        self.status.update(state="running", step=self._step, throughput=100.0)

    def line(self) -> None:
        """The progress line of a step."""
        self.progress.update(self._step, (("train/loss", x) for x in self._values[:1]))

    def all(self) -> None:
        """All of a step."""
        self.points()
        self.state()
        self.line()


class SameReport(Runner):
    """A runner that takes one step and then gives its report again and again."""

    def reports(self) -> Iterator[Report]:
        report = self.take_step()
        report.ends_step = True
        while not self.is_over:
            yield report
            self.step += 1
            report.step = self.step


def job(rounds: int, n: int) -> str:
    """The table of a whole job that reports thirty series a step, its steps costing nothing."""
    series = "\n    ".join([f'(metric "value{i}" (* loss {1 + i / 7}))' for i in range(SERIES - 1)])
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "points.sx"
        np.savez(Path(home) / "points.npz", x=np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32))
        program = programs.stages(path, _PROGRAM.format(more=series), {"steps": n})

        def perform() -> None:
            runner = SameReport(program, open_backend("cpu"), open_backend("cpu"))
            runner.begin()
            made = Job(
                runner, folder.make(Path(tempfile.mkdtemp(dir=home)) / "run"), "id", harness.nothing, io.StringIO()
            )
            assert made.perform() == (0, None)

        return harness.table(
            f"a job that reports {SERIES} series", harness.measure({"a step": Candidate(perform, times=n)}, rounds),
            "a step", unit="us",
        )  # fmt: skip


def sinks(rounds: int, times: int) -> str:
    """The table of the sinks."""
    with tempfile.TemporaryDirectory() as folder:
        made = Sinks(Path(folder))
        parts: dict[str, Callable[[], None]] = {
            "all sinks": made.all, "stream": made.points, "status": made.state, "progress": made.line,
        }  # fmt: skip
        candidates = {name: Candidate(repeated(run, times), times=times) for name, run in parts.items()}
        measured = harness.measure(candidates, rounds)
        made.stream.close(sync=False)
        return harness.table(f"reporting {SERIES} series", measured, "all sinks", unit="us")


def step(rounds: int, n: int) -> str:
    """The table of a small program's step, with one series and with thirty more."""
    more = "\n    ".join([f'(metric "value{i}" loss)' for i in range(SERIES)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.sx"
        np.savez(Path(folder) / "points.npz", x=np.ones((64, 4), np.float32))
        candidates = {}
        for name, text in (("one series", ""), (f"{SERIES} more series", more)):
            steps = programs.Steps(programs.stages(path, _PROGRAM.format(more=text)), n)
            candidates[name] = Candidate(steps.run, steps.begin, times=n)
        measured = harness.measure(candidates, rounds)
    pairs = zip(measured[f"{SERIES} more series"].cpu, measured["one series"].cpu, strict=True)
    extra = float(np.median([a - b for a, b in pairs]))
    text = harness.table("a step", measured, "one series", unit="us")
    return f"{text}\n  {SERIES} more series cost {extra * 1e6:.1f} us"


def main(given: Sequence[str] | None = None) -> None:
    """Print what reporting costs."""
    quick = harness.arguments(__doc__, given).quick
    print(sinks(1 if quick else 15, 2 if quick else 2000))
    print(f"\n{programs.skipping('a job', job, 1 if quick else 15, 2 if quick else 5000)}")
    print(f"\n{programs.skipping('a step', step, 1 if quick else 15, 2 if quick else 500)}")


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
