"""What can stand where the cursor is: names, the keywords that this form takes, series, files, codes.

It looks at the lexemes before the cursor only and never fails: where it knows nothing it offers nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sxi.arraytype import CARRIERS
from sxi.contracts.page import in_words
from sxi.errors import CODES
from sxi.eval import CONSTANTS, USAGE, usage_of
from sxi.forms.contexts import PASS_OPTIONS
from sxi.forms.data import SOURCES
from sxi.lexemes import is_command, lexemes
from sxi.options import OPTIONS
from sxi.primitives.declare import Primitive
from sxi.prompt_commands import COMMANDS
from sxi.reference import doc_of
from sxi.series import REDUCES
from sxi.values import Builtin, Definition, Function

if TYPE_CHECKING:
    from sxi.session import Session

MOST = 500
# form -> the keywords that it takes, where they are not a function's
FORM_KEYWORDS: dict[str, tuple[str, ...]] = {
    "metric": ("below", "above", "reduce"), "diagnostic": ("below", "above", "reduce"), "param": ("init", "dtype"),
    "state": ("init", "dtype"), "next": ("reduce",), "run": tuple(OPTIONS), "data": ("split",), "setting": ("doc",),
    "stage": ("until", "set"), "optimizer": ("state",), "reported": ("pass", "all"),
    **dict.fromkeys(SOURCES, ("columns", "dtype")),
}  # fmt: skip
# keyword -> the keywords that may be its value
KEYWORD_VALUES = {"dtype": tuple(CARRIERS), "reduce": REDUCES}
_NAMED = ("guard", "assert-finite", "metric", "diagnostic", "reported")
_BREAKS = " \t\r\n\"'()[]{};"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to go on: `text` takes the place of the `length` characters before the cursor.

    about:  its signature and the first line of its documentation
    """

    text: str
    length: int
    about: str = ""


def complete(session: Session, text: str) -> list[Candidate]:
    """The candidates behind `text`, which ends at the cursor, in their order."""
    found = _of_command(session, text.lstrip()[1:]) if is_command(text) else _of_form(session, text)
    made: dict[str, Candidate] = {}
    for candidate in found:
        made.setdefault(candidate.text, candidate)
        if len(made) >= MOST:
            break
    return list(made.values())


def _of_command(session: Session, text: str) -> Iterator[Candidate]:
    name, space, argument = text.partition(" ")
    if not space:
        for c in COMMANDS.values():
            if c.name.startswith(name):
                yield Candidate(c.name, len(name), f"{c.usage}  {c.doc.splitlines()[0]}")
        return
    word = argument[argument.rfind(" ") + 1 :]
    if name in ("load", "save"):
        yield from _files(argument)
    elif name == "explain":
        # a number alone is a contract rule's
        codes = sorted([c for c in CODES if word.upper() in c], key=lambda c: "CONTRACT" not in c)
        yield from _plain(codes, word, {c: in_words(CODES[c].message) for c in codes})
    elif name in ("plot", "watch", "series"):
        yield from _plain(_starting([t.name for t in session.tracks()], word), word)
    elif name == "set":
        yield from _plain(_starting(session.workspace.program.declared.settings, word), word)
    elif name == "help":
        yield from _plain(_starting(COMMANDS, word), word)
    elif name in ("type", "time", "graph"):
        yield from _of_form(session, argument)
    elif name in ("doc", "apropos"):
        names = [*session.workspace.names(), *USAGE, *[f",{c}" for c in COMMANDS], *[f":{o}" for o in OPTIONS]]
        yield from _plain(_starting(names, word), word)


def _starting(names: Iterable[str], word: str) -> list[str]:
    """The names that begin with `word`; where none does, those that hold it."""
    all_names = dict.fromkeys(names)
    return sorted([n for n in all_names if n.startswith(word)]) or sorted([n for n in all_names if word in n])


def _plain(names: Iterable[str], word: str, about: dict[str, str] | None = None) -> Iterator[Candidate]:
    for name in names:
        yield Candidate(name, len(word), (about or {}).get(name, ""))


def _files(path: str) -> Iterator[Candidate]:
    """The files and folders that `path` begins; folders end in `/`, program files come first."""
    head, _, word = path.rpartition("/")
    folder = os.path.expanduser(f"{head}/" if "/" in path else ".")
    try:
        names = os.listdir(folder)
    except (OSError, ValueError):
        return
    matching = [n for n in names if n.startswith(word) and (word.startswith(".") or not n.startswith("."))]
    for name in sorted(matching, key=lambda n: (not n.endswith(".sx"), n)):
        is_folder = os.path.isdir(os.path.join(folder, name))
        yield Candidate(f"{name}/" if is_folder else name, len(word))


