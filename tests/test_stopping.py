"""Stopping: by a signal at the end of a step, at once by a second Ctrl-C, or killed; and what the status says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sxi import checkpoint, folder, stream
from sxi.cli import main
from sxi.run import Report, Runner
from sxi.status import read_status

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
(data points (npz "points.npz"))
(objective (batch)
  (let ((loss (mean (square (- (@ (:x batch) (param "w" [4] :init zeros-init)) 1.0)))))
    (metric "train/loss" loss)))
(evaluate held (batch) (output "x" (:x batch)) (metric "held/x" (mean (:x batch))))
(run r :data points :batch 8 :steps {steps} :optimizer (sgd :lr 0.01)
  :evaluate [(held :data points :every 5)] :checkpoint-every {every})
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "points.npz", x=np.random.default_rng(0).normal(size=(32, 4)).astype("f4"))
    write(tmp_path)
    return tmp_path


def write(folder: Path, steps: int = 20, every: int = 6) -> None:
    (folder / "run.sx").write_text(PROGRAM.format(steps=steps, every=every))


def state() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path("out/status.json").read_text())
    return found


def checkpoints() -> list[str]:
    folder = Path("out/checkpoints")
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def texts() -> list[str]:
    return [line["text"] for line in stream.read(Path("out/stream.jsonl")) if line["kind"] == "annotation"]


def run() -> int:
    return main(["run", "run.sx", "--out", "out", "--quiet"])


def signalling(
    patch: pytest.MonkeyPatch, name: str, numbers: list[int], at: int = 8, *, after: bool = False, of: type = Runner
) -> None:
    """Send this process the signals `numbers` when the method `name` has taken its part of step `at`, or before."""
    original = getattr(of, name)

    def method(self: Any, *arguments: Any) -> Any:
        due = self.step == (at if name == "take_pass" else at - 1)
        if due and not after:
            for number in numbers:
                signal.raise_signal(number)
        result = original(self, *arguments)
        if due and after:
            for number in numbers:
                signal.raise_signal(number)
        return result

    patch.setattr(of, name, method)


@pytest.mark.scenario(12)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
@pytest.mark.parametrize(
    ("name", "at", "after"), [("take_step", 8, False), ("take_step", 8, True), ("take_pass", 10, False)]
)
def test_a_signal_ends_the_run_at_the_steps_end(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str, at: int, after: bool, number: int, status: int
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    signalling(monkeypatch, name, [number], at, after=after)
    assert run() == status
    assert (state()["state"], state()["step"], state()["error"]) == ("stopped", at, None)
    assert checkpoints()[-1] == f"{at:06d}"
    assert texts() == [f"stopped at step {at}"]
    if at == 10:  # the pass of the step came to its end
        assert (home / "out/outputs/held/000010.safetensors").exists()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_second_ctrl_c_ends_the_run_at_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signalling(monkeypatch, "take_step", [signal.SIGINT, signal.SIGINT])
    assert run() == 130
    assert (state()["state"], state()["step"]) == ("stopped", 7)
    assert checkpoints() == ["000006"]
    assert texts() == ["stopped after step 7 without a checkpoint"]
    monkeypatch.undo()
    monkeypatch.chdir(home)
    assert main(["run", "--resume", "out", "--quiet"]) == 0


def test_a_second_sigterm_changes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signalling(monkeypatch, "take_step", [signal.SIGTERM, signal.SIGTERM])
    assert run() == 75
    assert checkpoints() == ["000006", "000008"]


def test_a_signal_in_the_last_step_does_not_make_the_run_stopped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signalling(monkeypatch, "take_step", [signal.SIGTERM], 20)
    assert run() == 0
    assert state()["state"] == "done"
    assert texts() == ["done"]


@pytest.mark.parametrize("call", ["pwrite", "fsync", "rename", "replace"])
def test_a_second_ctrl_c_in_the_midst_of_writing(home: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whatever call it comes in, before or after its work: lines stay whole, the last checkpoint loads."""
    original: Callable[..., Any] = getattr(os, call)
    calls = []
    write(home, 12, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, lambda *a: calls.append(1) or original(*a))
        assert run() == 0
    for at in range(1, len(calls) + 1, max(1, len(calls) // 6)):
        for late in (False, True):
            subprocess.run(["rm", "-rf", "out"], check=True)
            seen = [0]

            def interrupt(*arguments: Any, at: int = at, late: bool = late, seen: list[int] = seen) -> Any:
                seen[0] += 1
                result = original(*arguments) if late else None
                if seen[0] == at:
                    signal.raise_signal(signal.SIGINT)
                    signal.raise_signal(signal.SIGINT)
                return result if late else original(*arguments)

            with monkeypatch.context() as patch:
                patch.setattr(os, call, interrupt)
                assert run() in (0, 130)  # 0: the run was at its end
            for line in Path("out/stream.jsonl").read_bytes().splitlines():
                json.loads(line)
            is_open = any(line["kind"] == "open" for line in stream.read(Path("out/stream.jsonl")))
            assert len([t for t in texts() if t.startswith(("done", "stopped"))]) == int(is_open)
            assert not list(Path("out").rglob(".*"))
            newest, skipped = checkpoint.newest(Path("out/checkpoints"))
            assert skipped == []
            assert (newest is None) == (checkpoints() == [])
            assert not is_open or state()["state"] in ("stopped", "done")


def test_a_run_in_another_thread_takes_no_signals(home: Path) -> None:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(run()))
    thread.start()
    thread.join()
    assert statuses == [0]


# In processes of their own.


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sxi", "run", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def wait_for_step(process: subprocess.Popen[str], step: int) -> None:
    path, until = Path("out/stream.jsonl"), time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if path.exists() and f'"step":{step},'.encode() in path.read_bytes():
            return
        time.sleep(0.01)
    raise AssertionError((process.poll(), process.communicate()))


@pytest.mark.parametrize(
    ("numbers", "status"), [([signal.SIGINT], 130), ([signal.SIGTERM], 75), ([signal.SIGINT, signal.SIGINT], 130)]
)
def test_signals_to_a_process(home: Path, numbers: list[int], status: int) -> None:
    write(home, 1_000_000, 1_000_000)
    process = started("run.sx", "--out", "out")
    wait_for_step(process, 3)
    for number in numbers:
        process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert state()["state"] == "stopped"
    assert re.match("stopped a", texts()[-1])
    stopped = rf"stopped at step {state()['step']}(, without a checkpoint of it)?; sxi run --resume out goes on"
    assert re.fullmatch(stopped, err.splitlines()[-1])
    if len(numbers) == 1:
        assert "without" not in err
        assert checkpoints() == [f"{state()['step']:06d}"]


def test_a_killed_run_is_dead_and_goes_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, 1_000_000, 5)
    process = started("run.sx", "--out", "out", "--quiet")
    wait_for_step(process, 12)
    assert main(["status", "out"]) == 0
    assert capsys.readouterr().out.startswith("running at step ")
    # no other run may write there meanwhile
    assert main(["run", "--resume", "out", "--quiet"]) == 1
    assert "E-RUN-046" in capsys.readouterr().err
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert main(["status", "out"]) == 0
    assert capsys.readouterr().out.startswith("dead at step ")
    assert state()["state"] == "running", "the file is as the run left it; the reader judges"
    last = int(checkpoints()[-1])
    assert main(["run", "--resume", "out", "--quiet", "--steps", str(last + 7)]) == 0
    assert read_status(Path("out"))["state"] == "done"


