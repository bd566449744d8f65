"""A run's saved state: `checkpoints/000100/` after 100 steps, `checkpoints/best`, and finding and keeping them.

A checkpoint is a folder of two files: `state.safetensors` has the arrays, named `param/…`, `state/…` and
`optimizer/NAME/PARAM`; `run.json` has the rest, and a checksum of each array and of itself.  It is written under a
temporary name, synced, read back and only then renamed, so a folder with a checkpoint's name is whole.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import safetensors
import safetensors.numpy

from sxi import codes
from sxi.data import read_safetensors
from sxi.errors import SxiError
from sxi.source import Span

HostArray: TypeAlias = Any  # numpy.ndarray

STATE, REST = "state.safetensors", "run.json"
BEST = "best"
_TEMPORARY = ".tmp-"
# What `best` points to; another name of this beginning is what a killed run left behind.
_BEST_FOLDER = "best-"
_NOT_FINITE = "$real"


def save(folder: Path, step: int, arrays: Mapping[str, HostArray], rest: Mapping[str, Any]) -> Path:
    """Writes the state after `step` steps as a folder in `folder` and gives its path.

    arrays:  by name, of any shape and layout; f16, f32, f64, i32, i64 or bool
    rest:    what else going on needs: JSON values, NumPy scalars too; reals need not be finite
    raises:  E-RUN-020, after removing what was written; the other checkpoints are as they were
    """
    path = folder / f"{step:06d}"
    written = _write(folder, path, step, arrays, rest)
    aside = folder / f"{_TEMPORARY}replaced-{path.name}"
    with _undone_on_failure(path, written):
        _remove(aside)
        replaces = path.exists()
        if replaces:  # what an earlier attempt left: damaged, or this run would have gone on from it
            os.rename(path, aside)
        try:
            os.rename(written, path)
        except BaseException:
            if replaces:
                os.rename(aside, path)
            raise
        _sync_folder(folder)
    _remove(aside)
    return path


def save_best(folder: Path, step: int, arrays: Mapping[str, HostArray], rest: Mapping[str, Any]) -> Path:
    """Writes the state after `step` steps as `best`, like `save`.

    `best` is a link to a folder beside it, since one rename can put a new link in the place of the old one, but
    no rename a folder in the place of a folder: there is a whole `best` at every moment.
    """
    path = folder / BEST
    written = _write(folder, path, step, arrays, rest)
    link = folder / f"{_TEMPORARY}{BEST}-link"
    target = folder / f"{_BEST_FOLDER}{step:06d}"
    if target.exists():  # the same step again, after a resume
        target = folder / f"{target.name}-{os.getpid()}"
    with _undone_on_failure(path, written, link, target):
        os.rename(written, target)
        _remove(link)
        os.symlink(target.name, link)
        if path.is_dir() and not path.is_symlink():  # a copy of the run that followed the link
            os.rename(path, folder / f"{_TEMPORARY}replaced-{BEST}")
        os.replace(link, path)
        _sync_folder(folder)
    _remove(folder / f"{_TEMPORARY}replaced-{BEST}")
    _remove(*(old for old in folder.glob(f"{_BEST_FOLDER}*") if old.name != target.name))
    return path


@contextmanager
def _undone_on_failure(path: Path, *temporary: Path) -> Iterator[None]:
    """Removes `temporary` where the block raises, and makes its OSError the error of the checkpoint `path`."""
    try:
        yield
    except BaseException as error:
        _remove(*temporary)
        if isinstance(error, OSError):
            raise _not_written(path, error) from None
        raise


def _remove(*paths: Path) -> None:
    """Removes what is there of `paths`, as far as it can be."""
    for path in paths:
        if path.is_symlink() or path.is_file():
            with suppress(OSError):
                path.unlink()
        else:
            shutil.rmtree(path, ignore_errors=True)


def _write(folder: Path, path: Path, step: int, arrays: Mapping[str, HostArray], rest: Mapping[str, Any]) -> Path:
    """Writes the files of a checkpoint, synced and verified, in a folder of a temporary name."""
    temporary = folder / f"{_TEMPORARY}{path.name}-{os.getpid()}"
    laid = {name: _laid_out(array) for name, array in arrays.items()}
    checksums = {name: _checksum(name, array) for name, array in laid.items()}
    kept = {"step": step, **rest}
    with _undone_on_failure(path, temporary):
        folder.mkdir(parents=True, exist_ok=True)
        _remove(temporary)
        temporary.mkdir()
        _write_file(temporary / STATE, safetensors.numpy.save(laid))
        _write_file(temporary / REST, _rest_text(kept, checksums).encode())
        _sync_folder(temporary)
        try:
            load(temporary)
        except SxiError as error:
            raise codes.CHECKPOINT_NOT_WRITTEN.at(None, path=path, reason=f"read back, {error.message}") from None
    return temporary


def _laid_out(array: HostArray) -> HostArray:
    """`array` in C order and the machine's byte order: of any other the writer makes wrong bytes without a word."""
    array = np.asarray(array)
    return np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")


