"""`:start-from`: which parameters start from a saved run or a safetensors file, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from sxi import checkpoint
from sxi.cli import main

# Nothing moves: after a step of rate 0 the checkpoint holds what the parameters started from.
PROGRAM = """
(setting where "none")
(data points (npz "points.npz"))
(model net (x) (squeeze (linear "out" (tanh (linear "in" x 3)) 1) -1))
(objective (batch) (mean (square (net (:x batch)))))
(run r :data points :batch 4 :steps 1 :optimizer (sgd :lr {lr} :ema 0.5) {more})
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "points.npz", x=np.random.default_rng(0).normal(size=(8, 4)).astype("f4"))
    (tmp_path / "first.sx").write_text(PROGRAM.format(lr="0.5", more=":seed 1"))
    assert main(["run", "first.sx", "--out", "first", "--quiet"]) == 0
    return tmp_path


def begun(home: Path, more: str, *arguments: str, file: str = "second.sx") -> int:
    (home / file).write_text(PROGRAM.format(lr="0.0", more=more))
    return main(["run", file, "--out", "second", "--quiet", *arguments])


def params(folder: str) -> dict[str, Any]:
    return checkpoint.parameters(Path(folder) / "checkpoints/000001")


def state(folder: str, name: str) -> Any:
    return checkpoint.load(Path(folder) / "checkpoints/000001")[0][name]


NAMES = ["net/in/w", "net/in/bias", "net/out/w", "net/out/bias"]


def test_every_parameter_starts_from_a_checkpoint(home: Path) -> None:
    assert begun(home, ':start-from "first/checkpoints/000001"') == 0
    first, second = params("first"), params("second")
    assert sorted(second) == sorted(NAMES)
    for name in NAMES:
        assert second[name].tobytes() == first[name].tobytes()
        # an optimizer's first state that is made from its parameter is made from that one
        average = state("second", f"optimizer/ema/{name}")
        assert average.tobytes() == first[name].tobytes()


def test_of_a_run_the_newest_whole_checkpoint_is_taken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "first.sx").write_text(
        PROGRAM.format(lr="0.5", more=":seed 1 :checkpoint-every 1").replace("steps 1", "steps 3")
    )
    assert main(["run", "first.sx", "--out", "longer", "--quiet"]) == 0
    damaged = home / "longer/checkpoints/000003/state.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for more in (':start-from "longer"', ':start-from [("*" "longer/")]'):
        assert begun(home, more) == 0
        taken, first = params("second"), checkpoint.parameters(home / "longer/checkpoints/000002")
        assert {name: x.tobytes() for name, x in taken.items()} == {name: x.tobytes() for name, x in first.items()}
        (home / "second").rename(home / f"second{len(more)}")
    for whole in (home / "longer/checkpoints").glob("0*/run.json"):
        whole.unlink()
    assert begun(home, ':start-from "longer"') == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "E-RUN-026: the run in longer has no whole checkpoint to start from" in said
    assert "note: checkpoint longer/checkpoints/000003 is damaged: it has no run.json" in said


def test_only_what_a_glob_matches_starts_from_there(home: Path) -> None:
    assert begun(home, "") == 0
    (home / "second").rename(home / "fresh")
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    safetensors.numpy.save_file({"net/in/w": x, "param": x}, home / "some.safetensors")
    more = ':start-from [("net/in/w" "some.safetensors") ("*/w" "first/checkpoints/best") ("net/out/bias" "absent")]'
    (home / "first/checkpoints/best").symlink_to("000001")
    assert begun(home, more.replace(' ("net/out/bias" "absent")', "")) == 0
    fresh, first, second = params("fresh"), params("first"), params("second")
    assert second["net/in/w"].tolist() == x.tolist()  # the first glob that matches
    assert second["net/out/w"].tobytes() == first["net/out/w"].tobytes()
    for name in ("net/in/bias", "net/out/bias"):
        assert second[name].tobytes() == fresh[name].tobytes()


def test_a_path_is_relative_to_the_program(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "below").mkdir()
    monkeypatch.chdir(home / "below")
    (home / "second.sx").write_text(PROGRAM.format(lr="0.0", more=":start-from where"))
    assert main(["run", "../second.sx", "--out", "out", "--quiet", "--set", "where=first/checkpoints/000001"]) == 0
    assert params("out")["net/in/w"].tobytes() == params("../first")["net/in/w"].tobytes()


