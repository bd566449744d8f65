"""What a contract rule is: a predicate, its words and its two programs, whole in one entry.

A rule's facts are the arguments of its predicate and what its message and its repair are filled
from.  A template shows a fact as it is with `{fact}`, and as one writes it in the language with
`{fact!r}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sxi.arraytype import ArrayType
from sxi.errors import Code, Label, SxiError, register
from sxi.source import Span

# A text or a list in a message is shown up to here, so that the message stays one line.
_LONGEST_TEXT = 40
_LONGEST_LIST = 8


@dataclass(frozen=True, slots=True)
class Rule:
    """One contract rule.

    number:  1 for E-CONTRACT-001; never used again for something else
    code:    the entry in the table of all codes: message, why, programs
    holds:   whether the contract holds for some facts
    repair:  the repair as a function of the facts, where one template does not fit all of them
    words:   what else the message names, each a function of the facts
    """

    number: int
    code: Code
    holds: Callable[..., bool]
    repair: Callable[..., str] | None = None
    words: Mapping[str, Callable[..., str]] = field(default_factory=dict)

    def __call__(
        self,
        span: Span | None,
        *,
        label: str = "",
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        help: str | None = None,
        **facts: object,
    ) -> None:
        """Raise SxiError at `span` unless the contract holds for `facts`.

        label:  what is said under the caret; the type of an array among the facts where it is ""
        help:   the repair, in place of the rule's own
        """
        found = {name: _typed(fact) for name, fact in facts.items()}
        if not self.holds(**found):
            raise self._error(span, found, label=label, labels=labels, notes=notes, help=help)

    def refuse(
        self,
        span: Span | None,
        *,
        label: str = "",
        labels: tuple[Label, ...] = (),
        notes: tuple[str, ...] = (),
        help: str | None = None,
        **facts: object,
    ) -> NoReturn:
        """Raise SxiError at `span`: the caller has found that the contract does not hold."""
        found = {name: _typed(fact) for name, fact in facts.items()}
        raise self._error(span, found, label=label, labels=labels, notes=notes, help=help)

    def _error(
        self, span: Span | None, given: dict[str, object], *, label: str, help: str | None, **shown: Any
    ) -> SxiError:
        bound = inspect.signature(self.holds).bind(**given)
        bound.apply_defaults()
        facts = bound.arguments
        if not label:
            label = next((str(fact) for fact in facts.values() if isinstance(fact, ArrayType)), "")
        if help is None and self.repair is not None:
            help = self.repair(**facts)
        said: dict[str, Any] = {name: _Said(fact) for name, fact in facts.items()}
        said |= {name: words(**facts) for name, words in self.words.items()}
        if facts.get("context") == "evaluate":
            said["context"] = "evaluation"
        return self.code.at(span, label=label, help=help, **shown, **said)


RULES: dict[int, Rule] = {}


def rule(
    number: int,
    message: str,
    *,
    breaks: str,
    fixed: str,
    help: str | Callable[..., str] = "",
    **words: Callable[..., str],
) -> Callable[[Callable[..., bool]], Rule]:
    """Enter the decorated predicate into the table of rules; its docstring says why the rule exists.

    message, help:  templates filled from the predicate's arguments; `help` may be a function of them
    words:          what else `message` names: functions of the predicate's arguments
    breaks, fixed:  whole programs: one that gives exactly this error, a caret under the place, and
                    the same one repaired
    """

    def enter(holds: Callable[..., bool]) -> Rule:
        why = "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(holds.__doc__ or "").split("\n\n"))
        template, repair = (help, None) if isinstance(help, str) else ("", help)
        code = register(
            Code(
                f"E-CONTRACT-{number:03d}",
                message,
                why,
                inspect.cleandoc(breaks) + "\n",
                inspect.cleandoc(fixed) + "\n",
                template,
            )
        )
        RULES[number] = Rule(number, code, holds, repair, words)
        return RULES[number]

    return enter


class AsWritten(str):
    """A piece of a program in a message, which is shown as it stands there."""

    __slots__ = ()


def keyword_name(value: object) -> str | None:
    """The name of a keyword of the language, or None where `value` is none.

    A keyword is known by its looks, a `name` that it shows after a colon: its class is defined
    in a layer above this one.
    """
    name = getattr(value, "name", None)
    return name if isinstance(name, str) and str(value) == f":{name}" else None


def is_number(value: object) -> bool:
    """Whether `value` is a host number; a bool is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_numeric_scalar(value: object) -> bool:
    """Whether `value` is a host number or the type of a scalar array of numbers."""
    if isinstance(value, ArrayType):
        return value.shape == () and value.is_numeric
    return is_number(value)


def written(value: object) -> str:
    """A host value or an array's type, in one short line, as one writes it in the language."""
    if isinstance(value, ArrayType):
        return "a bool" if value == ArrayType("bool") else str(value)
    if value is None or isinstance(value, bool):
        return {None: "nil", True: "true", False: "false"}[value]
    if isinstance(value, AsWritten):
        return _cut(" ".join(value.split()))
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, list | tuple):
        short = len(value) <= _LONGEST_LIST and all(_is_plain(item) for item in value)
        return f"[{' '.join(map(written, value))}]" if short else "a list"
    if isinstance(value, dict):
        short = len(value) <= _LONGEST_LIST and all(_is_plain(item) for item in value.values())
        return f"{{{' '.join(f':{key} {written(item)}' for key, item in value.items())}}}" if short else "a record"
    if isinstance(value, int) and abs(value) >= 10**_LONGEST_TEXT:
        return f"an integer of {value.bit_length()} bits"
    if is_number(value) or keyword_name(value) is not None:
        return str(value)
    if isinstance(value, ArrayType):
        return str(value)
    # a value of a kind that stands above this module, none of which is more than named
    return "a function" if callable(value) else _KINDS.get(type(value).__name__, "a value of another kind")


_KINDS = {
    "Function": "a function",
    "Builtin": "a function",
    "Gradient": "a gradient function",
    "FormValue": "a quoted form",
    "Definition": "a definition",
    "Instance": "a definition",
    "Generator": "a generator",
}


def _is_plain(item: object) -> bool:
    return item is None or is_number(item) or isinstance(item, ArrayType)


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _quoted(text: str) -> str:
    text = _cut(text)
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    shown = [escapes.get(c) or (c if c.isprintable() else f"\\u{{{ord(c):X}}}") for c in text]
    return f'"{"".join(shown)}"'


def _typed(fact: object) -> object:
    """The array's type where `fact` is a value that has one: a rule knows no value's numbers."""
    found = getattr(fact, "type", None)
    return found if isinstance(found, ArrayType) else fact


class _Said:
    """A fact in a template: `{fact}` shows a text bare, `{fact!r}` as it is written in a program."""

    __slots__ = ("fact",)

    def __init__(self, fact: Any) -> None:
        self.fact = fact

    def __str__(self) -> str:
        return self.fact if isinstance(self.fact, str) else written(self.fact)

    def __repr__(self) -> str:
        return written(self.fact)
