"""`sxi explain CODE`: every code has a whole text, found however it is spelled."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sxi.contracts import RULES
from sxi.errors import CODES, EXIT_STATUS, SxiError
from sxi.explain import FAMILIES, code_as_json, explain_code, find_code, page_of_codes
from sxi.reader import read_all
from sxi.session import Session
from sxi.source import Source
from tests.golden_files import perform

EACH_CODE = pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.code)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("E-CONTRACT-020", "E-CONTRACT-020"),
        ("e-contract-020", "E-CONTRACT-020"),
        ("E-CONTRACT-20", "E-CONTRACT-020"),
        ("contract-20", "E-CONTRACT-020"),
        ("Contract 20", "E-CONTRACT-020"),
        ("CONTRACT020", "E-CONTRACT-020"),
        ("E_CONTRACT_020", "E-CONTRACT-020"),
        ("020", "E-CONTRACT-020"),
        ("20", "E-CONTRACT-020"),
        ("E020", "E-CONTRACT-020"),
        ("e-20", "E-CONTRACT-020"),
        (" E-CONTRACT-020: ", "E-CONTRACT-020"),
        ("`E-CONTRACT-020`.", "E-CONTRACT-020"),
        ("1", "E-CONTRACT-001"),
        ("shape-1", "E-SHAPE-001"),
        ("E-SHAPE-001", "E-SHAPE-001"),
        ("eval-1", "E-EVAL-001"),
        ("EVAL1", "E-EVAL-001"),
        ("e-eval-0001", "E-EVAL-001"),
    ],
)
def test_a_code_is_found_however_it_is_spelled(text: str, code: str) -> None:
    assert find_code(text).code == code
    assert explain_code(text, 80).startswith(f"{code}: ")


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("E-CONTARCT-020", "E-CONTRACT-020"),
        ("E-CONTRACT-O20", "E-CONTRACT-020"),
        ("E-SHAP-001", "E-SHAPE-001"),
        ("shpae-2", "E-SHAPE-002"),
    ],
)
def test_an_unknown_code_is_answered_with_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(SxiError) as caught:
        explain_code(text, 80)
    error = caught.value
    assert (error.code, error.exit_status) == ("E-USE-001", 2)
    assert error.message == f'no error has the code "{text}"'
    assert error.help == f"the nearest is {nearest}"


@pytest.mark.parametrize("text", ["", " ", "loss", "E-", "-", "1" * 5000, "٢٠", "\x1b[31m", "hat\nhat", "E-CONTRACT-"])
def test_no_text_is_more_than_an_unknown_code(text: str) -> None:
    with pytest.raises(SxiError) as caught:
        explain_code(text, 80)
    assert caught.value.code == "E-USE-001"
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 100


def test_what_is_printed() -> None:
    assert explain_code("e-shape-1", 60) == (
        "E-SHAPE-001: LEFT and RIGHT differ\n"
        "\n"
        "Shapes broadcast when, aligned at their last axes, each pair\n"
        "of lengths is equal or one of them is 1.\n"
        "\n"
        "A program that gives it:\n"
        "\n"
        "    (define x (ones [64 128]))\n"
        "    (define y (@ x (ones [64 10])))\n"
        "    ;         ^ E-SHAPE-001\n"
        "\n"
        "The same repaired:\n"
        "\n"
        "    (define x (ones [64 128]))\n"
        "    (define y (@ x (ones [128 10])))\n"
    )


def test_a_code_as_json() -> None:
    found = code_as_json("shape-1")
    assert list(found) == ["code", "message", "why", "breaks", "fixed", "help"]
    assert (found["code"], found["message"], found["help"]) == ("E-SHAPE-001", "LEFT and RIGHT differ", "")
    assert found["breaks"].splitlines()[-1] == ";         ^ E-SHAPE-001"
    status, out, err = perform(["explain", "20", "--format", "json"])
    assert (status, err) == (0, [])
    assert json.loads("\n".join(out)) == code_as_json("E-CONTRACT-020")


@pytest.mark.parametrize(
    ("name", "usage", "said"),
    [
        ("adamw", "(adamw :lr required", '(reading "ema" (loss-of batch))'),
        ("tanh", "(tanh x)", "(tanh 0.0) ; => 0.0"),
        ("/", "(/ a b …)", "The first operand over all others"),
        ("/=", "(/= a b)", ""),
        ("range", "(range from to step)", "(range 3) ; => [0 1 2]"),
        ("guard", '(guard "name" count', "Counts `count`"),
        (":batch", "(run NAME :batch …)", "an option of run"),
    ],
)
def test_a_name_of_the_language_is_told_as_at_the_prompt(name: str, usage: str, said: str) -> None:
    status, out, err = perform(["explain", name])
    assert (status, err) == (0, [])
    assert out[0].startswith(usage)
    assert said in "\n".join(out)
    session = Session(device="cpu")
    assert session.respond(f",doc {name}") == out
    status, as_json, _ = perform(["explain", name, "--format", "json"])
    assert json.loads("\n".join(as_json)) == {"name": name, "usage": out[0], "doc": "\n".join(out[1:])}


@pytest.mark.parametrize(
    ("given", "repair"),
    [("sumn", "did you mean sum?"), ("gaurd", "did you mean guard?"), ("adamww", "did you mean adamw?")],
)
def test_a_misspelled_name_is_answered_with_a_near_one(given: str, repair: str) -> None:
    status, out, err = perform(["explain", given])
    assert (status, out, err[1]) == (2, [], f"help: {repair}")


def test_a_folder_is_told_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for command in ("check", "explain", "run"):
        status, out, err = perform([command, "runs"])
        assert status == 2
        assert [line.removeprefix("sxi run: ") for line in [*out, *err]][:2] == [
            "E-USE-003: there is no file runs", "note: runs is a folder",
        ]  # fmt: skip


def test_a_repair_is_printed_where_there_is_one() -> None:
    text = explain_code("23", 200)
    assert text.endswith("\n\nhelp: report less in loops, or raise the limit: :report-limit COUNT\n")
    assert "help:" not in explain_code("25", 200)
    # the repair of a bad escape is another for each
    assert "help:" not in explain_code("read-9", 200)
    assert code_as_json("read-9")["help"] == ""


@EACH_CODE
@pytest.mark.parametrize("width", [1, 40, 80])
def test_every_code_is_explained_within_the_width(code, width: int) -> None:
    text = explain_code(code.code, width)
    words = text.split()
    assert words[: len(code.code.split())] == [f"{code.code}:"]
    assert " ".join(code.why.split()) in " ".join(words)
    limit = max(width, 24)
    for line in text.splitlines():
        assert line.startswith("    ") or len(line) <= limit or " " not in line
        assert line == line.rstrip()
    assert not re.search(r"[{}]", text.split("A program that gives it:")[0])


@EACH_CODE
def test_every_code_says_why_in_sentences(code) -> None:
    assert code.why.endswith(".")
    assert code.why[0].isupper() or code.why[0] == "`"
    assert code.why != code.message


@EACH_CODE
def test_a_program_that_gives_a_code_shows_where(code) -> None:
    assert bool(code.breaks) == bool(code.fixed)
    if code.breaks:
        assert f"^ {code.code}" in code.breaks
        assert not read_all(Source("x.sx", code.fixed))[1]


def test_every_family_is_known() -> None:
    assert {name.split("-")[1] for name in CODES} == set(EXIT_STATUS)
    assert set(FAMILIES) == set(EXIT_STATUS) - {"CONTRACT"}


def test_the_page_of_codes_is_written_anew() -> None:
    page = (Path(__file__).parents[1] / "docs/errors.md").read_text(encoding="utf-8")
    assert page == page_of_codes(), "run `python -m sxi.explain`"


def test_the_page_has_each_code_once_and_no_rule() -> None:
    sections = re.findall(r"^## (E-[A-Z]+-\d+)$", page_of_codes(), re.MULTILINE)
    assert sorted(sections) == sorted(set(CODES) - {rule.code.code for rule in RULES.values()})