def _of_form(session: Session, text: str) -> Iterator[Candidate]:
    place = _Place(text)
    if place.string is not None:
        yield from _in_string(session, place)
        return
    if place.in_comment:
        return
    word = place.word
    if word.startswith(":"):
        yield from _keywords(session, place)
        return
    if not word and not place.after_bracket:
        return
    program = session.workspace.program
    for name in [*_starting(place.symbols, word), *_starting([*program.module.names(), *CONSTANTS], word)]:
        yield Candidate(name, len(word), about(program.value(name)) if program.module.lookup(name) is not None else "")
    if place.after_bracket:
        for name in _starting(USAGE, word):
            yield Candidate(name, len(word), USAGE[name])


def about(value: Any) -> str:
    """A value's signature and the first line of its documentation, where it has them."""
    if not isinstance(value, Function | Definition | Primitive | Builtin):
        return ""
    lines = doc_of(value).strip().splitlines()
    return f"{usage_of(value)}  {lines[0]}" if lines else usage_of(value)


def _keywords(session: Session, place: _Place) -> Iterator[Candidate]:
    word = place.word[1:]
    if place.before is not None and place.before in KEYWORD_VALUES:
        for value in KEYWORD_VALUES[place.before]:
            if value.startswith(word):
                yield Candidate(f":{value}", len(word) + 1)
        return
    for key in keywords_of(session, place.head):
        if key.startswith(word) and key not in place.keywords:
            wanted = OPTIONS[key][0] if place.head == "run" and key in OPTIONS else ""
            yield Candidate(f":{key}", len(word) + 1, wanted)


def keywords_of(session: Session, head: str) -> list[str]:
    """The keywords that the form with this head takes."""
    if head in FORM_KEYWORDS:
        return list(FORM_KEYWORDS[head])
    program = session.workspace.program
    value = program.value(head) if head and program.module.lookup(head) is not None else None
    if isinstance(value, Function):
        return list(value.body.keywords)
    if isinstance(value, Definition):
        takes = value.takes if value.takes is not None else value.function.body.keywords
        return list(PASS_OPTIONS if value.kind == "evaluate" else takes)
    if isinstance(value, Primitive):
        return [p.name for p in value.params if p.by_keyword]
    return [k for k in value.keywords if k != "*"] if isinstance(value, Builtin) else []


def _in_string(session: Session, place: _Place) -> Iterator[Candidate]:
    """File names in a data source or an import, names of series in what reports."""
    assert place.string is not None
    if place.head in SOURCES or place.head == "import":
        yield from _files(place.string)
    elif place.head in _NAMED:
        names = [t.name.removeprefix("guard/") for t in session.tracks()]
        yield from _plain(_starting(names, place.string), place.string)


class _Place:
    """Where the cursor is, at the end of a text.

    word:      what is typed of the word so far; string: of a string that is open, or None
    head:      the head of the form around it; keywords: those it has already; before: the keyword just before
    symbols:   the names that the text holds: locals are among them
    """

    def __init__(self, text: str) -> None:
        self.word, self.head = "", ""
        self.string: str | None = None
        self.in_comment = self.after_bracket = False
        self.keywords: list[str] = []
        self.symbols: list[str] = []
        found = list(lexemes(text))
        last = found[-1] if found else None
        if last is not None and last.kind == "unfinished" and text[last.start] == '"':
            self.string = text[last.start + 1 :]
        elif last is not None and (last.kind in ("unfinished", "comment") or (last.kind == "block")):
            self.in_comment = True
        elif last is not None and last.kind in ("symbol", "special", "constant", "keyword", "number"):
            self.word = text[last.start :]
            found.pop()
        stack: list[tuple[str, list[str], str]] = []  # the head, its keywords, the last word of each open form
        level: tuple[str, list[str], str] = ("", [], "")
        opened = False
        for x in found:
            part = text[x.start : x.end] if x.end - x.start < 200 else ""
            if x.kind == "open":
                stack.append(level)
                level = ("", [], "")
            elif x.kind == "close" and stack:
                level = (stack[-1][0], stack[-1][1], "")
                stack.pop()
            elif x.kind in ("symbol", "special") and opened:
                level = (part, level[1], part)
            elif x.kind == "keyword":
                level = (level[0], [*level[1], part[1:]], part)
            elif x.kind not in ("space", "comment", "block"):
                level = (level[0], level[1], part)
            if x.kind == "symbol":
                self.symbols.append(part)
            if x.kind not in ("space", "comment", "block"):
                opened = x.kind == "open" and part == "("
        self.head, self.keywords, before = level
        self.before: str | None = before[1:] if before.startswith(":") else None
        self.after_bracket = opened
