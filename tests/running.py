"""A program written into a folder and run through the command line, in this process, and what it left.

The trick that makes counts exact: the data has columns whose rows a test chooses, microbatches hold one
example and `:shuffle off` keeps the file's order, so a row's number fixes its step and its microbatch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sxi import backends, checkpoint, commands
from sxi.cli import main
from sxi.run import Runner
from sxi.stream import read

FILE = "program.sx"
DEVICES = ("cpu", "strict")


@dataclass(eq=False)
class Finished:
    """What a command left behind.

    status:     the exit status; out, err: what it wrote
    folder:     of the run
    reads:      on a strict device, where the host read: `run.py`, `state.py`, in order
    runner:     what took the steps, None where none could be made
    """

    status: int
    out: str
    err: str
    folder: Path
    reads: list[str] = field(default_factory=list)
    runner: Any = None

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The stream, its line ends already taken apart."""
        return list(read(self.folder / "stream.jsonl"))

    def points(self, name: str, **meta: Any) -> list[tuple[int, float]]:
        """(step, value) of the points of a series of that name whose metadata has `meta`, in the stream's order."""
        return [
            (line["step"], line["value"])
            for line in self.lines
            if line["kind"] == "point" and line["series"] == name and meta.items() <= line["meta"].items()
        ]

    def values(self, name: str, **meta: Any) -> list[float]:
        """The values of the points alone."""
        return [value for _, value in self.points(name, **meta)]

    def metas(self, name: str) -> list[dict[str, Any]]:
        """The different metadata of the series of that name, in the order met."""
        found: list[dict[str, Any]] = []
        for line in self.lines:
            if line["kind"] == "point" and line["series"] == name:
                found.append(line["meta"])
        return list({repr(meta): meta for meta in found}.values())  # 1, 1.0 and true compare equal

    @property
    def names(self) -> list[str]:
        """The names of the series, in the order met."""
        return list(dict.fromkeys(line["series"] for line in self.lines if line["kind"] == "point"))

    @property
    def annotations(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == "annotation"]

    @property
    def texts(self) -> list[str]:
        """What the annotations say."""
        return [line["text"] for line in self.annotations]

    @property
    def state(self) -> dict[str, Any]:
        """The status file."""
        found: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        return found

    @property
    def error(self) -> dict[str, Any]:
        """The status file's error."""
        found: dict[str, Any] = self.state["error"]
        return found

    @property
    def message(self) -> str:
        """The one line on stderr that says why the run stopped."""
        found = [line for line in self.err.splitlines() if line.startswith("sxi run: ")]
        assert len(found) == 1, self.err
        return found[0].removeprefix("sxi run: ")

    @property
    def checkpoints(self) -> list[int]:
        """The steps that have a checkpoint."""
        folder = self.folder / "checkpoints"
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []

    def saved(self, step: int) -> dict[str, Any]:
        """The arrays of a checkpoint by name."""
        return checkpoint.load(self.folder / "checkpoints" / f"{step:06d}")[0]

    def saved_bytes(self, step: int) -> dict[str, bytes]:
        """The same as bytes, so that a NaN or a -0.0 compares too."""
        return {name: x.tobytes() for name, x in self.saved(step).items()}

    @property
    def held_bytes(self) -> dict[str, bytes]:
        """What the run holds in memory where it ended, as bytes: parameters, states, optimizer states."""
        state, backend = self.runner.state, self.runner.backend
        assert state.spare is None, "nothing that a step computed waits for a verdict"
        return {name: x.tobytes() for name, x in state.to_host(backend).items()}

    @property
    def reads_of_steps(self) -> int:
        """How often the host read on behalf of steps and passes; checkpoints are of `state.py`."""
        assert set(self.reads) <= {"run.py", "state.py", "replay.py"}, self.reads
        return self.reads.count("run.py")


