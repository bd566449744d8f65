"""Text about a code: what is wrong, why that is an error, a program that gives it, the repair.

`python -m sxi.explain` writes docs/errors.md, the page of all codes but the contract rules', from
the table of codes.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from sxi import codes
from sxi.contracts.page import in_words, section, table
from sxi.contracts.rule import written
from sxi.errors import CODES, Code

# A line of a text is not made narrower than this, however narrow the terminal.
_NARROWEST = 24
# `E-SHAPE-001` with any separators; the family or the E may be left out.
_SPELLING = re.compile(r"(?:E(?=[-_ 0-9])[-_ ]*)?(?:([A-Z]+)[-_ ]*)?([0-9]{1,6})")
# family -> what its codes have in common; the order of the page
FAMILIES = {
    "READ": "the text is not a form",
    "EVAL": "a form means nothing",
    "SHAPE": "shapes do not fit",
    "DTYPE": "types do not fit",
    "GUARD": "a guard stopped the run",
    "RUN": "data, disk, or a fault of sxi",
    "USE": "the command was given wrongly",
}
_HEAD = """\
# The errors

<!-- Written by `python -m sxi.explain` from the table of codes: change it there. -->

Every error but the contract rules', which have [a page of their own](contracts.md). `sxi explain
CODE` prints one of them. A word in capitals stands for what the message names there.
"""


def find_code(text: str) -> Code:
    """The code that `text` spells: `E-CONTRACT-020`, `e-contract-20`, `contract 20`, `020` or `20`.

    A number alone is a contract rule's.  Raises E-USE-001, with the nearest code, where there is none.
    """
    spelled = text.strip(" \t\r\n.,:;()[]\"'`").upper()
    found = _SPELLING.fullmatch(spelled)
    name = f"E-{found[1] or 'CONTRACT'}-{int(found[2]):03d}" if found else spelled
    if name in CODES:
        return CODES[name]
    near = get_close_matches(name, CODES, n=1)
    raise codes.NO_SUCH_CODE.at(None, text=written(text), help=f"the nearest is {near[0]}" if near else "")


def explain_code(text: str, width: int) -> str:
    """What is wrong, why, a program that gives the error and its repair, of the code that `text` spells.

    width:   columns that sentences are wrapped to; a program keeps its lines
    raises:  E-USE-001 where no code is spelled like that
    """
    code = find_code(text)
    parts = [_wrapped(f"{code.code}: {in_words(code.message)}", width)]
    parts += [_wrapped(paragraph, width) for paragraph in code.why.split("\n\n")]
    if code.breaks:
        parts += ["A program that gives it:", _indented(code.breaks)]
    if code.fixed:
        parts += ["The same repaired:", _indented(code.fixed)]
    if _repair(code):
        parts.append(_wrapped(f"help: {_repair(code)}", width))
    return "\n\n".join(parts) + "\n"


def code_as_json(text: str) -> dict[str, str]:
    """The same as values of JSON: `message` and `help` with their facts in capitals, "" for what there is not."""
    code = find_code(text)
    return {
        "code": code.code,
        "message": in_words(code.message),
        "why": code.why,
        "breaks": inspect.cleandoc(code.breaks),
        "fixed": inspect.cleandoc(code.fixed),
        "help": _repair(code),
    }


def _repair(code: Code) -> str:
    """The repair in words, "" where all of it is a fact of each error."""
    return "" if re.fullmatch(r"{\w+}", code.help) else in_words(code.help)


def page_of_codes() -> str:
    """Every code but the contract rules', family by family, as one Markdown page."""
    parts = [_HEAD]
    for family, common in FAMILIES.items():
        members = _of_family(family)
        if members:
            parts.append(f"\n## E-{family}: {common}\n\n| code | says |\n| --- | --- |\n{table(members)}")
    for family in FAMILIES:
        parts += [f"\n{section(code)}" for code in _of_family(family)]
    return "".join(parts)


def _of_family(family: str) -> Sequence[Code]:
    return sorted((c for c in CODES.values() if c.code.startswith(f"E-{family}-")), key=lambda c: c.code)


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, max(width, _NARROWEST), break_long_words=False, break_on_hyphens=False)


def _indented(program: str) -> str:
    return textwrap.indent(inspect.cleandoc(program), "    ")


if __name__ == "__main__":
    Path("docs/errors.md").write_text(page_of_codes(), encoding="utf-8")
