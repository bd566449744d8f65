"""How an error prints: a frame with its place in the program, one line, JSON, a line for GitHub.

Nothing that a program holds reaches the terminal as it is: control characters and those that take no
room are shown by their code points, so a frame is always lines of text of a known width.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TextIO

from sxi.errors import SxiError
from sxi.source import Source, Span

NARROWEST, WIDEST = 40, 200
# A chain of more calls than this is told by its two ends.
LONGEST_CHAIN = 8
_TAB = 4
# How many characters before and after a place are looked at: more than the widest screen shows.
_FAR = 2 * WIDEST
# A text of more characters is told by its two ends.
_LONGEST = 2_000

_STYLES = {
    "code": "1;31", "message": "1", "rule": "34", "fault": "1;31", "place": "1;34",
    "note": "1;36", "help": "1;32", "why": "2",
}  # fmt: skip
# Characters without a glyph of their own: controls, formats, line separators, surrogates, unassigned ones.
_UNSEEN = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}
# What sxi's own messages use beyond ASCII, for terminals without it.
_IN_ASCII = str.maketrans({"…": "...", "“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "−": "-", "×": "x", "→": "->"})
_COMBINING = {"Mn", "Me"}


def colours_wanted(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether output to `stream` may hold escapes: NO_COLOR, then FORCE_COLOR, then whether it is a terminal."""
    if env.get("NO_COLOR"):
        return False
    if env.get("FORCE_COLOR"):
        return env["FORCE_COLOR"] != "0"
    try:
        return env.get("TERM") != "dumb" and stream.isatty()
    except ValueError:  # a closed stream
        return False


def shown(character: str, *, unicode: bool = True) -> str:
    """`character` as it is drawn: itself, or its code point where it has no glyph or the terminal lacks it."""
    if " " <= character <= "~":
        return character
    if not unicode or unicodedata.category(character) in _UNSEEN:
        return f"\\u{{{ord(character):X}}}"
    return character


def in_ascii(text: str) -> str:
    """`text` as a terminal draws it that has ASCII only."""
    return "".join([shown(character, unicode=False) for character in text.translate(_IN_ASCII)])


def cells(text: str) -> int:
    """How many columns of a terminal `text` takes, which holds drawn characters only."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.category(character) in _COMBINING or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns, broken at spaces, within a word only where it is longer."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cells(longer) > width and line:
            lines.append(line)
            longer = word
        while cells(longer) > width:
            cut = _fitting(longer, width)
            lines.append(longer[:cut])
            longer = longer[cut:]
        line = longer
    return [*lines, line]


def indented(line: str, width: int) -> list[str]:
    """`line` in lines of at most `width` columns that all begin as it does."""
    lead = line[: len(line) - len(line.lstrip(" "))][: width // 2]
    return [lead + part for part in wrapped(line[len(lead) :], width - len(lead))]


def _fitting(text: str, width: int) -> int:
    """How many characters of `text`, at least one, fit into `width` columns."""
    used = 0
    for count, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return max(1, count)
    return len(text)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A place to underline, its text, and whether it is the fault itself or a second place."""

    span: Span
    text: str
    is_fault: bool


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """A line or part of it: how its characters from number `first` on are drawn, and what stands for the others."""

    first: int
    glyphs: list[str]
    left: str
    right: str

    @property
    def is_whole(self) -> bool:
        return not (self.left or self.right)

    def shows(self, column: int) -> bool:
        """Whether the character of a column of the line is drawn, or the line's end that it is."""
        return self.is_whole or self.first < column <= self.first + len(self.glyphs)

    @property
    def text(self) -> str:
        return f"{self.left}{''.join(self.glyphs)}{self.right}".rstrip()

    def columns(self, start: int, end: int | None) -> tuple[int, int]:
        """Where the columns `start` to `end` of the line, or from `start` to the line's end, are on the screen."""
        begin = cells(self.left + "".join(self.glyphs[: max(0, start - 1 - self.first)]))
        marked = "".join(self.glyphs if end is None else self.glyphs[: max(0, end - 1 - self.first)])
        return begin, cells(self.left + (marked.rstrip() if end is None else marked))


def _grown(glyphs: list[str], first: int, used: int, room: int) -> tuple[int, int]:
    """Where an excerpt begins that takes `used` columns from `first` on and may take `room`, and what it then takes."""
    while first > 0 and used + cells(glyphs[first - 1]) <= room:
        first -= 1
        used += cells(glyphs[first])
    return first, used


