"""The language for Pygments: documentation, editors and web pages highlight it by the entry point `sx`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from pygments.lexer import Lexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
)

from sxi.lexemes import lexemes

_TOKENS = {
    "space": Whitespace, "comment": Comment.Single, "block": Comment.Multiline, "open": Punctuation,
    "close": Punctuation, "string": String, "unfinished": Error, "quote": Operator, "discard": Comment.Special,
    "number": Number, "keyword": Name.Attribute, "special": Keyword, "constant": Keyword.Constant, "symbol": Name,
}  # fmt: skip


class SxLexer(Lexer):  # type: ignore[misc]  # Pygments brings no types
    """Highlights `.sx` programs; whatever the text, every character is in exactly one token."""

    name = "sx"
    aliases: ClassVar[list[str]] = ["sx", "sxi"]
    filenames: ClassVar[list[str]] = ["*.sx"]
    mimetypes: ClassVar[list[str]] = ["text/x-sx"]
    url = ""
    version_added = ""

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """(offset, token type, text) of each lexeme."""
        for lexeme in lexemes(text):
            yield lexeme.start, _TOKENS.get(lexeme.kind, Text), text[lexeme.start : lexeme.end]
