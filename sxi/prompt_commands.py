"""The commands of the prompt, each one function: its docstring is its help.

To add one, add its function: `,help`, completion and suggestions read the table.
"""

# ruff: noqa: ARG001  # every command has the one signature (session, argument)

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sxi import codes, evidence
from sxi.commands import constant
from sxi.contracts import RULES
from sxi.contracts.page import in_words
from sxi.errors import CODES, SxiError
from sxi.eval import USAGE, usage_of
from sxi.explain import explain_code
from sxi.guards import Guard
from sxi.history import SeriesLog, Track
from sxi.options import OPTIONS
from sxi.panel import fitted, glyphs, plot_lines, spark_cells, sparkline, value_text
from sxi.reader import Form, read
from sxi.reference import doc_of, documentation, paragraph
from sxi.render import cells, wrapped
from sxi.series import matches_glob
from sxi.source import Source
from sxi.suggest import did_you_mean
from sxi.values import kind_of
from sxi.workspace import PROMPT, Outcome, Workspace, key_of

if TYPE_CHECKING:
    from sxi.session import Session

Call = Callable[["Session", str], None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its name, what it takes, what it does."""

    name: str
    takes: str
    call: Call
    doc: str

    @property
    def usage(self) -> str:
        return f",{self.name} {self.takes}".rstrip()


COMMANDS: dict[str, Command] = {}
# How long `,time` measures, in seconds.
_MEASURED = 0.5


def command(name: str, takes: str = "") -> Callable[[Call], Call]:
    """Enter a command."""

    def entry(call: Call) -> Call:
        COMMANDS[name] = Command(name, takes, call, (call.__doc__ or "").strip())
        return call

    return entry


def perform(session: Session, text: str) -> None:
    """Perform the command that `text` gives, which begins with a comma.  Raises SxiError or Refused."""
    name, _, argument = text.strip()[1:].partition(" ")
    name, newline, further = name.partition("\n")
    argument = f"{further}{newline}{argument}".strip()
    if name not in COMMANDS:
        raise codes.NO_COMMAND.at(None, name=name[:40], help=did_you_mean(name, COMMANDS, ",{}") or ",help")
    found = COMMANDS[name]
    if argument and not found.takes:
        raise misused(name, f"it takes nothing, not {argument[:40]}")
    found.call(session, argument)


def misused(name: str, what: str, help: str = "") -> SxiError:
    """The error of a command that cannot be performed."""
    return codes.COMMAND_MISUSED.at(None, name=name, what=what, help=help or COMMANDS[name].usage)


def table(rows: Sequence[tuple[str, ...]], width: int, unicode: bool, *, wraps: bool = False) -> list[str]:
    """Rows in columns; the last one takes what room is left, and where that is too little for one of them a line below.

    wraps:  whether a last one that is too long goes on in further lines instead
    """
    if not rows:
        return []
    marks = glyphs(unicode)
    widths = _widths(rows, width)
    lead = sum(widths) + 2 * len(widths)
    room = width - lead
    fits = max([cells(row[-1]) for row in rows]) <= room
    lines = []
    for row in rows:
        texts = [fitted(text, w, marks) for text, w in zip(row, widths, strict=False)]
        begin = "".join([text + " " * (w - cells(text) + 2) for text, w in zip(texts, widths, strict=True)])
        if wraps:
            first, *further = wrapped(row[-1], max(room, 8))
            lines += [f"{begin}{first}".rstrip(), *[" " * lead + line for line in further]]
        elif fits:
            lines.append(f"{begin}{row[-1]}".rstrip())
        else:
            lines += [begin.rstrip(), *([f"    {fitted(row[-1], width - 4, marks)}"] if row[-1] else [])]
    return lines


def _widths(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """How wide each column but the last is: the widest give way, first to the last one, then to the screen."""
    *widths, last = [max([cells(text) for text in column]) for column in zip(*rows, strict=True)]
    for least, wanted in ((2 * width // 5, min(last, width // 3)), (8, 0)):
        room = width - 2 * len(widths) - wanted
        while sum(widths) > room and max(widths) > least:
            widths[widths.index(max(widths))] -= 1
    return widths


def _table(session: Session, rows: Sequence[tuple[str, ...]], *, wraps: bool = False) -> None:
    session.say(*table(rows, session.screen.width, session.screen.unicode, wraps=wraps))


# The program


@command("help", "[COMMAND]")
def help_(session: Session, argument: str) -> None:
    """Lists the commands, or says what one does."""
    name = argument.removeprefix(",")
    if name and name not in COMMANDS:
        raise codes.NO_COMMAND.at(None, name=name, help=did_you_mean(name, COMMANDS))
    if name:
        session.say(COMMANDS[name].usage, *[f"  {line.strip()}" for line in COMMANDS[name].doc.splitlines()])
        return
    _table(session, [(c.usage, c.doc.splitlines()[0]) for c in COMMANDS.values()], wraps=True)


@command("load", "FILE")
def load(session: Session, argument: str) -> None:
    """Reads and checks a run file: its names are in scope."""
    if not argument:
        raise misused("load", "it takes the path of a file")
    _not_running(session, "load")
    session.load(os.path.expanduser(argument))
    _tell_loaded(session)


@command("reload")
def reload(session: Session, argument: str) -> None:
    """Reads the loaded file again and begins its run anew; a run that goes on takes the file at its next step."""
    source = session.workspace.source or (session.attempt.source if session.attempt else None)
    if source is None:
        raise misused("reload", "no file is loaded", help=",load FILE")
    if session.live is not None and session.live.is_running:
        from sxi.reader import load as read_file  # noqa: PLC0415  # `load` is the command here

        session.change(session.workspace.with_file(read_file(source.path)))
        return
    session.load(source.path)
    _tell_loaded(session)


def _tell_loaded(session: Session) -> None:
    workspace = session.workspace
    own = len(workspace.names_of_file())
    text = f"{workspace.path}: {own} name{'s' * (own != 1)}"
    if workspace.has_run:
        run = session.checked()[0].checked.run
        text += f", run {run.name} of {run.steps} steps; ,run or ,step takes them"
    session.say(text)


def _not_running(session: Session, name: str) -> None:
    if session.live is not None and session.live.is_running:
        raise misused(name, "a run is going on", help=",stop")


@command("save", "FILE")
def save(session: Session, argument: str) -> None:
    """Writes the program as it stands now: the file with what was typed in its place, then the rest."""
    if not argument:
        raise misused("save", "it takes the path of a file")
    path = Path(os.path.expanduser(argument))
    if path.exists() and str(path.resolve()) not in session.outputs:
        raise misused("save", f"{argument} exists already", help="choose another name")
    try:
        path.write_text(session.workspace.text(), encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise misused("save", f"{argument} cannot be written: {reason}") from None
    session.outputs.add(str(path.resolve()))
    session.say(f"wrote {argument}")


@command("set", "NAME VALUE")
def set_(session: Session, argument: str) -> None:
    """Overrides a setting; without operands lists the settings. A run takes it at its next step."""
    settings = session.workspace.program.declared.settings
    if not argument:
        values = [(n, kind_of(session.workspace.program.value(n)), s.doc) for n, s in settings.items()]
        _table(session, [(n, v.removeprefix("the number "), doc) for n, v, doc in values])
        return
    name, _, value = argument.replace("=", " ", 1).partition(" ")
    if not value.strip():
        raise misused("set", "it takes a name and a value")
    session.change(session.workspace.with_settings({**session.workspace.settings, name: constant(value.strip())}))


@command("reset")
def reset(session: Session, argument: str) -> None:
    """Forgets the file, the run and everything that was typed."""
    _not_running(session, "reset")
    session.workspace = Workspace.empty(session.host)
    session.live = session.stages = session.error = session.failing = session.attempt = None
    session.log, session.number = SeriesLog(), 0


@command("quit")
def quit_(session: Session, argument: str) -> None:
    """Leaves."""
    session.finished = True


# The run


@command("step", "[N]")
def step(session: Session, argument: str) -> None:
    """Takes the next step of the loaded run, or the next N."""
    count = 1
    if argument:
        if not argument.isascii() or not argument.isdigit() or int(argument) < 1:
            raise misused("step", f"{argument[:40]} is not a number of steps")
        count = int(argument)
    _take(session, "step", count, behind=False)


@command("run")
def run(session: Session, argument: str) -> None:
    """Takes the steps that are left, behind the prompt; `,stop` stops it at the end of a step."""
    _take(session, "run", None, behind=session.behind)


def _take(session: Session, name: str, steps: int | None, *, behind: bool) -> None:
    if not session.workspace.has_run:
        raise misused(name, "there is no run", help=",load FILE")
    _not_running(session, name)
    live = session.ready()
    if live.is_over:
        raise misused(name, f"the run has taken its {live.step} steps", help=",reload begins it anew")
    live.start(steps)
    if behind:
        return
    try:
        while not live.wait(0.1):
            pass
    except KeyboardInterrupt:
        session.interrupt()
        live.stop()
        live.wait()
    session.hear()
    _tell_run(session)


def _tell_run(session: Session) -> None:
    assert session.live is not None
    session.say(session.title(session.live))
    shown = [t for t in session.live.log.in_order() if t.kind == "metric" or t.failed is not None]
    _table(session, [(f"  {t.label}", value_text(t.last)) for t in shown])


@command("stop")
def stop(session: Session, argument: str) -> None:
    """Stops the run at the end of the step that is being taken."""
    if session.live is None or not session.live.is_running:
        raise misused("stop", "no run is going on", help=",run")
    session.live.stop()
    session.live.wait()
    session.say(session.title(session.live))


# Series


@command("guards")
def guards(session: Session, argument: str) -> None:
    """Lists the guards: their last totals, their graphs and where they are written."""
    rows: list[tuple[str, ...]] = []
    if session.workspace.has_run:
        seen: dict[Any, tuple[Guard, list[str]]] = {}
        for name, graph in session.checked()[0].checked.graphs:
            for guard in graph.recording.guards.guards:
                _, graphs = seen.setdefault((guard.series, guard.span, guard.form), (guard, []))
                if name not in graphs:
                    graphs.append(name)
        tracks = list(session.live.log.tracks.values()) if session.live else []
        for guard, graphs in seen.values():
            rows.append((guard.label, _last(tracks, guard), guard.form, ", ".join(graphs), str(guard.span)))
    for track in session.log.in_order():
        if track.kind == "guard":
            rows.append((track.label.removeprefix("guard/"), value_text(track.last), "", "prompt", ""))
    session.say(*([] if rows else ["there are no guards"]))
    _table(session, rows)


def _last(tracks: list[Track], guard: Guard) -> str:
    """The last totals of a guard's series, one for each split, pass and group that reports it."""
    meta = dict(guard.metadata)
    own = [t for t in tracks if t.name == f"guard/{guard.name}" and meta.items() <= t.meta.items() and t.recent]
    return " ".join(dict.fromkeys([value_text(t.last) for t in own])) or "-"


@command("series", "[GLOB]")
def series(session: Session, argument: str) -> None:
    """Lists the series with their last values, those of the run and those of the prompt."""
    tracks = _chosen(session, argument or "*")
    if not tracks:
        session.say("there are no series" + (f" like {argument}" if argument else " yet"))
    marks = glyphs(session.screen.unicode)
    width = max(8, session.screen.width // 4)
    rows = []
    for t in tracks:
        drawn = sparkline(spark_cells(t, t.last_step, width), marks, from_zero=t.kind == "guard")
        rows.append((t.label, value_text(t.last), f"step {t.last_step}", drawn))
    _table(session, rows)


def _chosen(session: Session, glob: str) -> list[Track]:
    return [t for t in session.tracks() if matches_glob(glob, t.name) or t.label == glob]


@command("watch", "GLOB…")
def watch(session: Session, argument: str) -> None:
    """Chooses the series that the panel shows: `,watch guard/* train/*`; failed ones are always there."""
    if not argument:
        raise misused("watch", f"it takes globs; now they are {' '.join(session.watched)}")
    session.watched = argument.split()


@command("plot", "SERIES")
def plot(session: Session, argument: str) -> None:
    """Draws the whole course of a series; where values share a place the largest is drawn."""
    tracks = _chosen(session, argument) if argument else []
    if not tracks:
        help = did_you_mean(argument, [t.name for t in session.tracks()]) or ",series"
        raise misused("plot", f"there is no series {argument}".rstrip(), help=help)
    screen = session.screen
    for track in tracks[:4]:
        height = max(5, (screen.height - 4) // min(len(tracks), 4))
        session.say(*plot_lines(track, width=screen.width, height=height, unicode=screen.unicode))


# After an error


def _error(session: Session, name: str) -> SxiError:
    if session.error is None:
        raise misused(name, "there was no error yet", help="it shows the last one")
    return session.error


@command("why")
def why(session: Session, argument: str) -> None:
    """Explains the last error: what is wrong, why the rule exists, the repair."""
    session.say(*explain_code(_error(session, "why").code, session.screen.width).rstrip().split("\n"))


@command("where")
def where(session: Session, argument: str) -> None:
    """Shows the last error again, with its place and the calls that led there."""
    session.say(*session.frame(_error(session, "where")))


@command("value")
def value(session: Session, argument: str) -> None:
    """Shows the array that the failed guard looked at: type, range, how many violate, the first of them."""
    error = _error(session, "value")
    live = session.live
    if live is not None and error is live.error and live.evidence is not None:
        session.say(*evidence.shown(error.data, error.chain, live.evidence))
        return
    arrays = session.operands() if session.failing is not None else {}
    if not arrays:
        raise misused("value", "nothing is kept of the last error", help="it is for a guard that counted")
    session.say(*evidence.shown(error.data, error.chain, evidence.Evidence("", arrays)))


@command("fix")
def fix(session: Session, argument: str) -> None:
    """Brings the form of the last error back to the prompt, the cursor on the fault."""
    error = _error(session, "fix")
    found = session.at_fault(error.span) if error.span is not None else None
    if found is None:
        raise misused("fix", "the last error is not in a form that can be typed again", help=",where")
    session.prefill = found
    if not session.behind:
        text, cursor = found
        line_start = text.rfind("\n", 0, cursor) + 1
        shown = text.split("\n")
        row = text.count("\n", 0, cursor)
        session.say(*shown[: row + 1], " " * (cursor - line_start) + "^", *shown[row + 1 :])


# Looking things up


@command("explain", "[CODE]")
def explain(session: Session, argument: str) -> None:
    """Explains an error by its code, as 020 or shape-1; without one the last error."""
    code = argument or _error(session, "explain").code
    session.say(*explain_code(code, session.screen.width).rstrip().split("\n"))


@command("contracts")
def contracts(session: Session, argument: str) -> None:
    """Lists the contract rules."""
    rules = sorted([(rule.code.code, in_words(rule.code.message)) for rule in RULES.values()])
    _table(session, rules, wraps=True)


@command("doc", "NAME")
def doc(session: Session, argument: str) -> None:
    """Shows how something is written and what it does: a name, a form, a command, an option of a run."""
    if not argument:
        raise misused("doc", "it takes a name")
    found = documented(session, argument)
    if found is None:
        names = [*session.workspace.names(), *USAGE, *OPTIONS]
        raise codes.UNKNOWN_NAME.at(None, name=argument[:60], help=did_you_mean(argument, names))
    session.say(*found)


def documented(session: Session, name: str) -> list[str] | None:
    """The usage of a name and its documentation, a line each; None where there is no such name."""
    if name.startswith(",") and name[1:] in COMMANDS:
        found = COMMANDS[name[1:]]
        return [found.usage, *paragraph(found.doc)]
    if name in CODES:
        return explain_code(name, session.screen.width).rstrip().split("\n")
    return documentation(name, session.workspace.program)


@command("apropos", "WORD")
def apropos(session: Session, argument: str) -> None:
    """Lists what has the word in its name or in the first line of its documentation."""
    if not argument:
        raise misused("apropos", "it takes a word")
    word = argument.lower()
    rows = [(name, line) for name, line in _everything(session) if word in name.lower() or word in line.lower()]
    session.say(*([] if rows else [f"nothing is about {argument}"]))
    _table(session, sorted(rows)[:200], wraps=True)


def _everything(session: Session) -> Iterator[tuple[str, str]]:
    program = session.workspace.program
    for name in session.workspace.names():
        lines = doc_of(program.value(name)).strip().splitlines()
        yield name, lines[0] if lines else usage_of(program.value(name))
    for name, usage in USAGE.items():
        yield name, usage
    for c in COMMANDS.values():
        yield f",{c.name}", c.doc.splitlines()[0]
    for option, (wanted, _) in OPTIONS.items():
        yield f":{option}", f"an option of run: {wanted}" if wanted else "an option of run"
    for code in CODES.values():
        yield code.code, in_words(code.message)


def _one_form(name: str, text: str) -> Form:
    # the command stands before it, so that places are those of the line as typed
    forms = read(Source(PROMPT, " " * (len(name) + 2) + text))
    if len(forms) != 1:
        raise misused(name, f"it takes one expression, not {len(forms)}")
    if key_of(forms[0]) is not None:
        raise misused(name, "it takes an expression, not a declaration")
    return forms[0]


@command("type", "EXPR")
def type_(session: Session, argument: str) -> None:
    """The type of an expression, without computing it."""
    found, _ = session.workspace.traced(_one_form("type", argument))
    if isinstance(found, list | dict):
        members = found.items() if isinstance(found, dict) else enumerate(found)
        session.say(kind_of(found), *[f"  {k} {kind_of(x)}" for k, x in list(members)[:50]])
        return
    session.say(kind_of(found))


@command("graph", "NAME or EXPR")
def graph(session: Session, argument: str) -> None:
    """Prints the recorded graph of the run (step, update, a pass's name) or of an expression."""
    if argument.startswith(("(", "[", "{")):
        _, frame = session.workspace.traced(_one_form("graph", argument))
        session.say(*frame.graph.lines())
        return
    if not session.workspace.has_run:
        raise misused("graph", "there is no run", help=",load FILE, or ,graph EXPR")
    graphs = dict(session.checked()[0].checked.graphs)
    found = graphs.get(argument) or graphs.get(f"pass {argument}")
    if found is None:
        raise misused("graph", f"there is no graph {argument}".rstrip(), help=f"the graphs are {', '.join(graphs)}")
    session.say(*found.graph.lines())


@command("time", "EXPR")
def time_(session: Session, argument: str) -> None:
    """Computes an expression, a quick one several times, and says how long it takes; nothing of it is kept."""
    form = _one_form("time", argument)
    spent: list[float] = []
    found: Any = None
    begun = time.perf_counter()
    while not spent or (time.perf_counter() - begun < _MEASURED and len(spent) < 1_000):
        outcome = Outcome()
        start = time.perf_counter()
        session.workspace.with_input([form], session.number + 1, outcome)
        session.host.synchronize()
        spent.append(time.perf_counter() - start)
        found = next(iter(outcome.values()), None)
    times = f"best of {len(spent)}" if len(spent) > 1 else "once"
    session.say(f"{_seconds(min(spent))} ({times}): {kind_of(found)}")


def _seconds(t: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if t >= size:
            return f"{t / size:.3g} {unit}"
    return f"{t / 1e-6:.3g} µs"
