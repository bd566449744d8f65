"""The page of rules, docs/contracts.md, derived from the table."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from string import Formatter

from sxi.contracts.rule import RULES
from sxi.errors import Code

_HEAD = """\
# The contract rules

<!-- Written by `python -m sxi.contracts` from the table of rules: change it there. -->

Every rule is checked before the first step, wherever a graph comes upon the form, through every
function that is called. `sxi explain 020` prints one of them; `sxi check FILE` applies them all.

| code | says |
| --- | --- |
"""


def in_words(template: str) -> str:
    """A message's template with its facts as capitals: `the count of guard NAME is COUNT`."""
    shown = []
    for text, fact, _, _ in Formatter().parse(template):
        shown.append(text)
        if fact:
            shown.append(fact.upper().replace("_", " "))
    return "".join(shown)


def section(code: Code) -> str:
    """One code as a section of Markdown: message, why, the program that breaks it, the repair."""
    parts = [f"## {code.code}", f"> {in_words(code.message)}", code.why]
    if code.breaks:
        parts.append(f"Refused:\n\n```scheme\n{inspect.cleandoc(code.breaks)}\n```")
    if code.fixed:
        parts.append(f"Accepted:\n\n```scheme\n{inspect.cleandoc(code.fixed)}\n```")
    return "\n\n".join(parts) + "\n"


def table(codes: Iterable[Code]) -> str:
    """The rows of a Markdown table, a code and its message in each."""
    rows = [(code.code, in_words(code.message).replace("|", "\\|")) for code in codes]
    return "".join(f"| [{name}](#{name.lower()}) | {message} |\n" for name, message in rows)


def page_of_rules() -> str:
    """Every rule by its code, as one Markdown page."""
    rules = [RULES[number].code for number in sorted(RULES)]
    return _HEAD + table(rules) + "\n" + "\n".join(map(section, rules))
