"""The programs that people write: each is accepted, trains, and has a guard that finds the mistake planted in it.

A program comes here with its mistake: what is written in place of what, or which setting is given, and what must
then be said, at which step.  The figures that the programs reach are measured by `bench/figures.py`.
"""

import itertools
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bench import figures
from sxi import checkpoint
from sxi.cli import main
from tests.running import Program

RUNS = Path(__file__).resolve().parent.parent / "tutorials" / "runs"


@dataclass(frozen=True)
class Fault:
    """A mistake, and what finds it.

    guard:    its name and metadata as the error writes them
    changes:  (what is written, what stands there instead)
    settings: given on the command line
    steps:    how many are asked for
    at:       the step of the failure; a range where it depends on how a machine rounds
    place:    the pass that finds it, "" for a step
    """

    guard: str
    changes: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()
    steps: int = 3
    at: range = field(default=range(1, 2))
    place: str = ""


AFTER_THREE = range(3, 4)

FAULTS = {
    "adding": Fault("task/marks", ((":low 10 :high length", ":low 0 :high length"),)),
    "autoencoder": Fault("kl/negative", (("(+ 1.0 log-var)", "(- 1.0 log-var)"),)),
    "bandit": Fault("policy/given-up", settings=("rate=20.0",), steps=20, at=range(2, 21)),
    "batchnorm": Fault("norm/no-spread layer=norm0", settings=("parts=64",)),
    "clusters": Fault("means/empty", ((":init some-images", ":init zeros-init"),)),
    "contrastive": Fault("pairs/self", (("(- near (* 1e9 (eye n)))", "near"),)),
    "convolution": Fault("net/dying layer=1", settings=("rate=2.0",), steps=30, at=range(2, 31)),
    "early": Fault("held/known", ((":split :held-out :batch", ":split :train :batch"),), at=AFTER_THREE, place="held"),
    "flow": Fault("flow/way-back", (("(+ (* moves (exp stretch)) shift)", "(* (+ moves shift) (exp stretch))"),),
                  at=AFTER_THREE, place="held"),
    "gan": Fault("critic/loss", settings=("rate=0.3",), steps=60, at=range(2, 61)),
    "graph": Fault("graph/grows layer=1", (("(* (scatter-add (zeros-like x) to sent) (expand share 1))",
                                            "(scatter-add (zeros-like x) to sent)"),)),
    "lstm": Fault("train/loss", (("(slice ids 1 1 (+ 1 span))", "(slice ids 1 0 span)"),), steps=60, at=range(5, 61)),
    "mixture": Fault("density/mass", (("(log-softmax shares)", "shares"),),
                     at=AFTER_THREE, place="held"),
    "physics": Fault("physics/straight", ((":activation sin", ":activation relu"),)),
    "predict": Fault("images/pixels", settings=("images=bytes.npz",), at=AFTER_THREE, place="answer"),
    "process": Fault("covariance/root", (("(square (:noise scales))", "0.0"),)),
    "transformer": Fault("net/looks-ahead", ((":causal true", ":causal false"),), at=AFTER_THREE, place="held"),
    "warm": Fault("known/accuracy", settings=("rate=0.05",), at=AFTER_THREE, place="held"),
}  # fmt: skip


def text_of(name, changes=()):
    """A program, some of it written otherwise."""
    text = (RUNS / f"{name}.sx").read_text(encoding="utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{name}.sx no longer holds {old} once"
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="session")
def known(tmp_path_factory):
    """The checkpoint that warm.sx starts from: predict.sx, trained."""
    folder = tmp_path_factory.mktemp("known") / "run"
    assert main(["run", str(RUNS / "predict.sx"), "--out", str(folder), "--quiet"]) == 0
    return folder / "checkpoints" / "000200"


@pytest.fixture
def program(tmp_path, monkeypatch, capsys):
    """Programs on the CPU."""
    monkeypatch.chdir(tmp_path)
    return Program(tmp_path, capsys, monkeypatch)


@pytest.fixture
def run(tmp_path, program, known):
    """`run(name, *arguments, changes=())`: a program in `runs/`, beside the data that ship."""
    (tmp_path / "data").symlink_to(RUNS.parent / "data")
    (tmp_path / "runs").mkdir()
    with np.load(RUNS.parent / "data" / "digits.npz") as digits:
        np.savez(tmp_path / "runs" / "bytes.npz", x=digits["x"] * 15.9)  # as an image file has them, 0 to 255
        np.savez(tmp_path / "seven.npz", x=digits["x"][:7])

    def run(name, *arguments, changes=(), **where):
        own = ["--set", f"known={known}"] if name == "warm" else []
        return program.run(text_of(name, changes), *own, *arguments, file=f"runs/{name}.sx", **where)

    return run


def test_every_program_has_a_fault_and_a_figure():
    assert FAULTS.keys() == figures.SERIES.keys()
    assert {name for name in FAULTS if (RUNS / f"{name}.sx").is_file()} == FAULTS.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_a_program_breaks_no_contract_and_says_what_it_reaches(name, capsys):
    assert main(["check", str(RUNS / f"{name}.sx")]) == 0, capsys.readouterr().out
    assert isinstance(figures.written(name), float)


@pytest.mark.parametrize("name", FAULTS)
def test_a_program_takes_its_steps_and_no_guard_counts(run, name):
    finished = run(name, "--steps", "3")
    assert finished.status == 0, finished.err
    counts = {line["value"] for line in finished.lines if line["kind"] == "point" and line["series"][:6] == "guard/"}
    assert counts == {0.0}
    assert finished.points(figures.SERIES[name])[-1][0] == 3  # the figure is there to be read
    assert all(np.isfinite(line["value"]) for line in finished.lines if line["kind"] == "point")


