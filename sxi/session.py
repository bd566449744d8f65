"""All that the prompt does, without a terminal: text in, lines out.

An input is one or more forms, or a command that begins with a comma.  Forms are a step of the session:
what they define, report and count holds together, or nothing of it does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, TextIO

from sxi import codes, guards, render
from sxi.backends import Backend, open_backend
from sxi.checking import deep_calls
from sxi.errors import SxiError
from sxi.evidence import Seen
from sxi.guards import Guard
from sxi.history import SeriesLog, Track
from sxi.job import INTERRUPTED
from sxi.lexemes import inputs, is_command
from sxi.live import RUNNING, Live
from sxi.panel import Line, panel_lines
from sxi.prompt_commands import perform
from sxi.reader import Form, load, read_all
from sxi.run import Runner
from sxi.series import as_f32, matches
from sxi.show import value_lines
from sxi.source import Source, Span
from sxi.stages import CheckedStage, check_run
from sxi.workspace import PROMPT, Key, Outcome, Refused, Typed, Workspace, key_of

MOST_SHOWN = 20


@dataclass(slots=True)
class Screen:
    """What values and errors are printed for."""

    width: int = 80
    height: int = 24
    colour: bool = False
    unicode: bool = True


@dataclass(slots=True)
class Answer:
    """What an input gave: results and remarks in their order, and its errors as they print.

    lines:        (whether the line is of an error, the line)
    interrupted:  whether Ctrl-C ended it
    """

    lines: list[tuple[bool, str]] = field(default_factory=list)
    errors: list[SxiError] = field(default_factory=list)
    interrupted: bool = False

    def say(self, lines: Sequence[str]) -> None:
        self.lines += [(False, line) for line in lines]


@dataclass(slots=True, eq=False)
class Attempt:
    """A file that was refused, with what was typed to repair it."""

    source: Source
    typed: dict[Key, Typed] = field(default_factory=dict)


class Session:
    """One prompt: its definitions, its run, its last values and its last error.

    screen:    what to print for
    number:    of the last input that was evaluated, the step of the session
    log:       the series of its own inputs; `live.log` holds those of the run
    live:      the run of the loaded file once steps were taken, or None
    error:     the last error; failing: the guard it came from
    watched:   globs of the series that the panel shows
    prefill:   (text, cursor) that the next prompt is to begin with, or None
    behind:    whether `,run` returns at once; where nobody types on, it waits
    finished:  whether `,quit` was given
    """

    def __init__(self, *, device: str = "auto", screen: Screen | None = None, behind: bool = False) -> None:
        self.screen = screen or Screen()
        self.device, self.behind = device, behind
        self.host = open_backend("cpu")
        self.workspace = Workspace.empty(self.host)
        self.number = 0
        self.log = SeriesLog()
        self.live: Live | None = None
        self.stages: list[CheckedStage] | None = None
        self.error: SxiError | None = None
        self.failing: Guard | None = None
        self.attempt: Attempt | None = None
        self.watched = ["guard/*"]
        self.prefill: tuple[str, int] | None = None
        self.finished = False
        self.outputs: set[str] = set()
        self._backend: Backend | None = None
        self._failed_at: tuple[Workspace, Sequence[Form], int] | None = None
        self._answer = Answer()
        self._held = ExitStack()
        # held for as long as the session lives: a run evaluates in a thread of its own
        self._held.enter_context(deep_calls())

    def close(self) -> None:
        """End the run, if one goes on, and give back what the session holds."""
        if self.live is not None:
            self.live.stop()
            self.live.wait()
        self._held.close()

    # Text in, lines out

    def respond(self, text: str) -> list[str]:
        """The lines that answer an input.  Never raises: an error is an answer."""
        return [line for _, line in self.answer(text).lines]

    def answer(self, text: str) -> Answer:
        """The same, with results and errors told apart."""
        answer = self._answer = Answer()
        try:
            if is_command(text):
                perform(self, text)
            else:
                self._evaluate(text)
        except KeyboardInterrupt:
            answer.interrupted = True
            answer.lines.append((True, "interrupted"))
        except Refused as refused:
            self.refuse(refused.errors)
        except SxiError as error:
            self.refuse([error])
        except RecursionError:
            self.refuse([codes.TOO_DEEP.at(None, limit="10,000")])
        except MemoryError:
            self.refuse([codes.OUT_OF_MEMORY.at(None, type="what was asked for")])
        except Exception as error:  # whatever is typed, the prompt goes on
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            self.refuse([codes.INTERNAL.at(None, reason=reason)])
        if not self.behind:
            self.hear()
        return answer

    def say(self, *lines: str) -> None:
        """Add to the answer of the input that is being answered."""
        self._answer.say(lines)

    def interrupt(self) -> None:
        """Note that Ctrl-C ended the input that is being answered, which has more to say."""
        self._answer.interrupted = True

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the last input."""
        return self._answer.interrupted

    def refuse(self, errors: Sequence[SxiError], failing: Guard | None = None) -> None:
        """Answer with errors; the first is the session's last error."""
        self._keep(errors[0], failing)
        self._answer.errors += errors
        for error in errors[:MOST_SHOWN]:
            self._answer.lines += [(True, line) for line in self.frame(error)]

    def _keep(self, error: SxiError, failing: Guard | None) -> None:
        self.error, self.failing = error, failing
        place = str(error.span) if error.span else None
        record = {"code": error.code, "message": error.message, "place": place}
        self.workspace = self.workspace.with_stars([*self.workspace.stars()[:3], record])

    def frame(self, error: SxiError) -> list[str]:
        """An error as it prints here."""
        s = self.screen
        return render.frame(error, width=s.width, colour=s.colour, unicode=s.unicode).split("\n")

    def shown(self, value: Any) -> list[str]:
        """A value as it prints here."""
        s = self.screen
        return value_lines(value, width=s.width, height=max(6, s.height - 4), unicode=s.unicode)

    # Evaluating

    def _evaluate(self, text: str) -> None:
        forms, errors = read_all(Source(PROMPT, text))
        if errors:
            raise Refused(errors)
        if forms:
            self.evaluate(forms)

    def evaluate(self, forms: Sequence[Form]) -> None:
        """Take one step of the session: all of it holds, or nothing does."""
        self.number += 1
        outcome = Outcome()
        try:
            if self.attempt is not None and self._repairs(self.attempt, forms):
                workspace = self._repaired(self.attempt, forms)
            else:
                workspace = self.workspace.with_input(forms, self.number, outcome)
        finally:
            failing = self._count(outcome)
            printed = [part.printed for part in outcome.in_order()]
            if sys.exc_info()[0] is not None or failing:
                self._answer.say([line for texts in printed for text in texts for line in text.split("\n")])
        if failing:
            found = [guards.guard_error(t, self.number) for t in failing]
            self.refuse(found, failing[0].source)
            self._failed_at = workspace, forms, self.number
            return
        self._replace(workspace)
        for part in outcome.in_order():
            self._answer.say([line for text in part.printed for line in text.split("\n")])
            for value in part.values:
                if value is not None:
                    self._answer.say(self.shown(value))
        self._remember([v for v in outcome.values() if v is not None])

    def _remember(self, values: list[Any]) -> None:
        if values:
            before = self.workspace.stars()
            last = [*values[::-1], *before[:3]][:3]
            self.workspace = self.workspace.with_stars([*last, before[3]])

    def _count(self, outcome: Outcome) -> list[guards.Total]:
        """Report what an input reported, and give the guards that counted."""
        reported = outcome.reported()
        forms, counts = [g for g, _ in reported.guards], [c for _, c in reported.guards]
        points: list[tuple[str, dict[str, Any], str, float]] = []
        by_series: dict[Any, list[float]] = {}
        for s, value in reported.series:
            by_series.setdefault((s.name, s.metadata, s.kind, s.reduce), []).append(value)
        for (name, metadata, kind, reduce), values in by_series.items():
            points.append((name, dict(metadata), kind, as_f32(_reduced(reduce, values))))
        for total in guards.totals_by_series(forms, counts):
            count = guards.series_value(total.count)
            if count is not None:
                points.append((f"guard/{total.guard.name}", dict(total.guard.metadata), "guard", count))
        if points:
            self.log.add(self.number, points)
        failing = guards.failures(forms, counts)
        for total in failing:
            self.log.fail(self.number, f"guard/{total.guard.name}", dict(total.guard.metadata))
        return failing

    # The program and its run

    def _replace(self, workspace: Workspace) -> None:
        """Take over a workspace; where a run goes on, its program too, or neither."""
        changed = workspace.program.declared is not self.workspace.program.declared
        if changed:
            self.change(workspace)
        else:
            self.workspace = workspace

    def change(self, workspace: Workspace) -> None:
        """Take over another program: a run that goes on takes it at its next step, or it is refused."""
        if self.live is not None and self.live.is_running:
            stages = check_run(workspace.loaded, self.host, workspace.settings)
            step = self.live.offer(self._runner(stages, self.live.runner.stage))
            self.say(f"the run takes it at step {step}")
            self.stages = stages
        else:
            self.stages = None
        self.workspace = workspace

    def _runner(self, stages: list[CheckedStage], stage: int = 0) -> Runner:
        if self._backend is None:
            self._backend = open_backend(self.device)
        return Runner(stages, self._backend, self.host, stage=min(stage, len(stages) - 1))

    def checked(self) -> list[CheckedStage]:
        """The run's stages with every contract checked.  Raises an SxiError where one does not hold."""
        if self.stages is None:
            self.stages = check_run(self.workspace.loaded, self.host, self.workspace.settings)
        return self.stages

    def ready(self) -> Live:
        """The run, made ready to take its next step: begun, or gone on with under the program as it is now."""
        stages = self.checked()
        if self.live is None:
            runner = self._runner(stages)
            runner.begin()
            self.live = Live(runner)
        elif self.live.runner.stages is not stages:
            self.live.offer(self._runner(stages, self.live.runner.stage))
        return self.live

    def load(self, path: str) -> None:
        """Read and check a file; its names are in scope.  Raises SxiError or Refused."""
        self.take_file(Attempt(load(path)))

    def take_file(self, attempt: Attempt) -> None:
        """Load a file with what was typed to repair it."""
        try:
            workspace = self.workspace.with_file(attempt.source, attempt.typed)
        except (Refused, SxiError):
            self.attempt = attempt
            raise
        self.attempt, self.live = None, None
        self.workspace, self.stages = workspace, None
        self._answer.say([line for text in workspace.program.declared.printed for line in text.split("\n")])
        if workspace.has_run:
            self.checked()

    def _repairs(self, attempt: Attempt, forms: Sequence[Form]) -> bool:
        """Whether an input redefines only what a refused file defines."""
        keys = {key_of(f) for f in read_all(attempt.source)[0]}
        return all([key_of(f) in keys and key_of(f) is not None for f in forms])

    def _repaired(self, attempt: Attempt, forms: Sequence[Form]) -> Workspace:
        stars = self.workspace.stars()
        for place, form in enumerate(forms):
            key = key_of(form)
            assert key is not None
            attempt.typed[key] = Typed(form, self.number, place, stars)
        self.take_file(attempt)
        return self.workspace

    def operands(self) -> dict[str, Seen]:
        """What the guard of the prompt that failed last looked at, by its part, in the host's memory."""
        if self.failing is None or self._failed_at is None:
            return {}
        workspace, forms, number = self._failed_at
        for place, form in enumerate(forms):
            if key_of(form) is None:
                found = workspace.operands_of(form, place, number, self.failing)
                if found:
                    return found
        return {}

    # What the prompt shows of the run

    def hear(self) -> list[str]:
        """Errors of the run that were not shown yet, as they print; they are answers too."""
        if self.live is None:
            return []
        lines: list[str] = []
        while self.live.notices:
            _, error = self.live.notices.popleft()
            self._keep(error, self.live.guard)
            self._answer.errors.append(error)
            own = self.frame(error)
            self._answer.lines += [(True, line) for line in own]
            lines += own
        return lines

    def tracks(self) -> list[Track]:
        """The series of the run and of the session, failed ones first."""
        logs = [self.live.log, self.log] if self.live is not None else [self.log]
        return [t for log in logs for t in log.in_order()]

    def panel(self, width: int, height: int) -> list[Line]:
        """The panel above the prompt: nothing before the first step of a run."""
        live = self.live
        if live is None:
            return []
        tracks = [t for t in live.log.in_order() if t.failed is not None or matches(self.watched, t.name)]
        return panel_lines(
            tracks, self.title(live), live.log.step, width=width, height=height, unicode=self.screen.unicode
        )

    @staticmethod
    def title(live: Live) -> str:
        """One line about a run: its name, its step, how it stands."""
        run = live.runner
        speed = f"  {live.speed:.3g} steps/s" if live.state == RUNNING and live.speed else ""
        stage = run.stages[run.stage].name
        named = f" {stage}" if stage else ""
        return f"{run.run.name}{named}  step {run.step}/{run.steps}  {live.state}{speed}"

    @property
    def panel_version(self) -> tuple[Any, ...]:
        """Differs where the panel would."""
        live = self.live
        return () if live is None else (id(live), live.log.version, live.state, *self.watched)

    # Places

    def at_fault(self, span: Span) -> tuple[str, int] | None:
        """The text to edit where an error points, and the place in it: an input, or a form of the file."""
        if span.source.path == PROMPT:
            return span.source.text, span.start
        form = self.workspace.form_of(span.source, span.start)
        if form is None and self.attempt is not None and span.source is self.attempt.source:
            forms, _ = read_all(span.source)
            form = next((f for f in forms if f.span.start <= span.start < f.span.end), None)
        return None if form is None else (form.span.text, span.start - form.span.start)


def _reduced(reduce: str, values: list[float]) -> float:
    """The values that one input gave a series, as one."""
    if reduce in ("min", "max"):
        odd = [v for v in values if math.isnan(v)]
        return odd[0] if odd else (min if reduce == "min" else max)(values)
    if reduce == "last":
        return values[-1]
    return sum(values) / (len(values) if reduce == "mean" else 1)


# Without a terminal


def run_piped(text: str, out: TextIO, err: TextIO, *, screen: Screen | None = None, device: str = "auto") -> int:
    """Answer the inputs of a text in order, results to `out` and errors to `err`, up to the first error.

    result:  the exit status: of the first error, of Ctrl-C, or 0
    """
    session = Session(device=device, screen=screen)
    try:
        for start, piece in inputs(text):
            # blank lines before it, so that places are those of the whole text
            answer = session.answer("\n" * text.count("\n", 0, start) + piece)
            for is_error, line in answer.lines:
                (err if is_error else out).write(f"{line}\n")
            out.flush()
            if answer.errors:
                return answer.errors[0].exit_status
            if answer.interrupted:
                return INTERRUPTED
            if session.finished:
                break
        return 0
    finally:
        session.close()
