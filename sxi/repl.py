"""The prompt in a terminal: keys, colours and panes.  What it answers is `session.py`'s.

The evaluator and the array module are imported behind the first prompt, in a thread that begins when
the prompt is on the screen; the first input waits for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from prompt_toolkit.application import Application, get_app, run_in_terminal
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, completion_is_selected, has_focus, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.layout.processors import Processor, Transformation, TransformationInput
from prompt_toolkit.layout.utils import explode_text_fragments
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.shortcuts.prompt import PromptSession
from prompt_toolkit.styles import Style

from sxi import __version__
from sxi.kept import KeptLines
from sxi.lexemes import indentation, is_whole, lexemes, matching, openness
from sxi.streams import is_unicode

if TYPE_CHECKING:
    from prompt_toolkit.input import Input
    from prompt_toolkit.output import Output

    from sxi.session import Session

PROMPT = "sx> "
# How often the panel may be drawn again, in seconds.
_REDRAW = 0.2
# A longer text is not highlighted while it is edited, and a longer paste is not shown.
_LONG = 50_000
# Lines below the panel that are left for the prompt.
_LEFT = 9

STYLE = Style.from_dict(
    {
        "prompt": "bold", "continuation": "ansibrightblack", "match": "bold underline", "panel.title": "bold",
        "panel.failed": "ansired bold", "panel.mark": "", "panel.name": "", "panel.value": "ansicyan",
        "panel.spark": "ansigreen", "panel.dim": "ansibrightblack", "sx.special": "ansimagenta bold",
        "sx.constant": "ansicyan", "sx.number": "ansicyan", "sx.string": "ansigreen", "sx.keyword": "ansiblue",
        "sx.comment": "ansibrightblack italic", "sx.block": "ansibrightblack italic", "sx.discard": "ansibrightblack",
        "sx.unfinished": "ansigreen underline", "sx.quote": "ansimagenta",
    }
)  # fmt: skip


def main(path: str | None = None, *, device: str = "auto") -> int:
    """Prompt until the user leaves: the exit status.

    path:  a file to load first
    """
    restored = {s: signal.signal(s, _leave) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        if os.environ.get("TERM", "dumb") in ("dumb", "unknown") or not sys.stdout.isatty():
            return Plain(device).loop(path)
        return Repl(device).loop(path)
    except OSError:  # the terminal is gone
        return 1
    except Exception as fault:  # the evaluator itself could not be imported or made
        reason = " ".join(f"{type(fault).__name__}: {fault}".split())[:300]
        sys.stderr.write(f"E-RUN-041: a fault of sxi itself: {reason}\n")
        return 1
    finally:
        for number, handler in restored.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End as a signal asks to, through everything that restores the terminal."""
    raise SystemExit(128 + number)


