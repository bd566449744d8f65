"""The benchmarks run, and what they compute from times is right; no test looks at a clock."""

import importlib
import itertools

import numpy as np
import pytest

from bench import accuracy, harness, peers, programs

SCRIPTS = {
    "accuracy": ("digits, held-out accuracy: mean", "lorentz, mean rank of the ancestor: mean"),
    "errors": ("read, whole", "a near name"),
    "prompt": ("sxi ", "to the prompt"),
    "walk": ("characters.sx", "a node of host code"),
    "guards": ("count of not finite", "sxi, ten guards"),
    "start": ("python, nothing", "sxi --help"),
    "reporting": ("all sinks", "30 more series cost"),
    "steps": ("digits alone", "lorentz alone", "characters alone"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs_through(name, capsys):
    importlib.import_module(f"bench.{name}").main(["--quick"])
    out = capsys.readouterr().out
    for title in SCRIPTS[name]:
        assert title in out
    if name == "steps" and harness.torch_or_none() is not None:
        assert "digits beside torch" in out
        assert "lorentz beside torch" in out


def test_candidates_take_turns_and_the_first_round_is_not_counted():
    ticks = itertools.count()  # each look at the clock is one second later than the last
    done = []
    candidates = {
        name: harness.Candidate(lambda name=name: done.append(name), lambda name=name: done.append(f"begin {name}"))
        for name in "ab"
    }
    measured = harness.measure(candidates, 2, clock=lambda: float(next(ticks)))
    turns = [["begin a", "a", "begin b", "b"], ["begin b", "b", "begin a", "a"]]
    assert done == turns[0] + turns[1] + turns[0]
    assert measured["a"].cpu == measured["b"].cpu == [1.0, 1.0]
    assert len(measured["a"].wall) == len(measured["a"].faults) == 2


def test_a_time_is_that_of_one_unit():
    now = [0.0]

    def work():
        now[0] += 8.0

    times = harness.measure({"x": harness.Candidate(work, times=4)}, 1, clock=lambda: now[0])["x"]
    assert times.cpu == [2.0]


def test_a_ratio_is_the_median_of_the_rounds_and_not_the_ratio_of_medians():
    own, peer = harness.Times(cpu=[1.0, 4.0, 9.0]), harness.Times(cpu=[1.0, 2.0, 3.0])
    assert own.ratio(peer) == 2.0
    assert own.median == 4.0
    assert own.ratio(harness.Times(cpu=[10.0, 1.0, 3.0])) == 3.0  # of medians it would be 4/3
    assert harness.quartiles([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 4.0)
    assert harness.quartiles([7.0]) == (7.0, 7.0)


def test_the_table_shows_time_ratio_and_quartiles():
    faults = [0.0, 0.0]
    measured = {"ours": harness.Times([0.002, 0.004], [1.0, 1.0], faults),
                "theirs": harness.Times([0.001, 0.002], [1.0, 1.0], faults)}  # fmt: skip
    lines = harness.table("t", measured, "theirs").splitlines()
    assert lines[1].split() == ["ours", "3.000", "ms", "x", "2.000", "[2.000", "2.000]", "0"]


def test_the_own_environment_sets_one_thread_and_leaves_the_choice_of_kernels():
    given = {"PATH": "/bin", "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "1024", "OMP_NUM_THREADS": "8"}
    made = harness.own_environment(given)
    assert made["PATH"] == "/bin"
    assert "OPENBLAS_CORETYPE" not in made
    assert "OPENBLAS_L2_SIZE" not in made
    assert made["OMP_NUM_THREADS"] == made["OPENBLAS_NUM_THREADS"] == "1"
    assert harness.own_environment(made) == made  # so a script starts itself again once only


def test_models_that_differ_are_not_compared():
    programs.agree("x", [1.0, 2.0], [1.001, 2.0], 2e-3)
    with pytest.raises(programs.NotTheSame, match="0\\.1"):
        programs.agree("x", [1.0, 2.0], [1.0, 1.8], 2e-3)
    with pytest.raises(programs.NotTheSame):
        programs.agree("x", [1.0], [float("nan")], 2e-3)


def test_a_change_that_finds_nothing_to_change_is_noticed():
    with pytest.raises(programs.Refused, match="no longer holds"):
        programs.text_of("digits", {"(this stands nowhere)": ""})


def test_a_program_that_is_refused_is_skipped_with_the_reason():
    def refused():
        programs.stages(programs.RUNS / "x.sx", "(define a b)")
        return ""

    assert programs.skipping("x", refused).startswith("x: skipped: E-EVAL-")


def test_rows_in_another_order_are_the_same_rows(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(10), y=-np.arange(10))
    with np.load(accuracy.reordered(tmp_path / "a.npz", 3, tmp_path)) as file:
        x, y = file["x"], file["y"]
    assert sorted(x) == list(range(10))
    assert list(x) != list(range(10))
    assert (x == -y).all()


def test_the_peer_has_the_schedule_of_the_library():
    # peak · s / warmup, then half a cosine: in its middle half the peak, at its end nothing
    rates = [peers.warmup_cosine(2.0, 10, 30, step) for step in (0, 5, 10, 20, 30, 99)]
    assert rates == pytest.approx([0.0, 1.0, 2.0, 1.0, 0.0, 0.0])


def test_a_peer_that_counts_something_stops():
    torch = harness.torch_or_none()
    if torch is None:
        pytest.skip("torch is not installed")
    peer = peers.Peer(torch, peers.Tests())
    peer.count_not_finite(torch.tensor([1.0, 2.0]))
    assert peer.read(torch.tensor(3.0)) == 3.0
    peer.count_not_finite(torch.tensor([1.0, float("nan")]))
    with pytest.raises(peers.Violated):
        peer.read(torch.tensor(3.0))
