"""What the commands do, given streams to write to: all of `sxi` but the arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from sxi import codes, folder
from sxi.backends import open_backend
from sxi.errors import EXIT_STATUS, SxiError
from sxi.eval import CONSTANTS, USAGE
from sxi.job import INTERRUPTED, STOPPED, Job, summary_lines
from sxi.program import Loaded, load_source
from sxi.reader import Form, Group, Keyword, Number, Symbol, Text, load, read
from sxi.render import indented
from sxi.run import Runner
from sxi.saved import evaluate as evaluate_saved
from sxi.saved import program_of, show_failure
from sxi.source import Source
from sxi.stages import CheckedStage, check_run
from sxi.streams import is_unicode
from sxi.suggest import did_you_mean, suggest_file
from sxi.values import Key


@dataclass(frozen=True, slots=True)
class Request:
    """What `sxi run` was asked for."""

    file: str | None
    out: str | None
    resume: str | None
    options: dict[str, int]
    sets: tuple[str, ...]
    device: str
    quiet: bool
    plain: bool


# The exit status of a program that is refused.
REFUSED = EXIT_STATUS["CONTRACT"]

# Settings given on the command line


def settings_of(sets: Sequence[str]) -> dict[str, Any]:
    """Settings from `name=value` texts.  Raises E-USE-004."""
    found = {}
    for text in sets:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise codes.BAD_SET.at(None, text=text, reason="expected name=value")
        found[name] = constant(value)
    return found


def constant(value: str) -> Any:
    """The constant that `value` writes; a word that is none is a string, so that a path needs no quotes."""
    try:
        forms = read(Source("--set", value))
    except SxiError:
        return value
    if len(forms) != 1 or not _is_constant(forms[0]):
        return value
    return _constant_of(forms[0])


def _is_constant(form: Form) -> bool:
    if isinstance(form, Group):
        return form.bracket == "[" and all([_is_constant(f) for f in form.items])
    return isinstance(form, Number | Text | Keyword) or (isinstance(form, Symbol) and form.name in CONSTANTS)


def _constant_of(form: Form) -> Any:
    if isinstance(form, Group):
        return [_constant_of(f) for f in form.items]
    if isinstance(form, Keyword):
        return Key(form.name)
    return CONSTANTS[form.name] if isinstance(form, Symbol) else form.value  # type: ignore[union-attr]  # a number or a text


# run


def run(request: Request, out: TextIO, err: TextIO) -> tuple[int, SxiError | None]:
    """Perform `sxi run`: its exit status, and the error where it failed."""
    if request.file is not None:
        must_exist(request.file)
    if request.out is not None and request.resume is not None:
        if os.path.realpath(request.out) != os.path.realpath(request.resume):
            raise codes.TWO_FOLDERS.at(None, out=request.out, resume=request.resume)
    elif request.out is not None and os.path.lexists(request.out):
        raise codes.OUT_EXISTS.at(None, path=request.out)
    with ExitStack() as stack:
        job = _resumed_job(request, err, stack) if request.resume is not None else _new_job(request, out, err, stack)
        status, error = job.perform()
    if status in (STOPPED, INTERRUPTED) and not request.quiet:
        unsaved = "" if job.saved == job.runner.step else ", without a checkpoint of it"
        err.write(f"stopped at step {job.runner.step}{unsaved}; sxi run --resume {job.folder.path} goes on\n")
    if job.unkept is not None:
        err.write(f"what the guard looked at is not kept: {job.unkept}\n")
    if not request.quiet and error is None:
        for line in job.summary():
            out.write(line + "\n")
    if hasattr(job.runner.backend, "reads_summary"):
        for line in job.runner.backend.reads_summary():
            err.write(line + "\n")
    return status, error


def must_exist(path: str) -> None:
    """Refuse a program that is no file; names a near one."""
    if not os.path.isfile(path):
        near = suggest_file(path)
        notes = (f"{path} is a folder",) if os.path.isdir(path) else ()
        raise codes.NO_FILE.at(None, path=path, notes=notes, help=f"did you mean {near}?" if near else "")


def _screen(request: Request, err: TextIO) -> TextIO | None:
    return None if request.quiet else err


def _new_job(request: Request, out: TextIO, err: TextIO, stack: ExitStack) -> Job:
    assert request.file is not None
    settings = settings_of(request.sets)
    loaded = load_source(load(request.file))
    stages = checked_stages(loaded, settings, request.options)
    for line in stages[0].checked.program.declared.printed:
        out.write(line + "\n")
    runner = Runner(stages, open_backend(request.device), open_backend("cpu"), plain=request.plain)
    runner.begin()
    made = folder.make_named(runner.run.name) if request.out is None else folder.make(Path(request.out))
    stack.enter_context(folder.held(made))
    if request.out is None and not request.quiet:
        err.write(f"writing into {made.path}\n")
    identity = folder.new_identity(request.file, settings, request.options)
    return job_of(runner, made, identity, loaded.sources, _screen(request, err))


def job_of(
    runner: Runner, where: folder.Folder, identity: folder.Identity, sources: list[Source], screen: TextIO | None
) -> Job:
    """The job of a runner in its folder."""
    return Job(runner, where, identity.run_id, lambda: folder.write_program(where, identity, sources), screen)


def checked_stages(loaded: Loaded, settings: dict[str, Any], options: dict[str, int]) -> list[CheckedStage]:
    """The checked stages of a file's run, its options overridden.  Raises the first error, the others with it."""
    try:
        if loaded.errors:
            raise loaded.errors[0]
        return check_run(loaded, open_backend("cpu"), settings, options)
    except SxiError as error:
        if error.exit_status != REFUSED:
            raise
        from sxi.checking import check_loaded  # noqa: PLC0415  # a run that succeeds looks for no further errors

        raise _with_others(check_loaded(loaded, settings) or [error]) from None


