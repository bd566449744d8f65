"""Where names are bound: the scopes of a function, and the names of a file and of those it imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sxi import codes
from sxi.errors import Label
from sxi.reader import Form, Group, Keyword, Symbol
from sxi.source import Span


class _Unset:
    """What a global holds before its definition is evaluated."""

    name = "unset"


@dataclass(slots=True, eq=False)
class Mentions:
    """What the text of one definition mentions, whether it is ever evaluated or not.

    globals:  (number, where it is named)
    reports:  (reporting form, its bounds, where it stands)
    """

    globals: list[tuple[int, Span]] = field(default_factory=list)
    reports: list[tuple[str, tuple[str, ...], Span]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reading:
    """A `reported` form that names a metric: the text of its `:pass`, None without one, "" where it is computed."""

    name: str
    span: Span
    pass_name: str | None
    pass_span: Span | None


@dataclass(eq=False)
class Module:
    """The names of one file.

    own:       name -> (number of the global, where it is defined)
    imported:  the same for the names of imported files and of the library
    ground:    names that are there without a file: builtins and primitives
    reported:  what the curriculum's `reported` forms name
    mentions:  of the definition that is resolved now
    """

    path: str
    own: dict[str, tuple[int, Span]] = field(default_factory=dict)
    imported: dict[str, tuple[int, Span]] = field(default_factory=dict)
    ground: dict[str, Any] = field(default_factory=dict)
    reported: list[Reading] = field(default_factory=list)
    mentions: Mentions = field(default_factory=Mentions)

    UNSET = _Unset()

    def lookup(self, name: str) -> Any:
        """The number of a global, or what stands under the name without a file, or None."""
        found = self.own.get(name) or self.imported.get(name)
        return found[0] if found else self.ground.get(name)

    def define(self, name: str, index: int, span: Span) -> None:
        """Enter a name of the file itself.  Raises E-EVAL-007 where the file has it already."""
        if name in self.own:
            first = Label(self.own[name][1], "first defined here")
            raise codes.DEFINED_TWICE.at(span, name=name, labels=(first,))
        self.own[name] = (index, span)

    def names(self) -> Iterator[str]:
        yield from self.own
        yield from self.imported
        yield from self.ground


@dataclass(frozen=True, slots=True)
class Variable:
    """A local name: its slot (negative: captured), whether a cell is in it, and where it is bound."""

    slot: int
    in_cell: bool
    span: Span | None


class Scope:
    """The names that one function's body sees, while it is resolved.

    context:  the declaration that the text stands in, `objective`, or None
    size:     slots of the environment so far
    dropped:  the reporting forms whose values are not used, by `id`: kept, so that no other form gets it
    """

    def __init__(self, parent: Scope | None, module: Module, context: str | None = None) -> None:
        self.parent, self.module, self.context = parent, module, context
        self.blocks: list[dict[str, Variable]] = [{}]
        self.size = 0
        self.dropped: dict[int, Group] = {}
        self._captures: list[int] = []
        self._captured: dict[str, Variable] = {}
        self._calls: dict[str, int] = {}
        self._apart = ""

    def lookup(self, name: str) -> Any:
        """A `Variable`, the number of a global, what the language brings, or None."""
        return self._local(name) or self.module.lookup(name)

    def _local(self, name: str) -> Variable | None:
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        if name in self._captured:
            return self._captured[name]
        outer = self.parent._local(name) if self.parent else None
        if outer is None:
            return None
        self._captures.append(outer.slot)
        made = Variable(-len(self._captures), outer.in_cell, outer.span)
        self._captured[name] = made
        return made

    def captures_last_first(self) -> list[int]:
        """Where the enclosing environment holds what is captured; the last captured stands first."""
        return self._captures[::-1]

    def bind(self, name: str, span: Span | None = None, in_cell: bool = False) -> int:
        """A new slot for `name` in the innermost block.  Raises E-EVAL-007 where the block has the name already.

        span:  where it is bound; None for what the text gives no name
        """
        bound = self.blocks[-1].get(name)
        if bound is not None:
            first = (Label(bound.span, "first bound here"),) if bound.span else ()
            raise codes.DEFINED_TWICE.at(span, name=name, labels=first)
        slot = self.size
        self.size += 1
        self.blocks[-1][name] = Variable(slot, in_cell, span)
        return slot

    def is_bound_here(self, name: str) -> bool:
        return name in self.blocks[-1]

    def push(self) -> None:
        self.blocks.append({})

    def pop(self) -> None:
        self.blocks.pop()

    def declare_cells(self, defines: Sequence[Form], refuse: Callable[[Form, str], Any]) -> None:
        """Bind the names that the local definitions of a body make, so that functions may refer forward."""
        for form in defines:
            assert isinstance(form, Group)
            target = form.items[1] if len(form.items) > 1 else None
            if isinstance(target, Group) and target.items:
                target = target.items[0]
            if not isinstance(target, Symbol):
                refuse(target or form, "expected a name, or a name and parameters in parentheses")
                return
            self.bind(target.name, target.span, in_cell=True)

    def visible_names(self) -> Iterator[str]:
        scope: Scope | None = self
        while scope is not None:
            for block in scope.blocks:
                yield from block
            scope = scope.parent
        yield from self.module.names()

    # Numbers of calls: segments of the places of draws.

    def number(self, name: str) -> str:
        """The next call of `name` in this definition, `net#0`; apart from the rest in a dropped report."""
        key = self._apart + name
        count = self._calls.get(key, 0)
        self._calls[key] = count + 1
        return f"{key}#{count}"

    @contextmanager
    def numbered_apart(self, what: str) -> Iterator[None]:
        """Number the calls within on their own: adding or removing the form changes no other number."""
        outer = self._apart
        self._apart = f"~{self.number('~' + what)}~"
        yield
        self._apart = outer


# Forms that report or guard.
REPORTING = frozenset({"guard", "assert-finite", "metric", "diagnostic"})
# Forms whose value is that of what stands last in them.
_LAST = frozenset({"begin", "let", "when", "scope", "frozen", "reading", "bf16"})
_BOUNDS_AND_REDUCE = frozenset({"below", "above", "reduce"})


def dropped_reports(form: Form) -> Iterator[Group]:
    """The reporting forms whose values are not used where that of `form` is not: itself, or what it ends in."""
    open_ = [form]  # not recursive: a text may nest deeper than Python does
    while open_:
        form = open_.pop()
        if not isinstance(form, Group) or not form.items:
            continue
        if form.head in REPORTING:
            yield form
        elif form.head in _LAST:
            open_.append(form.items[-1])
        elif form.head == "if":
            open_ += form.items[2:]
        elif form.head == "cond":
            open_ += [clause.items[-1] for clause in form.items[1:] if isinstance(clause, Group) and clause.items]


def report_identity(form: Group) -> str:
    """The name and the metadata of a reporting form, as written: a bound more or less is no other report."""
    shown = [f.span.text for f in form.items[1:2]]
    for key, value in zip(form.items[3::2], form.items[4::2], strict=False):
        if not isinstance(key, Keyword) or key.name not in _BOUNDS_AND_REDUCE:
            shown += [key.span.text, value.span.text]
    return " ".join(shown)
