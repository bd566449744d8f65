"""What is done with a saved run: its passes without a step, its failure shown again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sxi import checkpoint, codes, evidence, folder, replay
from sxi.backends import open_backend
from sxi.compiled import NO_STEPS
from sxi.errors import SxiError
from sxi.job import load_state, resumed
from sxi.layout import Point
from sxi.program import Loaded, load_source
from sxi.run import Failure, Report, Runner
from sxi.stages import check_run
from sxi.status import read_status
from sxi.suggest import did_you_mean


def program_of(where: folder.Folder, identity: folder.Identity) -> Loaded:
    """The program as it was run, its data found where the original file has it."""
    sources = where.sources()
    loaded = load_source(sources[0], imports=sources[1:], working=identity.working)
    if loaded.errors:
        raise loaded.errors[0]
    return loaded


def runner_of(
    where: folder.Folder, settings: dict[str, Any], device: str, *, trains: bool
) -> tuple[Runner, folder.Identity]:
    """The runner of a saved run, its state not yet loaded; `trains` where it will take steps."""
    identity = where.identity()
    given = {k: folder.decoded(v) for k, v in identity.settings.items()} | settings
    options = identity.options if trains else identity.options | {NO_STEPS: 1}
    stages = check_run(program_of(where, identity), open_backend("cpu"), given, options)
    return Runner(stages, open_backend(device), open_backend("cpu")), identity


# Prediction

# What names a file even where there is none, so that the error is about the working folder.
_OF_FILES = (".npz", ".npy", ".csv", ".safetensors", ".txt")


def absolute_path(value: Any) -> Any:
    """A setting's value in which a string that is a path of the working folder stays that path elsewhere."""
    if isinstance(value, list):
        return [absolute_path(v) for v in value]
    is_path = isinstance(value, str) and bool(value) and (value.endswith(_OF_FILES) or os.path.exists(value))
    return os.path.abspath(value) if is_path else value


def chosen_checkpoint(where: folder.Folder, which: str | None, run_id: str) -> Path:
    """The checkpoint that `--checkpoint` names: a step, `best`, or without it the newest whole one.

    Raises E-RUN-022 and E-RUN-043.
    """
    if which is None:
        found, skipped = checkpoint.newest(where.checkpoints, run_id)
        if found is None:
            raise codes.NO_CHECKPOINT.at(None, path=where.checkpoints, notes=tuple(skipped))
        return found
    is_step = which.isascii() and which.isdigit()
    path = where.checkpoints / (f"{int(which):06d}" if is_step else which)
    if not (is_step or which == checkpoint.BEST) or not path.is_dir():
        there = checkpoint.names(where.checkpoints)
        known = f"the run has {', '.join(there) or 'none'}"
        raise codes.CHECKPOINT_MISSING.at(None, path=path, notes=(known,), help="--checkpoint takes a step or best")
    return path


@dataclass(slots=True)
class Evaluated:
    """What the passes of a saved run gave.

    points:   their metrics
    outputs:  the folder of what they put out, where they did
    error:    why the last of them failed; failure: the folder whose `failure/` has what its guard looked at
    """

    points: list[Point] = field(default_factory=list)
    outputs: Path | None = None
    error: SxiError | None = None
    failure: Path | None = None


def evaluate(
    path: Path, name: str | None, which: str | None, settings: dict[str, Any], device: str, out: Path | None
) -> Evaluated:
    """Take the passes of a saved run, or the one of that name, without a step.

    Raises the errors of its program, E-USE-006, 007 and 011, E-RUN-021 to 023 and 043.
    """
    where = folder.Folder(path)
    runner, identity = runner_of(where, {k: absolute_path(v) for k, v in settings.items()}, device, trains=False)
    load_state(runner, chosen_checkpoint(where, which, identity.run_id), goes_on=False)
    passes = [plans[runner.is_sampled(runner.step)] for plans in runner.compiled.passes]
    known = list(dict.fromkeys([p.option.name for p in passes]))
    if not known:
        raise codes.NO_PASSES.at(None, path=path)
    if name is not None and name not in known:
        raise codes.NO_SUCH_PASS.at(None, name=name, known=", ".join(known), help=did_you_mean(name, known))
    done, target = Evaluated(), out or _free(path / f"evaluate-{time.strftime('%Y%m%d-%H%M%S')}")
    with runner.backend.computing():
        for made in passes:
            if name is not None and made.option.name != name:
                continue
            report = runner.take_pass(made)
            done.points += [p for p in report.points if p.label.kind == "metric"]
            if report.failure is not None:
                done.error, done.failure = report.failure.error, target
                found = replay.examine(runner, report)
                evidence.keep(folder.Folder(target).failure, done.error.data, done.error.chain, found)
                break
            if report.outputs:
                checkpoint.save_outputs(target / made.option.name, runner.step, report.outputs)
                done.outputs = target
    return done


def _free(path: Path) -> Path:
    """`path`, with a number behind it where something is there."""
    found, n = path, 1
    while os.path.lexists(found):
        n += 1
        found = path.with_name(f"{path.name}-{n}")
    return found


# Replay


def show_failure(path: Path, device: str, say: Callable[[str], None]) -> list[str]:
    """What the failure of a run looked at, as lines; where the run kept nothing, by going there again.

    say:  told where that begins, and why what it found could not be kept
    """
    where = folder.Folder(path)
    if (where.failure / "failure.json").exists():
        return evidence.show(where.failure)
    runner, identity = runner_of(where, {}, device, trains=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(folder.held(where))
        except SxiError as error:
            if error.code == codes.FOLDER_BUSY.code:  # else it is another's, to be read only
                raise
        report, failure = _go_there(where, identity, runner, say)
        found = replay.examine(runner, report)
        try:
            evidence.keep(where.failure, failure.error.data, failure.error.chain, found)
        except SxiError as error:
            say(f"what the guard looked at is not kept: {error}")
    return evidence.shown(failure.error.data, failure.error.chain, found)


def _go_there(
    where: folder.Folder, identity: folder.Identity, runner: Runner, say: Callable[[str], None]
) -> tuple[Report, Failure]:
    """Run from the last whole checkpoint, or from the beginning, to the step that fails."""
    last = _failing_step(where)
    try:
        _, found, skipped = resumed(runner, where, identity.run_id)
        for line in skipped:
            say(f"skipped: {line}")
        say(f"going there again from {found}")
    except SxiError as error:
        if error.code != codes.NO_CHECKPOINT.code:
            raise
        runner.begin()
        say("going there again from the beginning")
    for report in runner.reports():
        if report.failure is not None:
            return report, report.failure
        if report.ends_step and last is not None and report.step >= last:
            break
    raise codes.DOES_NOT_FAIL.at(None, path=where.path, step=runner.step)


def _failing_step(where: folder.Folder) -> int | None:
    """The step at which the status says that a guard failed: no later one is worth taking; None where it says none.

    Raises E-RUN-045 where the run ended otherwise.
    """
    try:
        fields = read_status(where.path)
    except SxiError:
        return None
    if fields["state"] in ("done", "stopped"):
        raise codes.DOES_NOT_FAIL.at(None, path=where.path, step=fields.get("step"))
    error = fields.get("error")
    return error.get("step") if isinstance(error, dict) and str(error.get("code")).startswith("E-GUARD") else None