class _Frame:
    """The drawing of one error: how wide, with which characters, with or without colours."""

    def __init__(self, width: int, *, colour: bool, unicode: bool) -> None:
        self.width = max(NARROWEST, min(width, WIDEST))
        self.colour, self.unicode = colour, unicode
        self.more = "…" if unicode else "..."

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and text else text

    def plain(self, text: str) -> str:
        if len(text) > _LONGEST:
            text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
        if text.isascii() and text.isprintable():
            return text
        if not self.unicode:
            text = text.translate(_IN_ASCII)
        return "".join(shown(character, unicode=self.unicode) for character in text)

    def header(self, error: SxiError, prefix: str) -> list[str]:
        code = f"{error.code}:"
        lines = wrapped(self.plain(f"{prefix}{code} {error.message}"), self.width)
        lead = len(prefix) + len(code)
        first = prefix + self.paint(code, "code") + self.paint(lines[0][lead:], "message")
        return [first, *(self.paint(line, "message") for line in lines[1:])]

    def remark(self, word: str, text: str) -> list[str]:
        """`word: text`, the further lines indented to the text."""
        lead = f"{word}: ".ljust(6)
        lines = [part for line in text.splitlines() for part in wrapped(self.plain(line), self.width - len(lead))]
        return [
            (self.paint(lead.rstrip(), word) + lead[len(lead.rstrip()) :] if n == 0 else " " * len(lead))
            + (self.paint(line, word) if word == "why" else line)
            for n, line in enumerate(lines)
        ]

    def excerpts(self, marks: list[_Mark]) -> list[str]:
        """The lines of the marks, file by file, the fault's file first, each with what it is marked for."""
        by_source: dict[Source, list[_Mark]] = {}
        for mark in marks:
            by_source.setdefault(mark.span.source, []).append(mark)
        digits = max(len(str(mark.span.line)) for mark in marks)
        gutter = self.paint(f"{' ' * digits} |", "rule")
        lines: list[str] = []
        for source, own in by_source.items():
            arrow = self.paint(f"{' ' * digits}{'-->' if not lines else ':::'}", "rule")
            lines += [f"{arrow} {self.plain(str(own[0].span))}", gutter]
            lines += self.one_source(source, own, digits)
            lines.append(gutter)
        return lines

    def one_source(self, source: Source, marks: list[_Mark], digits: int) -> list[str]:
        lines: list[str] = []
        before = 0
        by_line: dict[int, list[_Mark]] = {}
        for mark in sorted(marks, key=lambda mark: (mark.span.line, not mark.is_fault)):
            by_line.setdefault(mark.span.line, []).append(mark)
        room = self.width - digits - 3
        for number, own in by_line.items():
            if before and number > before + 1:
                lines.append(self.paint("...", "rule"))
            before = number
            for group in self.seen_together(source, number, own, room):
                lines += self.marked_line(source, number, group, digits)
        return lines

    def seen_together(self, source: Source, number: int, marks: list[_Mark], room: int) -> Iterator[list[_Mark]]:
        """The marks of a line by excerpt: a line that must be cut is cut around the first mark of each group."""
        while marks:
            excerpt = self.excerpt(source, number, marks[0].span.column, room)
            group = [mark for mark in marks if mark is marks[0] or excerpt.shows(mark.span.column)]
            yield group
            marks = [mark for mark in marks if mark not in group]

    def excerpt(self, source: Source, number: int, column: int, room: int) -> _Excerpt:
        """Line `number` as it is drawn in `room` columns: whole, or cut around `column`, a third of the room before it.

        Only what is near `column` is looked at, for a line may be megabytes long.
        """
        line = source.line(number)
        begin = max(0, column - 1 - _FAR)
        glyphs: list[str] = []
        used = 0
        for character in line[begin : column + _FAR]:
            glyphs.append(" " * (_TAB - used % _TAB) if character == "\t" else shown(character, unicode=self.unicode))
            used += cells(glyphs[-1])
        # One column is kept for a caret at the line's end.
        if begin == 0 and len(glyphs) == len(line) and used < room:
            return _Excerpt(0, glyphs, "", "")
        first = last = min(column - 1 - begin, len(glyphs))
        room -= 2 * cells(self.more)
        first, used = _grown(glyphs, first, 0, room // 3)
        while last < len(glyphs) and used + cells(glyphs[last]) <= room:
            used += cells(glyphs[last])
            last += 1
        if last == len(glyphs):
            first, used = _grown(glyphs, first, used, room)
        left = self.more if begin + first > 0 else ""
        right = self.more if begin + last < len(line) else ""
        return _Excerpt(begin + first, glyphs[first:last], left, right)

    def marked_line(self, source: Source, number: int, marks: list[_Mark], digits: int) -> list[str]:
        room = self.width - digits - 3
        excerpt = self.excerpt(source, number, marks[0].span.column, room)
        lines = [f"{self.paint(f'{number:>{digits}} |', 'rule')} {excerpt.text}".rstrip()]
        gutter = self.paint(f"{' ' * digits} |", "rule")
        for mark in marks:
            end_line, end_column = source.position(mark.span.end)
            begin, end = excerpt.columns(mark.span.column, end_column if end_line == number else None)
            lines += [f"{gutter} {line}" for line in self.underline(mark, begin, max(1, end - begin), room)]
        return lines

    def underline(self, mark: _Mark, begin: int, length: int, room: int) -> list[str]:
        """Carets under the fault or dashes under a second place, and the text, beside them where it fits."""
        style = "fault" if mark.is_fault else "place"
        length = min(length, max(1, room - begin))
        rule = ("^" if mark.is_fault else "-") * length
        end_line = mark.span.source.position(max(mark.span.start, mark.span.end - 1))[0]
        more = f"to line {end_line}" if end_line > mark.span.line else ""
        text = self.plain(f"{mark.text} ({more})" if mark.text and more else mark.text or more)
        if not text:
            return [" " * begin + self.paint(rule, style)]
        if begin + length + 1 + cells(text) <= room:
            return [" " * begin + self.paint(f"{rule} {text}", style)]
        indent = max(0, min(begin, room - min(cells(text), 2 * room // 3)))
        below = wrapped(text, room - indent)
        return [" " * begin + self.paint(rule, style), *(" " * indent + self.paint(line, style) for line in below)]


def frame(error: SxiError, *, width: int = 80, colour: bool = False, unicode: bool = True, prefix: str = "") -> str:
    """`error` with an excerpt of the program, its second places, the calls that led there, and the repair.

    width:   the terminal's columns, taken as 40 to 200; a place `file:line:column` is never broken
    colour:  with the escapes of colours
    unicode: whether the terminal draws more than ASCII
    prefix:  what the first line begins with, as `sxi run: `
    """
    drawing = _Frame(width, colour=colour, unicode=unicode)
    lines = drawing.header(error, prefix)
    marks = [_Mark(label.span, label.text, False) for label in error.labels]
    if error.span is not None:
        marks.insert(0, _Mark(error.span, error.label, True))
    calls = _calls(error.chain)
    caller = _caller(error, calls)
    if caller is not None:
        marks.append(_Mark(caller.span, f"{caller.name} is called here", False))
        calls.remove(caller)
    if marks:
        lines += drawing.excerpts(marks)
    for call in _told_calls(calls):
        lines += drawing.remark("note", call)
    for note in error.notes:
        lines += drawing.remark("note", note)
    if error.help:
        lines += drawing.remark("help", error.help)
    lines += drawing.remark("why", f"sxi explain {error.code}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the chain, and how many times in a row it stands there."""

    name: str
    span: Span
    times: int

    def __str__(self) -> str:
        return f"in {self.name}, called at {self.span}{f', {self.times:,} times' if self.times > 1 else ''}"


def _calls(chain: list[tuple[str, Span]]) -> list[_Call]:
    return [_Call(*call, len(list(alike))) for call, alike in groupby(chain)]


def _caller(error: SxiError, calls: list[_Call]) -> _Call | None:
    """The call that is shown: of those in the outermost's file that the fault is not in, the innermost."""
    fault = error.span
    if fault is None or not calls:
        return None
    file = calls[-1].span.source
    for call in calls:
        span = call.span
        holds_fault = span.source is fault.source and span.start <= fault.start and fault.end <= span.end
        if span.source is file and not holds_fault:
            return call
    return None


def _told_calls(calls: list[_Call]) -> list[str]:
    if len(calls) <= LONGEST_CHAIN:
        return list(map(str, calls))
    half = LONGEST_CHAIN // 2
    left_out = sum([call.times for call in calls[half:-half]])
    return [*map(str, calls[:half]), f"{left_out:,} more calls", *map(str, calls[-half:])]


def one_line(error: SxiError) -> str:
    """`file:line:column: CODE: message`, without the place where there is none."""
    place = f"{error.span}: " if error.span is not None else ""
    return "".join(map(shown, f"{place}{error.code}: {error.message}"))


def as_json(error: SxiError) -> dict[str, Any]:
    """`error` as what strict JSON can hold: no number that is not finite, no half of a surrogate pair.

    A span's `end` is the place after its last character; `file` and `span` are None without a place.
    """
    found = {
        "code": error.code,
        "severity": "error",
        "message": error.message,
        **_place(error.span),
        "label": error.label,
        "labels": [{"text": label.text, **_place(label.span)} for label in error.labels],
        "chain": [{"call": name, **_place(span)} for name, span in error.chain],
        "notes": list(error.notes),
        "help": error.help,
        "data": error.data,
    }
    return {key: _json(value) for key, value in found.items()}


def _place(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {"file": None, "span": None}
    start, end = (span.source.position(offset) for offset in (span.start, span.end))
    ends = {"start": {"line": start[0], "column": start[1]}, "end": {"line": end[0], "column": end[1]}}
    return {"file": span.source.path, "span": ends}


def _json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_json(str(key)): _json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json(item) for item in value]
    return str(value).encode(errors="replace").decode()


def github(error: SxiError) -> str:
    """The workflow command that makes GitHub show `error` at its line."""
    place = ""
    if error.span is not None:
        line, column = error.span.source.position(error.span.start)
        file = _escaped(error.span.source.path).replace(":", "%3A").replace(",", "%2C")
        place = f" file={file},line={line},col={column}"
    return f"::error{place}::{_escaped(f'{error.code}: {error.message}')}"


def _escaped(text: str) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(map(shown, text))
