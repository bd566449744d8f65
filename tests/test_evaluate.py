"""`sxi evaluate` and `output`: a saved run's passes without a step give what they gave in the run, and predict."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import running
from tests.running import Finished, Program
from tests.test_failure import same

program = running.program
device_program = running.device_program

ROWS = 40
RNG = np.random.default_rng(11)
X = RNG.normal(size=(ROWS, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5]], np.float32)).astype(np.float32)
NEW = RNG.normal(size=(11, 3)).astype(np.float32)

# Draws in the pass, a generator's pass, a state, an optimizer's state, a setting that is a path, several passes.
TEXT = """(setting rate 0.05)
(setting asked "d.npz")
(setting width 4)
(setting limit 1e9)
(data d (npz "d.npz") :split {:train 0.75 :held 0.25})
(data new (npz asked :columns [:x]))
(generator noise (n) {:x (normal [n 3])})
(model net (x) (linear "out" (tanh (batch-norm "norm" (linear "in" x width))) 1))
(objective (batch) (metric "loss" (mean (square (- (net (dropout (:x batch) 0.1)) (:y batch))))))
(evaluate held (batch)
  (metric "error" (mean (abs (- (net (:x batch)) (:y batch)))))
  (metric "ema/error" (reading "ema" (mean (abs (- (net (:x batch)) (:y batch))))))
  (metric "drawn" (mean (normal [(dim (:x batch) 0)]))))
(evaluate answer (batch)
  (guard "far" (count-where (> (abs (net (:x batch))) limit)))
  (output "y" (squeeze (net (:x batch)) -1))
  (output "x" (:x batch))
  (output "size" (sum (ones [(dim (:x batch) 0)]))))
(evaluate imagined (batch) (metric "mean" (mean (net (:x batch)))) (output "y" (net (:x batch))))
(run r :data d :batch 10 :steps 12 :optimizer (adam :lr rate :ema 0.9) :checkpoint-every 4
  :keep-best ["error" :min]
  :evaluate [(held :data d :split :held :batch 4 :every 4) (answer :data new :batch 7 :every 4)
             (imagined :data noise :examples 5 :batch 3 :every 4)])
