"""`sxi replay`: a failure that is no longer kept, or never was, is found again, the same to the byte."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from sxi import folder
from tests import running
from tests.running import Finished, Program
from tests.test_failure import X, shown, text_of

program = running.program
device_program = running.device_program


# Going there again

AGAIN: dict[str, dict[str, str]] = {
    "a step": {"body": '(guard "g" (count-where (> h late)))'},
    "a pass": {
        "before": """(evaluate held (batch)
  (guard "g" (count-where (< (+ (:x batch) (normal [4 3])) (* 100.0 (- (cast (step) :f32) 3.0))))))""",
        "run": ":evaluate [(held :data d :batch 4 :every 2)]",
    },
    "an optimizer": {
        "before": """(optimizer own (p g)
  (guard "g" (count-where (> (+ (* 0.001 p) (cast (step) :f32)) 4.5)))
  (update (- p (* 0.1 g))))""",
        "optimizer": "(own)",
    },
    "the finite guard": {"loss": "(sum (* w (log (- late 20.0))))"},
    "a second stage": {
        "before": """(setting slack 1e9)
(curriculum (stage "first" :until (>= (step) 3)) (stage "second" :set {:slack 100.0}))""",
        "body": '(guard "g" (count-where (> h (- slack 100.0))))',
    },
    "a sampled step": {
        "body": '(diagnostic "g" (sum h) :below (+ 20.0 0.0))', "run": ':diagnostics ["g"] :sample-every 5',
    },
}  # fmt: skip


@pytest.mark.parametrize("what", AGAIN)
def test_from_a_checkpoint_or_the_beginning_it_is_the_same_failure(device_program: Program, what: str) -> None:
    own = AGAIN[what]
    options = f":checkpoint-every 2 {own.get('run', '')}"
    text = text_of(
        own.get("body", ""),
        before=own.get("before", ""),
        run=options,
        optimizer=own.get("optimizer", "(sgd :lr 0.1)"),
        loss=own.get("loss", "(mean (square (* w h)))"),
    )
    text = text.replace(
        "(w (param",
        "(h (+ (* 9.0 x) (dropout x 0.5) (* 0.0 (normal [2 3])))) (late (* 20.0 (- 5.5 (cast (step) :f32)))) (w (param",
    ).replace(":steps 3", ":steps 6")
    x = np.tile(X[:4], (6, 1))
    done = device_program.run(text, x=x)
    assert done.status == 3, done.err
    assert done.error["step"] in (4, 5, 6)
    first = {p.name: p.read_bytes() for p in done.folder.glob("failure/*")}
    told = shown(device_program, done)
    for place in (f"{done.folder}/checkpoints/{done.checkpoints[-1]:06d}", "the beginning"):
        shutil.rmtree(done.folder / "failure")
        status, out, err = device_program.command(
            "replay", str(done.folder), "--device", device_program.device or "cpu"
        )
        assert (status, out.splitlines()) == (0, told)
        assert err.startswith(f"going there again from {place}\n")
        assert {p.name: p.read_bytes() for p in done.folder.glob("failure/*")} == first
        shutil.rmtree(done.folder / "checkpoints", ignore_errors=True)


GUARD = '(guard "g" (count-where (> (+ x (cast (step) :f32)) 5.3)))'


def failed(program: Program) -> Finished:
    """A run that fails at step 2 of 3, with a checkpoint of step 1, and no longer has its `failure/`."""
    done = program.run(text_of(GUARD, run=":checkpoint-every 1"), x=X)
    assert (done.error["step"], done.checkpoints) == (2, [1])
    shutil.rmtree(done.folder / "failure")
    return done


def test_a_run_that_was_killed_before_it_could_look(program: Program) -> None:
    done = failed(program)
    state = {**done.state, "state": "running", "error": None, "pid": 2**22 + 1}
    (done.folder / "status.json").write_text(json.dumps(state))
    status, out, err = program.command("replay", str(done.folder))
    assert (status, err) == (0, f"going there again from {done.folder}/checkpoints/000001\n")
    assert out.splitlines()[1] == "  in microbatch 0, counted from 0; this evaluation counted 4"
    assert (done.folder / "failure/arrays.safetensors").is_file()


def test_a_checkpoint_that_is_damaged_is_said_to_be_skipped(program: Program) -> None:
    done = failed(program)
    (done.folder / "checkpoints/000001/state.safetensors").write_bytes(b"")
    status, out, err = program.command("replay", str(done.folder))
    assert (status, err) == (0, "going there again from the beginning\n")
    assert out.splitlines()[2:4] == ["the mask: bool[2 3], 4 violating", "  (> (+ x (cast (step) :f32)) 5.3)"]


def test_what_cannot_be_kept_is_shown_all_the_same(program: Program) -> None:
    done = failed(program)
    (done.folder / "failure").write_text("in the way")
    status, out, err = program.command("replay", str(done.folder))
    assert status == 0
    assert "the mask: bool[2 3], 4 violating" in out
    assert "what the guard looked at is not kept: E-RUN-023: " in err


def test_no_step_past_the_failing_one_is_taken(program: Program) -> None:
    """The program is no longer the one that failed, so that it goes on to the step of the status and no further."""
    done = failed(program)
    source = done.folder / "program/sources/0.sx"
    source.write_text(source.read_text().replace("5.3)", "9.0)"))
    status, _, err = program.command("replay", str(done.folder))
    assert status == 1
    assert f"E-RUN-045: the run in {done.folder} does not fail: it was taken to step 2" in " ".join(err.split())


@pytest.mark.parametrize("state", ["done", "stopped"])
def test_a_run_that_did_not_fail_takes_no_step(program: Program, state: str) -> None:
    done = program.run(text_of(""), x=X)
    (done.folder / "status.json").write_text(json.dumps({**done.state, "state": state}))
    shutil.rmtree(done.folder / "checkpoints")
    status, out, err = program.command("replay", str(done.folder))
    assert (status, out) == (1, "")
    assert err.startswith("sxi replay: E-RUN-045: ")
    assert "going there" not in err


def test_a_folder_that_another_process_writes_into_is_left_alone(program: Program) -> None:
    done = failed(program)
    with folder.held(folder.Folder(done.folder)):
        status, _, err = program.command("replay", str(done.folder))
    assert status == 1
    assert "E-RUN-046" in err
    assert not (done.folder / "failure").exists()


@pytest.mark.parametrize("command", ["replay", "status", "evaluate"])
@pytest.mark.parametrize("path", ["nowhere", "."])
def test_a_folder_that_is_no_run(program: Program, command: str, path: str) -> None:
    status, _, err = program.command(command, path)
    assert status == 2
    assert f"E-USE-005: {path} is not the folder of a run" in err


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"code": 1}', '{"code":"","message":"","calls":3}'])
def test_a_failure_that_cannot_be_read(program: Program, text: str) -> None:
    done = program.run(text_of(GUARD), x=X)
    (done.folder / "failure/failure.json").write_text(text)
    status, _, err = program.command("replay", str(done.folder))
    assert status == 1
    assert "E-RUN-044" in err