def _with_others(errors: list[SxiError]) -> SxiError:
    errors[0].others = errors[1:]
    return errors[0]


def _resumed_job(request: Request, err: TextIO, stack: ExitStack) -> Job:
    assert request.resume is not None
    where = folder.Folder(Path(request.resume))
    identity = where.identity()
    stack.enter_context(folder.held(where))
    folder.clean(where)
    loaded = load_source(load(request.file)) if request.file else program_of(where, identity)
    settings = {k: folder.decoded(v) for k, v in identity.settings.items()} | settings_of(request.sets)
    options = identity.options | request.options
    stages = checked_stages(loaded, settings, options)
    runner = Runner(stages, open_backend(request.device), open_backend("cpu"), plain=request.plain)
    identity = replace(identity, options=options, settings={k: folder.encoded(v) for k, v in settings.items()})
    if request.file is not None:
        identity = replace(identity, path=request.file, working=os.getcwd())
    job = job_of(runner, where, identity, loaded.sources, _screen(request, err))
    for line in job.go_on():
        if line.startswith("skipped") or not request.quiet:
            err.write(line + "\n")
    return job


def _write_json(value: Any, out: TextIO) -> None:
    out.write(json.dumps(value, indent=1, ensure_ascii=not is_unicode(out)) + "\n")


# check and explain


def check(files: Sequence[str], form: str, sets: Sequence[str], out: TextIO, width: int, unicode: bool) -> int:
    """Perform `sxi check`: findings go to `out`; the exit status is that of the worst.

    Each file is checked once, and what several import is told once.
    """
    from sxi import render  # noqa: PLC0415  # a run that succeeds renders nothing

    settings = settings_of(sets)
    colour = render.colours_wanted(out, os.environ)
    found: list[Any] = []
    told: dict[tuple[str, str, str], SxiError] = {}
    for file in dict.fromkeys(files):
        errors = {(e.code, str(e.span), e.message): e for e in _errors_of(file, settings)}
        for key in [key for key in errors if key not in told]:
            error = told[key] = errors[key]
            if form == "json":
                found.append(render.as_json(error))
            elif form == "github":
                out.write(render.github(error) + "\n")
            else:
                out.write(render.frame(error, width=width, colour=colour, unicode=unicode) + "\n\n")
        if form == "text" and not errors:
            out.write(f"{file}: no contract is broken\n")
    if form == "json":
        _write_json(found, out)
    return max([error.exit_status for error in told.values()], default=0)


