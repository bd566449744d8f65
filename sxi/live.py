"""A run that goes on behind the prompt: a thread that takes the reports of a runner, one by one.

Between two steps it looks whether it is to stop, and whether another program has been offered: that one
then goes on with the state of the one before.  What it has to say waits in `notices` for the prompt.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from sxi import codes, replay
from sxi.arraytype import ArrayType
from sxi.errors import SxiError
from sxi.evidence import Evidence
from sxi.guards import Guard
from sxi.history import SeriesLog
from sxi.run import Failure, Report, Runner
from sxi.source import Span

AGAIN = ",reload begins the run anew"
READY, RUNNING, STOPPED, FAILED, DONE = "ready", "running", "stopped", "failed", "done"


class Live:
    """One run and the thread that takes its steps.

    state:    ready, running, stopped, failed or done
    notices:  errors that the prompt has not shown yet, with the step they belong to
    error:    why it failed, or None; guard: the guard that did; evidence: what it looked at
    """

    def __init__(self, runner: Runner) -> None:
        self.runner = runner
        self.log = SeriesLog()
        self.state = READY
        self.notices: deque[tuple[int, SxiError]] = deque()
        self.error: SxiError | None = None
        self.guard: Guard | None = None
        self.evidence: Evidence | None = None
        self.speed = 0.0
        # not the thread's own `join` and `is_alive`: in Python 3.11 one that Ctrl-C interrupts counts as ended
        self._ended = threading.Event()
        self._ended.set()
        self._stopping = threading.Event()
        self._pending: Runner | None = None
        self._lock = threading.Lock()

    # For the prompt

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    @property
    def step(self) -> int:
        return self.runner.step

    def start(self, steps: int | None = None) -> None:
        """Take `steps` steps, or all that are left, behind the prompt."""
        self._stopping.clear()
        self.state, self.error, self.guard, self.evidence = RUNNING, None, None, None
        self._ended.clear()
        threading.Thread(target=self._work, args=(steps,), name="run", daemon=True).start()

    def stop(self) -> None:
        """Stop at the end of the step that is being taken."""
        self._stopping.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the steps have ended; whether they have."""
        return self._ended.wait(timeout)

    def offer(self, runner: Runner) -> int:
        """Go on with another program from the next step on: the number of that step.

        Raises E-USE-006 where its parameters and states are not those of the run.
        """
        check_carries(self.runner, runner)
        with self._lock:
            if self.is_running:
                self._pending = runner
                return self.runner.step + 2
            self._swap(runner)
            return self.runner.step + 1

    # The thread

    def _work(self, steps: int | None) -> None:
        try:
            self.state = self._take(steps)
        except SxiError as error:
            self._fail(self.runner.step + 1, error)
        except Exception as error:  # a thread that dies silently would look like a run that hangs
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self._fail(self.runner.step + 1, codes.INTERNAL.at(None, reason=reason))
        finally:
            self._ended.set()

    def _take(self, steps: int | None) -> str:
        taken, begun = 0, time.monotonic()
        while True:
            swapped = False
            for report in self.runner.reports():
                self._note(report)
                if report.failure is not None:
                    self._failed(report, report.failure)
                    return FAILED
                if not report.ends_step:
                    continue
                taken += 1
                self.speed = taken / max(time.monotonic() - begun, 1e-9)
                swapped = self._look_for_another()
                if self._stopping.is_set() or taken == steps:
                    return DONE if self.is_over else STOPPED
                if swapped:
                    break
            if not swapped:
                return DONE

    @property
    def is_over(self) -> bool:
        """Whether no step is left."""
        return self.runner.finished or self.runner.step >= self.runner.steps

    def _look_for_another(self) -> bool:
        with self._lock:
            other, self._pending = self._pending, None
            if other is None:
                return False
            self._swap(other)
            return True

    def _swap(self, other: Runner) -> None:
        old = self.runner
        other.state, other.step, other.taken = old.state, old.step, old.taken
        other.stage_start, other.history, other.finished = old.stage_start, old.history, old.finished
        if other.stage != old.stage:
            other.enter(old.stage)
        self.runner = other

    def _note(self, report: Report) -> None:
        self.log.add(report.step, [(p.label.name, p.label.meta, p.label.kind, p.value) for p in report.points])

    def _failed(self, report: Report, failure: Failure) -> None:
        self.guard = failure.guard
        # before the error is shown: who reads it may ask for the value at once
        try:
            self.evidence = replay.examine(self.runner, report)
        except Exception:  # a fault in looking hides no verdict
            self.evidence = None
        self._fail(report.step, failure.error)
        for p in report.points:
            if p.label.kind == "guard" and p.value != 0:
                self.log.fail(report.step, p.label.name, p.label.meta)

    def _fail(self, step: int, error: SxiError) -> None:
        self.error, self.state = error, FAILED
        self.notices.append((step, error))


def check_carries(old: Runner, new: Runner) -> None:
    """Refuse a program that could not go on with the state of the one before: E-USE-006."""
    before, after = _types(old), _types(new)
    for name in {**before, **after}:
        first, second = before.get(name), after.get(name)
        if first != second:
            what = f"{name} was {first or 'nothing'} and is {second or 'nothing'}"
            raise codes.RESUME_DIFFERS.at(_span(new, name), what=what, help=AGAIN)
    if old.stage >= len(new.stages):
        raise codes.RESUME_DIFFERS.at(
            None, help=AGAIN, what=f"it is in stage {old.stage + 1}, and there are {len(new.stages)}"
        )


def _types(runner: Runner) -> dict[str, ArrayType]:
    checked = runner.stages[0].checked
    registry = checked.tracer.registry
    found = {f"the parameter {name}": p.type for name, p in registry.params.items()}
    found |= {f"the state {name}": s.type for name, s in registry.states.items()}
    return found | {f"{state} of {name}": t for (name, state), t in checked.updates[False].states.items()}


def _span(runner: Runner, name: str) -> Span | None:
    registry: Any = runner.stages[0].checked.tracer.registry
    for kind, declared in (("parameter", registry.params), ("state", registry.states)):
        found = declared.get(name.removeprefix(f"the {kind} "))
        if found is not None:
            return found.span  # type: ignore[no-any-return]  # a parameter's and a state's span is one
    return None
