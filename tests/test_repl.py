"""The keys of the prompt through prompt_toolkit's pipe input, and the parts that it is made of."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pygments.lexers
import pygments.token
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from sxi.completion import FORM_KEYWORDS, complete, keywords_of
from sxi.errors import Incomplete
from sxi.eval import CONSTANTS as EVALUATED
from sxi.eval import FORMS
from sxi.forms.declare import DECLARATIONS
from sxi.kept import KeptLines
from sxi.lexemes import CONSTANTS, SPECIAL, indentation, is_whole, lexemes, matching, openness
from sxi.lexer import SxLexer
from sxi.reader import read_all
from sxi.repl import Repl
from sxi.session import Session
from sxi.source import Source

Ask = Callable[[str], list[str]]
TEXTS = st.text(st.sampled_from("()[]{}\"\\;#|'a:1. \n\tλ\x00"), max_size=40)


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ask]:
    """What the prompt accepts of keys that are typed."""
    monkeypatch.setenv("SXI_HISTORY", str(tmp_path / "history"))

    def asked(keys: str) -> list[str]:
        with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
            prompt = Repl("cpu", input=pipe, output=DummyOutput())
            prompt.begin_loading = lambda: None  # type: ignore[method-assign]  # keys need no evaluator
            # from a thread: a pipe holds less than a long paste
            typing = threading.Thread(target=pipe.send_text, args=(keys + "\x04",))
            typing.start()
            found = []
            while True:
                try:
                    found.append(prompt.ask())
                except EOFError:
                    typing.join()
                    return found

    return asked


@pytest.mark.parametrize(
    ("keys", "inputs"),
    [
        ("(+ 1 2)\r", ["(+ 1 2)"]),
        ("\r", [""]),
        ("a\rb\r", ["a", "b"]),
        ("(+ 1\r2)\r", ["(+ 1\n   2)"]),
        ("(define (f x)\r(* x 2))\r", ["(define (f x)\n  (* x 2))"]),
        ("(let ((a 1)\r(b 2))\ra)\r", ["(let ((a 1)\n      (b 2))\n  a)"]),
        ("[1\r2]\r", ["[1\n 2]"]),
        ('"a\rb"\r', ['"a\nb"']),
        ("(a]\r", ["(a]"]),
        (")\r", [")"]),
        ("'\ra\r", ["'\na"]),
        ("; (\r", ["; ("]),
        ('(a "(")\r', ['(a "(")']),
        ("(nope\x03(+ 1 2)\r", ["(+ 1 2)"]),
        ("\x1b[200~(a\r\nb)\x1b[201~\r", ["(a\nb)"]),
        (",load a(b\r", [",load a(b"]),
        (",type (+ 1\r2)\r", [",type (+ 1\n2)"]),
        ("abc\x1b\rd\r", ["abc\nd"]),
    ],
)
def test_keys(ask: Ask, keys: str, inputs: list[str]) -> None:
    found = ask(keys)
    if keys.startswith(",type"):
        assert [" ".join(text.split()) for text in found] == [" ".join(text.split()) for text in inputs]
    else:
        assert found == inputs


def test_a_long_paste_is_given_at_once(ask: Ask) -> None:
    text = "(+ 1 2)\n" * 10_000
    assert ask(f"\x1b[200~{text}\x1b[201~") == [text]


def test_the_prompt_begins_with_the_form_that_is_to_be_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SXI_HISTORY", str(tmp_path / "history"))
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        prompt = Repl("cpu", input=pipe, output=DummyOutput())
        prompt.session.respond("(+ 1 (nope 2))")
        prompt.session.respond(",fix")
        pipe.send_text("\x1b[3~" * 4 + "abs\r")
        assert prompt.ask() == "(+ 1 (abs 2))"
        prompt.close()


# Lexemes


@given(TEXTS)
def test_lexemes_cover_any_text(text: str) -> None:
    found = list(lexemes(text))
    assert "".join([text[x.start : x.end] for x in found]) == text
    assert all([x.start < x.end for x in found])


@given(TEXTS)
def test_a_text_is_whole_exactly_where_the_reader_does_not_wait_for_more(text: str) -> None:
    # a text that is closed wrongly anywhere is given to the reader, whatever else it leaves open
    if not openness(text).broken:
        waits = any([isinstance(e, Incomplete) for e in read_all(Source("t", text))[1]])
        assert openness(text).is_whole is not waits


@given(TEXTS, st.integers(0, 40))
def test_nothing_fails_on_any_text(text: str, cursor: int) -> None:
    pair = matching(text, cursor)
    assert pair is None or (text[pair[0]] + text[pair[1]]) in ("()", "[]", "{}")
    assert indentation(text) >= 0
    assert is_whole(text) in (True, False)
    assert "".join([value for _, _, value in SxLexer().get_tokens_unprocessed(text)]) == text


@pytest.mark.parametrize(
    ("text", "cursor", "pair"),
    [
        ("(a)", 0, (0, 2)),
        ("(a)", 3, (0, 2)),
        ("(a)", 1, (0, 2)),
        ("((a))", 4, (1, 3)),
        ("((a))", 5, (0, 4)),
        ('(")")', 2, None),
        ('(")")', 5, (0, 4)),
        ("(;)\n)", 5, (0, 4)),
        ("(a]", 3, None),
        ("", 0, None),
    ],
)
def test_brackets_match_outside_strings_and_comments(text: str, cursor: int, pair: tuple[int, int] | None) -> None:
    assert matching(text, cursor) == pair


def test_the_tables_are_the_evaluators() -> None:
    assert set(FORMS) | set(DECLARATIONS) == SPECIAL
    assert set(EVALUATED) == CONSTANTS
    assert set(FORM_KEYWORDS) - {"stage", "npz", "npy", "csv", "safetensors", "text"} <= SPECIAL


def test_pygments_finds_the_lexer_by_its_entry_point() -> None:
    lexer = pygments.lexers.get_lexer_by_name("sx")
    found = [(kind, text) for kind, text in lexer.get_tokens('(guard "a" 1 :k on) ; why') if text.strip()]
    kinds = [str(kind).removeprefix("Token.") for kind, _ in found]
    assert kinds == [
        "Punctuation", "Keyword", "Literal.String", "Literal.Number", "Name.Attribute", "Keyword.Constant",
        "Punctuation", "Comment.Single",
    ]  # fmt: skip


# Completion


@pytest.fixture(scope="module")
def known() -> Iterator[Session]:
    session = Session(device="cpu")
    session.respond('(define (own-function alpha :beta 1.0) "What it does.\nAnd more." alpha)')
    session.respond('(metric "train/loss" 1.0)')
    session.respond("(setting rate 0.1)")
    yield session
    session.close()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("(own-f", "own-function"),
        ("(softm", "softmax"),
        ("(own-function 1 :", ":beta"),
        ("(softmax x :", ":axis"),
        ("(zeros [2] :dtype :", ":f32"),
        ('(metric "a" 1 :reduce :m', ":mean"),
        ('(metric "tr', "train/loss"),
        ('(metric "a" 1 :be', ":below"),
        ("(let ((length 1)) (+ len", "length"),
        ("(asser", "assert-finite"),
        ("(run r :da", ":data"),
        ("(adam :", ":lr"),
        (",lo", "load"),
        (",explain contract-02", "E-CONTRACT-020"),
        (",explain 020", "E-CONTRACT-020"),
        (",doc softm", "softmax"),
        (",set ra", "rate"),
        (",plot tr", "train/loss"),
        (",type (own", "own-function"),
        ("tru", "true"),
    ],
)
def test_completion_knows_the_place(known: Session, text: str, first: str) -> None:
    found = complete(known, text)
    assert found
    assert found[0].text == first
    assert text.endswith(text[len(text) - found[0].length :])


def test_completion_shows_the_signature_and_the_first_line(known: Session) -> None:
    (found,) = complete(known, "(own-f")
    assert found.about == "(own-function alpha :beta 1.0)  What it does."
    (found,) = complete(known, ",explain contract-020")
    assert found.about == "the count of guard NAME is COUNT, and a count is a numeric scalar"


def test_completion_finds_files(known: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one.sx", "one.npz", ".hidden"):
        (tmp_path / name).write_text("")
    (tmp_path / "onward").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [c.text for c in complete(known, ",load on")] == ["one.sx", "one.npz", "onward/"]
    assert [c.text for c in complete(known, f'(data d (npz "{tmp_path}/one.n')] == ["one.npz"]


@pytest.mark.parametrize("text", ["; tr", "#| tr", '"tr', "(f 1 ", "", "12", '(f "x" "tr'])
def test_nothing_is_offered_where_nothing_is_known(known: Session, text: str) -> None:
    assert complete(known, text) == []


@given(text=TEXTS)
def test_completion_never_fails(known: Session, text: str) -> None:
    for candidate in complete(known, text):
        assert candidate.text
    for candidate in complete(known, "," + text):
        assert candidate.text


def test_every_keyword_that_a_form_refuses_is_not_offered(known: Session) -> None:
    assert keywords_of(known, "guard") == []
    assert set(keywords_of(known, "metric")) == {"below", "above", "reduce"}


# History


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    kept = KeptLines(tmp_path / "a" / "history")
    texts = ["(+ 1\n   2)", "“λ”", "\ud800", "x" * 100]
    for text in [texts[0], *texts, "", "  ", "y" * 100_000]:
        kept.add(text)
    assert KeptLines(kept.path).read() == texts
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('"a"\n')
    path.chmod(0o644)
    KeptLines(path).add("b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("raw", [b"\xff\x00\n", b"{\n[1]\n3\nnull\n", b"", b"x" * 3_000_000, b'"a'])
def test_what_is_no_history_is_passed_over(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "history"
    path.write_bytes(raw + b'\n"good"\n')
    assert KeptLines(path).read() == ["good"]


def test_a_long_history_is_cut_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("".join([json.dumps(f"(input {n})") + "\n" for n in range(200_000)]))
    found = KeptLines(path).read()
    assert found[-1] == "(input 199999)"
    assert path.stat().st_size < 2_000_000
    assert KeptLines(path).read()[-1] == "(input 199999)"


def test_a_pipe_in_its_place_does_not_hold_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "history"
    os.mkfifo(path)
    kept = KeptLines(path)
    assert kept.read() == []
    kept.add("a")
