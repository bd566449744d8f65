"""The text of a program as a stream of lexemes that covers all of it, whatever it is.

The reader refuses a wrong text; this never does.  Highlighting, the matching of brackets, indentation,
completion and the question whether an input is whole all ask this stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

CLOSER = {"(": ")", "[": "]", "{": "}"}
# The names that a form is known by; tests hold them equal to the evaluator's tables.
SPECIAL = frozenset(
    {
        "->", "and", "assert-finite", "begin", "bf16", "cond", "curriculum", "data", "define", "diagnostic",
        "evaluate", "fold", "frozen", "generator", "guard", "if", "import", "initializer", "lambda", "let", "metric",
        "model", "next", "not", "objective", "optimizer", "or", "output", "param", "prepare", "print", "reading",
        "reported", "run", "scope", "setting", "state", "step", "tap-gradient", "total", "training?", "update", "when",
    }
)  # fmt: skip
CONSTANTS = frozenset({"true", "false", "on", "off", "nil", "inf", "-inf", "nan", "pi"})
# Forms with a body: their later lines stand two columns in.
_BODIES = SPECIAL - {
    "and",
    "or",
    "->",
    "not",
    "if",
    "update",
    "metric",
    "diagnostic",
    "guard",
    "assert-finite",
    "print",
}

_LEXEME = re.compile(
    r"""(?P<space>[ \t\r\n]++)
      | (?P<comment>;[^\r\n]*+)
      | (?P<block>\#\|)
      | (?P<discard>\#;)
      | (?P<open>[(\[{])
      | (?P<close>[)\]}])
      | (?P<string>"(?:[^"\\]|\\[\s\S])*+")
      | (?P<unfinished>"[\s\S]*+)
      | (?P<quote>')
      | (?P<atom>[^ \t\r\n"'()\[\]{};]++)""",
    re.VERBOSE,
)
_BLOCK_EDGE = re.compile(r"#\||\|#")
_NUMBER = re.compile(r"[+-]?\.?\d")


class Lexeme(NamedTuple):
    """A stretch of text.

    kind:  space comment block open close string unfinished (a string or block comment that does not end)
           quote discard number keyword special constant symbol
    """

    kind: str
    start: int
    end: int


def lexemes(text: str) -> Iterator[Lexeme]:
    """The lexemes of `text`, in order, without gaps."""
    at, opened = 0, False
    while at < len(text):
        match = _LEXEME.match(text, at)
        assert match is not None, "every character begins a lexeme"
        kind, end = match.lastgroup or "", match.end()
        if kind == "block":
            kind, end = _block(text, at)
        elif kind == "atom":
            kind = _atom(match[0], opened)
        if kind not in ("space", "comment", "block"):
            opened = kind == "open" and match[0] == "("
        yield Lexeme(kind, at, end)
        at = end


def _block(text: str, start: int) -> tuple[str, int]:
    depth = 0
    for edge in _BLOCK_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "#|" else -1
        if depth == 0:
            return "block", edge.end()
    return "unfinished", len(text)


def _atom(word: str, heads_a_form: bool) -> str:
    if _NUMBER.match(word):
        return "number"
    if word[0] == ":":
        return "keyword"
    if word in CONSTANTS:
        return "constant"
    return "special" if heads_a_form and word in SPECIAL else "symbol"


@dataclass(frozen=True, slots=True)
class Openness:
    """What a text leaves open.

    brackets:    (bracket, offset) of those that are not closed, outermost first
    unfinished:  the offset of a string or block comment that does not end, or None
    waits:       whether a quote or `#;` waits for its form
    broken:      whether a bracket is closed by another kind, or one that was not opened
    """

    brackets: tuple[tuple[str, int], ...]
    unfinished: int | None
    waits: bool
    broken: bool

    @property
    def is_whole(self) -> bool:
        """Whether the text can be read, or can only be refused, as it is."""
        return self.broken or not (self.brackets or self.unfinished is not None or self.waits)


def openness(text: str) -> Openness:
    """What `text` leaves open."""
    stack: list[tuple[str, int]] = []
    unfinished, waits, broken = None, False, False
    for lexeme in lexemes(text):
        if lexeme.kind in ("space", "comment", "block"):
            continue
        waits = lexeme.kind in ("quote", "discard")
        if lexeme.kind == "open":
            stack.append((text[lexeme.start], lexeme.start))
        elif lexeme.kind == "close":
            if stack and CLOSER[stack[-1][0]] == text[lexeme.start]:
                stack.pop()
            else:
                broken = True
        elif lexeme.kind == "unfinished":
            unfinished = lexeme.start
    return Openness(tuple(stack), unfinished, waits, broken)


def is_command(text: str) -> bool:
    """Whether an input is a command of the prompt: it begins with a comma."""
    return text.lstrip().startswith(",")


def is_whole(text: str) -> bool:
    """Whether Enter evaluates: the form, or the operand of a command, is not open any more."""
    if is_command(text):
        text = text.lstrip()[1:]
        # a file name may hold any character, and brackets in it mean nothing
        word = text.split(maxsplit=1)[0] if text.split() else ""
        if word not in ("type", "time", "graph"):
            return True
    return openness(text).is_whole


def indentation(text: str) -> int:
    """How far a line after `text` is indented."""
    state = openness(text)
    if state.unfinished is not None or not state.brackets:
        return 0
    bracket, offset = state.brackets[-1]
    column = offset - (text.rfind("\n", 0, offset) + 1)
    if bracket != "(":
        return column + 1
    within = [x for x in lexemes(text[offset + 1 :]) if x.kind not in ("space", "comment", "block")]
    if not within:
        return column + 1
    if within[0].kind == "open":  # a list of bindings or clauses
        return column + 1
    head = text[offset + 1 + within[0].start : offset + 1 + within[0].end]
    if head in _BODIES:
        return column + 2
    line_end = text.find("\n", offset)
    second = offset + 1 + within[1].start if len(within) > 1 else -1
    if second >= 0 and (line_end < 0 or second < line_end):
        return column + second - offset
    return column + (2 if within[0].kind in ("symbol", "special") else 1)


def matching(text: str, cursor: int) -> tuple[int, int] | None:
    """The offsets of a bracket before or under the cursor and of its partner; None where there is no such pair.

    Brackets in strings and comments are text.
    """
    stack: list[tuple[str, int]] = []
    wanted = (cursor - 1, cursor)
    best: tuple[int, int] | None = None
    for lexeme in lexemes(text):
        if lexeme.kind == "open":
            stack.append((text[lexeme.start], lexeme.start))
        elif lexeme.kind == "close" and stack:
            bracket, start = stack.pop()
            if CLOSER[bracket] != text[lexeme.start]:
                return best
            if lexeme.start == wanted[0]:
                return start, lexeme.start
            if lexeme.start == wanted[1] or start in wanted:
                best = best or (start, lexeme.start)
    return best


def inputs(text: str) -> Iterator[tuple[int, str]]:
    """The inputs of a text from a pipe, with their offsets: each command, and the forms between commands.

    A command is a line that begins with a comma where no form is open.
    """
    at = begun = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end + 1
        if is_command(text[at:end]) and openness(text[begun:at]).is_whole:
            if text[begun:at].strip():
                yield begun, text[begun:at]
            while end < len(text) and not is_whole(text[at:end]):
                further = text.find("\n", end)
                end = len(text) if further < 0 else further + 1
            yield at, text[at:end]
            begun = end
        at = end
    if text[begun:].strip():
        yield begun, text[begun:]
