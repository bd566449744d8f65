"""What one token means: numbers, names, the escapes of strings, and the characters that none may hold."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

from sxi import codes
from sxi.errors import Code, SxiError
from sxi.source import Source, Span

_NUMBER_LIKE = re.compile(r"[+-]?\.?\d")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*")
_DECIMAL = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*")
_REAL = re.compile(
    r"[+-]?(?:[0-9]+(?:_[0-9]+)*(?:\.(?:[0-9]+(?:_[0-9]+)*)?)?|\.[0-9]+(?:_[0-9]+)*)(?:[eE][+-]?[0-9]+(?:_[0-9]+)*)?"
)
# Python refuses to print longer integers; what cannot be printed should not be read.
_MOST_DIGITS = 4_300

_NOT_ASCII = re.compile(r"[^!-~]")
_NOT_PLAIN = re.compile(r"[\\\r\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:u\{([^{}\\\r\n]{0,40})\}|\r\n|[\s\S])|\r\n?|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\r": "\r", "\\\\": "\\", '\\"': '"'}

# Control characters have no name in unicodedata; these are the aliases of those that editors leave behind.
_CONTROLS = {
    "\x00": "NULL",
    "\x07": "BELL",
    "\x08": "BACKSPACE",
    "\x0b": "LINE TABULATION",
    "\x0c": "FORM FEED",
    "\x1b": "ESCAPE",
    "\x7f": "DELETE",
    "\x85": "NEXT LINE",
}
# What a category of characters is called where a character has no name of its own.
_NAMELESS = {"Cc": "a control character", "Cs": "half a surrogate pair", "Co": "a private-use character"}
_ODD_CATEGORIES = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}
# Characters that word processors and web pages put in the place of ASCII ones.
_MEANT = {
    **dict.fromkeys("“”„‟«»″", '"'),
    **dict.fromkeys("‘’‚‛′", "'"),
    **dict.fromkeys("−‐‑‒–—", "-"),
    **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
}


class BadToken(Exception):
    """What is wrong with part of a token: `code` and its facts, at `start` to `end` in it."""

    def __init__(self, code: Code, start: int, end: int, **facts: Any) -> None:
        super().__init__(code.code, facts)
        self.code, self.start, self.end, self.facts = code, start, end, facts

    def at(self, source: Source, offset: int) -> SxiError:
        """The error, the token being at `offset` in `source`."""
        return self.code.at(Span(source, offset + self.start, offset + self.end), **self.facts)


def atom_value(word: str) -> int | float | str:
    """The number that `word` writes, the name of the keyword, or the symbol's name, which is `word` itself.

    raises: BadToken where it is none of these
    """
    if not word.isascii() or _NOT_ASCII.search(word):
        _refuse_odd(word)
    if _NUMBER_LIKE.match(word):
        return number(word)
    if word[0] == ":":
        if word == ":":
            raise BadToken(codes.EMPTY_KEYWORD, 0, 1)
        return word[1:]
    if word.startswith("|#"):
        raise BadToken(codes.STRAY_COMMENT_END, 0, 2)
    return word


def number(word: str) -> int | float:
    """The number that `word` writes.

    raises: BadToken (E-READ-007) where it writes none
    """
    if _DECIMAL.fullmatch(word):
        if len(word) > _MOST_DIGITS:
            raise _bad_number(word, f"it has more than {_MOST_DIGITS:,} digits")
        return int(word)
    if _HEXADECIMAL.fullmatch(word):
        value = int(word, 16)
        if value.bit_length() > _MOST_DIGITS * 3:
            raise _bad_number(word, f"it has more than {_MOST_DIGITS:,} digits")
        return value
    if not _REAL.fullmatch(word):
        raise _bad_number(word, _number_fault(word))
    real = float(word)
    if math.isinf(real):
        raise _bad_number(word, "it is past the range of reals, which ends at 1.8e308")
    return real


def _bad_number(word: str, reason: str) -> BadToken:
    shown = word if len(word) <= 40 else f"{word[:30]}…"
    return BadToken(codes.BAD_NUMBER, 0, len(word), word=shown, reason=reason)


def _number_fault(word: str) -> str:
    unsigned = word.lstrip("+-").lower()
    if unsigned.startswith("0x"):
        return "after 0x come the digits 0 to 9 and a to f"
    if re.match(r"0[bo][0-9]", unsigned):
        return "only 0x begins a number in another base"
    if word.endswith(","):
        return "elements stand apart by white space, not by commas"
    good = _REAL.match(word)
    if good is None:
        return "its digits are 0 to 9"
    rest = word[good.end() :]
    if rest[0] == "_":
        return "an underscore stands between two digits"
    if rest[0] in "eE" and re.fullmatch(r"[eE][+-]?", rest):
        return "its exponent has no digits"
    shown = rest if len(rest) <= 20 else f"{rest[:15]}…"
    return f"{shown} follows {good[0] if good.end() <= 20 else 'it'}"


def _refuse_odd(word: str) -> None:
    for match in _NOT_ASCII.finditer(word):
        character = match[0]
        if character in _MEANT or unicodedata.category(character) in _ODD_CATEGORIES:
            raise _odd(character, match.start())


def _odd(character: str, at: int, *, in_string: bool = False) -> BadToken:
    point = ord(character)
    category = unicodedata.category(character)
    nameless = _CONTROLS.get(character) or _NAMELESS.get(category, "an unassigned character")
    name = unicodedata.name(character, nameless)
    if character in _MEANT:
        repair = f"write {_MEANT[character]} instead"
    elif in_string and category == "Cc":
        repair = f"write \\u{{{point:X}}} where the string is to hold it"
    elif category == "Zs":
        repair = "write a plain space instead"
    elif category in ("Zl", "Zp"):
        repair = "end the line instead"
    else:
        repair = "take it away"
    return BadToken(codes.ODD_CHARACTER, at, at + 1, name=name, point=f"U+{point:04X}", repair=repair)


def escaped_text(raw: str) -> tuple[str, list[BadToken]]:
    """What a string holds whose quotes enclose `raw`, and what is wrong with it, each at its place in `raw`."""
    if not _NOT_PLAIN.search(raw):
        return raw, []
    bad: list[BadToken] = []

    def replaced(match: re.Match[str]) -> str:
        part = match[0]
        if part in _ESCAPES:
            return _ESCAPES[part]
        if part[0] == "\r":
            return "\n"
        if part[0] != "\\":
            bad.append(_odd(part, match.start(), in_string=True))
        elif match[1] is None:
            bad.append(_unknown_escape(match))
        elif re.fullmatch(r"[0-9a-fA-F]{1,6}", match[1]) and _is_character(int(match[1], 16)):
            return chr(int(match[1], 16))
        else:
            reason = "it takes the one to six hexadecimal digits of a Unicode character"
            bad.append(_bad_escape(match, part, reason, "write it like \\u{1F600}"))
        return ""

    return _ESCAPE.sub(replaced, raw), bad


def _unknown_escape(match: re.Match[str]) -> BadToken:
    letter = match[0][1:]
    if letter in ("\r\n", "\n", "\r"):
        return _bad_escape(match, "\\", "the line ends after it", "take it away: a string may run over several lines")
    if letter == "u":
        return _bad_escape(match, "\\u", "{ and digits follow it", "write it like \\u{1F600}")
    shown = letter if letter.isprintable() else f"U+{ord(letter):04X}"
    reason = 'the escapes are \\n \\t \\r \\\\ \\" and \\u{…}'
    return _bad_escape(match, f"\\{shown}", reason, "write \\\\ for a backslash")


def _bad_escape(match: re.Match[str], escape: str, reason: str, repair: str) -> BadToken:
    return BadToken(codes.BAD_ESCAPE, match.start(), match.end(), escape=escape, reason=reason, repair=repair)


def _is_character(point: int) -> bool:
    return point < 0xD800 or 0xE000 <= point <= 0x10FFFF
