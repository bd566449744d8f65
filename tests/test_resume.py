"""Going on with a run: bit for bit as if it had never stopped, from the newest whole checkpoint of this run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from sxi import checkpoint
from sxi.cli import main
from sxi.run import Report, Runner
from sxi.stream import read
from tests.parts import require

ROWS = 60  # 48 of training: an epoch is six steps of eight

# Everything that a step can depend on: the order of epochs, draws in prepare and in the model, a state, an
# optimizer's states, sampled diagnostics, two passes with ragged batches, the curriculum's stages.
HEAD = """
(setting rate 0.01)
(setting noise 0.1)
(model net (x)
  (let ((center (state "center" [4] :init zeros-init))
        (h (tanh (linear "in" (- x center) 6))))
    (when (training?) (next "center" (+ (* 0.9 center) (* 0.1 (mean x :axis 0)))))
    (squeeze (linear "out" (dropout h 0.2) 1) -1)))
(prepare (batch) (with batch :x (+ (:x batch) (* noise (normal [4 4])))))
(objective (batch)
  (let ((y (net (:x batch)))
        (loss (mean (square (- y (:y batch))))))
    (diagnostic "y/norm" (norm y))
    (metric "train/loss" loss :below 1e6)))
(define (error batch) (mean (square (- (net (:x batch)) (:y batch)))))
(evaluate held (batch) (output "y" (net (:x batch))) (metric "held/loss" (error batch)))
(evaluate average (batch) (reading "ema" (metric "average/loss" (error batch))))
(curriculum
  (stage "noisy" :until (and (>= (stage-step) 40) (< (reported "held/loss" :pass "held") 1e3)) :set {:noise 0.3})
  (stage "calm" :until (> (count (reported "held/loss" :pass "held" :all true)) 1000)))
"""
RUN = """
  :batch 8 :microbatches 2 :seed 3 :optimizer (adamw :lr rate :ema 0.9)
  :evaluate [(held :data {over} :batch 5 :every 10 {more}) (average :data {over} :batch 7 :every 20 {more})]
  :diagnostics ["y/*"] :sample-every 30 :checkpoint-every 25 :keep-best ["held/loss" :min])
"""
DATA = '(data points (npz "points.npz") :split {:train 0.8 :held 0.2})'
GENERATOR = "(generator points (n) (let ((x (normal [n 4]))) {:x x :y (sum x :axis -1)}))"
PROGRAMS = {
    "steps": DATA + HEAD + "(run r :data points :steps 200" + RUN.format(over="points :split :held", more=""),
    "epochs": DATA + HEAD + "(run r :data points :epochs 33" + RUN.format(over="points :split :held", more=""),
    "generator": GENERATOR + HEAD + "(run r :data points :steps 200" + RUN.format(over="points", more=":examples 12"),
}


class Killed(BaseException):
    """The process ends here: nothing after it is done."""


def write(folder: Path, text: str, rows: int = ROWS) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)).astype("f4")
    np.savez(folder / "points.npz", x=x, y=x.sum(axis=1))
    (folder / "run.sx").write_text(text)


def run(*arguments: str) -> int:
    return main(["run", "run.sx", "--out", "out", "--quiet", *arguments])


def resume(*arguments: str, folder: str = "out") -> int:
    return main(["run", "--resume", folder, "--quiet", *arguments])


def left(folder: Path, steps: int) -> dict[str, Any]:
    """What a finished run leaves, but for the names and times that no two runs share."""
    found: dict[str, Any] = {}
    for name in (f"{steps:06d}", "best"):
        arrays, rest = checkpoint.load(folder / "checkpoints" / name)
        found[name] = {k: (x.dtype, x.shape, x.tobytes()) for k, x in arrays.items()}
        del rest["run_id"]
        found[f"{name} rest"] = repr(rest)
    lines = list(read(folder / "stream.jsonl"))
    found["points"] = [line for line in lines if line["kind"] == "point"]
    found["stages"] = [(line["step"], line["stage"]) for line in lines if "stage" in line]
    for path in sorted((folder / "outputs").rglob("*.safetensors")):
        found[str(path.relative_to(folder))] = path.read_bytes()
    return found


@pytest.fixture(scope="module", autouse=True)
def unsynced() -> Iterator[None]:
    """No test here cuts the power, and a disk that others use syncs slowly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="module")
