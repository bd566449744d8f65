"""The pages' Python does what they say: readers of what a run leaves, and the training in PyTorch and JAX."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import running
from tests.parts import require
from tests.running import Finished, Program
from tests.test_docs import PAGES, ROOT, Block, blocks_of

PYTHON = [
    (path, block)
    for path in PAGES
    for block in blocks_of(path.read_text(encoding="utf-8"))
    if block.language == "python"
]
program = running.program
RUN = """
(generator points (n) {:x (normal [n 64])})
(model net (x) (linear "out" (relu (linear "hidden0" x 128)) 1))
(evaluate held (batch) (output "prediction" (net (:x batch))))
(objective (batch) GUARD (metric "loss" (mean (square (net (:x batch))))))
(run r :data points :batch 8 :steps 4 :optimizer (adam :lr 1e-3) OPTIONS
  :evaluate [(held :data points :examples 6 :batch 4)])
"""
FAR = '(guard "x/far" (count-where (> (abs (:x batch)) 1.5)))'


@pytest.mark.parametrize(("path", "block"), PYTHON, ids=lambda p: getattr(p, "stem", ""))
def test_python_can_be_read(path: Path, block: Block) -> None:
    ast.parse(block.text)


def blocks(page: str, word: str) -> list[str]:
    """The Python of a page whose text has a word."""
    found = [block.text for path, block in PYTHON if path.name == page and word in block.text]
    assert found
    return found


def performed(text: str, done: Finished, names: dict[str, Any] | None = None) -> dict[str, Any]:
    """The names that a text makes, where DIR is the run's folder and its last step is 4."""
    names = names if names is not None else {}
    exec(text.replace("DIR", str(done.folder)).replace("000400", "000004"), names)
    return names


def run(program: Program, guard: str = "", options: str = "") -> Finished:
    return program.run(RUN.replace("GUARD", guard).replace("OPTIONS", options))


def test_a_stream_is_read(program: Program) -> None:
    done = run(program)
    (text,) = blocks("files.md", "def series")
    series = performed(text, done)["series"](done.folder / "stream.jsonl")
    assert series["loss", json.dumps({})] == done.points("loss")
    with (done.folder / "stream.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"kind":"resume","step":2}\n{"kind":"point","step":3,"series":"loss","meta":{},"value":"NaN"}\n')
    again = performed(text, done)["series"](done.folder / "stream.jsonl")["loss", "{}"]
    assert [step for step, _ in again] == [1, 2, 3]
    assert np.isnan(again[-1][1])


def test_a_checkpoint_outputs_and_a_failure_are_read(program: Program) -> None:
    done = run(program)
    text = next(b for b in blocks("files.md", "state.safetensors") if "torch" not in b)
    names = performed(text, done)
    assert (str(names["w"].dtype), names["w"].shape, names["m"].shape) == ("float32", (64, 128), (64, 128))
    (text,) = blocks("files.md", "outputs/")
    assert performed(text, done)["prediction"].shape == (6, 1)
    failed = run(program, FAR)
    assert failed.status == 3
    (text,) = blocks("files.md", "guard/mask")
    bad = performed(text, failed)["bad"]
    assert list(bad) == ["batch/x"]
    assert (np.abs(bad["batch/x"]) > 1.5).any(axis=1).all()


def test_weights_go_to_pytorch_and_back(program: Program) -> None:
    require("torch")
    done = run(program)
    saved = load_file(done.folder / "checkpoints/000004/state.safetensors")
    names: dict[str, Any] = {}
    for text in blocks("files.md", "layer"):
        performed(text, done, names)
    np.testing.assert_array_equal(names["layer"].weight.detach().numpy().T, saved["param/net/hidden0/w"])
    started = run(program, options=':start-from [("net/hidden0/w" "weights.safetensors")] :seed 5')
    assert started.status == 0, started.err
    assert load_file(program.path / "weights.safetensors")["net/hidden0/w"].shape == (64, 128)


@pytest.mark.filterwarnings("default")  # torch's and JAX's own warnings are not this project's
@pytest.mark.parametrize("module", ["torch", "jax"])
def test_the_same_training_there_reaches_what_the_page_says(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(module)
    if module == "jax":
        require("optax")
    shutil.copytree(ROOT / "tutorials/data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    (text,) = blocks("from-pytorch.md", f"import {module}\n")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(text, {})
    assert float(printed.getvalue()) > 0.95
