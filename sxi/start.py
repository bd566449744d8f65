"""What `:start-from` gives: parameters whose first value stands in a file and not in an initializer."""

from __future__ import annotations

import os
from pathlib import Path

from sxi import checkpoint, codes
from sxi.arraytype import ArrayType
from sxi.backends import HostArray
from sxi.compiled import Checked
from sxi.folder import Folder
from sxi.series import matches_glob
from sxi.source import Span


def first_values(checked: Checked) -> dict[str, HostArray]:
    """The parameters that a run starts from saved ones, by name; none without `:start-from`.

    A parameter is taken by the first glob that matches it, and must be in that glob's file.
    Raises E-RUN-021, 022 and 024 to 026, all at the option.
    """
    run = checked.run
    if not run.start_from:
        return {}
    span = run.spans.get("start-from", run.span)
    base = os.path.join(checked.program.working, os.path.dirname(span.source.path))
    files: dict[str, dict[str, HostArray]] = {}
    found = {}
    for name, declared in checked.tracer.registry.params.items():
        path = next((p for glob, p in run.start_from if matches_glob(glob, name)), None)
        if path is None:
            continue
        if path not in files:
            files[path] = checkpoint.parameters(_saved(Path(base, path), span), span)
        found[name] = _checked(name, declared.type, files[path], path, span)
    return found


def _saved(path: Path, span: Span) -> Path:
    """The checkpoint or file that `path` names: of a run's folder the newest whole checkpoint.  Raises E-RUN-026."""
    run = Folder(path)
    if not (run.identity_file.is_file() or run.checkpoints.is_dir()):
        return path
    found, skipped = checkpoint.newest(run.checkpoints)
    if found is None:
        raise codes.START_EMPTY.at(span, path=path, notes=tuple(skipped))
    return found


def _checked(name: str, wanted: ArrayType, held: dict[str, HostArray], path: str, span: Span) -> HostArray:
    """The array `name` of a file, of the type that the run's parameter has."""
    if name not in held:
        raise codes.START_LACKS.at(span, path=path, name=name, names=", ".join(sorted(held)[:8]) or "none")
    x = held[name]
    if (str(x.dtype), x.shape) != (wanted.carrier, wanted.shape):
        raise codes.START_DIFFERS.at(span, path=path, name=name, given=typed(x), wanted=wanted)
    return x


def typed(x: HostArray) -> str:
    """The type of any array of a file, one that the language lacks by NumPy's name."""
    try:
        return str(ArrayType.of(x))
    except KeyError:
        return f"{x.dtype}[{' '.join(map(str, x.shape))}]"
