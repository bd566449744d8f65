"""A run with everything it leaves: the reports fed to the stream, the status, checkpoints, the screen.

`Job.perform` is a `for` over the runner's reports.  It ends in one of: done, failed, stopped.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from sxi import checkpoint, codes, replay
from sxi.arraytype import ArrayType
from sxi.errors import SxiError
from sxi.folder import Folder
from sxi.guards import metadata_text
from sxi.layout import Label
from sxi.progress import Progress
from sxi.run import Failure, Report, Runner
from sxi.status import Status
from sxi.stream import Stream, series_text

STOPPED, INTERRUPTED, FAILED = 75, 130, 3


class Interrupted(BaseException):
    """A second Ctrl-C: the run ends at once."""


@dataclass(eq=False)
class Stop:
    """The signals that end a run at the end of its step."""

    asked: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT:
            raise Interrupted
        self.asked = self.asked or number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM; give them back afterwards."""
        before = {s: signal.signal(s, self) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for s, handler in before.items():
                signal.signal(s, handler)

    @property
    def exit_status(self) -> int:
        return INTERRUPTED if self.asked == signal.SIGINT else STOPPED


@dataclass(eq=False)
class Job:
    """One run in its folder.

    resumed:  the step it goes on from, None for a new run
    best:     the best value of `:keep-best` so far
    last:     the last value of each metric, for the summary
    unkept:   why `failure/` could not be written, where it could not
    """

    runner: Runner
    folder: Folder
    run_id: str
    screen: TextIO | None = None
    resumed: int | None = None
    best: float | None = None
    last: dict[str, tuple[Label, float]] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    saved: int | None = None
    unkept: SxiError | None = None
    _since: tuple[float, int] | None = None
    _handles: dict[int, tuple[Label, str]] = field(default_factory=dict)
    status: Status = field(init=False)
    stream: Stream = field(init=False, default=None)  # type: ignore[assignment]  # opened by `perform`
    progress: Progress | None = field(init=False, default=None)

    def perform(self) -> tuple[int, SxiError | None]:
        """Run to the end: the exit status, and the error where it failed."""
        runner = self.runner
        self.status = Status(self.folder.path, device=runner.backend.name, step=runner.step, ranks=runner.ranks.size)
        try:
            self.stream = Stream(self.folder.stream)
        except SxiError as error:
            return self._failed_to_run(error)
        if self.screen is not None:
            self.progress = Progress(self.screen, runner.steps, done=runner.step)
        try:
            with self.stop.listening():
                return self._loop()
        except Interrupted:
            return self._end("stopped", f"stopped at step {runner.step} without a checkpoint", INTERRUPTED)
        except SxiError as error:
            return self._failed_to_run(error)

    def _loop(self) -> tuple[int, SxiError | None]:
        runner = self.runner
        self._open()
        for report in runner.reports():
            self._write(report)
            if report.failure is not None:
                return self._fail(report, report.failure)
            if report.ends_step:
                self._after_step()
                if self.stop.asked is not None and runner.step < runner.steps:
                    if self.saved != runner.step:
                        self._save()
                    return self._end("stopped", f"stopped at step {runner.step}", self.stop.exit_status)
        if self.saved != runner.step:
            self._save()
        return self._end("done", "done", 0)

    def _open(self) -> None:
        run = self.runner.run
        if self.resumed is None:
            self.stream.record(
                "open",
                run=run.name,
                run_id=self.run_id,
                steps=self.runner.steps,
                seed=run.seed,
                device=self.runner.backend.name,
            )
            first = self.runner.stages[self.runner.stage].name
            if first is not None:
                self.stream.annotation(0, f"stage {first}", stage=first)
        else:
            self.stream.resume(self.resumed)
        self.stream.flush()
        self.status.update(state="running", step=self.runner.step)

    # Reports

    def _write(self, report: Report) -> None:
        handles = [self._handle(p.label) for p in report.points]
        self.stream.points(report.step, handles, [p.value for p in report.points])
        for p in report.points:
            if p.label.kind == "metric":
                self.last[self._handle(p.label)] = p.label, p.value
        if report.failure is not None:
            return
        if report.pass_name is not None:
            self._write_outputs(report)
            self._keep_best(report)
        if report.stage is not None:
            self.stream.annotation(report.step, f"stage {report.stage}", stage=report.stage)
        self.stream.flush()

    def _handle(self, label: Label) -> str:
        """What the stream writes for a series, found once for each label."""
        known = self._handles.get(id(label))
        if known is None:
            known = self._handles[id(label)] = label, series_text(label.name, label.meta)
        return known[1]

    def _write_outputs(self, report: Report) -> None:
        if report.outputs:
            assert report.pass_name is not None
            checkpoint.save_outputs(self.folder.outputs / report.pass_name, report.step, report.outputs)

    def _after_step(self) -> None:
        runner = self.runner
        every = runner.run.checkpoint_every
        if every is not None and runner.step % every == 0:
            self._save()
        if self.progress is not None:
            self.progress.update(runner.step, self._shown())
        self.status.update(step=runner.step, throughput=self._throughput())

    def _shown(self) -> list[tuple[str, float]]:
        stage = self.runner.stages[self.runner.stage].name
        return [(label.name, value) for label, value in self.last.values() if label.meta.get("stage", stage) == stage]

    def _throughput(self) -> float | None:
        now = time.monotonic()
        if self._since is None:
            self._since = now, self.runner.step
        seconds, steps = now - self._since[0], self.runner.step - self._since[1]
        return round(steps / seconds, 2) if seconds > 0 and steps else None

    # Checkpoints

    def _rest(self) -> dict[str, Any]:
        runner = self.runner
        return {
            "run_id": self.run_id,
            "step": runner.step,
            "stage": runner.stage,
            "stage_start": runner.stage_start,
            "history": runner.history.as_json(),
            "best": self.best,
            "last": [[label.name, label.meta, value] for label, value in self.last.values()],
            "fixed": runner.run.fixed,
        }

    def _save(self) -> None:
        runner = self.runner
        # the stream first: a checkpoint never knows of points that were not written
        self.stream.flush()
        arrays = runner.state.to_host(runner.backend)
        checkpoint.save(self.folder.checkpoints, runner.step, arrays, self._rest())
        protected = () if self.resumed is None else (self.resumed,)
        checkpoint.retain(self.folder.checkpoints, runner.step, runner.run.keep_checkpoints, protected)
        self.saved = runner.step

    def _keep_best(self, report: Report) -> None:
        wanted = self.runner.run.keep_best
        if wanted is None:
            return
        name, direction = wanted
        for p in report.points:
            if p.label.name != name or p.label.kind != "metric" or p.value != p.value:
                continue
            better = self.best is None or (p.value < self.best if direction == "min" else p.value > self.best)
            if better:
                self.best = p.value
                arrays = self.runner.state.to_host(self.runner.backend)
                checkpoint.save_best(self.folder.checkpoints, report.step, arrays, self._rest())

    # The end

    def _fail(self, report: Report, failure: Failure) -> tuple[int, SxiError | None]:
        """All points are written; one annotation for the guard, then the closing one.  Nothing else happens."""
        error = failure.error
        if failure.guard is not None:
            facts = {k: error.data[k] for k in ("guard", "meta", "count", "source")}
            self.stream.annotation(report.step, f"guard {failure.guard.name} failed", **facts)
        self.stream.flush()
        described = {**error.data, "also": [other.data for other in failure.also]}
        self._look(report, failure)
        return self._end("failed", f"failed: {error}", FAILED, error=error, described=described, step=report.step)

    def _look(self, report: Report, failure: Failure) -> None:
        """Keep what the guard looked at; where that cannot be kept, the guard's failure is what counts."""
        try:
            evidence = replay.examine(self.runner, report)
            replay.keep(self.folder.failure, failure.error.data, failure.error.chain, evidence)
        except SxiError as error:
            self.unkept = error

    def _failed_to_run(self, error: SxiError) -> tuple[int, SxiError | None]:
        """The disk or the data failed: say so wherever that is still possible."""
        described = {"code": error.code, "message": error.message, "step": self.runner.step}
        try:
            return self._end("failed", f"failed: {error}", error.exit_status, error=error, described=described)
        except SxiError:
            return error.exit_status, error

    def _end(
        self,
        state: str,
        text: str,
        status: int,
        *,
        error: SxiError | None = None,
        described: dict[str, Any] | None = None,
        step: int | None = None,
    ) -> tuple[int, SxiError | None]:
        if self.progress is not None:
            self.progress.close(self.runner.step, self._shown())
        try:
            if self.stream is not None:
                self.stream.annotation(self.runner.step if step is None else step, text)
                self.stream.close()
        finally:
            self.status.update(force=True, state=state, step=self.runner.step, error=described)
        return status, error

    def restore(self, last: list[Any]) -> None:
        """Take over the last values of metrics that a checkpoint kept."""
        for name, meta, value in last:
            label = Label(name, meta, "metric")
            self.last[self._handle(label)] = label, value

    def summary(self) -> list[str]:
        """`name k=v value` for the last value of each metric."""
        return summary_lines(list(self.last.values()))


def summary_lines(values: Sequence[tuple[Label, float]]) -> list[str]:
    """`name k=v value` for each, metadata in the order written."""
    lines = []
    for label, value in values:
        meta = [f"{k}={metadata_text(v)}" for k, v in label.meta.items()]
        lines.append(" ".join([label.name, *meta, f"{value:.6g}"]))
    return lines


def resumed(runner: Runner, folder: Folder, run_id: str) -> tuple[dict[str, Any], Path, list[str]]:
    """Load the newest whole checkpoint of this run into `runner`: what it kept, where, and what was skipped."""
    found, skipped = checkpoint.newest(folder.checkpoints, run_id)
    if found is None:
        raise codes.NO_CHECKPOINT.at(None, path=folder.checkpoints, notes=tuple(skipped))
    runner.begin()
    return load_state(runner, found), found, skipped


def load_state(runner: Runner, path: Path) -> dict[str, Any]:
    """Make a checkpoint the state of a runner that has begun; what else the checkpoint kept."""
    arrays, rest = checkpoint.load(path)
    _check_same(runner, arrays, rest)
    runner.enter(rest["stage"])
    runner.state.load(arrays, runner.backend)
    runner.step, runner.stage_start = rest["step"], rest["stage_start"]
    runner.history.load(rest["history"])
    return rest


def _check_same(runner: Runner, arrays: dict[str, Any], rest: dict[str, Any]) -> None:
    """Refuse a program whose parameters, states or options are not those that were saved."""
    now = dict(runner.state.current.named())
    for name in {**arrays, **now}:
        first = _typed(arrays.get(name))
        second = _typed(now.get(name))
        if first != second:
            raise codes.RESUME_DIFFERS.at(None, what=f"{name} was {first} and is {second}")
    for option, value in rest["fixed"].items():
        given = runner.run.fixed.get(option)
        if given != value:
            raise codes.RESUME_DIFFERS.at(None, what=f":{option} was {value} and is {given}")


def _typed(x: Any) -> str:
    return "nothing" if x is None else str(ArrayType.of(x))