@dataclass(eq=False)
class Program:
    """Writes programs into a folder and runs them there; the working folder is that folder."""

    path: Path
    capture: Any
    patch: Any
    device: str | None = None
    runs: int = 0

    def write(self, text: str, file: str = FILE, **columns: Any) -> Path:
        """Write a program, and the columns of its data as `d.npz`: reals as f32 unless they are arrays."""
        path = self.path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if columns:
            np.savez(self.path / "d.npz", **{k: _column(v) for k, v in columns.items()})
        return path

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Run `sxi ARGUMENTS`: its exit status, stdout, stderr."""
        self.capture.readouterr()
        status = main([*arguments])
        shown = self.capture.readouterr()
        return status, shown.out, shown.err

    def run(
        self, text: str, *arguments: str, file: str = FILE, out: str | None = None, resume: Finished | None = None,
        **columns: Any,
    ) -> Finished:  # fmt: skip
        """Write a program and its data, run it with `--quiet`, and read what it left."""
        self.write(text, file, **columns)
        self.runs += 1
        folder = self.path / (out or f"run{self.runs}") if resume is None else resume.folder
        where = ["--out", str(folder)] if resume is None else ["--resume", str(folder)]
        device = [] if self.device is None or "--device" in arguments else ["--device", self.device]
        opened: list[Any] = []

        def open_backend(name: str) -> Any:
            opened.append(backends.open_backend(name))
            return opened[-1]

        runners: list[Runner] = []

        def make_runner(*arguments: Any, **options: Any) -> Runner:
            runners.append(Runner(*arguments, **options))
            return runners[-1]

        with self.patch.context() as patched:
            patched.setattr(commands, "open_backend", open_backend)
            patched.setattr(commands, "Runner", make_runner)
            status, shown, said = self.command("run", file, *where, "--quiet", *device, *arguments)
        if status == 3:
            assert (folder / "failure" / "failure.json").is_file(), said
        reads = [Path(r.path).name for b in opened if hasattr(b, "reads") for r in b.reads]
        return Finished(status, shown, said, folder, reads, runners[0] if runners else None)

    def refused(self, text: str, **columns: Any) -> list[dict[str, Any]]:
        """What `sxi check` finds in a program, which `sxi run` must refuse likewise before any step."""
        finished = self.run(text, **columns)
        assert finished.status == 4, (finished.status, finished.err)
        assert not finished.folder.exists()
        status, shown, _ = self.command("check", FILE, "--format", "json")
        assert status == 4
        found: list[dict[str, Any]] = json.loads(shown)
        assert found
        return found


def _column(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return values
    made = np.asarray(values)
    return made.astype(np.float32) if made.dtype.kind == "f" else made.astype(np.int32)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Program:
    """Programs on the CPU."""
    monkeypatch.chdir(tmp_path)
    return Program(tmp_path, capsys, monkeypatch)


@pytest.fixture(params=DEVICES)
def device_program(request: Any, tmp_path: Path, monkeypatch: Any, capsys: Any) -> Program:
    """Programs on the CPU and under a device's rules."""
    monkeypatch.chdir(tmp_path)
    return Program(tmp_path, capsys, monkeypatch, request.param)


# The parts of most programs

WEIGHT = '(param "w" [2] :init ones-init)'


def training(body: str, *, run: str = "", before: str = "", steps: int = 3, batch: int = 1, optimizer: str = "") -> str:
    """A program whose objective is `body`, over the rows of `d.npz` in the file's order, one a microbatch.

    body:  gives the loss; `batch`, the parameter `w` (ones, f32[2]) and `still`, a zero that depends on it, are bound
    run:   further options; batch: examples, and microbatches, of a step
    """
    return f"""{before}
(data d (npz "d.npz"))
(objective (batch)
  (let ((w {WEIGHT})
        (still (sum (* 0.0 w))))
{body}))
(run r :data d :shuffle off :steps {steps} :batch {batch} :microbatches {batch}
  :optimizer {optimizer or "(sgd :lr 0.5)"} {run})
"""


def column(name: str) -> str:
    """The one value of a column in a microbatch of one example."""
    return f"(sum (:{name} batch))"


def only(values: Mapping[Any, Any] | list[Any]) -> Any:
    """The one element of a list."""
    assert len(values) == 1, values
    return next(iter(values))
