"""What optimizers are written with: `total`, states and the names they are bound by, how much a step computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sxi.errors import SxiError
from tests.library.running import begun, checked


def test_the_norm_is_worked_out_once() -> None:
    """Its operations grow with the parameters, not with their square."""

    def sums(n: int) -> int:
        layers = " ".join(f'(linear "l{i}" x 2)' for i in range(n))
        text = f"""
            (generator points (n) {{:x (normal [n 2])}})
            (objective (batch) (let ((x (:x batch))) (mean (square (+ {layers})))))
            (run r :data points :batch 4 :steps 1 :optimizer (adamw :lr 0.1 :clip 1.0))"""
        ops = checked(text)[0].checked.updates[False].graph.ops
        return sum(op.name == "square" and op.operands[0].source == "grad" for op in ops)

    assert sums(8) - sums(4) == 4 * 2  # each of a layer's two parameters once


def test_few_arrays_are_made_for_a_parameter() -> None:
    text = """
        (generator points (n) {:x (normal [n 2])})
        (objective (batch) (mean (square (linear "l" (:x batch) 3 :bias false))))
        (run r :data points :batch 4 :steps 1 :optimizer (adamw :lr (cosine :peak 0.1 :total 9)))"""
    ops = checked(text)[0].checked.updates[False].graph.ops
    assert sum(op.shape == (2, 3) and op.primitive is not None for op in ops) == 13


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("(update (- p (total (sum m))) :m m)", "the state m, expected"),
        ("(let ((h (square g))) (update (- p (total (sum h))) :m m))", "total reads is \\(square g\\) of one"),
        ("(let ((h (norm p))) (update (- p (total h)) :m m))", "total reads is \\(norm p\\) of one"),
        ("(update (- p (total g)) :m m)", "expected a numeric scalar"),
    ],
)
def test_a_total_of_what_one_parameter_has_is_refused(body: str, why: str) -> None:
    text = f"""
        (generator points (n) {{:x (normal [n 2])}})
        (objective (batch) (mean (square (linear "l" (:x batch) 3))))
        (optimizer odd (p g) :state ((m (zeros-like p))) {body})
        (run r :data points :batch 4 :steps 1 :optimizer odd)"""
    with pytest.raises(SxiError, match=why) as caught:
        checked(text)
    assert caught.value.code == "E-EVAL-005"


def test_a_total_reads_keywords_and_the_step(tmp_path: Path) -> None:
    text = """
        (objective (batch) (let ((y (linear "a" (:x batch) 1))) (mean (* 0.0 (+ y (linear "b" (:x batch) 1))))))
        (optimizer counting (p g :k 2.0 :lr 0.0) :state ((m (zeros-like p)))
          (update (+ p (total (* k (step) (size p)))) :m m))
        (run r :data points :batch 16 :steps 3 :optimizer (counting :k 0.5 :lr (constant 1.0)))"""
    data = {"x": np.ones((16, 3), dtype=np.float32)}
    first = {"a/w": np.zeros((3, 1)), "a/bias": np.zeros(1), "b/w": np.zeros((3, 1)), "b/bias": np.zeros(1)}
    ours = begun(tmp_path, text, data, first).to_the_end()
    for name, x in first.items():  # eight elements in all, halved, times 1 + 2 + 3
        np.testing.assert_array_equal(ours.params[name], np.full_like(x, 24.0))


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ('(lr (zeros-like p) :as "kept")', "E-EVAL-"),
        ('(a (zeros-like p) :as "m")', "E-EVAL-"),
        ("(a (zeros-like p) :as m)", "E-EVAL-"),
        ('(a (zeros-like p) :as "")', "E-CONTRACT-001"),
    ],
)
def test_a_state_may_be_bound_by_another_name_once(state: str, code: str) -> None:
    text = f"""
        (optimizer odd (p g :lr 0.1) :state ((m (zeros-like p)) {state}) (update p :m m))"""
    with pytest.raises(SxiError) as caught:
        checked(text)
    assert caught.value.code.startswith(code)


@pytest.mark.parametrize(("name", "known"), [("nope", "m f32\\[2 3\\], taken i32"), ("taken", "m f32"), ("m", None)])
def test_reading_names_a_state_of_the_parameters_type(name: str, known: str | None) -> None:
    text = f"""
        (generator points (n) {{:x (normal [n 2])}})
        (define (predicted batch) (linear "l" (:x batch) 3 :bias false))
        (objective (batch) (mean (square (predicted batch))))
        (optimizer counting (p g) :state ((m (zeros-like p)) (taken (array 0)))
          (update (- p g) :m (+ m g) :taken (+ taken 1)))
        (evaluate held (batch) (metric "held" (mean (square (reading "{name}" (predicted batch))))))
        (run r :data points :batch 4 :steps 1 :optimizer counting
          :evaluate [(held :data points :batch 4 :examples 4)])"""
    if known is None:
        assert checked(text)[0].checked.passes[0].graphs[False][0].graph.sources["optimizer", "m/l/w"].shape == (2, 3)
        return
    with pytest.raises(SxiError, match=f"there is no state {name} f32.* of l/w: the states are {known}") as caught:
        checked(text)
    assert caught.value.code == "E-EVAL-024"
    assert [called for called, _ in caught.value.chain] == ["linear", "predicted"]