"""


def trained(program: Program, *arguments: str, text: str = TEXT) -> Finished:
    done = program.run(text, *arguments, x=X, y=Y)
    assert done.status == 0, done.err
    return done


def evaluated(program: Program, folder: Path, *arguments: str) -> tuple[list[str], str]:
    """What `sxi evaluate` prints as the metrics, and to stderr."""
    device = [] if program.device is None else ["--device", program.device]
    status, out, err = program.command("evaluate", str(folder), *arguments, *device)
    assert status == 0, err
    return out.splitlines(), err


def reported(done: Finished, step: int) -> list[str]:
    """What the passes of the run reported at a step, as lines of a summary."""
    found = [
        (line["series"], line["meta"], line["value"])
        for line in done.lines
        if line["kind"] == "point" and line["step"] == step and "pass" in line["meta"]
    ]
    return [
        f"{name} {' '.join(f'{k}={v}' for k, v in meta.items())} {value:.6g}"
        for name, meta, value in found
        if not name.startswith("guard/")
    ]


def files(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.safetensors")}


# The same as in the run


@pytest.mark.parametrize("which", [None, "12", "4", "000008"])
def test_the_passes_give_what_they_gave_in_the_run(device_program: Program, which: str | None) -> None:
    done = trained(device_program)
    lines, err = evaluated(device_program, done.folder, "--out", "again", *(["--checkpoint", which] if which else []))
    step = int(which or 12)
    assert lines == reported(done, step)
    assert len(lines) == 4
    assert err == "outputs are in again\n"
    wanted = {
        name: x for name, x in files(done.folder / "outputs").items() if name.endswith(f"/{step:06d}.safetensors")
    }
    assert sorted(wanted) == [f"answer/{step:06d}.safetensors", f"imagined/{step:06d}.safetensors"]
    assert files(Path("again")) == wanted


def test_the_best_is_that_of_the_step_that_reported_it(program: Program) -> None:
    text = TEXT.replace('["error" :min]', '["error" :max]')
    done = trained(program, text=text)
    errors = done.points("error")
    best = max(errors, key=lambda p: p[1])[0]
    assert best != 12
    lines, _ = evaluated(program, done.folder, "--checkpoint", "best")
    assert lines == reported(done, best)


def test_one_pass_alone(program: Program) -> None:
    done = trained(program)
    lines, err = evaluated(program, done.folder, "imagined", "--out", "one")
    assert lines == [line for line in reported(done, 12) if "pass=imagined" in line]
    assert sorted(files(Path("one"))) == ["imagined/000012.safetensors"]
    lines, err = evaluated(program, done.folder, "held", "--out", "none")
    assert (len(lines), err) == (3, "")
    assert not Path("none").exists()


def test_what_is_evaluated_in_a_later_stage_is_that_stage(program: Program) -> None:
    stages = '(curriculum (stage "first" :until (>= (step) 6)) (stage "second" :set {:rate 0.01}))'
    done = trained(program, text=TEXT + stages)
    for step, stage in ((4, "first"), (12, "second")):
        lines, _ = evaluated(program, done.folder, "--checkpoint", str(step))
        assert lines == reported(done, step)
        assert f"stage={stage}" in lines[0]


def test_a_run_is_left_as_it_was(program: Program) -> None:
    done = trained(program)
    before = {p: p.read_bytes() for p in done.folder.rglob("*") if p.is_file()}
    evaluated(program, done.folder, "--out", "elsewhere")
    assert {p: p.read_bytes() for p in done.folder.rglob("*") if p.is_file()} == before


def test_outputs_go_into_a_folder_of_their_own_each_time(program: Program) -> None:
    done = trained(program)
    told = [evaluated(program, done.folder, "imagined")[1] for _ in range(3)]
    made = sorted(done.folder.glob("evaluate-*"))
    assert len(made) == 3
    assert {line.removeprefix("outputs are in ").rstrip("\n") for line in told} == {str(path) for path in made}


# Outputs


def test_an_output_is_its_batches_joined_in_the_order_of_the_examples(device_program: Program) -> None:
    done = trained(device_program)
    found = load_file(done.folder / "outputs/answer/000012.safetensors")
    assert same(found["x"], X)
    assert found["y"].shape == (ROWS,)
    assert found["size"].tolist() == [7, 7, 7, 7, 7, 5]  # one for each batch, the last one ragged
    weights = done.saved(12)
    hidden = X @ weights["param/net/in/w"] + weights["param/net/in/bias"]
    assert hidden.shape == (ROWS, 4)
    assert np.unique(found["y"]).size == ROWS


# Prediction


def test_new_data_of_another_size_by_a_path_of_the_working_folder(
    device_program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = trained(device_program)
    known = load_file(done.folder / "outputs/answer/000012.safetensors")
    elsewhere = device_program.path / "elsewhere"
    elsewhere.mkdir()
    np.savez(elsewhere / "new.npz", x=np.concatenate([NEW, X[:2]]))
    monkeypatch.chdir(elsewhere)
    lines, err = evaluated(
        device_program, Path("..") / done.folder.name, "answer", "--set", "asked=new.npz", "--out", "out"
    )
    assert (lines, err) == ([], "outputs are in out\n")
    found = load_file("out/answer/000012.safetensors")
    assert same(found["x"], np.concatenate([NEW, X[:2]]))
    assert found["size"].tolist() == [7, 6]
    # a row that the run has answered is answered alike, wherever it stands
    assert np.allclose(found["y"][11:], known["y"][:2], rtol=1e-5, atol=1e-6)
    assert not np.allclose(found["y"][:2], known["y"][:2], rtol=1e-2)


@pytest.mark.parametrize("rows", [1, 7, 8, 500])
def test_new_data_of_any_size(program: Program, rows: int) -> None:
    done = trained(program)
    np.savez("new.npz", x=RNG.normal(size=(rows, 3)).astype(np.float32))
    evaluated(program, done.folder, "answer", "--set", "asked=new.npz", "--out", "out")
    found = load_file("out/answer/000012.safetensors")
    assert found["y"].shape == (rows,)
    assert found["size"].sum() == rows


def test_data_of_training_may_be_other_data(program: Program) -> None:
    """What fixes the order of steps does not matter where none is taken: the rows, the batch, the seed."""
    text = TEXT.replace('(npz "d.npz")', "(npz asked)")
    done = trained(program, text=text)
    np.savez("new.npz", x=NEW.repeat(4, axis=0), y=np.zeros((44, 1), np.float32))
    lines, _ = evaluated(program, done.folder, "held", "--set", "asked=new.npz")
    assert lines[0].startswith("error split=held pass=held ")
    assert lines != [line for line in reported(done, 12) if "pass=held" in line]


def test_a_run_and_its_data_are_found_from_elsewhere(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    done = trained(program)
    wanted = reported(done, 12)
    moved = program.path / "far/away"
    moved.parent.mkdir()
    shutil.move(done.folder, moved)
    (program.path / "program.sx").unlink()  # what was run is in the folder
    monkeypatch.chdir(moved.parent)
    assert evaluated(program, Path("away"))[0] == wanted


def test_settings_of_the_run_hold_and_others_come_on_top(program: Program) -> None:
    done = trained(program, "--set", "width=6")
    assert done.saved(12)["param/net/in/w"].shape == (3, 6)
    assert evaluated(program, done.folder)[0] == reported(done, 12)
    lines, _ = evaluated(program, done.folder, "--set", "limit=1e8")
    assert lines == reported(done, 12)


# What is refused, and a guard


def refused(program: Program, *arguments: str) -> tuple[int, str]:
    status, out, err = program.command("evaluate", *arguments)
    assert out == ""
    return status, " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["helt"], 2, "has no pass helt; its passes are held, answer, imagined help: did you mean held?"),
        (["--checkpoint", "5"], 1, "the run has 000004, 000008, 000012, best help: --checkpoint takes a step"),
        (["--checkpoint", "../checkpoints"], 1, "E-RUN-022: there is no checkpoint"),
        (["--checkpoint", "²"], 1, "E-RUN-022: there is no checkpoint"),
        (["--set", "width=5"], 2, "E-USE-012: the saved state does not fit: param/net/in/w was f32[3 4] and is "),
        (["--set", "withd=5"], 4, "E-EVAL-016: setting withd: the file has no such setting"),
        (["--set", "asked=absent.npz"], 1, "E-RUN-001: there is no file"),
        (["--set", "asked=other.npz"], 4, "E-CONTRACT-012: "),
        (["--out", "run1"], 2, "E-USE-002: run1 exists already"),
    ],
)  # fmt: skip
def test_what_is_refused(program: Program, arguments: list[str], status: int, said: str) -> None:
    done = trained(program)
    np.savez("other.npz", x=np.zeros((4, 2), np.float32))
    given, err = refused(program, str(done.folder), *arguments)
    assert given == status
    assert said in err
    assert not list(done.folder.glob("evaluate-*"))


def test_a_missing_path_is_told_in_the_working_folder(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    done = trained(program)
    (program.path / "here").mkdir()
    monkeypatch.chdir(program.path / "here")
    _, err = refused(program, str(done.folder), "--set", "asked=d.npz")
    # a long path breaks the line, before it and within
    assert f"{program.path}/here/d.npz" in "".join(err.split())


def test_a_run_without_passes_says_so(program: Program) -> None:
    text = '(data d (npz "d.npz")) (objective (b) (sum (* (:x b) (param "w" [3] :init ones-init)))) '
    done = trained(program, text=text + "(run r :data d :steps 1 :optimizer (sgd :lr 0.1))")
    for arguments in ([], ["held"]):
        status, err = refused(program, str(done.folder), *arguments)
        assert status == 2
        assert "E-USE-011: the run in" in err
        assert "has no passes" in err


def test_a_run_without_a_checkpoint(program: Program) -> None:
    done = trained(program)
    shutil.rmtree(done.folder / "checkpoints")
    status, err = refused(program, str(done.folder))
    assert status == 1
    assert "E-RUN-043" in err


def test_a_folder_that_is_no_run(program: Program) -> None:
    assert refused(program, "nowhere")[0] == 2


def test_a_guard_that_fails_stops_the_passes_and_shows_what_it_saw(device_program: Program) -> None:
    done = trained(device_program)
    device = ["--device", device_program.device or "cpu"]
    status, out, err = device_program.command(
        "evaluate", str(done.folder), "--set", "limit=0.0", "--out", "out", *device
    )
    assert status == 3
    assert out.splitlines() == [line for line in reported(done, 12) if "pass=held" in line]
    message = (
        "E-GUARD-001: guard far counted 40 in pass answer at step 12, expected 0; it is written at program.sx:15:3"
    )
    assert err.splitlines() == ["what the guard looked at: sxi replay out", f"sxi evaluate: {message}"]
    assert sorted(p.name for p in Path("out").iterdir()) == ["failure"]
    arrays = load_file("out/failure/arrays.safetensors")
    assert arrays["rows"].tolist() == list(range(7))
    assert same(arrays["batch/x"], X[:7])
    status, out, _ = device_program.command("replay", "out")
    assert status == 0
    assert out.splitlines()[:2] == [message, "  in batch 0, counted from 0; this evaluation counted 7"]


def test_data_that_training_shares_may_have_fewer_rows_than_a_step_takes(program: Program) -> None:
    text = """(setting asked "d.npz")
(data d (npz asked))
(objective (batch) (mean (square (- (linear "out" (:x batch) 1) (:y batch)))))
(evaluate answer (batch) (output "size" (sum (ones [(dim (:x batch) 0)]))))
(run r :data d :batch 10 :steps 2 :optimizer (sgd :lr 0.1) :evaluate [(answer :data d :batch 2)])
"""
    done = trained(program, text=text)
    np.savez(program.path / "few.npz", x=X[:3], y=Y[:3])
    target = program.path / "few"
    evaluated(program, done.folder, "--set", f"asked={program.path / 'few.npz'}", "--out", str(target))
    (written,) = (target / "answer").iterdir()
    assert load_file(written)["size"].tolist() == [2, 1]
