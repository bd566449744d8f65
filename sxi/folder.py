"""The folder of a run: what it holds, made once, found again.

status.json  stream.jsonl  checkpoints/  outputs/  failure/
program/run.json            what was run: the file, its settings and options given, the run's identity
program/sources/0.sx …      the texts as run, the file first
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sxi import codes
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
    """

    run_id: str
    path: str
    working: str
    settings: dict[str, Any]
    options: dict[str, Any]
    sources: list[str] = field(default_factory=list)


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
                text = (self.path / "program" / "sources" / f"{i}.sx").read_text(encoding="utf-8")
            except (OSError, ValueError):
                raise codes.NOT_A_RUN.at(None, path=self.path) from None
            found.append(Source(path, text))
        return found


def new_identity(path: str, settings: dict[str, Any], options: dict[str, Any]) -> Identity:
    """The identity of a run that begins."""
    return Identity(uuid.uuid4().hex, path, os.getcwd(), {k: encoded(v) for k, v in settings.items()}, options)


def default_path(name: str) -> Path:
    """`sxi-runs/NAME-YYYYmmdd-HHMMSS`, with a number behind it where that exists."""
    stem = Path(HOME) / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, n = stem, 1
    while path.exists():
        n += 1
        path = stem.with_name(f"{stem.name}-{n}")
    return path


def make(path: Path, identity: Identity, sources: list[Source]) -> Folder:
    """Make the folder of a run.  Raises E-USE-002 where something is there, E-RUN-042 where it cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir()
    except FileExistsError:
        raise codes.OUT_EXISTS.at(None, path=path) from None
    except OSError as error:
        raise codes.FOLDER_NOT_MADE.at(None, path=path, reason=error.strerror or error) from None
    folder = Folder(path)
    write_program(folder, identity, sources)
    return folder


def write_program(folder: Folder, identity: Identity, sources: list[Source]) -> None:
    """Write what is run into `program/`."""
    identity.sources = [s.path for s in sources]
    try:
        texts = folder.path / "program" / "sources"
        texts.mkdir(parents=True, exist_ok=True)
        for i, source in enumerate(sources):
            (texts / f"{i}.sx").write_text(source.text, encoding="utf-8", newline="")
        folder.identity_file.write_text(json.dumps(asdict(identity), indent=1), encoding="utf-8")
    except OSError as error:
        raise codes.FOLDER_NOT_MADE.at(None, path=folder.path, reason=error.strerror or error) from None
