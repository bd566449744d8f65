"""The folder of a run: what it holds, made once, found again.

status.json  stream.jsonl  checkpoints/  outputs/  failure/
program/run.json            what was run: the file, its settings and options given, the run's identity
program/sources/0.sx …      the texts as run, the file first
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sxi import checkpoint, codes
from sxi.errors import SxiError
from sxi.source import Source
from sxi.values import Key

HOME = "sxi-runs"


@dataclass(slots=True)
class Identity:
    """What a run was made from.

    run_id:    tells its checkpoints from another run's
    path:      of the file as given on the command line; working: the folder it is relative to
    settings:  given from outside, encoded; options: given on the command line, as `steps`
    sources:   paths of the texts as run, the file first, as messages name them
    texts:     the folder in `program/` that holds them; another for each text that the run went on with
    """

    run_id: str
    path: str
    working: str
    settings: dict[str, Any]
    options: dict[str, Any]
    sources: list[str] = field(default_factory=list)
    texts: str = "sources"


def encoded(value: Any) -> Any:
    """A setting's value as JSON that keeps keywords apart from strings."""
    if isinstance(value, Key):
        return {"keyword": value.name}
    return [encoded(v) for v in value] if isinstance(value, list) else value


def decoded(value: Any) -> Any:
    """A setting's value from its JSON."""
    if isinstance(value, dict):
        return Key(value["keyword"])
    return [decoded(v) for v in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of a run and the places in it."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def stream(self) -> Path:
        return self.path / "stream.jsonl"

    @property
    def failure(self) -> Path:
        return self.path / "failure"

    @property
    def outputs(self) -> Path:
        return self.path / "outputs"

    @property
    def identity_file(self) -> Path:
        return self.path / "program" / "run.json"

    def identity(self) -> Identity:
        """What the run was made from.  Raises E-USE-005 where this is not the folder of a run."""
        try:
            return Identity(**json.loads(self.identity_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            raise codes.NOT_A_RUN.at(None, path=self.path) from None

    def sources(self) -> list[Source]:
        """The texts as run, by the paths that messages name them."""
        identity = self.identity()
        found = []
        for i, path in enumerate(identity.sources):
            try:
                text = (self.path / "program" / identity.texts / f"{i}.sx").read_bytes().decode()
            except (OSError, ValueError):
                raise codes.NOT_A_RUN.at(None, path=self.path) from None
            found.append(Source(path, text))
        return found


def new_identity(path: str, settings: dict[str, Any], options: dict[str, Any]) -> Identity:
    """The identity of a run that begins."""
    return Identity(uuid.uuid4().hex, path, os.getcwd(), {k: encoded(v) for k, v in settings.items()}, options)


def make_named(name: str) -> Folder:
    """Make `sxi-runs/NAME-YYYYmmdd-HHMMSS`, with a number behind it where that exists.  Raises E-RUN-042."""
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    n = 1
    while True:
        try:
            return make(Path(HOME) / (stem if n == 1 else f"{stem}-{n}"))
        except SxiError as error:  # another run of the same second may have been quicker
            if error.code != codes.OUT_EXISTS.code:
                raise
        n += 1


def make(path: Path) -> Folder:
    """Make the folder of a run.  Raises E-USE-002 where something is there, E-RUN-042 where it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise codes.FOLDER_NOT_MADE.at(None, path=path.parent, reason=error.strerror or error) from None
    try:
        path.mkdir()
    except FileExistsError:
        raise codes.OUT_EXISTS.at(None, path=path) from None
    except OSError as error:
        raise codes.FOLDER_NOT_MADE.at(None, path=path, reason=error.strerror or error) from None
    return Folder(path)


@contextmanager
def held(folder: Folder) -> Iterator[None]:
    """Hold a run's folder for this process alone, to its end.  Raises E-RUN-046 where another holds it, E-RUN-030.

    What is locked is the stream, since some network file systems lock only files that are open for writing.
    """
    try:
        descriptor = os.open(folder.stream, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise codes.STREAM_NOT_WRITTEN.at(None, path=folder.stream, reason=error.strerror or error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise codes.FOLDER_BUSY.at(None, path=folder.path) from None
    except OSError:
        pass  # a file system without locks
    try:
        yield
    finally:
        os.close(descriptor)


def clean(folder: Folder) -> None:
    """Remove what a killed run left under temporary names.  Raises E-RUN-020 and E-RUN-023."""
    checkpoint.clean(folder.checkpoints)
    for part in (folder.outputs, folder.failure, folder.path / "program"):
        checkpoint.clean_files(part)


def write_program(folder: Folder, identity: Identity, sources: list[Source]) -> None:
    """Write what is run into `program/`: at every moment either all of it as it was, or all of it as it is.

    Texts that differ from those of an earlier attempt stand beside them.  Raises E-RUN-042.
    """
    texts = {f"{i}.sx": s.text for i, s in enumerate(sources)}
    identity.sources = [s.path for s in sources]
    program = folder.path / "program"
    try:
        n = 1
        while (known := _texts(program / identity.texts)) != texts:
            if not known:
                (program / identity.texts).mkdir(parents=True, exist_ok=True)
                for name, text in texts.items():
                    checkpoint.write_whole(program / identity.texts / name, text.encode())
                break
            n += 1
            identity.texts = f"sources-{n}"
        checkpoint.write_whole(folder.identity_file, (json.dumps(asdict(identity), indent=1) + "\n").encode())
    except OSError as error:
        raise codes.FOLDER_NOT_MADE.at(None, path=folder.path, reason=error.strerror or error) from None


def _texts(folder: Path) -> dict[str, str]:
    """The texts in a folder by their files' names."""
    return {path.name: path.read_bytes().decode() for path in folder.glob("*.sx")} if folder.is_dir() else {}