@pytest.mark.parametrize("name", FAULTS)
def test_the_guard_finds_the_mistake(run, name):
    fault = FAULTS[name]
    settings = [part for setting in fault.settings for part in ("--set", setting)]
    finished = run(name, "--steps", str(fault.steps), *settings, changes=fault.changes)
    assert finished.status == 3, finished.err
    error = finished.error
    meta = "".join(f" {k}={v}" for k, v in error["meta"].items())
    assert (error["code"], error["guard"] + meta) == ("E-GUARD-001", fault.guard)
    assert error["step"] in fault.at
    assert ("in pass " + fault.place in finished.message) == bool(fault.place)
    assert finished.texts[-1] == f"failed: {finished.message}"
    # a pass stops a run whose step is taken, a step's guard one whose step is not
    assert finished.state["step"] == error["step"] - (not fault.place)


def test_weights_that_start_warm_are_those_of_the_run_they_come_from(run, known):
    cold = checkpoint.load(known)[0]
    finished = run("warm", "--steps", "1", "--set", "rate=1e-12")
    for name, x in finished.saved(1).items():
        if name.startswith("param/"):
            np.testing.assert_allclose(x, cold[name], atol=1e-9)


def test_early_stopping_ends_the_run_once_the_held_out_loss_has_stopped_falling(run):
    finished = run("early", "--set", "patience=1", "--steps", "600")
    losses = finished.values("loss", **{"pass": "held"})
    rises = [b >= a for a, b in itertools.pairwise(losses)]
    assert rises.index(True) == len(rises) - 1  # it ran to the first that was no better, and not a pass further
    assert finished.state["step"] == 20 * len(losses) < 600
    best = checkpoint.load(finished.folder / "checkpoints" / "best")[1]
    assert best["step"] == 20 * (1 + losses.index(min(losses)))


def test_a_run_that_was_trained_answers_for_other_images(known, run, program, tmp_path):
    status, shown, said = program.command("evaluate", str(known.parent.parent), "answer", "--set", "images=seven.npz",
                                          "--out", "answers")  # fmt: skip
    assert status == 0, said
    (made,) = (tmp_path / "answers").rglob("*.safetensors")
    answers = load_file(made)
    with np.load(RUNS.parent / "data" / "digits.npz") as digits:
        y = digits["y"][:7]
    assert answers["label"].shape == answers["sure"].shape == (7,)
    assert (answers["label"] == y).sum() >= 6
    assert f"{answers['sure'].mean():.4f}"[:5] in shown


def test_a_run_that_was_trained_refuses_images_of_another_kind(known, run, program, tmp_path):
    status, _, said = program.command("evaluate", str(known.parent.parent), "answer", "--set", "images=runs/bytes.npz")
    assert status == 3
    assert "E-GUARD-001: guard images/pixels counted " in said
    assert " in pass answer at step 200, expected 0" in said


def test_the_averaged_weights_are_not_the_last_ones(run):
    finished = run("transformer", "--steps", "3")
    saved = finished.saved(3)
    for name in [n.removeprefix("param/") for n in saved if n.startswith("param/")]:
        last, mean = saved[f"param/{name}"], saved[f"optimizer/ema/{name}"]
        assert last.shape == mean.shape
    assert not np.array_equal(saved["param/net/head/w"], saved["optimizer/ema/net/head/w"])


def test_the_two_halves_of_an_adversarial_pair_learn_apart(run):
    """Without one of the losses its own half stands still: no gradient of the other's leaks into it."""
    whole = "(+ told (mean (softplus (neg fooled))))"
    for kept, still in (("told", "maker"), ("(mean (softplus (neg fooled)))", "critic")):
        finished = run("gan", "--steps", "1", "--set", "rate=0.0" if still == "maker" else "rate=1e-3",
                       changes=((f"    {whole}))", f"    {kept}))"),), out=still)  # fmt: skip
        saved = finished.saved(1)
        moments = [x for name, x in saved.items() if name.startswith(f"optimizer/v/{still}/")]
        assert len(moments) == 6
        assert not any(x.any() for x in moments)
        others = [
            x for n, x in saved.items() if n.startswith("optimizer/v/") and not n.startswith(f"optimizer/v/{still}")
        ]
        assert any(x.any() for x in others)


def test_a_smallest_count_of_zero_has_no_sign(run):
    (fewest,) = run("gan", "--steps", "1").values("hits/fewest")  # nothing made lies on every cloud before training
    assert (fewest, math.copysign(1.0, fewest)) == (0.0, 1.0)


def test_states_alone_learn(run):
    finished = run("clusters", "--steps", "3")
    saved = finished.saved(3)
    assert {name.partition("/")[0] for name in saved} == {"state"}
    # each of 3 · 256 images was taken by one centre
    assert saved["state/means/taken"].sum() == 3 * 256
    apart = finished.values("train/apart")
    assert apart[2] < apart[0]


def test_a_run_without_parameters_and_states_learns_nothing_and_is_refused(program):
    (found,) = program.refused(
        "(generator g (n) {:x (ones [n])}) (objective (batch) (sum (:x batch))) (run r :data g :steps 1 :optimizer [])"
    )
    assert found["code"] == "E-CONTRACT-025"


def test_a_parameter_that_no_optimizer_takes_is_refused_where_there_is_none(program):
    (found,) = program.refused(
        "(generator g (n) {:x (ones [n])})\n"
        '(objective (batch) (sum (* (:x batch) (param "w" [] :init ones-init))))\n'
        "(run r :data g :steps 1 :optimizer [])"
    )
    assert found["code"] == "E-CONTRACT-026"
    assert "no group takes the parameter w: the globs are none" in found["message"]
