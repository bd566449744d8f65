"""What is done with a saved run: its passes without a step, its failure shown again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from sxi import checkpoint, codes, folder, replay
from sxi.backends import open_backend
from sxi.errors import SxiError
from sxi.job import load_state, resumed
from sxi.layout import Point
from sxi.program import Loaded, load_source
from sxi.run import Report, Runner
from sxi.stages import check_run
from sxi.suggest import suggest


def program_of(where: folder.Folder, identity: folder.Identity) -> Loaded:
    """The program as it was run, its data found where the original file has it."""
    sources = where.sources()
    loaded = load_source(sources[0], imports=sources[1:], working=identity.working)
    if loaded.errors:
        raise loaded.errors[0]
    return loaded


def runner_of(where: folder.Folder, settings: dict[str, Any], device: str) -> tuple[Runner, folder.Identity]:
    """The runner of a saved run, its state not yet loaded."""
    identity = where.identity()
    given = {k: folder.decoded(v) for k, v in identity.settings.items()} | settings
    stages = check_run(program_of(where, identity), open_backend("cpu"), given, identity.options)
    return Runner(stages, open_backend(device), open_backend("cpu")), identity


# Prediction


def absolute_paths(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings in which a string that is a path of the working folder stays that path for the saved program."""
    return {k: os.path.abspath(v) if isinstance(v, str) and os.path.exists(v) else v for k, v in settings.items()}


def chosen_checkpoint(where: folder.Folder, which: str | None, run_id: str) -> Path:
    """The checkpoint that `--checkpoint` names: a step, `best`, or without it the newest whole one."""
    if which is None:
        found, skipped = checkpoint.newest(where.checkpoints, run_id)
        if found is None:
            raise codes.NO_CHECKPOINT.at(None, path=where.checkpoints, notes=tuple(skipped))
        return found
    name = which if which == checkpoint.BEST else f"{int(which):06d}" if which.isdigit() else which
    path = where.checkpoints / name
    if not path.is_dir():
        there = (
            ", ".join(sorted(p.name for p in where.checkpoints.glob("*") if p.is_dir() and p.name[0] != ".")) or "none"
        )
        raise codes.CHECKPOINT_MISSING.at(None, path=path, notes=(f"there are {there}",))
    return path


def evaluate(
    path: Path, name: str | None, which: str | None, settings: dict[str, Any], device: str, out: Path | None
) -> tuple[list[Point], Path | None, SxiError | None]:
    """The passes of a saved run, without a step: their metrics, the folder of their outputs, a guard's failure."""
    where = folder.Folder(path)
    runner, identity = runner_of(where, absolute_paths(settings), device)
    known = [p[False].option.name for p in runner.compiled.passes]
    if not known or (name is not None and name not in known):
        near = suggest(name or "", known)
        raise codes.NO_SUCH_PASS.at(
            None, name=name or "any", known=", ".join(known) or "none", help=f"did you mean {near}?" if near else ""
        )
    load_state(runner, chosen_checkpoint(where, which, identity.run_id))
    target = out or path / f"evaluate-{time.strftime('%Y%m%d-%H%M%S')}"
    points: list[Point] = []
    written: Path | None = None
    with runner.backend.computing():
        for plans in runner.compiled.passes:
            if name is not None and plans[False].option.name != name:
                continue
            report = runner.take_pass(plans[runner.is_sampled(runner.step)])
            points += [p for p in report.points if p.label.kind == "metric"]
            if report.failure is not None:
                return points, written, report.failure.error
            if report.outputs:
                checkpoint.save_outputs(target / plans[False].option.name, runner.step, report.outputs)
                written = target
    return points, written, None


# Replay


def show_failure(path: Path, device: str) -> list[str]:
    """What the failure of a run looked at; where the run kept nothing, by going there again."""
    where = folder.Folder(path)
    if not (where.failure / "failure.json").exists():
        report, runner = _go_there(where, device)
        failure = report.failure
        assert failure is not None
        evidence = replay.examine(runner, report)
        replay.keep(where.failure, failure.error.data, failure.error.chain, evidence)
    return replay.show(where.failure)


def _go_there(where: folder.Folder, device: str) -> tuple[Report, Runner]:
    """Run from the last whole checkpoint, or from the beginning, to the step that fails."""
    runner, identity = runner_of(where, {}, device)
    try:
        resumed(runner, where, identity.run_id)
    except SxiError as error:
        if error.code != codes.NO_CHECKPOINT.code:
            raise
        runner.begin()
    for report in runner.reports():
        if report.failure is not None:
            return report, runner
    raise codes.DOES_NOT_FAIL.at(None, path=where.path, step=runner.step)