def _checksum(name: str, array: HostArray) -> str:
    digest = blake2b(f"{name} {array.dtype.str} {array.shape} ".encode(), digest_size=16)
    digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _write_file(path: Path, contents: bytes) -> None:
    # The mode is what the umask leaves; the writer of safetensors makes files that others cannot read.
    with open(path, "wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Syncs the names in `folder`, which a rename alone does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not sync folders, and say so.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _not_written(path: Path, error: OSError) -> SxiError:
    return codes.CHECKPOINT_NOT_WRITTEN.at(None, path=path, reason=error.strerror or error)


# The rest, as JSON.


def _rest_text(rest: Mapping[str, Any], checksums: Mapping[str, str]) -> str:
    body = {"rest": _marked(rest), "arrays": dict(checksums)}
    return json.dumps({**body, "checksum": _checksum_of_rest(body)}, allow_nan=False, indent=1) + "\n"


def _checksum_of_rest(body: Mapping[str, Any]) -> str:
    return blake2b(json.dumps(body, allow_nan=False).encode(), digest_size=16).hexdigest()


def _marked(value: Any) -> Any:
    """`value` as strict JSON: a real that is not finite as `{"$real": "nan"}`, so that it is read as it was."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_NOT_FINITE: str(value)}
    if isinstance(value, Mapping):
        return {str(key): _marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    return value


def _unmarked(value: dict[str, Any]) -> Any:
    return float(value[_NOT_FINITE]) if value.keys() == {_NOT_FINITE} else value


# Reading.


def load(path: Path, span: Span | None = None) -> tuple[dict[str, HostArray], dict[str, Any]]:
    """The arrays and the rest of the checkpoint at `path`, its `step` among the rest.

    Raises E-RUN-022 where there is none, and E-RUN-021 where a checksum does not match.
    """
    folder = Path(os.path.realpath(path))  # what `best` is at one moment, for both files
    if not folder.is_dir():
        raise codes.CHECKPOINT_MISSING.at(span, path=path)
    try:
        text = (folder / REST).read_bytes()
        arrays = read_safetensors((folder / STATE).read_bytes())
        body = json.loads(text)
        kept, checksums = body["rest"], body["arrays"]
        if body["checksum"] != _checksum_of_rest({"rest": kept, "arrays": checksums}):
            raise ValueError(f"{REST} does not match its checksum")
        rest = json.loads(json.dumps(kept), object_hook=_unmarked)
        for name in sorted(checksums.keys() | arrays.keys()):
            if name not in arrays or _checksum(name, arrays[name]) != checksums.get(name):
                raise ValueError(f"{name} does not match its checksum")
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        reason = f"it has no {Path(error.filename).name}" if missing else error.strerror or str(error)
        raise codes.CHECKPOINT_DAMAGED.at(span, path=path, reason=reason) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{REST} is not as it was written"
        raise codes.CHECKPOINT_DAMAGED.at(span, path=path, reason=reason) from None
    return arrays, rest


def parameters(path: Path, span: Span | None = None) -> dict[str, HostArray]:
    """The parameters, by name, of a checkpoint or of a safetensors file, which need not be of a run.

    Raises E-RUN-021 and E-RUN-022.
    """
    if path.is_dir():
        arrays, _ = load(path, span)
    else:
        try:
            arrays = read_safetensors(path.read_bytes())
        except FileNotFoundError:
            raise codes.CHECKPOINT_MISSING.at(span, path=path) from None
        except (OSError, ValueError) as error:
            raise codes.CHECKPOINT_DAMAGED.at(span, path=path, reason=error) from None
    prefix = "param/"
    if any(name.startswith(prefix) for name in arrays):
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    return arrays


# The checkpoints of a run.


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in `folder` by their steps, in rising order."""
    if not folder.is_dir():
        return []
    try:
        names = [path for path in folder.iterdir() if path.name.isascii() and path.name.isdigit()]
    except OSError as error:
        raise codes.CHECKPOINT_DAMAGED.at(None, path=folder, reason=error.strerror or error) from None
    return sorted((int(path.name), path) for path in names)


def is_empty(folder: Path) -> bool:
    """Whether nothing in `folder` has the name of a checkpoint."""
    return not _numbered(folder)


def names(folder: Path) -> list[str]:
    """The names of the checkpoints in `folder`, those of steps in rising order, `best` last."""
    return [path.name for _, path in _numbered(folder)] + ([BEST] if (folder / BEST).is_dir() else [])


def newest(folder: Path, run_id: str | None = None) -> tuple[Path | None, list[str]]:
    """The whole checkpoint of the most steps in `folder`, and why each of more steps is none, a line each.

    run_id:  what a checkpoint's rest must have as its `run_id`; None takes any
    """
    skipped = []
    for step, path in reversed(_numbered(folder)):
        try:
            _, rest = load(path)
        except SxiError as error:
            skipped.append(error.message)
            continue
        if run_id is not None and rest.get("run_id") != run_id:
            skipped.append(f"checkpoint {path} is of another run")
        elif rest.get("step") != step:
            skipped.append(f"checkpoint {path} is of step {rest.get('step')}")
        else:
            return path, skipped
    return None, skipped


def clean(folder: Path) -> None:
    """Removes what a killed run left in `folder` under temporary names.  Raises E-RUN-020 where it cannot."""
    if not folder.is_dir():
        return
    try:
        best = os.readlink(folder / BEST) if (folder / BEST).is_symlink() else None
        for path in folder.iterdir():
            if path.name.startswith(_TEMPORARY) or (path.name.startswith(_BEST_FOLDER) and path.name != best):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
    except OSError as error:
        raise _not_written(folder, error) from None


def clean_files(folder: Path) -> None:
    """Removes what a kill left of files below `folder` that `write_whole` wrote.  Raises E-RUN-023."""
    try:
        for path in folder.rglob(f"{_TEMPORARY}*"):
            if path.is_file():
                path.unlink()
    except OSError as error:
        raise codes.OUTPUT_NOT_WRITTEN.at(None, path=folder, reason=error.strerror or error) from None


def retain(folder: Path, saved: int, keep: int, protect: Collection[int] = ()) -> None:
    """Removes the checkpoints of fewer steps than `saved` but for the last `keep`, `saved` among them.

    saved:    the step just saved; those past it are what an earlier attempt left, and neither count nor go
    protect:  steps that stay whatever their number, such as the one the run was resumed from
    raises:   E-RUN-020 where one cannot be removed
    """
    older = [entry for entry in _numbered(folder) if entry[0] < saved]
    for step, path in older[: max(0, len(older) - max(keep - 1, 0))]:
        if step in protect:
            continue
        # Renamed first: a folder half removed must not have a checkpoint's name.
        aside = folder / f"{_TEMPORARY}removed-{path.name}"
        try:
            _remove(aside)
            os.rename(path, aside)
            shutil.rmtree(aside)
        except BaseException as error:
            _remove(aside)
            if isinstance(error, OSError):
                raise _not_written(path, error) from None
            raise


def save_outputs(folder: Path, step: int, outputs: Mapping[str, Sequence[HostArray]]) -> Path:
    """Writes what `output` gave in a pass after `step` steps, its batches joined in the order of the examples.

    outputs:  by name, the batches
    raises:   E-RUN-023 where it cannot be written
    """
    return save_arrays(folder, f"{step:06d}.safetensors", {name: _joined(batches) for name, batches in outputs.items()})


def save_arrays(folder: Path, name: str, arrays: Mapping[str, HostArray]) -> Path:
    """Writes `arrays` as a safetensors file in `folder`, whole or not at all.  Raises E-RUN-023."""
    return _save_file(folder, name, safetensors.numpy.save({n: _laid_out(x) for n, x in arrays.items()}))


def save_text(folder: Path, name: str, text: str) -> Path:
    """Writes a text file in `folder`, whole or not at all.  Raises E-RUN-023."""
    return _save_file(folder, name, text.encode())


def _save_file(folder: Path, name: str, contents: bytes) -> Path:
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, contents)
    except OSError as error:
        raise codes.OUTPUT_NOT_WRITTEN.at(None, path=path, reason=error.strerror or error) from None
    return path


def write_whole(path: Path, contents: bytes) -> None:
    """Writes a file, in the place of one that is there, that is whole and synced when it has its name.

    Raises OSError, after removing what was written.
    """
    temporary = path.parent / f"{_TEMPORARY}{path.name}-{os.getpid()}"
    try:
        _write_file(temporary, contents)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException:
        _remove(temporary)
        raise


def _joined(batches: Sequence[HostArray]) -> HostArray:
    """Batches end to end; a scalar of each batch makes a vector."""
    arrays = [np.atleast_1d(b) for b in batches]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