def reference(request: Any, tmp_path_factory: Any) -> tuple[str, int, dict[str, Any], list[tuple[int, str | None]]]:
    """A program, its steps, what an uninterrupted run leaves, and the step and the pass of each report."""
    folder = tmp_path_factory.mktemp(request.param)
    write(folder, PROGRAMS[request.param])
    reports: list[tuple[int, str | None]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        watch(patch, lambda _, report: reports.append((report.step, report.pass_name)))
        assert run() == 0
    steps = reports[-1][0]
    return PROGRAMS[request.param], steps, left(folder / "out", steps), reports


def watch(patch: pytest.MonkeyPatch, seen: Callable[[int, Report], object], *, before: bool = False) -> None:
    """Call `seen` with the number, from 1, of each report and it: when it has been dealt with, or before."""
    original = Runner.reports

    def reports(self: Runner) -> Iterator[Report]:
        for number, report in enumerate(original(self), 1):
            if before:
                seen(number, report)
            yield report
            if not before:
                seen(number, report)

    patch.setattr(Runner, "reports", reports)


def interrupted(patch: pytest.MonkeyPatch, at: int, how: str) -> None:
    """Run until report `at`, the number of it, and end there by `how`."""

    def end(number: int, _: Report) -> None:
        if number == at:
            if how == "SIGTERM":
                signal.raise_signal(signal.SIGTERM)
            else:
                raise Killed

    with patch.context() as inner:
        # before it is dealt with, a signal comes in the middle of its step
        watch(inner, end, before=how != "killed")
        if how == "SIGTERM":
            assert run() == 75
        else:
            with pytest.raises(Killed):
                run()


PLACES: dict[str, Callable[[list[tuple[int, str | None]]], int]] = {
    "in the first step": lambda reports: 1,
    "at an epoch's edge": lambda reports: reports.index((54, None)) + 1,
    "in a later epoch, a sampled step next": lambda reports: reports.index((119, None)) + 1,
    "between two passes": lambda reports: reports.index((140, "held")) + 1,
    "where a stage ends": lambda reports: reports.index((40, None)) + 1,
    "where a checkpoint is written": lambda reports: reports.index((75, None)) + 1,
}


ENDS = [
    *[(place, how) for place in PLACES for how in ("killed", "SIGTERM")],
    ("where a checkpoint is written", "killed before that"),
]


@pytest.mark.parametrize(("place", "how"), ENDS)
@pytest.mark.parametrize("reference", ["steps"], indirect=True)
@pytest.mark.scenario(11)
def test_a_run_goes_on_as_if_it_had_never_stopped(
    reference: Any, place: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, steps, wanted, reports = reference
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    interrupted(monkeypatch, PLACES[place](reports), how)
    assert resume() == 0
    assert left(tmp_path / "out", steps) == wanted


@pytest.mark.parametrize("reference", PROGRAMS, indirect=True)
def test_a_run_goes_on_again_and_again(reference: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, steps, wanted, _ = reference
    write(tmp_path, text)
    monkeypatch.chdir(tmp_path)
    interrupted(monkeypatch, 31, "SIGTERM")
    for at, how in ((17, "SIGTERM"), (40, "kill"), (3, "kill"), (60, "SIGTERM")):

        def end(number: int, _: Report, at: int = at, how: str = how) -> None:
            if number == at:
                if how == "kill":
                    raise Killed
                signal.raise_signal(signal.SIGTERM)

        with monkeypatch.context() as inner:
            watch(inner, end)
            if how == "kill":
                with pytest.raises(Killed):
                    resume()
            else:
                assert resume() == 75
    assert resume() == 0
    assert left(tmp_path / "out", steps) == wanted


# A smaller run for everything else.

SMALL = """
(setting limit 1e6)
(data points (npz "points.npz") :split {:train 0.8 :held 0.2})
(objective (batch)
  (let ((w (param "w" [4] :init ones-init))
        (loss (mean (square (- (@ (:x batch) w) (:y batch))))))
    (metric "train/loss" (+ loss (cast (step) :f32)) :below limit)
    loss))
(evaluate held (batch)
  (metric "held/step" (- (cast (step) :f32))))
(evaluate second (batch)
  (metric "second/step" (cast (step) :f32) :below limit))
(run r :data points :batch 8 :steps 20 :optimizer (momentum :lr 0.01)
  :evaluate [(held :data points :split :held :every 2) (second :data points :split :held :every 4)]
  :checkpoint-every 4 {more})
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, SMALL.replace("{more}", ""))
    return tmp_path


def checkpoints(folder: Path = Path("out")) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def arrays_of(folder: Path, step: int) -> dict[str, bytes]:
    return {k: x.tobytes() for k, x in checkpoint.load(folder / "checkpoints" / f"{step:06d}")[0].items()}


def points_of(folder: Path) -> list[dict[str, Any]]:
    return [line for line in read(folder / "stream.jsonl") if line["kind"] == "point"]


def status_of(folder: Path = Path("out")) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "status.json").read_text())
    return found


def test_a_checkpoint_is_read_by_other_programs(small: Path) -> None:
    assert run() == 0
    path = small / "out/checkpoints/000020/state.safetensors"
    wanted = checkpoint.load(path.parent)[0]
    assert set(wanted) == {"param/w", "optimizer/m/w"}
    with safetensors.safe_open(path, "numpy") as file:
        assert {k: file.get_tensor(k).tobytes() for k in file.keys()} == {k: x.tobytes() for k, x in wanted.items()}  # noqa: SIM118 - no mapping
    torch = require("torch")
    from safetensors.torch import load_file  # noqa: PLC0415 - it imports torch, which may be missing

    for name, x in load_file(path).items():
        assert x.dtype is torch.float32
        assert x.numpy().tobytes() == wanted[name].tobytes()


def test_the_last_checkpoints_are_kept_and_nothing_temporary(small: Path) -> None:
    write(small, SMALL.replace("{more}", ':keep-checkpoints 2 :keep-best ["held/step" :max]'))
    assert run() == 0
    assert checkpoints() == ["000016", "000020", "best", "best-000002"]
    assert not list(small.rglob(".*"))
    assert json.loads((small / "out/checkpoints/best/run.json").read_text())["rest"]["best"] == -2.0


def test_a_best_is_that_of_the_last_better_pass(small: Path) -> None:
    write(small, SMALL.replace("{more}", ':keep-best ["held/step" :min]'))
    assert run() == 0
    assert checkpoint.load(small / "out/checkpoints/best")[1]["step"] == 20
    assert arrays_of(small / "out", 20) == {
        k: x.tobytes() for k, x in checkpoint.load(small / "out/checkpoints/best")[0].items()
    }


def test_a_finished_run_goes_on_to_more_steps(small: Path) -> None:
    assert run("--steps", "12") == 0
    assert resume("--steps", "20") == 0
    assert main(["run", "run.sx", "--out", "whole", "--quiet"]) == 0
    assert arrays_of(small / "out", 20) == arrays_of(small / "whole", 20)
    assert points_of(small / "out") == points_of(small / "whole")


def test_the_options_and_settings_that_were_given_are_kept(small: Path) -> None:
    assert run("--steps", "6", "--seed", "9", "--set", "limit=1e5") == 0
    assert resume("--steps", "8", "--set", "limit=1e4") == 0
    identity = json.loads((small / "out/program/run.json").read_text())
    assert identity["options"] == {"steps": 8, "seed": 9}
    assert identity["settings"] == {"limit": 1e4}
    assert resume() == 0
    assert status_of()["step"] == 8


@pytest.mark.clause(22)
@pytest.mark.clause(29)
def test_a_failed_run_fails_again_and_a_repaired_one_goes_on(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(small, SMALL.replace("{more}", "").replace("1e6", "12.5"))
    assert run() == 3
    first = capsys.readouterr().err
    assert "counted 1 at step" in first
    assert checkpoints() == ["000004", "000008", "000012"]
    before, points = status_of(), points_of(small / "out")
    assert (before["state"], before["error"]["also"]) == ("failed", [])
    assert resume() == 3
    assert capsys.readouterr().err == first
    assert points_of(small / "out") == points
    assert status_of()["error"] == before["error"]
    assert checkpoints() == ["000004", "000008", "000012"]
    # repaired in place
    write(small, SMALL.replace("{more}", ""))
    assert main(["run", "run.sx", "--resume", "out", "--quiet"]) == 0
    assert main(["run", "run.sx", "--out", "whole", "--quiet"]) == 0
    assert arrays_of(small / "out", 20) == arrays_of(small / "whole", 20)
    assert points_of(small / "out") == points_of(small / "whole")
    assert status_of()["error"] is None
    assert not (small / "out/failure").exists()
    # both texts stay, and the run goes on with the second
    assert sorted(p.name for p in (small / "out/program").iterdir()) == ["run.json", "sources", "sources-2"]
    assert resume("--steps", "21") == 0


def test_what_differs_is_shown(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    kept = arrays_of(small / "out", 20), status_of()

    def refused(text: str, *parts: str) -> None:
        (small / "run.sx").write_text(text)
        assert main(["run", "run.sx", "--resume", "out", "--quiet"]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "E-USE-006" in said
        for part in parts:
            assert part in said

    small_text = SMALL.replace("{more}", "")
    refused(small_text.replace('"w" [4]', '"w" [4 1]').replace("(@ (:x batch) w)", "(squeeze (@ (:x batch) w) 1)"),
            "param/w was f32[4] and is f32[4 1]", "optimizer/m/w was f32[4] and is f32[4 1]")  # fmt: skip
    refused(small_text.replace("(momentum :lr 0.01)", "(sgd :lr 0.01)"), "optimizer/m/w was f32[4] and is nothing")
    refused(small_text.replace(":batch 8", ":batch 4"), ":batch was 8 and is 4")
    refused(small_text.replace(":batch 8", ":batch 8 :shuffle off"), ":shuffle was true and is false")
    refused(small_text + '(curriculum (stage "only"))', "stage 1 was none and is only")
    write(small, small_text, rows=70)
    refused(small_text, ":examples was 48 and is 56")
    assert (arrays_of(small / "out", 20), status_of()) == kept
    write(small, small_text)
    assert main(["run", "run.sx", "--resume", "out", "--quiet", "--seed", "1"]) == 2
    assert ":seed was 0 and is 1" in capsys.readouterr().err


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 4
    path.write_bytes(whole)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a flipped bit in the arrays": (lambda p: flip(p / "000016/state.safetensors"), "000016 is damaged"),
    "a flipped bit in the rest": (lambda p: flip(p / "000016/run.json"), "000016 is damaged"),
    "a file cut short": (lambda p: cut(p / "000016/state.safetensors"), "000016 is damaged"),
    "a file that is gone": (lambda p: (p / "000016/run.json").unlink(), "it has no run.json"),
    "another step's": (lambda p: shutil.copytree(p / "000012", p / "000018"), "000018 is of step 12"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_whole_checkpoint_is_taken(small: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "run.sx", "--out", "whole", "--quiet"]) == 0
    assert run("--steps", "18") == 0
    shutil.rmtree(small / "out/checkpoints/000018")
    do, said = DAMAGES[damage]
    do(small / "out/checkpoints")
    capsys.readouterr()
    assert resume("--steps", "20") == 0
    assert said in capsys.readouterr().err
    assert arrays_of(small / "out", 20) == arrays_of(small / "whole", 20)
    assert points_of(small / "out") == points_of(small / "whole")


def test_a_checkpoint_of_another_run_is_not_taken(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert main(["run", "run.sx", "--out", "other", "--quiet"]) == 0
    planted = checkpoint.load(small / "other/checkpoints/000020")
    checkpoint.save(small / "out/checkpoints", 9999, planted[0], planted[1] | {"step": 9999})
    assert main(["run", "--resume", "out", "--steps", "24"]) == 0
    said = capsys.readouterr().err
    assert "skipped: checkpoint out/checkpoints/009999 is of another run\n" in said
    assert "going on from out/checkpoints/000020\n" in said
    assert status_of()["step"] == 24


def test_nothing_whole_is_refused(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    for path in (small / "out/checkpoints").iterdir():
        flip(path / "run.json")
    assert resume() == 1
    said = capsys.readouterr().err
    assert "E-RUN-043" in said
    assert said.count("is damaged") == 3
    shutil.rmtree(small / "out/checkpoints")
    assert resume() == 1  # it was done, so there was one
    assert "E-RUN-043" in capsys.readouterr().err


def test_a_folder_without_its_final_name_is_no_candidate(small: Path) -> None:
    assert run("--steps", "8") == 0
    folder = small / "out/checkpoints"
    shutil.copytree(folder / "000008", folder / ".tmp-000010-1")
    (small / "out/outputs/held").mkdir(parents=True)
    (small / "out/outputs/held/.tmp-000008.safetensors-1").write_bytes(b"half")
    (small / "out/program/.tmp-run.json-1").write_bytes(b"{")
    assert resume("--steps", "12") == 0
    assert not list((small / "out").rglob(".tmp-*"))


def test_what_was_resumed_from_stays(small: Path) -> None:
    write(small, SMALL.replace("{more}", ":keep-checkpoints 1"))
    assert run("--steps", "10") == 0
    assert checkpoints() == ["000010"]
    assert resume("--steps", "20") == 0
    assert checkpoints() == ["000010", "000020"]


def test_a_folder_that_was_moved_goes_on(small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (small / "sub").mkdir()
    for name in ("run.sx", "points.npz"):
        shutil.move(small / name, small / "sub" / name)
    (small / "sub/parts.sx").write_text("(define seven 7)")
    with (small / "sub/run.sx").open("a") as file:
        file.write('(import "parts.sx")')
    assert main(["run", "sub/run.sx", "--out", "out", "--steps", "10", "--quiet"]) == 0
    assert main(["run", "sub/run.sx", "--out", "whole", "--quiet"]) == 0
    (small / "elsewhere").mkdir()
    shutil.move(small / "out", small / "elsewhere/moved")
    # its text is in the folder; only the data is still where it was
    (small / "sub/run.sx").unlink()
    (small / "sub/parts.sx").unlink()
    monkeypatch.chdir(small / "elsewhere")
    assert resume("--steps", "20", folder="moved") == 0
    assert arrays_of(small / "elsewhere/moved", 20) == arrays_of(small / "whole", 20)


def test_a_file_given_from_elsewhere_is_what_later_goes_on(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--steps", "8") == 0
    (small / "fixed").mkdir()
    write(small / "fixed", SMALL.replace("{more}", ""))
    monkeypatch.chdir(small / "fixed")
    (small / "points.npz").unlink()
    assert main(["run", "run.sx", "--resume", "../out", "--steps", "10", "--quiet"]) == 0
    monkeypatch.chdir(small)
    assert resume("--steps", "12") == 0


def test_what_is_no_run_is_refused(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert resume(folder="nowhere") == 2
    assert not (small / "nowhere").exists()
    (small / "empty").mkdir()
    assert resume(folder="empty") == 2
    assert not list((small / "empty").iterdir())
    assert run("--steps", "4") == 0
    assert main(["run", "run.sx", "--resume", "out", "--out", "other"]) == 2
    assert "E-USE-010" in capsys.readouterr().err
    assert main(["run", "--resume", "out", "--out", str(small / "out"), "--quiet"]) == 0


# A failing step leaves no checkpoint, on any path.


@pytest.mark.scenario(10)
@pytest.mark.clause(22)
@pytest.mark.parametrize("limit", ["12.5", "4.5", "1.0"])
def test_no_periodic_checkpoint_of_a_failing_step(small: Path, limit: str) -> None:
    every = SMALL.replace("{more}", ":keep-checkpoints 2").replace(":checkpoint-every 4", ":checkpoint-every 1")
    write(small, every.replace("1e6", limit))
    assert run() == 3
    step = status_of()["error"]["step"]
    there = [int(name) for name in checkpoints()] if (small / "out/checkpoints").exists() else []
    assert there == [s for s in (step - 2, step - 1) if s > 0]
    assert resume() == 3
    assert status_of()["error"]["step"] == step
    assert not list(small.rglob(".tmp-*"))


@pytest.mark.scenario(13)
def test_no_best_of_a_step_whose_later_pass_fails(small: Path) -> None:
    # each step's first pass is a new best; the second pass fails at step 8
    text = SMALL.replace("{more}", ':keep-best ["held/step" :min]')
    write(small, text.replace("(cast (step) :f32) :below limit", "(cast (step) :f32) :below 7.5"))
    assert run() == 3
    error = status_of()["error"]
    assert (error["step"], error["guard"], error["meta"]) == (8, "second/step", {})
    assert checkpoints() == ["000004", "best", "best-000006"]
    assert checkpoint.load(small / "out/checkpoints/000004")[1]["best"] == -4.0
    assert resume() == 3
    assert checkpoints()[:2] == ["000004", "best"]
    assert checkpoint.load(small / "out/checkpoints/best")[1]["step"] == 6
    assert status_of()["error"] == error


def test_no_best_of_the_pass_that_fails(small: Path) -> None:
    text = SMALL.replace("{more}", ':keep-best ["held/step" :min]')
    write(small, text.replace("(- (cast (step) :f32))", "(- (cast (step) :f32)) :above -9.5"))
    assert run() == 3
    assert status_of()["error"]["step"] == 10
    assert checkpoints() == ["000004", "000008", "best", "best-000008"]


def test_no_last_checkpoint_of_a_failing_step(small: Path) -> None:
    write(small, SMALL.replace("{more}", "").replace(":checkpoint-every 4", "").replace("1e6", "19.5"))
    assert run("--set", "limit=19.5", "--steps", "20") == 3
    assert not (small / "out/checkpoints").exists()


@pytest.mark.parametrize("place", ["step", "pass"])
def test_no_checkpoint_by_signal_of_a_failing_step(small: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    text = SMALL.replace("{more}", "")
    if place == "step":
        text = text.replace("1e6", "10.5")
    else:
        text = text.replace("(cast (step) :f32) :below limit", "(cast (step) :f32) :below 7.5")
    write(small, text)

    original = Runner.take_step

    def take_step(self: Runner) -> Report:
        report = original(self)
        if report.failure is not None or report.step == 8:
            signal.raise_signal(signal.SIGTERM)
        return report

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "take_step", take_step)
        assert run() == 3 if place == "pass" else run() in (3, 75)
        if status_of()["state"] == "stopped":
            assert resume() == 3
    assert status_of()["state"] == "failed"
    failed = status_of()["error"]["step"]
    assert f"{failed:06d}" not in checkpoints()
    assert resume() == 3
    assert status_of()["error"]["step"] == failed


def test_a_run_that_failed_before_its_first_checkpoint_fails_again(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(small, SMALL.replace("{more}", "").replace("1e6", "4.0"))
    assert run() == 3
    first = capsys.readouterr().err
    points = points_of(small / "out")
    assert main(["run", "--resume", "out"]) == 3
    again = capsys.readouterr().err
    assert "there is no checkpoint yet: beginning again\n" in again
    assert first in again
    assert points_of(small / "out") == points


def test_the_mode_of_every_file_is_the_umask_s(small: Path) -> None:
    old = os.umask(0o027)
    try:
        assert run() == 0
    finally:
        os.umask(old)
    for path in (small / "out").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o750 if path.is_dir() else 0o640), path


def test_a_run_that_its_curriculum_ended_stays_ended(small: Path) -> None:
    write(small, SMALL.replace("{more}", "") + '(curriculum (stage "only" :until (= (stage-step) 10)))')
    assert run() == 0
    before = points_of(small / "out"), arrays_of(small / "out", 10), checkpoints()
    file = small / "out/checkpoints/000010/state.safetensors"
    written = file.stat().st_ino
    assert resume() == 0
    assert file.stat().st_ino == written, "what the run goes on from is not written again"
    assert (status_of()["state"], status_of()["step"]) == ("done", 10)
    assert (points_of(small / "out"), arrays_of(small / "out", 10), checkpoints()) == before


def test_a_curriculum_that_reads_less_keeps_the_last_values(small: Path) -> None:
    """Every value of what `:all` reads is saved; a program that no longer reads it goes on with the last."""
    reads = '(curriculum (stage "a" :until (> (count (reported "train/loss" :all true)) 5)) (stage "b"))'
    write(small, SMALL.replace("{more}", "") + reads)
    assert run("--steps", "4") == 0
    write(small, SMALL.replace("{more}", "") + reads.replace("train/loss", "held/step"))
    assert main(["run", "run.sx", "--resume", "out", "--quiet", "--steps", "16"]) == 0
    rest = checkpoint.load(small / "out/checkpoints/000016")[1]
    values = {name: values for name, _, _, values in rest["history"]}
    assert values["train/loss"] == [16.0]
    # what it did not keep before begins with the one value that was kept
    assert values["held/step"] == [-4.0, -6.0, -8.0, -10.0, -12.0, -14.0, -16.0]
    assert rest["stage_name"] == "b"


def test_every_pass_runs_after_the_last_step_that_the_curriculum_chose(small: Path) -> None:
    write(small, SMALL.replace("{more}", "") + '(curriculum (stage "only" :until (= (stage-step) 10)))')
    assert run() == 0
    steps = {
        name: [line["step"] for line in points_of(small / "out") if line["series"] == name]
        for name in ("held/step", "second/step")
    }
    assert steps == {"held/step": [2, 4, 6, 8, 10], "second/step": [4, 8, 10]}  # due at 8 and 12
    write(small, (small / "run.sx").read_text().replace('"second/step" (cast (step) :f32) :below limit',
                                                        '"second/step" (cast (step) :f32) :below 9.5'))  # fmt: skip
    assert main(["run", "run.sx", "--out", "failing", "--quiet"]) == 3
    assert checkpoints(small / "failing") == ["000004", "000008"]
    assert status_of(small / "failing")["error"]["step"] == 10
