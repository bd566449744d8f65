"""What the prompt computes with: the forms of a file, those typed since, and the program they make.

A workspace is never changed: an input makes another one, which takes its place only where all of the
input held.  A definition of a new name is added to what is there; one that replaces a name, or declares
something of a run, makes the whole program again, so that whatever depends on it is evaluated again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from sxi import codes
from sxi.backends import Backend
from sxi.eager import Eager, EagerArray, EagerEmitter, Reported
from sxi.errors import SxiError
from sxi.eval import UNSET
from sxi.evidence import Seen, parts_of, seen
from sxi.forms.declare import DECLARATIONS, NAMELESS, Declared, Step, World, defined_name
from sxi.graph import Graph
from sxi.guards import Guard
from sxi.names import Module
from sxi.program import Failure, Loaded, Loader, Program
from sxi.random import Draws
from sxi.reader import Form, Group, read, read_all
from sxi.source import Source, Span
from sxi.trace import Recording, Registry, Trace

PROMPT = "<repl>"
# The names of the last values and the last error.
STARS = ("*1", "*2", "*3", "*e")
SEED = 0

# What a form defines: a name, or a declaration that a program has one of.
Key: TypeAlias = tuple[str, str]


class Refused(Exception):
    """An input or a file that is refused: its errors, in order, at least one."""

    def __init__(self, errors: Sequence[SxiError]) -> None:
        super().__init__(str(errors[0]))
        self.errors = list(errors)


@dataclass(frozen=True, slots=True, eq=False)
class Typed:
    """A form that was typed.

    number, place:  of the input, and of the form in it: what its draws depend on
    stars:          the values of `*1 *2 *3 *e` that it saw
    """

    form: Form
    number: int
    place: int
    stars: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class Part:
    """What one form of an input gave: what it printed and reported, and the value of an expression."""

    printed: list[str] = field(default_factory=list)
    reported: Reported = field(default_factory=Reported)
    values: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Outcome:
    """What an input has given so far, by the number of the form in it.

    A form that is performed again, since it needed a later one, begins a new part.
    """

    parts: dict[int, Part] = field(default_factory=dict)

    def begin(self, place: int) -> Part:
        self.parts[place] = Part()
        return self.parts[place]

    def in_order(self) -> list[Part]:
        return [self.parts[place] for place in sorted(self.parts)]

    def reported(self) -> Reported:
        """All that was reported, in the order of the forms."""
        whole = Reported()
        for part in self.in_order():
            whole.guards += part.reported.guards
            whole.series += part.reported.series
        return whole

    def values(self) -> list[Any]:
        return [v for part in self.in_order() for v in part.values]


def key_of(form: Form) -> Key | None:
    """What `form` defines; None of an expression.  Raises an SxiError where the name cannot be defined."""
    if not isinstance(form, Group) or form.head not in DECLARATIONS or form.head == "print":
        return None
    if form.head == "import":
        return "import", form.span.text
    if form.head in NAMELESS:
        return form.head, ""
    named = defined_name(form)
    return ("name", named[0]) if named else (form.head, form.span.text)


class Looking(Trace):
    """A walk that finds types and graphs and does nothing else."""

    def print(self, values: list[Any], span: Span) -> None:
        """Nothing is computed, so nothing is printed."""


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """A program and how it came to be.

    source:    the text of the loaded file, or None
    forms:     its forms
    typed:     what was typed since, by what it defines, in order
    settings:  what `,set` gave
    """

    host: Backend
    library: Loader
    source: Source | None
    forms: tuple[Form, ...]
    typed: dict[Key, Typed]
    settings: dict[str, Any]
    loaded: Loaded
    program: Program

    @classmethod
    def empty(cls, host: Backend) -> Workspace:
        """A workspace with the library and nothing else."""
        library = Loader()
        library.load_library()
        return _made(host, library, None, (), {}, {})

    @property
    def path(self) -> str:
        return self.source.path if self.source else PROMPT

    @property
    def has_run(self) -> bool:
        return bool(self.program.declared.runs)

    def names(self) -> list[str]:
        """The names in scope."""
        return list(dict.fromkeys(self.program.module.names()))

    def names_of_file(self) -> list[str]:
        """The names that the file defines."""
        keys = {_key_or_none(f) for f in self.forms}
        return [name for name in self.loaded.module.own if ("name", name) in keys]

    # Changes

    def with_file(self, source: Source, repaired: dict[Key, Typed] | None = None) -> Workspace:
        """The workspace with another file loaded: what was typed stays but for the names that the file defines.

        repaired:  forms that stand for those of the file
        """
        forms, errors = read_all(source)
        if errors:
            raise Refused(errors)
        keys = {_key_or_none(f) for f in forms}
        typed = {k: t for k, t in self.typed.items() if k not in keys and k[0] in ("name", "import")}
        return _made(self.host, self.library, source, forms, typed | (repaired or {}), {})

    def with_settings(self, settings: dict[str, Any]) -> Workspace:
        """The workspace under other settings."""
        return _made(self.host, self.library, self.source, self.forms, self.typed, settings)

    def with_stars(self, stars: Sequence[Any]) -> Workspace:
        """The workspace with other last values."""
        globals = list(self.program.globals)
        for name, value in zip(STARS, stars, strict=True):
            globals[self.loaded.module.imported[name][0]] = value
        return replace(self, program=replace(self.program, globals=globals))

    def stars(self) -> tuple[Any, ...]:
        return tuple([self.program.globals[self.loaded.module.imported[name][0]] for name in STARS])

    def with_input(self, forms: Sequence[Form], number: int, outcome: Outcome) -> Workspace:
        """The workspace after an input.  Raises SxiError or Refused; what was given until then is in `outcome`."""
        typed = [Typed(form, number, place, self.stars()) for place, form in enumerate(forms)]
        keys = _keys(typed)
        known = self.program.module.lookup
        if all([k[0] == "name" and _is_define(forms[i]) and known(k[1]) is None for i, k in keys.items()]):
            return self._extended(typed, keys, outcome)
        made = {keys[t.place]: t for t in typed if t.place in keys}
        whole = _made(
            self.host, self.library, self.source, self.forms, {**self.typed, **made}, self.settings,
            now=(number, outcome),
        )  # fmt: skip
        return whole.with_stars(self.stars())._extended([t for t in typed if t.place not in keys], {}, outcome)

    def _extended(self, typed: Sequence[Typed], keys: dict[int, Key], outcome: Outcome) -> Workspace:
        """Evaluate forms behind what is there; `keys` are those of definitions of new names."""
        loader, module = self.library.behind(), _copied(self.loaded.module)
        loader.steps, loader.size = [], self.loaded.size
        loader.add([t.form for t in typed], module)
        if loader.errors:
            raise Refused(loader.errors)
        globals = [*self.program.globals, *[UNSET] * (loader.size - self.loaded.size)]
        first_star = self.library.size
        own: list[tuple[int | None, Step]] = []
        # settings given from outside are of the program's own settings, which are there already
        world = World(Eager(EagerEmitter(self.host), globals, "prompt", "prompt"), Declared(), {}, self.loaded.files)
        for (index, step), t in zip(loader.steps, typed, strict=True):
            value = _at_prompt(step, t, self.host, first_star, outcome)(world)
            if index is None:
                outcome.parts[t.place].values.append(value)
            else:
                globals[index] = value
                own.append((index, _at_prompt(step, t, self.host, first_star)))
        loaded = replace(self.loaded, module=module, steps=[*self.loaded.steps, *own], size=loader.size)
        program = replace(self.program, globals=globals, module=module)
        added = {keys[t.place]: t for t in typed if t.place in keys}
        return replace(self, typed={**self.typed, **added}, loaded=loaded, program=program)

    # Looking

    def traced(self, form: Form, place: int = 0) -> tuple[Any, Looking]:
        """The value of an expression as its type tells it, and the frame with the graph: nothing is computed."""
        loader, module = self.library.behind(), _copied(self.loaded.module)
        loader.steps, loader.size = [], self.loaded.size
        loader.add([form], module)
        if loader.errors:
            raise Refused(loader.errors)
        graph = Graph("prompt")
        frame = Looking(graph, self.program.globals, "prompt", f"prompt {place}", Registry(), Recording())
        (_, step) = loader.steps[0]
        return step(World(frame, Declared(), {}, self.loaded.files)), frame

    def operands_of(self, form: Form, place: int, number: int, guard: Guard) -> dict[str, Seen]:
        """What a guard of an input looked at, by its part, in the host's memory: the input is computed again.

        form, place, number:  the form that holds or calls the guard, its place in the input and the input's number
        """
        _, looking = self.traced(form, place)
        draws = Draws(SEED, self.host.asarray)
        draws.at(number, 0)
        frame = Eager(EagerEmitter(self.host, draws), self.program.globals, "prompt", f"prompt {place}")
        steps = {op.index: frame.emitter.constant(number, "i32") for op in looking.graph.sources.values()}
        table = looking.recording.guards.guards
        for (slot, count), operand in zip(looking.recording.tallies, looking.recording.operands, strict=True):
            made = table[slot]
            if (made.span, made.form, made.metadata) != (guard.span, guard.form, guard.metadata):
                continue
            parts = parts_of(made, operand)
            wanted = [count, *[part.value for part in parts]]
            total, *arrays = [self._host_array(x) for x in frame.computed(looking.graph, wanted, steps)]
            if total != 0:
                return seen(parts, arrays)
        return {}

    def _host_array(self, x: Any) -> Any:
        """An array, or a host number as the f32 that a guard sees, in the host's memory."""
        data = x.data if isinstance(x, EagerArray) else self.host.xp.asarray(x, dtype="float32")
        return self.host.to_host(data)

    def form_of(self, source: Source, offset: int) -> Form | None:
        """The top-level form that a place lies in, of the file or of what was typed."""
        forms = [*self.forms, *[t.form for t in self.typed.values()]]
        return next((f for f in forms if f.span.source is source and f.span.start <= offset < f.span.end), None)

    def text(self) -> str:
        """The program as it stands now: the file with what was typed in place, then the rest."""
        typed = dict(self.typed)
        parts: list[str] = []
        at = 0
        for form in self.forms:
            key = _key_or_none(form)
            if key in typed:
                assert self.source is not None
                parts += [self.source.text[at : form.span.start], typed.pop(key).form.span.text]
                at = form.span.end
        if self.source is not None:
            parts.append(self.source.text[at:])
        head = "".join(parts)
        rest = [t.form.span.text for t in typed.values()]
        gap = "\n" if head and not head.endswith("\n") else ""
        return head + gap + "".join([f"{text}\n" for text in rest])