def _errors_of(file: str, settings: dict[str, Any]) -> list[SxiError]:
    from sxi.checking import check_file  # noqa: PLC0415  # a run that succeeds renders nothing

    try:
        must_exist(file)
        return check_file(file, settings)
    except SxiError as raised:
        return [raised]


def explain(what: str, form: str, graph: str | None, sets: Sequence[str], out: TextIO, width: int) -> int:
    """Perform `sxi explain`."""
    if os.path.isfile(what):
        from sxi import explain_program  # noqa: PLC0415  # only a file needs it

        loaded = load_source(load(what))
        stages = checked_stages(loaded, settings_of(sets), {})
        facts = None if graph is None else explain_program.graph_of_run(stages, graph)
        if form == "json":
            _write_json(explain_program.run_as_json(stages) if facts is None else facts, out)
        elif facts is not None:
            out.write("\n".join(explain_program.graph_lines(facts)) + "\n")
        else:
            out.write("\n".join(explain_program.explain_run(stages, width)) + "\n")
        return 0
    if what.endswith(".sx") or (what not in ("/", "/=") and (os.sep in what or os.path.isdir(what))):
        must_exist(what)
    from sxi.explain import code_as_json, explain_code  # noqa: PLC0415  # only a code needs it

    try:
        text, fields = explain_code(what, width).rstrip("\n"), code_as_json(what)
    except SxiError as error:
        told, near = _told_of(what)
        if told is None:
            error.help = error.help or near
            raise
        lines = [part for line in told for part in indented(line, width)] if out.isatty() else told
        text, fields = "\n".join(lines), {"name": what, "usage": told[0], "doc": "\n".join(told[1:])}
    if form == "json":
        _write_json(fields, out)
    else:
        out.write(text + "\n")
    return 0


def _told_of(name: str) -> tuple[list[str] | None, str]:
    """What is said of a name that every file has: a form, a primitive, a definition of the library; or a near one."""
    from sxi.reference import documentation  # noqa: PLC0415  # only a name needs it

    program = load_source(Source("nothing.sx", "")).evaluate(open_backend("cpu"))
    told = documentation(name, program)
    return told, "" if told is not None else did_you_mean(name, [*USAGE, *program.module.names()])


def status(run: str, form: str, out: TextIO) -> int:
    """Perform `sxi status`."""
    from sxi.status import FILE as STATUS  # noqa: PLC0415  # only this command reads it
    from sxi.status import read_status  # noqa: PLC0415  # likewise

    if not (Path(run, STATUS).exists() or folder.Folder(Path(run)).identity_file.exists()):
        raise codes.NOT_A_RUN.at(None, path=run)
    fields = read_status(Path(run))
    if form == "json":
        _write_json(fields, out)
        return 0
    out.write(f"{fields['state']} at step {fields['step']}\n")
    error = fields.get("error")
    if error:
        out.write(f"{error['code']}: {error['message']}\n")
        for other in error.get("also", []):
            out.write(f"also {other['code']}: {other['message']}\n")
    for name in ("device", "ranks", "pid", "host", "started", "updated", "throughput"):
        if fields.get(name) is not None:
            out.write(f"{name}: {fields[name]}\n")
    return 0


def replay(run: str, device: str, out: TextIO, err: TextIO) -> int:
    """Perform `sxi replay`."""
    out.write("\n".join(show_failure(Path(run), device, lambda line: print(line, file=err))) + "\n")
    return 0


def evaluate(
    run: str, name: str | None, which: str | None, sets: Sequence[str], device: str, target: str | None,
    out: TextIO, err: TextIO,
) -> tuple[int, SxiError | None]:  # fmt: skip
    """Perform `sxi evaluate`."""
    if target is not None and os.path.lexists(target):
        raise codes.OUT_EXISTS.at(None, path=target)
    settings = settings_of(sets)
    done = evaluate_saved(Path(run), name, which, settings, device, Path(target) if target else None)
    for line in summary_lines([(p.label, p.value) for p in done.points]):
        out.write(line + "\n")
    if done.outputs is not None:
        err.write(f"outputs are in {done.outputs}\n")
    if done.failure is not None:
        err.write(f"what the guard looked at: sxi replay {done.failure}\n")
    return (0 if done.error is None else done.error.exit_status), done.error
