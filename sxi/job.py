"""A run with everything it leaves: the reports fed to the stream, the status, checkpoints, the screen.

`Job.perform` is a `for` over the runner's reports.  It ends in one of: done, failed, stopped.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from sxi import checkpoint, codes, evidence, replay
from sxi.arraytype import OF_CARRIER
from sxi.errors import SxiError
from sxi.folder import Folder
from sxi.guards import metadata_text
from sxi.layout import Label, Point
from sxi.progress import Progress
from sxi.run import Failure, Report, Runner
from sxi.start import typed
from sxi.status import Status, read_status
from sxi.stream import Stream, series_text
from sxi.values import written

STOPPED, INTERRUPTED, FAILED = 75, 130, 3


class Interrupted(BaseException):
    """A second Ctrl-C: the run ends at once."""


@dataclass(eq=False)
class Stop:
    """The signals that end a run at the end of its step.

    asked:  the first that came
    ended:  whether the run is ending anyway, so that a further one changes nothing
    """

    asked: int | None = None
    ended: bool = False

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        if self.asked is not None and number == signal.SIGINT and not self.ended:
            self.ended = True
            raise Interrupted
        self.asked = self.asked or number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take SIGINT and SIGTERM; give them back afterwards.  Only the main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
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

    keep_program:  writes what is run into the folder, before anything is run
    resumed:       the step it goes on from, None for a new run
    best:          the best value of `:keep-best` so far
    saved:         the last step that has a checkpoint
    unkept:        why `failure/` could not be written, where it could not
    """

    runner: Runner
    folder: Folder
    run_id: str
    keep_program: Callable[[], None]
    screen: TextIO | None = None
    resumed: int | None = None
    best: float | None = None
    stop: Stop = field(default_factory=Stop)
    saved: int | None = None
    unkept: SxiError | None = None
    _better: float | None = None
    _since: tuple[float, int] | None = None
    _handles: dict[int, tuple[Label, str]] = field(default_factory=dict)
    _restored: list[Point] = field(default_factory=list)
    _reported: dict[tuple[str | None, int], list[Point]] = field(default_factory=dict)
    _stage: int = field(init=False)
    status: Status | None = field(init=False, default=None)
    stream: Stream | None = field(init=False, default=None)
    progress: Progress | None = field(init=False, default=None)

    def perform(self) -> tuple[int, SxiError | None]:
        """Run to the end: the exit status, and the error where it failed."""
        try:
            with self.stop.listening():
                return self._perform()
        except Interrupted:
            return self._end("stopped", f"stopped after step {self.runner.step} without a checkpoint", INTERRUPTED)

    def _perform(self) -> tuple[int, SxiError | None]:
        runner = self.runner
        self._stage = runner.stage
        self.status = Status(self.folder.path, device=runner.backend.name, step=runner.step, ranks=runner.ranks.size)
        try:
            self.keep_program()
            if self.resumed is not None:  # the status no longer tells of an earlier failure either
                shutil.rmtree(self.folder.failure, ignore_errors=True)
            self.stream = Stream(self.folder.stream)
            if self.screen is not None:
                self.progress = Progress(self.screen, runner.steps, done=runner.step)
            return self._loop(self.stream, self.status)
        except SxiError as error:
            return self._failed_to_run(error)
        except Exception as fault:
            self._failed_to_run(codes.INTERNAL.at(None, reason=f"{type(fault).__name__}: {fault}"))
            raise

    def _loop(self, stream: Stream, status: Status) -> tuple[int, SxiError | None]:
        runner = self.runner
        self._open(stream)
        status.update(state="running", step=runner.step)
        self._since = time.monotonic(), runner.step
        for report in runner.reports():
            self._write(stream, report)
            if report.failure is not None:
                return self._fail(stream, report, report.failure)
            if report.ends_step:
                self._after_step(stream)
                if status.is_due:
                    status.update(step=runner.step, throughput=self._throughput())
                if self.stop.asked is not None and not runner.is_over:
                    self._save_last(stream)
                    return self._end("stopped", f"stopped at step {runner.step}", self.stop.exit_status)
        self._save_last(stream)
        return self._end("done", "done", 0)

    def _open(self, stream: Stream) -> None:
        run = self.runner.run
        if self.resumed is None:
            stream.record(
                "open",
                run=run.name,
                run_id=self.run_id,
                steps=self.runner.steps,
                seed=run.seed,
                device=self.runner.backend.name,
            )
            first = self.runner.stages[self.runner.stage].name
            if first is not None:
                stream.annotation(0, f"stage {first}", stage=first)
        else:
            stream.resume(self.resumed)
        stream.flush()

    # Reports

    def _write(self, stream: Stream, report: Report) -> None:
        points = report.points
        known = self._handles
        try:
            handles = [known[id(p.label)][1] for p in points]
        except KeyError:
            handles = [self._handle(p.label) for p in points]
        stream.points(report.step, handles, [p.value for p in points])
        self._reported[report.pass_name, self._stage] = points
        if report.failure is not None:
            return
        if report.pass_name is not None:
            self._write_outputs(report)
            self._compare(report)
        if report.stage is not None:
            stream.annotation(report.step, f"stage {report.stage}", stage=report.stage)
            self._stage = self.runner.stage
        stream.flush()

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

    def _after_step(self, stream: Stream) -> None:
        runner = self.runner
        if self._better is not None:
            self._save_best(stream, self._better)
        every = runner.run.checkpoint_every
        if every is not None and runner.step % every == 0:
            self._save(stream)
        if self.progress is not None:
            self.progress.update(runner.step, self._shown())

    def last(self) -> dict[str, tuple[Label, float]]:
        """The last value of each metric."""
        found = {}
        for points in (self._restored, *self._reported.values()):
            for p in points:
                if p.label.kind == "metric":
                    found[self._handle(p.label)] = p.label, p.value
        return found

    def _shown(self) -> Iterator[tuple[str, float]]:
        """The metrics of the stage, for a progress line that may not look at them."""
        stage = self.runner.stages[self.runner.stage].name
        for label, value in self.last().values():
            if label.meta.get("stage", stage) == stage:
                yield label.name, value

    def _throughput(self) -> float | None:
        """Steps per second since the first one that was taken here, None before it."""
        if self._since is None:
            return None
        seconds, steps = time.monotonic() - self._since[0], self.runner.step - self._since[1]
        return round(steps / seconds, 2) if seconds > 0 and steps else None

    # Checkpoints

    def _rest(self) -> dict[str, Any]:
        runner = self.runner
        return {
            "run_id": self.run_id,
            "step": runner.step,
            "taken": runner.taken,
            "stage": runner.stage,
            "stage_name": runner.stages[runner.stage].name,
            "stage_start": runner.stage_start,
            "finished": runner.finished,
            "history": runner.history.as_json(),
            "best": self.best,
            "last": [[label.name, label.meta, value] for label, value in self.last().values()],
            "fixed": runner.run.fixed,
        }

    def _save(self, stream: Stream) -> None:
        runner = self.runner
        # the stream first: a checkpoint never knows of points that were not written
        stream.flush()
        arrays = runner.state.to_host(runner.backend)
        checkpoint.save(self.folder.checkpoints, runner.step, arrays, self._rest())
        self.saved = runner.step
        protected = () if self.resumed is None else (self.resumed,)
        checkpoint.retain(self.folder.checkpoints, runner.step, runner.run.keep_checkpoints, protected)

    def _save_last(self, stream: Stream) -> None:
        if self.saved != self.runner.step:
            self._save(stream)

    def _compare(self, report: Report) -> None:
        """Note a new best of `:keep-best`; it is saved when the step has ended, since a later pass may yet fail."""
        wanted = self.runner.run.keep_best
        if wanted is None:
            return
        name, direction = wanted
        for p in report.points:
            if p.label.name != name or p.label.kind != "metric" or p.value != p.value:
                continue
            if self.best is None or (p.value < self.best if direction == "min" else p.value > self.best):
                self._better = p.value

    def _save_best(self, stream: Stream, value: float) -> None:
        stream.flush()
        self.best, self._better = value, None
        arrays = self.runner.state.to_host(self.runner.backend)
        checkpoint.save_best(self.folder.checkpoints, self.runner.step, arrays, self._rest())

    # The end

    def _fail(self, stream: Stream, report: Report, failure: Failure) -> tuple[int, SxiError | None]:
        """All points are written; one annotation for the guard, then the closing one.  Nothing else happens."""
        error = failure.error
        if failure.guard is not None:
            facts = {k: error.data[k] for k in ("guard", "meta", "count", "source")}
            stream.annotation(report.step, f"guard {failure.guard.name} failed", **facts)
        stream.flush()
        described = {**error.data, "also": [other.data for other in failure.also]}
        self._look(report, failure)
        return self._end("failed", f"failed: {error}", FAILED, error=error, described=described, step=report.step)

    def _look(self, report: Report, failure: Failure) -> None:
        """Keep what the guard looked at; where that cannot be kept, the guard's failure is what counts."""
        try:
            found = replay.examine(self.runner, report)
            evidence.keep(self.folder.failure, failure.error.data, failure.error.chain, found)
        except SxiError as error:
            self.unkept = error
        except Exception as error:  # a fault of ours in looking hides no verdict
            self.unkept = codes.INTERNAL.at(None, reason=f"{type(error).__name__}: {error}")

    def _failed_to_run(self, error: SxiError) -> tuple[int, SxiError | None]:
        """The disk or the data failed: say so wherever that is still possible."""
        described: dict[str, Any] = {
            "code": error.code, "message": error.message, "guard": None, "meta": {}, "count": None,
            "step": self.runner.step, "source": None if error.span is None else str(error.span), "also": [],
        }  # fmt: skip
        return self._end("failed", f"failed: {error}", error.exit_status, error=error, described=described)

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
        """Close everything, the stream first: what is "done" has all its lines.

        Where that fails too, an `error` that led here is the one that counts; without one, that failure is raised.
        """
        self.stop.ended = True
        if self.progress is not None:
            self.progress.close(self.runner.step, self._shown())
        failed: SxiError | None = None
        try:
            if self.stream is not None:
                self.stream.annotation(self.runner.step if step is None else step, text)
                self.stream.close()
        except SxiError as raised:
            if error is None:
                raise
            failed = raised
        try:
            if self.status is not None:
                self.status.update(
                    force=True, state=state, step=self.runner.step, error=described, throughput=self._throughput()
                )
        except SxiError as raised:
            failed = raised
        if failed is not None and error is None:
            raise failed
        return status, error

    def go_on(self) -> list[str]:
        """Take over the newest whole checkpoint: lines that say which, and what was skipped.

        A run that was killed before its first checkpoint begins again.  Raises the errors of `resumed`.
        """
        runner = self.runner
        if checkpoint.is_empty(self.folder.checkpoints) and not self._was_done():
            runner.begin()
            self.resumed = 0
            return ["there is no checkpoint yet: beginning again"]
        rest, found, skipped = resumed(runner, self.folder, self.run_id)
        self.resumed = self.saved = runner.step
        self.best = rest["best"]
        self._restored = [Point(Label(name, meta, "metric"), value) for name, meta, value in rest["last"]]
        return [*[f"skipped: {line}" for line in skipped], f"going on from {found}"]

    def _was_done(self) -> bool:
        """Whether the run came to its end, which leaves a checkpoint."""
        try:
            return bool(read_status(self.folder.path)["state"] == "done")
        except SxiError:
            return False

    def summary(self) -> list[str]:
        """`name k=v value` for the last value of each metric."""
        return summary_lines(list(self.last().values()))


