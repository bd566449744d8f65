"""What a plan must not do: write into a buffer that something else holds, or take one operation for another."""

from __future__ import annotations

import numpy as np
import pytest

from tests import running
from tests.running import Program, training

device_program = running.device_program


@pytest.mark.parametrize("view", ["(reshape w [2])", "(flip w)", "(at (expand w 0) 0)", "(slice w 0 0 2)", "w"])
@pytest.mark.parametrize(
    "write", ["(scatter {} (array [0]) (array [5.0]))", "(scatter-add {} (array [0]) (array [4.0]))"]
)
@pytest.mark.parametrize("arguments", [(), ("--no-plan",)])
def test_a_view_is_not_written_into(device_program: Program, view: str, write: str, arguments: tuple[str, ...]) -> None:
    # where the write went into the parameter, or into the column, the sum behind it and the next step would see it
    body = f"""
    (metric "w/written" (sum {write.format(view)}))
    (metric "w" (sum w))
    (let ((w (at (:x batch) 0))) (metric "x/written" (sum {write.format(view)})) (metric "x" (sum w)))
    still"""
    done = device_program.run(training(body, steps=3), *arguments, x=np.ones((1, 2), np.float32))
    assert [done.values(name) for name in ("w/written", "w", "x/written", "x")] == [[6.0] * 3, [2.0] * 3] * 2
    assert done.saved(3)["param/w"].tolist() == [1.0, 1.0]


def test_a_buffer_that_is_used_again_is_not_written_into(device_program: Program) -> None:
    body = """
    (let ((z (zeros-like w))
          (a (scatter-add z (array [0]) (array [4.0])))
          (b (scatter-add a (array [1]) (array [8.0]))))
      (metric "z" (sum z)) (metric "a" (sum a)) (metric "b" (sum b)))
    still"""
    done = device_program.run(training(body, steps=2), x=[0.0])
    assert [done.values(name) for name in "zab"] == [[0.0] * 2, [4.0] * 2, [12.0] * 2]


def test_numbers_that_python_takes_for_equal_make_different_operations(device_program: Program) -> None:
    body = """
    (let ((x (sum w)) (i (cast x :i32)))
      (metric "zero" (/ 1.0 (* x 0.0))) (metric "minus" (/ 1.0 (* x -0.0)))
      (metric "whole" (quotient (* i 3) 4)) (metric "real" (quotient (* i 3.0) 4))
      (metric "half" (/ (* i 1) 4)) (metric "halves" (/ (* i 1.0) 4)))
    (metric "less" (- (sum w) 3.0)) (metric "more" (- 3.0 (sum w)))
    still"""
    done = device_program.run(training(body, steps=1), x=[0.0])
    assert [done.values(name) for name in ("zero", "minus")] == [[np.inf], [-np.inf]]
    assert [done.values(name) for name in ("whole", "real", "half", "halves")] == [[1.0], [1.0], [0.5], [0.5]]
    assert [done.values(name) for name in ("less", "more")] == [[-1.0], [1.0]]