def test_a_run_that_goes_on_does_not_look_there_again(home: Path) -> None:
    assert begun(home, ':start-from "first/checkpoints/000001"') == 0
    (home / "first").rename(home / "moved")
    assert main(["run", "--resume", "second", "--steps", "2", "--quiet"]) == 0


REFUSED = {
    "no such file": (':start-from "nowhere"', 1, "E-RUN-022", "there is no checkpoint"),
    "a folder that is none": (':start-from "empty"', 1, "E-RUN-021", "it has no run.json"),
    "a run without one": (
        ':start-from "bare"', 1, "E-RUN-026",
        "the run in bare has no whole checkpoint to start from",
    ),
    "a file that is none": (':start-from "points.npz"', 1, "E-RUN-021", "is damaged"),
    "a glob that matches nothing": (
        ':start-from [("net/inn/*" "first")]', 4, "E-CONTRACT-025", "the glob net/inn/* matches no parameter",
    ),
    "another shape": (
        ':start-from [("net/in/w" "other.safetensors")]', 1, "E-RUN-024",
        "net/in/w is f32[3 4] in other.safetensors and f32[4 3] in the run",
    ),
    "another type": (
        ':start-from [("net/in/bias" "other.safetensors")]', 1, "E-RUN-024",
        "net/in/bias is f64[3] in other.safetensors and f32[3] in the run",
    ),
    "a type that the language lacks": (
        ':start-from [("net/out/bias" "other.safetensors")]', 1, "E-RUN-024",
        "net/out/bias is uint8[1] in other.safetensors and f32[1] in the run",
    ),
    "a name that it lacks": (
        ':start-from [("net/out/*" "other.safetensors")]', 1, "E-RUN-025",
        "other.safetensors has no parameter net/out/w; it has net/in/bias, net/in/w, net/out/bias",
    ),
    "a pair of one": (':start-from [("*")]', 4, "E-CONTRACT-025", ":start-from is a path or a list of pairs"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(home: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    more, status, code, text = REFUSED[what]
    arrays = {
        "net/in/w": np.zeros((3, 4), np.float32), "net/in/bias": np.zeros(3), "net/out/bias": np.zeros(1, np.uint8),
    }  # fmt: skip
    safetensors.numpy.save_file(arrays, home / "other.safetensors")
    (home / "empty").mkdir()
    shutil.copytree(home / "first/program", home / "bare/program")
    assert begun(home, more) == status
    said = " ".join(capsys.readouterr().err.split())
    assert f"{code}: " in said
    assert text in said
    assert "second.sx:6:" in said  # the option
    assert not (home / "second").exists()


def test_check_finds_a_glob_that_matches_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "second.sx").write_text(PROGRAM.format(lr="0.0", more=':start-from [("nett/*" "nowhere")]'))
    assert main(["check", "second.sx", "--format", "json"]) == 4
    (found,) = json.loads(capsys.readouterr().out)
    assert found["code"] == "E-CONTRACT-025"


BEST = """
(data points (npz "points.npz"))
(objective (batch) (metric "train/loss" (mean (square (@ (:x batch) (param "w" [4] :init ones-init))))))
(evaluate a (batch) (metric "x" (mean (:x batch))) (metric "only" 1.0))
(evaluate b (batch) (metric "x" (mean (:x batch))) (metric "twice" 1.0 :n 1) (metric "twice" 1.0 :n 2))
(run r :data points :batch 4 :steps 1 :optimizer (sgd :lr 0.1)
  :evaluate [(a :data points) (b :data points)] :keep-best ["NAME" :max])
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("only", ""),
        ("onyl", 'no pass reports the metric onyl; the passes\' metrics are x, only, twice help: did you mean "only"?'),
        ("train/loss", "no pass reports the metric train/loss"),
        ("x", "several series are named x: pass=a; pass=b"),
        ("twice", "several series are named twice: pass=b n=1; pass=b n=2"),
    ],
)
def test_the_metric_of_keep_best_is_one_series(
    home: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "best.sx").write_text(BEST.replace("NAME", name))
    assert main(["run", "best.sx", "--out", "best", "--quiet"]) == (4 if said else 0)
    error = " ".join(capsys.readouterr().err.split())
    assert (" ".join(part for part in said.split() if part) in _plain(error)) if said else not error


def _plain(text: str) -> str:
    """A frame's message and help, without the excerpt between them."""
    message, _, rest = text.partition(" --> ")
    return message + (" help: " + rest.partition("help: ")[2].partition(" why: ")[0] if "help: " in rest else "")