def summary_lines(values: Sequence[tuple[Label, float]]) -> list[str]:
    """`name k=v value` for each, metadata in the order written."""
    lines = []
    for label, value in values:
        meta = [f"{k}={metadata_text(v)}" for k, v in label.meta.items()]
        lines.append(" ".join([label.name, *meta, f"{value:.6g}"]))
    return lines


def resumed(runner: Runner, folder: Folder, run_id: str) -> tuple[dict[str, Any], Path, list[str]]:
    """Load the newest whole checkpoint of this run into `runner`: what it kept, where, and what was skipped.

    Raises E-RUN-043 where there is none, E-USE-006 where the program declares something else than was saved.
    """
    found, skipped = checkpoint.newest(folder.checkpoints, run_id)
    if found is None:
        raise codes.NO_CHECKPOINT.at(None, path=folder.checkpoints, notes=tuple(skipped))
    return load_state(runner, found), found, skipped


def load_state(runner: Runner, path: Path, *, goes_on: bool = True) -> dict[str, Any]:
    """Make a checkpoint the state of a runner, which need not have begun; what else the checkpoint kept.

    goes_on:  whether steps are to follow, so that the options that fix their order must be the same
    """
    arrays, rest = checkpoint.load(path)
    code = codes.RESUME_DIFFERS if goes_on else codes.STATE_DIFFERS
    number = rest["stage"]
    names = [stage.name for stage in runner.stages]
    if number >= len(names) or names[number] != rest["stage_name"]:
        before, now = rest["stage_name"] or "none", names[number] if number < len(names) else "none"
        raise code.at(None, what=f"stage {number + 1} was {before} and is {now or 'none'}")
    if number != runner.stage:
        runner.enter(number)
    differences = list(_differences(runner, arrays, rest["fixed"] if goes_on else {}))
    if differences:
        raise code.at(None, what=differences[0], notes=tuple(differences[1:]))
    runner.state.load(arrays, runner.backend)
    runner.step, runner.taken = rest["step"], rest["taken"]
    runner.stage_start, runner.finished = rest["stage_start"], rest["finished"]
    runner.history.load(rest["history"])
    return rest


def _differences(runner: Runner, arrays: dict[str, Any], fixed: dict[str, Any]) -> Iterator[str]:
    """How a program's parameters, states and options differ from those that were saved."""
    before = {name: typed(x) for name, x in arrays.items()}
    now = {name: str(type.with_dtype(OF_CARRIER[type.carrier])) for name, type in runner.state_types().items()}
    for name in {**now, **before}:
        if before.get(name) != now.get(name):
            yield f"{name} was {before.get(name, 'nothing')} and is {now.get(name, 'nothing')}"
    for option, value in fixed.items():
        given = runner.run.fixed.get(option)
        if given != value:
            yield f":{option} was {_option_text(value)} and is {_option_text(given)}"


def _option_text(value: Any) -> str:
    return "none" if value is None else written(value)