def _is_define(form: Form) -> bool:
    return isinstance(form, Group) and form.head == "define"


def _key_or_none(form: Form) -> Key | None:
    try:
        return key_of(form)
    except SxiError:
        return None


def _copied(module: Module) -> Module:
    return Module(module.path, dict(module.own), dict(module.imported), module.ground, list(module.reported))


def _keys(typed: Sequence[Typed]) -> dict[int, Key]:
    """What each form of an input defines, by its place; expressions are left out."""
    keys: dict[int, Key] = {}
    errors: list[SxiError] = []
    for t in typed:
        try:
            key = key_of(t.form)
            if key is not None and key in keys.values() and key[0] != "import":
                raise codes.DEFINED_TWICE.at(t.form.span, name=key[1] or key[0])
        except SxiError as error:
            errors.append(error)
            continue
        if key is not None:
            keys[t.place] = key
    if errors:
        raise Refused(errors)
    return keys


def _made(
    host: Backend, library: Loader, source: Source | None, forms: tuple[Form, ...], typed: dict[Key, Typed],
    settings: dict[str, Any], now: tuple[int, Outcome] | None = None,
) -> Workspace:  # fmt: skip
    """Resolve and evaluate everything.  Raises Refused with every error that is found.

    now:  the number of the input that is being evaluated, and where what it gives goes
    """
    loader = library.behind()
    module = Module(source.path if source else PROMPT, {}, dict(loader.library), loader.ground)
    loader.add(_star_forms(), module)
    module.imported |= module.own
    module.own = {}
    if source is not None:
        loader.open.append(os.path.realpath(source.path))
    left = dict(typed)
    items: list[Form | Typed] = []
    for f in forms:
        key = _key_or_none(f)
        items.append(left.pop(key) if key in left else f)
    items += left.values()
    loader.add([x.form if isinstance(x, Typed) else x for x in items], module)
    if loader.errors:
        raise Refused(_in_order(loader.errors, source))
    # the steps of the library and of imported files come before those of the forms themselves
    before = len(loader.steps) - len(items)
    steps = loader.steps[:before]
    for (index, step), x in zip(loader.steps[before:], items, strict=True):
        if isinstance(x, Typed):
            outcome = now[1] if now and now[0] == x.number else None
            step = _at_prompt(step, x, host, library.size, outcome)
        steps.append((index, step))
    sources = [*([source] if source else []), *loader.sources]
    loaded = Loaded(module.path, module, steps, loader.size, [], sources)
    program = _evaluated(loaded, host, settings)
    return Workspace(host, library, source, forms, typed, settings, loaded, program)


