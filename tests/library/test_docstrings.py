"""The library says what it holds: every name is there and documented, and the guard that a docstring shows works."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest

from sxi.backends import open_backend
from sxi.program import load_source
from sxi.source import Source
from sxi.values import Definition, Function
from tests.library.running import checked

LAYERS = [
    "linear", "embed", "layer-norm-with", "rms-norm-with", "self-attention", "mlp", "conv", "batch-norm", "gru", "lstm",
]  # fmt: skip
INITIALIZERS = ["zeros-init", "ones-init", "constant-init", "normal-init", "uniform-init", "glorot", "he"]
OPTIMIZERS = ["sgd", "momentum", "adam", "adamw", "lion", "rmsprop"]
SCHEDULES = ["constant", "linear-warmup", "cosine", "warmup-cosine", "step-decay"]
NAMES = [*LAYERS, *INITIALIZERS, *OPTIMIZERS, *SCHEDULES]

LOADED = load_source(Source("empty.sx", ""))
PROGRAM = LOADED.evaluate(open_backend("cpu"), {})


def function(name: str) -> Function:
    value = PROGRAM.value(name)
    assert isinstance(value, Function | Definition), name
    return value.function if isinstance(value, Definition) else value


def test_the_library_holds_every_name_and_documents_all() -> None:
    held = set(LOADED.module.imported)
    assert held >= set(NAMES)
    for name in sorted(held):
        doc = function(name).body.doc
        assert doc, f"{name} has no docstring"
        assert "\t" not in doc
        assert max(map(len, doc.split("\n"))) <= 125, name


@pytest.mark.parametrize("name", [*LAYERS, *SCHEDULES])
def test_a_docstring_says_what_is_taken_and_given(name: str) -> None:
    body = function(name).body
    assert re.search(r"^  gives:  ", body.doc, re.MULTILINE)
    described = set(re.findall(r"[\w-]+", " ".join(re.findall(r"^  ([\w -]+):  ", body.doc, re.MULTILINE))))
    taken = set(re.findall(r"[\w-]+", re.sub(r":([\w-]+) (\([^)]*\)|\S+)", r"\1", body.parameters)))
    assert taken - described <= {"name", "bias", "init", "padding", "mask"}
    assert described - taken == {"gives"}


def test_the_library_itself_holds_no_guard_and_no_metric() -> None:
    """Outside its docstrings and comments."""
    for entry in (resources.files("sxi") / "library").iterdir():
        if entry.name.endswith(".sx"):
            code = re.sub(r'"(\\.|[^"\\])*"|;.*', "", entry.read_text(encoding="utf-8"))
            assert not re.search(r"\((guard|assert-finite|metric|diagnostic|print)\s", code), entry.name


# The examples

FORMS = ["guard", "assert-finite", "metric", "diagnostic", "tap-gradient", "evaluate"]
HOST = """
(generator points (n) {:x (normal [n 16]) :ids (integers [n 3] :high 5)})
(define (loss-of batch) (mean (square (net (:x batch)))))
(model net (x)
  (let ((h (layer-norm-with "norm" (@ x (param "w" [16 4] :init he)))))
    (linear "out" (* (param "gain" [4] :init (constant-init :value 2.0)) h) 2)))
EVALUATE
(objective (batch)
  (let ((x (:x batch)) (ids (:ids batch)) (h (@ x (param "hidden" [16 4] :init he)))
        (loss (+ (mean h) (loss-of batch))))
    (+ loss (* 0.0 (sum OBJECTIVE)))))
(run r :data points :batch 4 :steps 2 :optimizer (adamw :lr 1e-3 :ema 0.9) OPTIONS)
"""


def examples(doc: str) -> list[str]:
    """The reporting forms that a docstring shows, whole."""
    found, end = [], 0
    for match in re.finditer(rf"\(({'|'.join(FORMS)}) ", doc):
        if match.start() < end:  # it stands in one that was found
            continue
        end, depth = match.start() + 1, 1
        while depth:
            depth += {"(": 1, ")": -1}.get(doc[end], 0)
            end += 1
        found.append(doc[match.start() : end])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_guard_that_a_docstring_shows_is_accepted_and_counts(name: str) -> None:
    shown = examples(function(name).body.doc)
    assert len(shown) == 1
    is_pass = shown[0].startswith("(evaluate ")
    samples = "(diagnostic " in shown[0]
    options = ':diagnostics ["*"] :sample-every 1' if samples else ""
    if is_pass:
        options = ":evaluate [(held :data points :batch 4 :examples 8)]"
    text = HOST.replace("EVALUATE", shown[0] if is_pass else "").replace("OBJECTIVE", "h" if is_pass else shown[0])
    checks = checked(text.replace("OPTIONS", options))[0].checked
    graph: Any = checks.passes[0].graphs[False][0] if is_pass else checks.steps[samples]
    assert len(graph.recording.tallies) >= 1
