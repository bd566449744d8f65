"""Disks that are full, read-only or hold something else: E-RUN, exit 1, what was saved before is as it was."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sxi import checkpoint, stream
from sxi.cli import main
from sxi.run import Report, Runner

# A checkpoint is 128 KiB and a little.
PROGRAM = """
(data points (npz "points.npz"))
(objective (batch)
  (let ((loss (mean (square (- (@ (:x batch) (param "w" [4 4096] :init ones-init)) 1.0)))))
    (metric "train/loss" loss)))
(evaluate held (batch) (output "x" (:x batch)) (metric "held/x" (mean (:x batch))))
(run r :data points :batch 8 :steps 20 :optimizer (momentum :lr 0.01) {more})
"""
EVERY = ":checkpoint-every 2 :keep-checkpoints 50"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "points.npz", x=np.random.default_rng(0).normal(size=(32, 4)).astype("f4"))
    write(tmp_path)
    return tmp_path


def write(folder: Path, more: str = EVERY) -> None:
    (folder / "run.sx").write_text(PROGRAM.format(more=more))


@pytest.fixture
def disk(home: Path) -> Iterator[Path]:
    """A disk of 1 MiB; a test that needs one is skipped where none can be mounted."""
    where = home / "disk"
    where.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(where)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"a small disk cannot be mounted: {error}")
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted: {done.stderr.strip()}")
    try:
        yield where
    finally:
        subprocess.run(["umount", str(where)], check=True)


def fill(disk: Path, leave: int) -> Path:
    """Fill a disk with a file until `leave` bytes are free."""
    free = shutil.disk_usage(disk).free
    path = disk / "full"
    path.write_bytes(b"x" * (free - leave))
    return path


def run(out: str = "out") -> int:
    return main(["run", "run.sx", "--out", out, "--quiet"])


def resume(out: str = "out") -> int:
    return main(["run", "--resume", out, "--quiet"])


def state(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "status.json").read_text())
    return found


def arrays_of(out: Path, step: int) -> dict[str, bytes]:
    return {k: x.tobytes() for k, x in checkpoint.load(out / "checkpoints" / f"{step:06d}")[0].items()}


def is_tidy(out: Path) -> bool:
    """Whether nothing temporary is left, all checkpoints are whole and so are the lines of the stream."""
    for path in (out / "checkpoints").glob("[0-9]*"):
        checkpoint.load(path)
    for line in (out / "stream.jsonl").read_text().splitlines():
        json.loads(line)
    return not list(out.rglob(".*"))


def at_step(patch: pytest.MonkeyPatch, step: int, do: Callable[[], object]) -> None:
    """Do something before that step is taken, the first time."""
    original, done = Runner.take_step, []

    def take_step(self: Runner) -> Report:
        if self.step == step - 1 and not done:
            done.append(step)
            do()
        return original(self)

    patch.setattr(Runner, "take_step", take_step)


def test_a_checkpoint_that_has_no_room(disk: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("disk/out") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("sxi run: E-RUN-020: checkpoint disk/out/checkpoints/0000")
    assert os.strerror(errno.ENOSPC) in said
    out = disk / "out"
    assert is_tidy(out)
    there = sorted(int(p.name) for p in (out / "checkpoints").iterdir())
    assert there == list(range(2, there[-1] + 1, 2))
    assert len(there) >= 2
    failed = state(out)
    assert (failed["state"], failed["step"], failed["error"]["code"]) == ("failed", there[-1] + 2, "E-RUN-020")
    assert [a["text"] for a in stream.read(out / "stream.jsonl") if a["kind"] == "annotation"][-1].startswith(
        "failed: E-RUN-020: "
    )
    # with room it goes on, and ends as a run that always had room
    for step in there[:-1]:
        shutil.rmtree(out / "checkpoints" / f"{step:06d}")
    write(home, ":checkpoint-every 2 :keep-checkpoints 1")
    assert main(["run", "run.sx", "--resume", "disk/out", "--quiet"]) == 0
    assert run("whole") == 0
    assert arrays_of(out, 20) == arrays_of(home / "whole", 20)


def test_a_stream_that_has_no_room(
    disk: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_step(monkeypatch, 5, lambda: fill(disk, 0))
    write(home, ":checkpoint-every 4")
    text = (home / "run.sx").read_text().replace('"train/loss" loss', f'"train/loss" loss :note "{"x" * 2000}"')
    (home / "run.sx").write_text(text)
    assert run("disk/out") == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "sxi run: E-RUN-030: stream disk/out/stream.jsonl cannot be written" in said
    assert os.strerror(errno.ENOSPC) in said
    out = disk / "out"
    assert is_tidy(out)
    assert [p.name for p in (out / "checkpoints").iterdir()] == ["000004"]
    (disk / "full").unlink()
    assert resume("disk/out") == 0


def test_a_disk_that_is_full_from_the_start(disk: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(disk, 0)
    assert run("disk/out") == 1
    said = capsys.readouterr().err
    assert said.startswith("sxi run: E-RUN-0")
    assert "Traceback" not in said


def test_a_read_only_disk(disk: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, ":checkpoint-every 10")
    assert run("disk/out") == 0
    before = arrays_of(disk / "out", 20)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert run("disk/other") == 1
    assert "E-RUN-042" in capsys.readouterr().err
    assert resume("disk/out") == 1
    assert "E-RUN-030" in capsys.readouterr().err
    assert main(["status", "disk/out"]) == 0
    assert capsys.readouterr().out.startswith("done at step 20")
    assert arrays_of(disk / "out", 20) == before


def test_a_file_where_a_folder_should_be(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "file").write_text("mine")
    assert run("file") == 2
    assert "E-USE-002" in capsys.readouterr().err
    for below in ("file/out", "file/deep/out"):
        assert run(below) == 1
        assert "E-RUN-042" in capsys.readouterr().err
    assert (home / "file").read_text() == "mine"


@pytest.mark.parametrize(("part", "code"), [("checkpoints", "E-RUN-020"), ("outputs", "E-RUN-023")])
def test_a_file_where_a_part_of_the_run_should_be(
    home: Path, monkeypatch: pytest.MonkeyPatch, part: str, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, ":checkpoint-every 6 :evaluate [(held :data points :every 6)]")
    at_step(monkeypatch, 2, lambda: (home / "out" / part).write_text("mine"))
    assert run() == 1
    assert code in capsys.readouterr().err
    assert (home / "out" / part).read_text() == "mine"
    assert (state(home / "out")["state"], state(home / "out")["error"]["code"]) == ("failed", code)
    (home / "out" / part).unlink()
    assert resume() == 0


def test_a_status_that_cannot_be_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def block() -> None:
        (home / "out/status.json").unlink()
        (home / "out/status.json").mkdir()

    at_step(monkeypatch, 5, block)
    assert run() == 1
    assert "E-RUN-032" in capsys.readouterr().err
    assert (home / "out/checkpoints/000020").exists()
    (home / "out/status.json").rmdir()
    assert resume() == 0
    assert state(home / "out")["state"] == "done"


@pytest.mark.parametrize("kind", ["a device that is full", "a folder"])
def test_a_stream_that_cannot_be_written(home: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    before = arrays_of(home / "out", 20)
    (home / "out/stream.jsonl").rename(home / "aside")
    if kind == "a folder":
        (home / "out/stream.jsonl").mkdir()
    else:
        (home / "out/stream.jsonl").symlink_to("/dev/full")
    assert resume() == 1
    said = capsys.readouterr().err
    assert "E-RUN-030" in said
    assert "Traceback" not in said
    assert arrays_of(home / "out", 20) == before
    if kind != "a folder":
        assert state(home / "out")["error"]["code"] == "E-RUN-030"


def test_two_runs_into_one_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(home, ":checkpoint-every 10")
    assert run() == 0
    before = (home / "out/stream.jsonl").read_bytes()
    assert run() == 2
    assert "E-USE-002" in capsys.readouterr().err
    # the other came between the look and the making
    begin = Runner.begin

    def late(self: Runner) -> None:
        begin(self)
        (home / "late").mkdir()

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "begin", late)
        assert run("late") == 2
    assert "E-USE-002" in capsys.readouterr().err
    assert not list((home / "late").iterdir())
    # two go on with it at once
    statuses = []
    with monkeypatch.context() as patch:
        at_step(patch, 21, lambda: statuses.append(resume()))
        assert main(["run", "--resume", "out", "--quiet", "--steps", "22"]) == 0
    assert statuses == [1]
    said = capsys.readouterr().err
    assert "E-RUN-046: another process is writing into out" in said
    assert (home / "out/stream.jsonl").read_bytes().startswith(before)
    steps = [line["step"] for line in stream.read(home / "out/stream.jsonl") if line["kind"] == "point"]
    assert steps == list(range(1, 23))


def test_a_file_with_the_name_of_a_checkpoint_gives_way(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_step(monkeypatch, 4, lambda: (home / "out/checkpoints/000004").write_text("mine"))
    assert run() == 0
    assert is_tidy(home / "out")