def write(lines: Iterable[str]) -> None:
    """Print lines in what the terminal can show."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    for line in lines:
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()


class Prompting:
    """What both kinds of prompt share: a session that is made in a thread, and its answers printed."""

    behind = False

    def __init__(self, device: str) -> None:
        self.device = device
        self.made: Session | None = None
        self.fault: BaseException | None = None
        self.loading = threading.Thread(target=self._load, name="load", daemon=True)
        # not `join`: in Python 3.11 one that Ctrl-C interrupts takes a thread that still runs for ended
        self.loaded = threading.Event()
        self.lock = threading.Lock()

    def begin_loading(self) -> None:
        """Import the evaluator and make the session, once, behind the prompt."""
        with self.lock:
            if self.loading.ident is None:
                self.loading.start()

    def _load(self) -> None:
        try:
            from sxi.session import Screen, Session  # noqa: PLC0415  # behind the prompt

            self.made = Session(device=self.device, screen=Screen(unicode=is_unicode(sys.stdout)), behind=self.behind)
        except BaseException as fault:  # it is raised where the session is asked for
            self.fault = fault
        finally:
            self.loaded.set()

    @property
    def session(self) -> Session:
        """The session, when it is made."""
        self.begin_loading()
        self.loaded.wait()
        if self.made is None:
            assert self.fault is not None
            raise self.fault
        return self.made

    def answer(self, text: str) -> None:
        """Print the answer to an input."""
        session = self.session
        self.fit(session)
        lines = self.fitted(session, session.respond(text))
        # the terminal has written ^C where the cursor was
        write(["", *lines] if session.interrupted else lines)

    def fit(self, session: Session) -> None:
        """Tell the session how large the terminal is now."""
        size = shutil.get_terminal_size()
        session.screen.width, session.screen.height = max(20, size.columns), max(5, size.lines)

    def fitted(self, session: Session, lines: list[str]) -> list[str]:  # noqa: ARG002  # one that fits them needs it
        """Lines as this prompt prints them."""
        return lines

    def close(self) -> None:
        if self.made is not None:
            self.made.close()


class Plain(Prompting):
    """The prompt of a terminal that can do nothing: a line is read, its answer is printed."""

    def loop(self, path: str | None) -> int:
        if path is not None:
            self.answer(f",load {path}")
        text = ""
        while self.made is None or not self.made.finished:
            try:
                sys.stdout.write(PROMPT if not text else "...> ")
                sys.stdout.flush()
                line = sys.stdin.readline()
                if not line:
                    write([""])
                    break
                text += line
                if is_whole(text):
                    text, whole = "", text
                    if whole.strip():
                        self.answer(whole)
            except KeyboardInterrupt:
                text = ""
                write([""])
        self.close()
        return 0


class Repl(Prompting):
    """The prompt of a terminal, with its keys, colours, panel and history."""

    behind = True

    def __init__(self, device: str, *, input: Input | None = None, output: Output | None = None) -> None:
        super().__init__(device)
        self.kept = KeptLines()
        self.drawn: Any = None
        self.above: tuple[Any, StyleAndTextTuples] = (None, [])
        self.session_of_prompts: PromptSession[str] = PromptSession(
            message=[("class:prompt", PROMPT)],
            multiline=True,
            prompt_continuation=self.continuation,
            lexer=SxHighlighter(),
            completer=ThreadedCompleter(SxCompleter(self)),
            complete_while_typing=False,
            history=SxHistory(self.kept),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=self.keys(),
            input_processors=[MatchingBrackets()],
            style=STYLE,
            include_default_pygments_style=False,
            reserve_space_for_menu=6,
            input=input,
            output=output,
        )
        window = Window(FormattedTextControl(self.panel, show_cursor=False), dont_extend_height=True, wrap_lines=False)
        layout = self.session_of_prompts.layout
        layout.container = HSplit([ConditionalContainer(window, Condition(self.has_panel)), layout.container])

    def loop(self, path: str | None) -> int:
        """Prompt until the user leaves."""
        greeting = [f"sxi {__version__}", ",help lists the commands, Ctrl-D leaves"]
        line = "   ".join(greeting)
        write([line] if len(line) <= self.session_of_prompts.app.output.get_size().columns else greeting)
        try:
            if path is not None:
                self.answer(f",load {path}")
            while self.made is None or not self.made.finished:
                try:
                    text = self.ask()
                    if text.strip():
                        self.answer(text)
                        self.hear()
                except KeyboardInterrupt:
                    write([""])
                except EOFError:
                    break
            return 0
        finally:
            self.close()

    def ask(self) -> str:
        """The next input.  Raises EOFError where the user leaves."""
        text, cursor = "", 0
        if self.made is not None and self.made.prefill is not None:
            text, cursor = self.made.prefill
            self.made.prefill = None
        app = self.session_of_prompts.app

        def begin() -> None:
            if text:
                app.current_buffer.cursor_position = cursor
            app.create_background_task(self.watch(app))

        return self.session_of_prompts.prompt(default=text, pre_run=begin)

    def fit(self, session: Session) -> None:
        size = self.session_of_prompts.app.output.get_size()
        session.screen.width, session.screen.height = max(20, size.columns), max(5, size.rows)
        depth = self.session_of_prompts.app.output.get_default_color_depth()
        session.screen.colour = depth.name != "DEPTH_1_BIT" and not os.environ.get("NO_COLOR")

    def fitted(self, session: Session, lines: list[str]) -> list[str]:
        """Lines no wider than the terminal, broken at spaces."""
        from sxi.render import indented  # noqa: PLC0415  # behind the prompt

        made = []
        for line in lines:
            # what has escapes is a frame, which fits; what is very long takes longer to break than to read
            is_short = len(line) <= session.screen.width // 2
            fits = is_short or len(line) > _LONG or not line.isprintable()
            made += [line] if fits else indented(line, session.screen.width)
        return made

    def hear(self) -> None:
        """Print what the run has to say."""
        if self.made is not None and self.made.live is not None and self.made.live.notices:
            self.fit(self.made)
            write(self.made.hear())

    async def watch(self, app: Application[str]) -> None:
        """While a prompt is shown: begin to load once it is drawn, then draw the panel again where it has changed."""
        await asyncio.sleep(0)
        self.begin_loading()
        while True:
            await asyncio.sleep(_REDRAW)
            session = self.made
            if session is None or session.live is None:
                continue
            if session.live.notices:
                await run_in_terminal(self.hear)
            version = session.panel_version
            if version != self.drawn:
                self.drawn = version
                app.invalidate()

    # What is drawn

    def panel(self) -> StyleAndTextTuples:
        """The panel above the prompt, made once for a drawing."""
        assert self.made is not None
        size = get_app().output.get_size()
        key = (self.made.panel_version, size)
        if key != self.above[0]:
            above: StyleAndTextTuples = []
            for line in self.made.panel(size.columns - 1, min(size.rows - _LEFT, 3 * size.rows // 5)):
                above += [*([("", "\n")] if above else []), *[(f"class:panel.{style}", text) for style, text in line]]
            self.above = key, above
        return self.above[1]

    def has_panel(self) -> bool:
        """Whether there is a panel; once an input is accepted the prompt alone stays."""
        return self.made is not None and self.made.live is not None and not get_app().is_done and bool(self.panel())

    def continuation(self, width: int, line_number: int, wrap_count: int) -> StyleAndTextTuples:
        """What is open at the beginning of a line: the brackets, and a quotation mark in a string."""
        if wrap_count:
            return [("class:continuation", " " * width)]
        text = self.session_of_prompts.default_buffer.text
        lines = text.split("\n", line_number) if len(text) < _LONG else []
        state = openness("\n".join(lines[:line_number]))
        shown = "".join([bracket for bracket, _ in state.brackets]) + ('"' if state.unfinished is not None else "")
        room = max(width - 1, 0)
        return [("class:continuation", (shown[-room:] if room else "").rjust(room) + " " * (width - room))]

    # Keys

    def keys(self) -> KeyBindings:
        """Enter, Ctrl-C and pasting as a prompt for forms wants them; everything else is as in other prompts."""
        keys = KeyBindings()
        typing = has_focus("DEFAULT_BUFFER") & ~is_searching

        @keys.add("enter", filter=typing & ~completion_is_selected)
        def enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if is_whole(buffer.text):
                buffer.validate_and_handle()
            else:
                buffer.insert_text("\n" + " " * indentation(buffer.document.text_before_cursor))

        @keys.add("enter", filter=typing & completion_is_selected)
        def take_completion(event: KeyPressEvent) -> None:
            event.current_buffer.complete_state = None

        @keys.add("escape", "enter", filter=typing)
        def another_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n" + " " * indentation(event.current_buffer.document.text_before_cursor))

        @keys.add("c-c", filter=typing)
        def clear(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            elif self.made is not None and self.made.live is not None:
                self.made.live.stop()

        @keys.add(Keys.BracketedPaste, filter=typing)
        def paste(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            buffer = event.current_buffer
            if len(text) <= _LONG:
                buffer.insert_text(text)
                return
            # drawing it would take longer than evaluating it
            before, after = buffer.document.text_before_cursor, buffer.document.text_after_cursor
            buffer.reset()
            event.app.exit(result=before + text + after)
            run_in_terminal(lambda: write([f"; {len(text):,} characters pasted"]))

        return keys


class SxHighlighter(Lexer):
    """Colours by the stream of lexemes."""

    def __init__(self) -> None:
        self.known: tuple[str, list[StyleAndTextTuples]] = ("", [[]])

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        text = document.text
        if text != self.known[0]:
            self.known = text, self._lines(text)
        lines = self.known[1]
        return lambda number: lines[number] if number < len(lines) else []

    @staticmethod
    def _lines(text: str) -> list[StyleAndTextTuples]:
        if len(text) > _LONG:
            return [[("", line)] for line in text.split("\n")]
        lines: list[StyleAndTextTuples] = [[]]
        for x in lexemes(text):
            for number, part in enumerate(text[x.start : x.end].split("\n")):
                if number:
                    lines.append([])
                lines[-1].append((f"class:sx.{x.kind}", part))
        return lines


class MatchingBrackets(Processor):
    """Marks the bracket at the cursor and its partner; brackets in strings and comments are text."""

    def __init__(self) -> None:
        self.known: tuple[str, int, tuple[int, int] | None] = ("", -1, None)

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        document, number = transformation_input.document, transformation_input.lineno
        fragments = transformation_input.fragments
        if get_app().is_done or len(document.text) > _LONG:
            return Transformation(fragments)
        if self.known[:2] != (document.text, document.cursor_position):
            pair = matching(document.text, document.cursor_position)
            self.known = document.text, document.cursor_position, pair
        for offset in self.known[2] or ():
            row, column = document.translate_index_to_position(offset)
            if row == number:
                fragments = explode_text_fragments(fragments)
                at = transformation_input.source_to_display(column)
                if at < len(fragments):
                    fragments[at] = (f"{fragments[at][0]} class:match", fragments[at][1])
        return Transformation(fragments)


class SxCompleter(Completer):
    """Completes by the session, where it is made already."""

    def __init__(self, prompting: Prompting) -> None:
        self.prompting = prompting

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent,  # noqa: ARG002  # prompt_toolkit gives it by this name
    ) -> Iterable[Completion]:
        session = self.prompting.made
        if session is None or len(document.text) > _LONG:
            return
        from sxi.completion import complete  # noqa: PLC0415  # behind the prompt

        try:
            found = complete(session, document.text_before_cursor)
        except Exception:  # an input that cannot be completed can still be typed
            return
        for candidate in found:
            about = "".join([c if c.isprintable() else " " for c in candidate.about[:100]])
            yield Completion(candidate.text, -candidate.length, display_meta=about)


class SxHistory(History):
    """The inputs of earlier sessions."""

    def __init__(self, kept: KeptLines) -> None:
        super().__init__()
        self.kept = kept

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self.kept.read())

    def store_string(self, string: str) -> None:
        self.kept.add(string)
