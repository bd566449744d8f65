"""Text to forms, each with the place it was read from.

The reader never recurses: open brackets are kept on a list, so text of any shape is read or refused.
After an error it goes on, at the next opening bracket in column 1 where the brackets themselves are
wrong, so that one reading finds all errors of a text.
"""

from __future__ import annotations

import gc
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sxi import codes
from sxi.errors import Label, SxiError
from sxi.source import Source, Span
from sxi.suggest import suggest_file
from sxi.tokens import BadToken, atom_value, escaped_text

MAX_BYTES = 100_000_000
MAX_DEPTH = 1_000
MAX_ERRORS = 20
CLOSER = {"(": ")", "[": "]", "{": "}"}


def _shown(form: Form) -> str:
    # A form's text and place instead of its parts: a deep form must not recurse, a long one must not flood.
    span = form.span
    text = span.source.text[span.start : min(span.end, span.start + 40)]
    return f"<{type(form).__name__} {text!r} at {span}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Number:
    """A number: an int of any size, or a binary64 real."""

    value: int | float
    span: Span

    __repr__ = _shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Text:
    """A string, its escapes replaced and its line ends made `\\n`."""

    value: str
    span: Span

    __repr__ = _shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Symbol:
    """A name."""

    name: str
    span: Span

    __repr__ = _shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Keyword:
    """A keyword; `name` is without the colon."""

    name: str
    span: Span

    __repr__ = _shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Group:
    """A bracketed form; `bracket` is the one that opens it."""

    bracket: str
    items: tuple[Form, ...]
    span: Span

    @property
    def head(self) -> str:
        """The name that a form in round brackets begins with, otherwise ""."""
        if self.bracket == "(" and self.items and isinstance(self.items[0], Symbol):
            return self.items[0].name
        return ""

    __repr__ = _shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quote:
    """`'form`: the form itself."""

    form: Form
    span: Span

    __repr__ = _shown


Form = Number | Text | Symbol | Keyword | Group | Quote


def load(path: str, *, span: Span | None = None) -> Source:
    """The text of the file at `path`, which is UTF-8 with or without a byte order mark.

    path:   as messages are to name it
    span:   the form that asked for the file, where there is one
    raises: E-READ-001 where the bytes are not UTF-8, E-READ-002 where there are none
    """
    try:
        with open(path, "rb") as file:  # a device may have no end
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        near = suggest_file(path) if isinstance(error, FileNotFoundError) else None
        help = f"did you mean {near}?" if near else None
        raise codes.FILE_UNREADABLE.at(span, path=path, reason=reason, help=help) from error
    if len(raw) > MAX_BYTES:
        raise codes.FILE_UNREADABLE.at(span, path=path, reason=f"it holds more than {MAX_BYTES:,} bytes")
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return Source(path, raw.decode())
    except UnicodeDecodeError as error:
        source = Source(path, raw.decode(errors="replace"))
        at = len(raw[: error.start].decode())
        place = Span(source, at, at + 1)
        raise codes.NOT_UTF8.at(place, label="not UTF-8", byte=raw[error.start]) from error


def read(source: Source) -> tuple[Form, ...]:
    """The top-level forms of `source`.

    raises: its first error; an `Incomplete` where that is that the text ends within a form
    """
    forms, errors = read_all(source)
    if errors:
        raise errors[0]
    return forms


def read_all(source: Source) -> tuple[tuple[Form, ...], list[SxiError]]:
    """The top-level forms of `source` that are whole, and its first errors in their order, at most 20."""
    reading = _Reading(source)
    at: int | None = 0
    with _no_collection():
        while at is not None and len(reading.errors) < MAX_ERRORS:
            at = reading.go_on(at)
    reading.finish()
    errors = sorted(reading.errors, key=_start)[:MAX_ERRORS]
    return tuple(_without(reading.forms, errors)), errors