def test_two_hundred_kills_leave_what_can_be_gone_on_with() -> None:
    memory = Path("/dev/shm")
    where = {"TMPDIR": str(memory)} if memory.is_dir() and os.access(memory, os.W_OK) else {}
    done = subprocess.run(
        [sys.executable, "-m", "bench.kill", "--kills", "200"],
        cwd=ROOT, env=os.environ | where, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("200 kills, ")
    # the kills came in all the places that matter
    for place in ("between checkpoints", "writing a checkpoint"):
        found = re.search(rf"(\d+) {place}", done.stdout)
        assert found, done.stdout
        assert int(found[1]) >= 5


# The status.


def test_the_status_is_replaced_at_most_once_a_second(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home, 400, 100)
    written: list[tuple[str, int]] = []
    replace = os.replace

    def counted(source: Any, target: Any) -> None:
        if str(target).endswith("status.json"):
            found = json.loads(Path(source).read_text())
            written.append((found["state"], found["step"]))
        replace(source, target)

    monkeypatch.setattr(os, "replace", counted)
    begun = time.monotonic()
    assert run() == 0
    seconds = time.monotonic() - begun
    changes = [s for i, (s, _) in enumerate(written) if i == 0 or s != written[i - 1][0]]
    assert changes == ["starting", "running", "done"]
    assert len(written) <= 3 + seconds
    assert written[-1] == ("done", 400)


def test_times_and_throughput_are_in_the_status(home: Path) -> None:
    assert run() == 0
    found = state()
    assert found["started"] <= found["updated"]
    assert found["throughput"] > 0
    assert found["pid"] == os.getpid()
    assert found["ranks"] == 1


def test_every_failure_says_the_same_facts(home: Path) -> None:
    """A guard's, the finite guard's and the disk's errors have the same fields."""
    fields = {"code", "message", "guard", "meta", "count", "step", "source", "also"}
    text = PROGRAM.format(steps=9, every=4)
    for changed, code, step in (
        (text.replace('"train/loss" loss)', '"train/loss" loss :below (- 1e6))'), "E-GUARD-001", 1),
        (text.replace(":lr 0.01", ":lr inf"), "E-GUARD-002", 1),
        (text, "E-RUN-020", 4),
    ):
        subprocess.run(["rm", "-rf", "out"], check=True)
        (home / "run.sx").write_text(changed)
        with pytest.MonkeyPatch.context() as patch:
            if code == "E-RUN-020":
                patch.setattr(checkpoint.safetensors.numpy, "save", raise_full)
            assert run() == (1 if code == "E-RUN-020" else 3)
        error = state()["error"]
        assert fields <= set(error)
        assert (error["code"], error["step"]) == (code, step)
        assert error["also"] == []


def raise_full(*_: Any) -> bytes:
    raise OSError(28, "No space left on device")


def test_a_fault_of_sxi_leaves_a_failed_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Runner) -> Iterator[Report]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Runner, "take_step", broken)
    assert run() == 1
    assert (state()["state"], state()["error"]["code"]) == ("failed", "E-RUN-041")
    assert texts() == ["failed: E-RUN-041: a fault of sxi itself: ZeroDivisionError: a bug"]


def test_runs_that_begin_in_one_second_have_folders_of_their_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home == Path.cwd()
    monkeypatch.setattr(time, "strftime", lambda _: "20261130-081711")
    # each of them has looked before any of them makes its own
    monkeypatch.setattr(Path, "exists", lambda _: False)
    made = [folder.make_named("r").path.name for _ in range(3)]
    assert made == ["r-20261130-081711", "r-20261130-081711-2", "r-20261130-081711-3"]