def _star_forms() -> tuple[Form, ...]:
    return read(Source(PROMPT, " ".join([f"(define {name} nil)" for name in STARS])))


def _in_order(errors: list[SxiError], source: Source | None) -> list[SxiError]:
    def place(error: SxiError) -> tuple[bool, bool, int]:
        span = error.span
        return span is None, span is not None and span.source is not source, span.start if span else 0

    return sorted(errors, key=place)


def _at_prompt(step: Step, typed: Typed, host: Backend, first_star: int, outcome: Outcome | None = None) -> Step:
    """The step of a typed form: it may draw, report and print, and gives the same whenever it is performed.

    outcome:  where what it prints and reports goes; None: it is performed again, and has been heard
    """

    def performed(world: World) -> Any:
        draws = Draws(SEED, host.asarray)
        draws.at(typed.number, 0)
        globals = world.frame.globals
        globals[first_star : first_star + len(STARS)] = typed.stars
        frame = Eager(EagerEmitter(host, draws), globals, "prompt", f"prompt {typed.place}")
        part = Part() if outcome is None else outcome.begin(typed.place)
        frame.steps, frame.reported, frame.printed = typed.number, part.reported, part.printed
        outer, world.declared.printed = world.declared.printed, part.printed
        try:
            return step(World(frame, world.declared, world.overrides, world.files, world.working))
        finally:
            world.declared.printed = outer

    return performed


def _evaluated(loaded: Loaded, host: Backend, settings: dict[str, Any]) -> Program:
    """Evaluate a program; a definition that needs a later one, as a typed one may, is put behind it."""
    while True:
        failures: list[Failure] = []
        program = loaded.evaluate(host, settings, failures)
        if not failures:
            return program
        early = {i for i, error in failures if i is not None and error.code == codes.USED_BEFORE.code}
        order = [s for s in loaded.steps if s[0] not in early] + [s for s in loaded.steps if s[0] in early]
        if not early or order == loaded.steps:
            raise Refused([error for _, error in failures])
        loaded.steps = order