@contextmanager
def _no_collection() -> Iterator[None]:
    """Make forms without looking for cycles: there are none, and the search would double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _start(error: SxiError) -> int:
    return error.span.start if error.span else 0


def _without(forms: list[Form], errors: list[SxiError]) -> list[Form]:
    """`forms` without those that an error lies in."""
    places = [_start(error) for error in errors]

    def is_whole(span: Span) -> bool:
        after = bisect_left(places, span.start)
        return after == len(places) or places[after] >= span.end

    return [form for form in forms if is_whole(form.span)]


# The groups of _TOKEN: what a match is, by the number of the group that matched.
_OPEN, _CLOSE, _ATOM, _STRING, _PREFIX, _COMMENT, _BLOCK, _QUOTE, _END = range(1, 10)
_TOKEN = re.compile(
    r"""[ \t\r\n]*+
    (?: ([(\[{])
      | ([)\]}])
      | (?!\#[|;]) ([^ \t\r\n"'()\[\]{};]++)
      | ("[^"\\]*+")
      | ('|\#;)
      | (;[^\r\n]*+)
      | (\#\|)
      | (")
      | (\Z)
    )""",
    re.VERBOSE,
)
_BLOCK_EDGE = re.compile(r"#\||\|#")
_STRING_PART = re.compile(r'\\[\s\S]|"')
_TOP_LEVEL = re.compile(r"(?:\A|(?<=[\r\n]))[(\[{]")
# How many tokens are looked at to find where a bracket was meant to close.
_FAR = 20_000


def _block_end(text: str, start: int) -> int | None:
    """The end of the block comment at `start`, None where it has none."""
    depth = 0
    for edge in _BLOCK_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "#|" else -1
        if depth == 0:
            return edge.end()
    return None


def _string_end(text: str, start: int) -> int | None:
    """The end of the string at `start`, None where it has none."""
    return next((part.end() for part in _STRING_PART.finditer(text, start + 1) if part[0] == '"'), None)


def _tokens(text: str, at: int) -> Iterator[tuple[int, int, int]]:
    """Kind, start and end of the tokens from `at` on, but comments, up to the end or to what does not end."""
    while True:
        match = _TOKEN.match(text, at)
        kind = (match.lastindex if match else None) or _END
        if match is None or kind == _END:
            return
        start, end = match.span(kind)
        if kind in (_BLOCK, _QUOTE):
            whole = (_block_end if kind == _BLOCK else _string_end)(text, start)
            if whole is None:
                return
            end = whole
        at = end
        if kind not in (_COMMENT, _BLOCK):
            yield kind, start, end


@dataclass(slots=True)
class _Frame:
    """An open bracket, or the top level: what stands in it so far, and the prefixes that wait for a form."""

    bracket: str
    start: int
    around: int
    items: list[Form] = field(default_factory=list)
    prefixes: list[tuple[str, int]] = field(default_factory=list)

    @property
    def depth(self) -> int:
        """How many brackets, quotes and #; are around the next form."""
        return self.around + len(self.prefixes)


class _Reading:
    """One reading of a source: the frames that are open, and the errors found."""

    def __init__(self, source: Source) -> None:
        self.source, self.text = source, source.text
        self.top = _Frame("", 0, 0)
        self.forms = self.top.items
        self.frames = [self.top]
        self.errors: list[SxiError] = []
        self.known: dict[str, tuple[Callable[[Any, Span], Form], int | float | str]] = {}
        self.long_string: Span | None = None

    def go_on(self, at: int) -> int | None:
        """Read from `at` to what the loop itself does not read; where to go on after it, None at the end."""
        source, known = self.source, self.known
        frame = self.frames[-1]
        items = frame.items
        for match in _TOKEN.finditer(self.text, at):
            kind = match.lastindex or _END
            start, end = match.span(kind)
            if kind == _ATOM:
                word = match[_ATOM]
                form, value = known.get(word) or self.new_atom(word, start)
                items.append(form(value, Span(source, start, end)))
            elif kind == _OPEN:
                if frame.depth >= MAX_DEPTH:
                    return self.too_deep(start, end)
                frame = _Frame(match[_OPEN], start, frame.depth + 1)
                self.frames.append(frame)
                items = frame.items
                continue
            elif kind == _CLOSE:
                if CLOSER.get(frame.bracket) != match[_CLOSE]:
                    return self.bad_closer(start)
                self.frames.pop()
                group = Group(frame.bracket, tuple(items), Span(source, frame.start, end))
                if frame.prefixes:
                    self.nothing_follows(frame)
                frame = self.frames[-1]
                items = frame.items
                items.append(group)
            elif kind == _STRING:
                items.append(self.string(start, end))
            elif kind == _PREFIX:
                if frame.depth >= MAX_DEPTH:
                    return self.too_deep(start, end)
                frame.prefixes.append((match[_PREFIX], start))
                continue
            elif kind == _COMMENT:
                continue
            else:
                return self.apart(kind, start)
            if frame.prefixes:
                self.apply_prefixes(frame)
            if len(self.errors) >= MAX_ERRORS:
                return None
        return None

    def place(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def new_atom(self, word: str, start: int) -> tuple[Callable[[Any, Span], Form], int | float | str]:
        """What `word` is, kept for the next time; after its error a symbol, whose form will be left out."""
        try:
            value = atom_value(word)
        except BadToken as bad:
            self.errors.append(bad.at(self.source, start))
            return Symbol, word
        form: Callable[[Any, Span], Form] = Number
        if isinstance(value, str):
            form = Keyword if word[0] == ":" else Symbol
        self.known[word] = form, value
        return form, value

    def string(self, start: int, end: int) -> Text:
        """The string whose quotes are at `start` and before `end`."""
        span, raw = Span(self.source, start, end), self.text[start + 1 : end - 1]
        if raw.isprintable() and "\\" not in raw:
            return Text(raw, span)
        if self.long_string is None and _TOP_LEVEL.search(self.text, start, end):
            self.long_string = span
        value, bad_tokens = escaped_text(raw)
        self.errors.extend(bad.at(self.source, start + 1) for bad in bad_tokens[: MAX_ERRORS - len(self.errors)])
        return Text(value, span)

    def apply_prefixes(self, frame: _Frame) -> None:
        """Quote the last form of `frame`, or leave it out, as the prefixes before it say."""
        while frame.prefixes:
            prefix, start = frame.prefixes.pop()
            form = frame.items.pop()
            if prefix == "#;":
                return
            frame.items.append(Quote(form, self.place(start, form.span.end)))

    def apart(self, kind: int, start: int) -> int | None:
        """Read what the loop does not: a block comment, a string with escapes or without an end, the text's end."""
        if kind == _BLOCK:
            end = _block_end(self.text, start)
            if end is None:
                self.errors.append(codes.UNFINISHED_COMMENT.at(self.place(start, start + 2), label="it begins here"))
                self.skip_to(None)
            return end
        if kind == _QUOTE:
            end = _string_end(self.text, start)
            if end is None:
                return self.unfinished_string(start)
            frame = self.frames[-1]
            frame.items.append(self.string(start, end))
            self.apply_prefixes(frame)
            return end
        return None

    def unfinished_string(self, start: int) -> int | None:
        labels: tuple[Label, ...] = ()
        if self.long_string is not None:
            labels = (Label(self.long_string, "does this string end too late?"),)
        place = self.place(start, start + 1)
        self.errors.append(codes.UNFINISHED_STRING.at(place, label="it begins here", labels=labels))
        next_form = _TOP_LEVEL.search(self.text, start + 1)
        return self.skip_to(next_form.start() if next_form else None)

    def skip_to(self, at: int | None) -> int | None:
        """Forget what is open, which the last error is about, and go on at `at`."""
        self.report_unclosed(self.left_open()[:-1])
        del self.frames[1:]
        self.top.prefixes.clear()
        return at

    def next_top_level(self, at: int) -> int | None:
        """Where the first bracket after `at` stands that is opened in column 1, in no string or comment."""
        if not _TOP_LEVEL.search(self.text, at):
            return None
        tokens = _tokens(self.text, at)
        return next((start for kind, start, _ in tokens if kind == _OPEN and self.begins_line(start)), None)

    def begins_line(self, start: int) -> bool:
        return start == 0 or self.text[start - 1] in "\r\n"

    def too_deep(self, start: int, end: int) -> int | None:
        place = self.place(start, end)
        self.errors.append(codes.NESTED_TOO_DEEP.at(place, label="this one goes too deep", limit=MAX_DEPTH))
        return self.skip_to(self.next_top_level(end))

    def bad_closer(self, start: int) -> int | None:
        closer, place, frame = self.text[start], self.place(start, start + 1), self.frames[-1]
        if frame is self.top:
            labels: tuple[Label, ...] = ()
            if self.forms and isinstance(self.forms[-1], Group):
                end = self.forms[-1].span.end
                labels = (Label(self.place(end - 1, end), "the form before it is closed here"),)
            self.errors.append(codes.STRAY_CLOSER.at(place, labels=labels, closer=closer))
        else:
            wanted = CLOSER[frame.bracket]
            labels = (Label(self.place(frame.start, frame.start + 1), "opened here"),)
            self.errors.append(
                codes.WRONG_CLOSER.at(
                    place,
                    label=f"expected {wanted}",
                    labels=labels,
                    closer=closer,
                    opener=frame.bracket,
                    wanted=wanted,
                )
            )
        return self.skip_to(self.next_top_level(start + 1))

    def nothing_follows(self, frame: _Frame) -> None:
        """Report the prefixes that stand before the bracket that closes `frame`."""
        prefix, start = frame.prefixes[-1]
        # 'abc' is a quoted name and a quote of what follows
        is_string = prefix == "'" and self.text[start - 1 : start].isalnum()
        help = 'a string stands in double quotes: "…"' if is_string else None
        place = self.place(start, start + len(prefix))
        self.errors.append(codes.NOTHING_FOLLOWS.at(place, prefix=prefix, help=help))

    def finish(self) -> None:
        """Report what the end of the text leaves open."""
        if len(self.errors) >= MAX_ERRORS:
            return
        if len(self.frames) == 1 and self.top.prefixes:
            prefix, start = self.top.prefixes[-1]
            self.errors.append(codes.NO_FORM_AT_END.at(self.place(start, start + len(prefix)), prefix=prefix))
        self.report_unclosed(self.left_open())

    def left_open(self) -> list[_Frame]:
        """Of the open brackets the innermost of each form begun in column 1; whole forms begun there are kept."""
        unclosed: list[_Frame] = []
        apart = True
        for frame in self.frames[1:]:
            # What begins in column 1 is a top-level form: the brackets around it were meant to close before.
            if apart or self.begins_line(frame.start):
                unclosed.append(frame)
            else:
                unclosed[-1] = frame
            items = enumerate(frame.items)
            first = next(
                (n for n, form in items if isinstance(form, Group) and self.begins_line(form.span.start)), None
            )
            apart = first is not None
            self.forms.extend(frame.items[first:] if apart else ())
        return unclosed

    def report_unclosed(self, unclosed: list[_Frame]) -> None:
        for frame in unclosed[: MAX_ERRORS - len(self.errors)]:
            place = self.place(frame.start, frame.start + 1)
            labels = _meant_end(place)
            self.errors.append(codes.UNCLOSED.at(place, label="opened here", labels=labels, opener=frame.bracket))


def _meant_end(opener: Span) -> tuple[Label, ...]:
    """Where the bracket `opener` was meant to close, by the indentation of the lines after it.

    A line contradicts the bracket it stands in where it begins at or left of the bracket's column, or,
    for a bracket at the end of its line, of that line's first column.
    """
    source = opener.source
    open_at: list[tuple[int, int]] = []
    line, last = opener.line, opener.end
    for kind, start, end in islice(_tokens(source.text, opener.start), _FAR):
        here, column = source.position(start)
        if here > line and open_at and kind != _CLOSE:
            begun, limit = open_at[-1]
            if begun + 1 == last:
                text = source.line(line)
                limit = len(text) - len(text.lstrip()) + 1
                open_at[-1] = begun, limit
            if column <= limit:
                bracket = Span(source, begun, begun + 1)
                which = "" if begun == opener.start else f", for the {bracket.text} of line {bracket.line}"
                return (Label(Span(source, last, last), f"indentation suggests {CLOSER[bracket.text]} here{which}"),)
        if kind == _OPEN:
            open_at.append((start, column))
        elif kind == _CLOSE and open_at:
            open_at.pop()
        line, last = source.position(end - 1)[0], end
    if source.text[last:].strip(" \t\r\n") and not source.text[last:].lstrip().startswith((";", "#|")):
        return ()
    return (Label(Span(source, last, last), "no bracket closes it up to here"),)
