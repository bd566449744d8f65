"""What a `bf16` region computes: each form's operands and result rounded to bf16 once, and f32 in between."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests import running
from tests.running import Program

device_program = running.device_program

# Over x, y f32[3 4], s f32[4] and labels: the same of numbers that are rounded is rounded once more.
FORMS = [
    *["(+ x y)", "(- x y)", "(* x y)", "(/ x y)", "(maximum x y)", "(where (> x y) x y)", "(+ x y x)"],
    *["(neg x)", "(abs x)", "(square x)", "(tanh x)", "(exp x)", "(sigmoid x)", "(relu x)", "(silu x)", "(gelu x)"],
    *["(sum x)", "(mean x :axis 1)", "(var x :axis 1)", "(std x)", "(norm x)", "(logsumexp x :axis 0)", "(cumsum x)"],
    *["(@ x (transpose y))", '(einsum "ij,kj->ik" x y)', "(outer (at x 0) (at y 1))", "(dot (at x 0) (at y 1))"],
    *["(softmax x)", "(log-softmax x)", "(layer-norm x s s)", "(rms-norm x s)", "(attention x y x)"],
    *["(cross-entropy x labels)", "(cross-entropy x labels :smoothing 0.25 :reduce :none)"],
    *["(reshape x [4 3])", "(concat [x y])", "(take x labels :axis 1)", "(one-hot labels 4)"],
]
# A host number is rounded too: (in a region, with its number rounded).
WITH_NUMBERS = [("(* x 0.3)", "(* x 0.30078125)"), ("(+ 1.001 x)", "(+ 1.0 x)"), ("(maximum x 0.3)",) * 2]
PROGRAM = """
(data d (npz "d.npz"))
(define (called x) (tanh x))
(objective (batch) (sum (square (param "w" [1] :init ones-init))))
(evaluate held (batch)
  (let (({{:x x :y y :s scales :rx rx :ry ry :rs rounded :labels labels}} batch) (s (at scales 0)) (rs (at rounded 0)))
    {outputs}))
(run r :data d :batch 3 :steps 1 :optimizer (sgd :lr 0.1) :evaluate [(held :data d :batch 3)])
"""


def rounded(x: Any) -> Any:
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def outputs(program: Program, forms: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What each form gives, by its name, and the columns x and y."""
    draw = np.random.default_rng(0)
    columns = {name: draw.normal(size=(3, 4)).astype(np.float32) for name in ("x", "y")}
    columns["s"] = np.full((3, 4), draw.normal(size=4), np.float32)
    given: dict[str, Any] = {**columns, **{f"r{name}": rounded(x) for name, x in columns.items()}}
    text = PROGRAM.format(outputs="\n    ".join([f'(output "{name}" {form})' for name, form in forms.items()]))
    done = program.run(text, **given, labels=np.array([3, 0, 1], np.int32))
    assert done.status == 0, done.err
    return safetensors.numpy.load_file(done.folder / "outputs" / "held" / "000001.safetensors"), columns


def test_a_form_is_rounded_at_its_edges_and_nowhere_else(device_program: Program) -> None:
    pairs = [(form, form) for form in FORMS] + WITH_NUMBERS
    texts = {f"in/{i}": f"(bf16 {form})" for i, (form, _) in enumerate(pairs)}
    texts |= {f"out/{i}": f"(let ((x rx) (y ry) (s rs)) {form})" for i, (_, form) in enumerate(pairs)}
    found, _ = outputs(device_program, texts)
    coarse = 0
    for i, pair in enumerate(pairs):
        within, without = found[f"in/{i}"], found[f"out/{i}"]
        assert within.tobytes() == rounded(without).tobytes(), pair
        coarse += within.tobytes() != without.tobytes()
    assert coarse > len(pairs) / 2  # most results are no bf16 numbers by themselves


@pytest.mark.parametrize("calls", ["(called x)", "(-> x tanh)", "((lambda (v) (tanh v)) x)"])
def test_a_region_reaches_through_calls_and_ends_where_it_is_closed(device_program: Program, calls: str) -> None:
    found, columns = outputs(
        device_program,
        {
            "within": f"(bf16 {calls})", "left": f"(* 1.1 (bf16 {calls}))", "behind": "(* 1.1 x)",
            "nested": "(bf16 (+ (bf16 (* x y)) y))", "again": "(called x)",
        },
    )  # fmt: skip
    x, y = columns["x"], columns["y"]
    within = found["within"]
    assert np.abs(within - np.tanh(x)).max() > 1e-4
    assert within.tobytes() == rounded(within).tobytes()
    assert found["left"].tobytes() == (within * np.float32(1.1)).tobytes()
    assert found["behind"].tobytes() == (x * np.float32(1.1)).tobytes()
    assert found["nested"].tobytes() == rounded(rounded(rounded(x) * rounded(y)) + rounded(y)).tobytes()
    assert np.abs(found["again"] - np.tanh(x)).max() < 1e-6
