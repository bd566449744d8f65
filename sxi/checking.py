"""What is wrong with a program, found before any step: every error that can be found, in order, once.

A walk stops at its first error, so what is collected is one error for each definition, each graph and
each initializer.  An error that only follows from another is left out: it would vanish with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sxi import codes, contracts
from sxi.backends import open_backend
from sxi.compiled import check_all
from sxi.eager import Eager, EagerEmitter
from sxi.errors import SxiError
from sxi.eval import MOST_CALLS
from sxi.program import Failure, Loaded, load_source
from sxi.reader import load
from sxi.source import Source
from sxi.stages import check_stage_settings, check_stages, check_tests
from sxi.tracing import Tracer

MOST_ERRORS = 20
# What begins a comment in other languages, and is a name here.
COMMENTS_ELSEWHERE = ("#", "//", "--")
# 10,000 calls that nest, 40 of Python's frames each; these live on its heap, not on the C stack.
MOST_FRAMES = 400_000


@contextmanager
def deep_calls() -> Iterator[None]:
    """Room for as many nested calls as the language allows: whoever evaluates a program holds it.

    The outermost caller of a process holds it for as long as any thread evaluates: Python's limit is
    one for all threads.
    """
    outer = sys.getrecursionlimit()
    sys.setrecursionlimit(max(outer, MOST_FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(outer)


def check_file(path: str, settings: dict[str, Any] | None = None) -> list[SxiError]:
    """The errors of the program in a file, at most 20: none where its run can be made.

    path:      as messages are to name it
    settings:  what replaces the values of the program's settings
    """
    try:
        source = load(path)
    except SxiError as error:
        return [error]
    return _check(source, settings)


def check_text(text: str, path: str = "example.sx") -> list[SxiError]:
    """The errors of a program, at most 20; `path` names it in messages and is where its files are looked for."""
    return _check(Source(path, text), None)


def check_loaded(loaded: Loaded, settings: dict[str, Any] | None = None) -> list[SxiError]:
    """The errors of a program that was read already, at most 20."""
    with deep_calls():
        findings = _Findings()
        _check_loaded(loaded, settings, findings)
        return findings.in_order(loaded)


def _check(source: Source, settings: dict[str, Any] | None) -> list[SxiError]:
    with deep_calls():
        findings = _Findings()
        loaded = findings.attempt(load_source, source)
        if loaded is not None:
            _check_loaded(loaded, settings, findings)
        return findings.in_order(loaded)


def _check_loaded(loaded: Loaded, settings: dict[str, Any] | None, findings: _Findings) -> None:
    findings.errors += _causes_of_reading(loaded.errors)
    if any([_is_unread(e) for e in loaded.errors]):
        return
    host = open_backend("cpu")
    failures: list[Failure] = []
    program = findings.attempt(loaded.evaluate, host, settings, failures)
    findings.errors += _causes_of_evaluating(failures, loaded)
    # a form without a name may be the objective, and no walk says anything without it
    if program is not None and None not in loaded.unresolved:
        walks = _Walks(loaded, {*loaded.unresolved, *[index for index, _ in failures]})
        if not program.declared.runs:
            check_stage_settings(program, host, walks.attempt)
        elif failures or loaded.errors:
            check_all(program, Eager(EagerEmitter(host), program.globals, None, "top"), walks.attempt)
        else:
            stages = check_stages(loaded, program, host, settings or {}, {}, walks.attempt)
            if stages and not walks.errors:
                walks.attempt(check_tests, stages, host)
        findings.errors += walks.causes()


class _Findings:
    """The errors found so far."""

    def __init__(self) -> None:
        self.errors: list[SxiError] = []

    def attempt(self, walk: Callable[..., Any], *args: Any) -> Any:
        """What `walk` gives, or None where its error is noted."""
        try:
            return walk(*args)
        except SxiError as error:
            self.errors.append(error)
        except RecursionError:
            self.errors.append(codes.TOO_DEEP.at(None, limit=f"{MOST_CALLS:,}"))
        except MemoryError:
            self.errors.append(codes.OUT_OF_MEMORY.at(None, type="what the program computes"))
        return None

    def in_order(self, loaded: Loaded | None) -> list[SxiError]:
        """Each place and code once: the file's own in its order, then the imported files', then those without place."""
        files = [source.path for source in loaded.sources] if loaded else []

        def place(error: SxiError) -> tuple[int, str, int]:
            if error.span is None:
                return len(files) + 1, "", 0
            path = error.span.source.path
            return files.index(path) if path in files else len(files), path, error.span.start

        once: dict[Any, SxiError] = {}
        for error in self.errors:
            once.setdefault((error.code, error.span, error.message if error.span is None else ""), error)
        return sorted(once.values(), key=place)[:MOST_ERRORS]


def _is_unread(error: SxiError) -> bool:
    """Whether an error leaves definitions unknown."""
    return error.family == "READ" or error.code == codes.BAD_IMPORT.code


def _causes_of_reading(errors: list[SxiError]) -> list[SxiError]:
    """Where text could not be read, a name may be unknown only because its definition was not read.

    Nor is a name behind what begins a comment elsewhere an error of its own.
    """
    unread = any([_is_unread(e) for e in errors])
    unknown = [e.span for e in errors if e.code == codes.UNKNOWN_NAME.code and e.span is not None]
    comments = {(s.source, s.line): s for s in unknown if s.text in COMMENTS_ELSEWHERE and s.column == 1}

    def is_cause(error: SxiError) -> bool:
        if error.code != codes.UNKNOWN_NAME.code or error.span is None:
            return True
        return not unread and comments.get((error.span.source, error.span.line), error.span) is error.span

    return [e for e in errors if is_cause(e)]


def _causes_of_evaluating(failures: list[Failure], loaded: Loaded) -> list[SxiError]:
    """The failures but for those that only used what had failed before."""
    failed = set(loaded.unresolved)
    causes = []
    for index, error in failures:
        if not _uses(failed, error, loaded):
            causes.append(error)
        failed.add(index)
    return causes


def _uses(failed: set[int | None], error: SxiError, loaded: Loaded) -> bool:
    """Whether an error is that a name is unset whose definition has failed."""
    if error.code != codes.USED_BEFORE.code or error.span is None:
        return False
    module = loaded.modules.get(error.span.source.path, loaded.module)
    number = module.lookup(error.span.text)
    return number is not None and number in failed


class _Walks(_Findings):
    """The errors of the walks of a run, which may follow from one another.

    failed:  the numbers of the definitions that have no value
    """

    # What a walk says of parameters and states that the failed walk of the objective would have made.
    AFTER_THE_OBJECTIVE = frozenset(
        code.code
        for code in (
            codes.UNKNOWN_PARAMETER,
            codes.UNKNOWN_STATE,
            contracts.parameters_are_made_by_the_model.code,
            contracts.every_parameter_has_a_group.code,
        )
    )

    WITHOUT_END = frozenset({codes.GRAPH_TOO_LARGE.code, codes.TOO_DEEP.code})

    def __init__(self, loaded: Loaded, failed: set[int | None]) -> None:
        super().__init__()
        self.loaded, self.failed = loaded, failed
        self.step_failed = self.endless = False

    def attempt(self, walk: Callable[..., Any], *args: Any) -> Any:
        if self.endless:
            return None
        before = len(self.errors)
        made = super().attempt(walk, *args)
        found = self.errors[before:]
        # another walk would find the same function that calls itself without end, and be as long about it
        self.endless = any([e.code in self.WITHOUT_END for e in found])
        if self.step_failed:
            self.errors[before:] = [e for e in found if e.code not in self.AFTER_THE_OBJECTIVE]
        if getattr(walk, "__func__", None) is Tracer.step:
            self.step_failed = bool(found)
        return made

    def causes(self) -> list[SxiError]:
        """The errors that do not follow from a definition without a value."""
        return [e for e in self.errors if not _uses(self.failed, e, self.loaded)]
