"""The reference pages: whole, as generated, and written as a reader calls things."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from sxi.primitives import PRIMITIVES
from sxi.reference import page_of_library, page_of_primitives, rendered

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize(
    ("name", "page"),
    [("primitives.md", page_of_primitives), ("library.md", page_of_library)],
    ids=["primitives", "library"],
)
def test_a_page_in_docs_is_as_generated(name, page):
    assert (DOCS / name).read_text(encoding="utf-8") == page(), "run: python -m sxi.reference"


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("tanh", "(tanh x)"),
        ("+", "(+ a …)"),
        ("sum", "(sum x :axis nil :keep false)"),
        ("slice", "(slice x axis from to)"),
        ("arange", "(arange a b? step?)"),
        ("concat", "(concat [x …] :axis 0)"),
        ("einsum", "(einsum subscripts x …)"),
        ("normal", "(normal shape :mean 0.0 :scale 1.0)"),
        ("conv2d", "(conv2d x k :stride 1 :padding :same)"),
        ("layer-norm", "(layer-norm x scale bias :eps 1e-5)"),
        ("cross-entropy", "(cross-entropy logits labels :weights nil :smoothing 0.0 :reduce :mean)"),
        ("finite?", "(finite? x)"),
    ],
)
def test_a_usage_is_how_a_call_is_written(name, call):
    assert PRIMITIVES[name].usage == call


def headings(page: str) -> list[str]:
    return re.findall(r"^### `\(([^ )]+)", page, re.MULTILINE)


def test_every_primitive_with_a_name_in_the_language_has_an_entry():
    named = [name for name, p in PRIMITIVES.items() if not p.internal]
    assert sorted(headings(page_of_primitives())) == sorted(named)
    assert not [name for name, p in PRIMITIVES.items() if p.internal and name in headings(page_of_primitives())]


def test_every_definition_of_the_library_has_an_entry():
    folder = resources.files("sxi") / "library"
    defined = []
    for file in sorted(folder.iterdir(), key=lambda f: f.name):
        if file.name.endswith(".sx"):
            text = file.read_text(encoding="utf-8")
            defined += re.findall(r"^\((?:define|optimizer|initializer) \(?([^ ()]+)", text, re.MULTILINE)
    assert len(defined) > 20
    assert headings(page_of_library()) == defined


@pytest.mark.parametrize("page", [page_of_primitives, page_of_library], ids=["primitives", "library"])
def test_every_link_within_a_page_leads_somewhere_and_every_entry_is_linked(page):
    text = page()
    links = re.findall(r"\]\(#([^)]+)\)", text)
    anchors = re.findall(r'<a id="([^"]+)">', text)
    assert sorted(links) == sorted(anchors)
    assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize("page", [page_of_primitives, page_of_library], ids=["primitives", "library"])
def test_every_entry_says_something_before_its_types(page):
    for entry in re.split(r"^### .*$", page(), flags=re.MULTILINE)[1:]:
        first = next(line for line in entry.splitlines() if line)
        assert not first.startswith(("```", "#", "<")), entry


@pytest.mark.parametrize(
    ("doc", "markdown"),
    [
        ("One thing.", "One thing."),
        ("a * b and `a * b`, x[0].", "a \\* b and `a * b`, x\\[0\\]."),
        ("One.\n\nx:      f32[*n]\ngives:  f32[]", "One.\n\n```text\nx:      f32[*n]\ngives:  f32[]\n```"),
        ("One.\n\n(f 1) ; => 2\n(f 2) ; => 3", "One.\n\n```scheme\n(f 1) ; => 2\n(f 2) ; => 3\n```"),
        ("Watch it: (guard \"x\" 0.0)", "Watch it:\n\n```scheme\n(guard \"x\" 0.0)\n```"),
    ],
)  # fmt: skip
def test_a_docstring_becomes_markdown(doc, markdown):
    assert rendered(doc) == markdown
