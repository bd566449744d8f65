"""A file and its settings -> a `Program`: everything it declares, its names evaluated.

A program is a pure function of its text and its settings.  `load` reads and resolves once;
`Loaded.evaluate` performs the file's steps again for other settings, as `--set`, a stage and a
redefinition do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, TypeAlias

from sxi import codes
from sxi.builtins import BUILTINS
from sxi.eager import Eager, EagerEmitter
from sxi.errors import SxiError
from sxi.eval import UNSET
from sxi.forms import contexts, core, data, graph, reporting, runs, stages  # noqa: F401  # their forms are entered
from sxi.forms.declare import DECLARATIONS, Declared, Step, World, defined_name, expression
from sxi.names import Mentions, Module, Scope
from sxi.primitives import PRIMITIVES
from sxi.reader import Form, Group, Text, load, read_all
from sxi.source import Source, Span
from sxi.suggest import did_you_mean

LIBRARY = "library"
# A step that failed: the number of the global that it would have defined, and its error.
Failure: TypeAlias = tuple[int | None, SxiError]


@dataclass(slots=True, eq=False)
class Program:
    """One evaluation of a file.

    path:      as given on the command line
    declared:  its declarations
    globals:   the values of all definitions, by number; names: those of the file and what it imports
    settings:  what was set from outside
    working:   the folder that `path` is relative to, "" for the process's own
    """

    path: str
    declared: Declared
    globals: list[Any]
    module: Module
    settings: dict[str, Any]
    sources: list[Source]
    working: str = ""

    def value(self, name: str) -> Any:
        """The value of a name of the file."""
        found = self.module.lookup(name)
        return self.globals[found] if isinstance(found, int) else found


@dataclass(slots=True, eq=False)
class Loaded:
    """A file read and resolved: the steps to perform, in order.

    steps:       (number of the global it defines or None, the step, whether it belongs to the library)
    unresolved:  the same number of each form that has no step, for its error
    modules:     the names of the file and of each that it imports, by path
    """

    path: str
    module: Module
    steps: list[tuple[int | None, Step]]
    size: int
    errors: list[SxiError]
    sources: list[Source]
    files: dict[Any, Any] = field(default_factory=dict)
    working: str = ""
    unresolved: list[int | None] = field(default_factory=list)
    modules: dict[str, Module] = field(default_factory=dict)

    def evaluate(
        self, host: Any, settings: dict[str, Any] | None = None, failures: list[Failure] | None = None
    ) -> Program:
        """Perform every step on the backend `host`.

        failures:  where a step's error is kept, to go on with the next step; None: it is raised at once,
                   and nothing of the evaluation stays
        """
        emitter = EagerEmitter(host)
        globals: list[Any] = [UNSET] * self.size
        frame = Eager(emitter, globals, None, "top")
        world = World(frame, Declared(), dict(settings or {}), self.files, self.working)
        frame.printed = world.declared.printed
        for index, step in self.steps:
            frame.call, frame.depth = None, 0
            try:
                value = step(world)
            except SxiError as error:
                if failures is None:
                    raise
                failures.append((index, error))
                # an error leaves its frame in the middle of a region
                frame = world.frame = Eager(EagerEmitter(host), globals, None, "top")
                frame.printed = world.declared.printed
                continue
            if index is not None:
                globals[index] = value
        failed = {*self.unresolved, *[index for index, _ in failures or ()]}
        for name in world.overrides:
            if name not in world.declared.settings and self.module.lookup(name) not in failed:
                raise no_such_setting(name, world.declared.settings, None)
        return Program(self.path, world.declared, globals, self.module, world.overrides, self.sources, self.working)


def no_such_setting(name: str, settings: Iterable[str], span: Span | None) -> SxiError:
    """The error of a setting that is set, and that the file does not have."""
    known = " ".join(settings)
    notes = (f"its settings are {known}" if known else "it has no setting",)
    what = "the file has no such setting"
    return codes.WRONG_SETTING.at(span, name=name, what=what, help=did_you_mean(name, known.split()), notes=notes)


class Loader:
    """Reads a file and those it imports, and resolves their forms."""

    def __init__(self, texts: dict[str, Source] | None = None) -> None:
        self.texts = texts or {}
        self.steps: list[tuple[int | None, Step]] = []
        self.errors: list[SxiError] = []
        self.sources: list[Source] = []
        self.size = 0
        self.unresolved: list[int | None] = []
        self.modules: dict[str, Module] = {}
        self.by_path: dict[str, Module] = {}
        self.open: list[str] = []
        self.ground: dict[str, Any] = {**{n: p for n, p in PRIMITIVES.items() if not p.internal}, **BUILTINS}
        self.library: dict[str, tuple[int, Span]] = {}
        self.mentions: dict[int, Mentions] = {}
        self.curriculum = Mentions()

    def behind(self) -> Loader:
        """A loader that has read what this one has: the library is read once, whatever is loaded behind it."""
        made = Loader()
        made.steps, made.size, made.library = list(self.steps), self.size, self.library
        made.mentions = dict(self.mentions)
        return made

    def load_library(self) -> None:
        """Put the names of `library/*.sx` in scope of every file."""
        folder = resources.files("sxi") / LIBRARY
        for entry in sorted(folder.iterdir(), key=lambda e: e.name):
            if entry.name.endswith(".sx"):
                source = Source(f"{LIBRARY}/{entry.name}", entry.read_text(encoding="utf-8"))
                self.library |= self.module_of(source, {**self.library}).own

    def module_of(self, source: Source, imported: dict[str, tuple[int, Span]]) -> Module:
        """Resolve one file's forms behind those of the files it imports."""
        forms, errors = read_all(source)
        self.errors.extend(errors)
        module = self.by_path[source.path] = Module(source.path, {}, dict(imported), self.ground)
        self.add(forms, module)
        return module

    def add(self, forms: Sequence[Form], module: Module) -> None:
        """Define the names of `forms` in `module`, then resolve each: functions may refer forward."""
        numbers: dict[int, int] = {}
        for form in forms:
            try:
                if isinstance(form, Group) and form.head == "import":
                    self._import(form, module)
                named = defined_name(form)
                if named is not None:
                    module.define(named[0], self.size, named[1])
                    numbers[id(form)] = self.size
                    self.size += 1
            except SxiError as error:
                self.errors.append(error)
        for form in forms:
            self._resolve(form, module, numbers.get(id(form)))

    def _resolve(self, form: Form, module: Module, number: int | None) -> None:
        scope = Scope(None, module)
        module.mentions = Mentions()
        if number is not None:
            self.mentions[number] = module.mentions
        try:
            if isinstance(form, Group) and form.head in DECLARATIONS:
                if form.head == "curriculum":
                    self.curriculum = module.mentions
                _, step = DECLARATIONS[form.head](form, scope)
            else:
                step = expression(form, scope)
        except SxiError as error:
            self.errors.append(error)
            self.unresolved.append(number)
        else:
            self.steps.append((number, step))

    def check_curriculum(self) -> None:
        """Refuse what reports in a function that the curriculum calls: walking it between steps would be too late."""
        open_: list[tuple[int, tuple[tuple[str, Span], ...]]] = []
        open_ += [(number, ((span.text, span),)) for number, span in self.curriculum.globals]
        seen: set[int] = set()
        while open_:
            number, chain = open_.pop(0)
            if number in seen:
                continue
            seen.add(number)
            mentions = self.mentions.get(number, Mentions())
            for form, bounds, span in mentions.reports:
                try:
                    reporting.check_place(form, "curriculum", bounds, span)
                except SxiError as error:
                    error.chain = list(chain)
                    self.errors.append(error)
            open_ += [(n, ((span.text, span), *chain)) for n, span in mentions.globals]

    def _import(self, form: Group, module: Module) -> None:
        source = form.span.source
        if len(form.items) != 2 or not isinstance(form.items[1], Text):
            raise codes.MALFORMED.at(
                form.span, form="import", what="it takes the path of a file", help='(import "file.sx")'
            )
        given = form.items[1]
        path = os.path.join(os.path.dirname(source.path), given.value)
        real = path if "\0" in path else os.path.realpath(path)  # a path that is none is refused when it is read
        if real in self.open:
            raise codes.BAD_IMPORT.at(given.span, what=f"{path} imports itself through {source.path}")
        if real not in self.modules:
            self.open.append(real)
            self.modules[real] = self.module_of(self.texts.get(path) or load(path, span=given.span), self.library)
            self.open.pop()
            self.sources.append(self.modules_source(real))
        module.imported |= self.modules[real].own

    def modules_source(self, real: str) -> Source:
        """The source of an imported file, which its definitions carry."""
        module = self.modules[real]
        spans = [span for _, span in module.own.values()]
        return spans[0].source if spans else Source(module.path, "")


def load_source(source: Source, imports: Sequence[Source] = (), working: str = "") -> Loaded:
    """Read and resolve a program; its errors are in `errors`, in order.

    imports:  texts that stand for the files of their paths, as a saved run has them
    working:  the folder that the file's path is relative to, in place of the process's own
    """
    loader = Loader({s.path: s for s in imports})
    loader.load_library()
    library_errors = len(loader.errors)
    assert library_errors == 0, loader.errors[0]
    loader.open.append(os.path.realpath(source.path))
    module = loader.module_of(source, loader.library)
    loader.sources.insert(0, source)
    loader.check_curriculum()
    errors = sorted(
        loader.errors,
        key=lambda e: (
            e.span is None,
            e.span.source.path != source.path if e.span else 0,
            e.span.start if e.span else 0,
        ),
    )
    return Loaded(
        source.path, module, loader.steps, loader.size, errors, loader.sources, working=working,
        unresolved=loader.unresolved, modules=loader.by_path,
    )  # fmt: skip
