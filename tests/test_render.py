"""How errors print: frames written out by hand, at widths and on terminals of every kind."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sxi.errors import Label, SxiError
from sxi.reader import read_all
from sxi.render import as_json, colours_wanted, frame, github, indented, one_line
from sxi.source import Source, Span
from sxi.suggest import suggest


def error(text: str, fault: str, *, path: str = "t.sx", message: str = "a message", **rest: object) -> SxiError:
    """An error whose place is the first `fault` in `text`."""
    source = Source(path, text)
    start = text.index(fault)
    return SxiError("E-EVAL-001", message, Span(source, start, start + len(fault)), **rest)  # type: ignore[arg-type]  # facts of a test


def lines(drawn: str) -> str:
    return dedent(drawn).strip("\n")


LORENTZ = "\n" * 11 + '    (guard "loss/high" (> loss 9.0))\n'
NOT_A_NUMBER = error(
    LORENTZ,
    "(> loss 9.0)",
    path="runs/lorentz.sx",
    message="the count of guard loss/high is a bool, and a count is a numeric scalar",
    label="bool[]",
    help="count the mask: (count-where (> loss 9.0))",
)


def test_a_frame_at_eighty_columns() -> None:
    assert frame(NOT_A_NUMBER) == lines("""
        E-EVAL-001: the count of guard loss/high is a bool, and a count is a numeric
        scalar
          --> runs/lorentz.sx:12:24
           |
        12 |     (guard "loss/high" (> loss 9.0))
           |                        ^^^^^^^^^^^^ bool[]
           |
        help: count the mask: (count-where (> loss 9.0))
        why:  sxi explain E-EVAL-001
    """)


def test_what_stands_before_a_frame_is_part_of_its_first_line() -> None:
    assert frame(error("(f)", "(f)", message="of twenty characters"), width=40, prefix="sxi run: ") == lines("""
        sxi run: E-EVAL-001: of twenty
        characters
         --> t.sx:1:1
          |
        1 | (f)
          | ^^^
          |
        why:  sxi explain E-EVAL-001
    """)


def test_a_frame_at_forty_columns() -> None:
    assert frame(NOT_A_NUMBER, width=40) == lines("""
        E-EVAL-001: the count of guard loss/high
        is a bool, and a count is a numeric
        scalar
          --> runs/lorentz.sx:12:24
           |
        12 | … (guard "loss/high" (> loss 9.0))
           |                      ^^^^^^^^^^^^
           |                      bool[]
           |
        help: count the mask: (count-where (>
              loss 9.0))
        why:  sxi explain E-EVAL-001
    """)


def test_second_places_on_the_same_line_on_others_and_in_other_files() -> None:
    text = "(a [b c\n\n\n  d) e]\n"
    source, other = Source("t.sx", text), Source("lib/u.sx", "(define a 1)\n")
    labels = (
        Label(Span(source, 3, 4), "opened here"),
        Label(Span(source, 16, 17), "and this"),
        Label(Span(other, 8, 9), "first defined here"),
    )
    found = SxiError("E-READ-004", ") does not close [", Span(source, 13, 14), label="expected ]", labels=labels)
    assert frame(found) == lines("""
        E-READ-004: ) does not close [
         --> t.sx:4:4
          |
        1 | (a [b c
          |    - opened here
        ...
        4 |   d) e]
          |    ^ expected ]
          |       - and this
          |
         ::: lib/u.sx:1:9
          |
        1 | (define a 1)
          |         - first defined here
          |
        why:  sxi explain E-READ-004
    """)


def test_an_unclosed_bracket_as_the_reader_finds_it() -> None:
    (found,) = read_all(Source("t.sx", "(define (f x)\n  (let ((y (+ x 1))\n    (* y 2)))\n(define g 3)\n"))[1]
    assert frame(found) == lines("""
        E-READ-003: ( is not closed
         --> t.sx:1:1
          |
        1 | (define (f x)
          | ^ opened here
        2 |   (let ((y (+ x 1))
          |                    - indentation suggests ) here, for the ( of line 2
          |
        why:  sxi explain E-READ-003
    """)
    assert frame(found, width=40) == lines("""
        E-READ-003: ( is not closed
         --> t.sx:1:1
          |
        1 | (define (f x)
          | ^ opened here
        2 |   (let ((y (+ x 1))
          |                    -
          |             indentation suggests )
          |             here, for the ( of line
          |             2
          |
        why:  sxi explain E-READ-003
    """)


def test_an_error_without_a_place() -> None:
    assert frame(SxiError("E-RUN-001", "the disk is full", notes=("12 bytes are missing",))) == lines("""
        E-RUN-001: the disk is full
        note: 12 bytes are missing
        why:  sxi explain E-RUN-001
    """)


def test_the_chain_of_calls_is_told_whole_up_to_eight_and_then_by_its_ends() -> None:
    found = error("(f x)", "x")
    assert found.span is not None
    found.chain = [(f"f{n}", found.span) for n in range(8)]
    assert frame(found).count("note: ") == 8
    found.chain = [(f"f{n}", found.span) for n in range(10_000)]
    assert frame(found).splitlines()[6:] == [
        "note: in f0, called at t.sx:1:4",
        "note: in f1, called at t.sx:1:4",
        "note: in f2, called at t.sx:1:4",
        "note: in f3, called at t.sx:1:4",
        "note: 9,992 more calls",
        "note: in f9996, called at t.sx:1:4",
        "note: in f9997, called at t.sx:1:4",
        "note: in f9998, called at t.sx:1:4",
        "note: in f9999, called at t.sx:1:4",
        "why:  sxi explain E-EVAL-001",
    ]


# What stands on the line


def excerpt(text: str, fault: str, **how: object) -> list[str]:
    """The rows of the excerpt and its underlining."""
    rows = frame(error(text, fault, label="here"), **how).splitlines()  # type: ignore[arg-type]  # options of a test
    return [row for row in rows if re.match(r" *\d* \| .", row)]


@pytest.mark.parametrize(
    ("text", "fault", "rows"),
    [
        ("(f\t(g)\tx)", "x", ["1 | (f  (g) x)", "  |         ^ here"]),
        ("\t\t(f x)", "(f x)", ["1 |         (f x)", "  |         ^^^^^ here"]),
        ("a\r\n(f x)\r\nb", "x", ["2 | (f x)", "  |    ^ here"]),
        ("(名前 x)", "x", ["1 | (名前 x)", "  |       ^ here"]),
        ("(f 名前)", "名前", ["1 | (f 名前)", "  |    ^^^^ here"]),
        ("(e\u0301e\u0301 x)", "x", ["1 | (e\u0301e\u0301 x)", "  |     ^ here"]),
        ("(f e\u0301)", "e\u0301", ["1 | (f e\u0301)", "  |    ^ here"]),
        ("(\u200bf x)", "x", ["1 | (\\u{200B}f x)", "  |            ^ here"]),
        ("(\x1b[31m x)", "x", ["1 | (\\u{1B}[31m x)", "  |             ^ here"]),
        ("(f\u00a0x)", "\u00a0", ["1 | (f\u00a0x)", "  |   ^ here"]),
        ("(f (a\n b) c)", "(a\n b)", ["1 | (f (a", "  |    ^^ here (to line 2)"]),
        ('(f "a   \nb") c)', '"a   \nb"', ['1 | (f "a', "  |    ^^ here (to line 2)"]),
        ("(f\n", "\n", ["1 | (f", "  |   ^ here"]),
    ],
)
def test_places_line_up(text: str, fault: str, rows: list[str]) -> None:
    assert excerpt(text, fault) == rows


@pytest.mark.parametrize(
    ("text", "at", "rows"),
    [("", 0, ["1 |", "  | ^"]), ("(f\n", 3, ["2 |", "  | ^"]), ("(f", 2, ["1 | (f", "  |   ^"])],
)
def test_the_end_of_a_text_is_a_place(text: str, at: int, rows: list[str]) -> None:
    found = SxiError("E-READ-003", "m", Span(Source("t.sx", text), at, at))
    assert frame(found).splitlines()[3:5] == rows


def test_a_terminal_without_unicode() -> None:
    found = error("(f “é” 名)", "名", message="“x” is a × b…", label="na\u00efve")
    assert frame(found, unicode=False) == lines("""
        E-EVAL-001: "x" is a x b...
         --> t.sx:1:8
          |
        1 | (f \\u{201C}\\u{E9}\\u{201D} \\u{540D})
          |                           ^^^^^^^^ na\\u{EF}ve
          |
        why:  sxi explain E-EVAL-001
    """)


LONG = "(f " + " ".join(f"word{n:03}" for n in range(100)) + ")"


def test_a_long_line_is_cut_about_its_place() -> None:
    assert excerpt(LONG, "word050", width=40) == [
        "1 | …48 word049 word050 word051 word052…",
        "  |             ^^^^^^^ here",
    ]
    assert excerpt(LONG, "word000", width=40)[0].startswith("1 | (f word000 ")
    assert excerpt(LONG, "word099", width=40)[0].endswith(" word099)")
    assert excerpt(LONG, "word050", width=40, unicode=False)[0].startswith("1 | ...")


def test_a_line_that_is_cut_shows_each_of_its_places() -> None:
    source = Source("t.sx", LONG)
    first, last = LONG.index("word003"), LONG.index("word097")
    labels = (Label(Span(source, first, first + 7), "one"),)
    drawn = frame(SxiError("E-EVAL-001", "m", Span(source, last, last + 7), label="two", labels=labels))
    rows = drawn.splitlines()
    for rule, word in (("^^^^^^^ two", "word097"), ("------- one", "word003")):
        under = next(n for n, row in enumerate(rows) if rule in row)
        at = rows[under].index(rule)
        assert rows[under - 1][at : at + 7] == word


def test_a_line_of_megabytes_is_drawn_at_once() -> None:
    text = "(f " + "x " * 2_000_000 + "bad " + "y\t" * 2_000_000 + ")"
    rows = excerpt(text, "bad")
    assert max(map(len, rows)) <= 80
    assert rows[0][rows[1].index("^") :].startswith("bad ")


# Whatever is in it

_LETTERS = st.sampled_from("ab ()\t\r\n名é\u0301\u200b\x1b\x00\u00a0\u202e“\U0001f600\udc80\u1175")


def _columns(row: str) -> int:
    """The columns of a row, by the standard's own property and category."""
    wide = sum(unicodedata.east_asian_width(c) in ("W", "F") for c in row)
    return len(row) + wide - sum(unicodedata.category(c) == "Mn" or "\u1160" <= c <= "\u11ff" for c in row)


@settings(deadline=None)
@given(st.text(_LETTERS, max_size=120), st.data(), st.integers(40, 200), st.booleans(), st.booleans())
def test_no_row_is_wider_than_the_terminal_or_holds_what_it_would_obey(
    text: str, data: st.DataObject, width: int, unicode: bool, colour: bool
) -> None:
    source = Source("t.sx", text)
    spans = st.lists(st.integers(0, len(text)), min_size=2, max_size=2).map(sorted)
    first, second = (Span(source, *data.draw(spans)) for _ in range(2))
    some = data.draw(st.text(_LETTERS, max_size=100))
    found = SxiError("E-EVAL-001", some, first, label=some, labels=(Label(second, some),), notes=(some,), help=some)
    drawn = frame(found, width=width, unicode=unicode, colour=colour)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", drawn)
    assert bare == frame(found, width=width, unicode=unicode)
    assert not colour or drawn != bare
    rows = bare.split("\n")
    assert max(map(_columns, rows)) <= width
    assert not {unicodedata.category(c) for row in rows for c in row} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert unicode or bare.isascii()
    assert len(one_line(found).splitlines()) == len(github(found).splitlines()) == 1
    json.dumps(as_json(found), allow_nan=False).encode()


@settings(deadline=None)
@given(st.text(st.sampled_from("ab 名é\t"), min_size=1, max_size=30), st.data(), st.integers(40, 200))
def test_the_carets_stand_under_the_place(text: str, data: st.DataObject, width: int) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    found = SxiError("E-EVAL-001", "m", Span(Source("t.sx", f"({text})"), start + 1, end + 1))
    row, rule = frame(found, width=200).splitlines()[3:5]
    begin, length = rule.index("^"), rule.count("^")
    columns: list[str] = []
    for c in row:
        columns += [c] * _columns(c)
    marked = "".join(columns[begin : begin + length])
    wide = "".join(c * _columns(c) for c in text[start:end])
    assert marked.replace(" ", "") == wide.replace(" ", "").replace("\t", "")


# The other ways to print


def test_one_line() -> None:
    assert one_line(NOT_A_NUMBER) == (
        "runs/lorentz.sx:12:24: E-EVAL-001: the count of guard loss/high is a bool, and a count is a numeric scalar"
    )
    assert one_line(SxiError("E-RUN-001", "the disk\nis full")) == "E-RUN-001: the disk\\u{A}is full"


def test_json() -> None:
    source = Source("a.sx", "(f\n x)")
    found = SxiError(
        "E-EVAL-001",
        "m",
        Span(source, 0, 6),
        label="l",
        labels=(Label(Span(source, 4, 5), "there"),),
        notes=("n",),
        help="h",
        data={"count": float("nan"), "range": (float("-inf"), 1.5), "name": "\udc80", "more": {"n": 3, "b": True}},
    )
    found.chain = [("g", Span(source, 1, 2))]
    there = {"start": {"line": 2, "column": 2}, "end": {"line": 2, "column": 3}}
    call = {"start": {"line": 1, "column": 2}, "end": {"line": 1, "column": 3}}
    assert as_json(found) == {
        "code": "E-EVAL-001",
        "severity": "error",
        "message": "m",
        "file": "a.sx",
        "span": {"start": {"line": 1, "column": 1}, "end": {"line": 2, "column": 4}},
        "label": "l",
        "labels": [{"text": "there", "file": "a.sx", "span": there}],
        "chain": [{"call": "g", "file": "a.sx", "span": call}],
        "notes": ["n"],
        "help": "h",
        "data": {"count": "NaN", "range": ["-Infinity", 1.5], "name": "?", "more": {"n": 3, "b": True}},
    }
    bare = as_json(SxiError("E-RUN-001", "m"))
    assert (bare["file"], bare["span"], bare["labels"]) == (None, None, [])


def test_a_github_line_is_escaped() -> None:
    found = error("\n (x)", "x", path="a,b:c%.sx", message="50% of\nit: bad, truly")
    assert github(found) == "::error file=a%2Cb%3Ac%25.sx,line=2,col=3::E-EVAL-001: 50%25 of%0Ait: bad, truly"
    assert github(SxiError("E-RUN-001", "m")) == "::error::E-RUN-001: m"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("env", "terminal", "pipe"),
    [
        ({}, True, False),
        ({"TERM": "xterm"}, True, False),
        ({"TERM": "dumb"}, False, False),
        ({"NO_COLOR": "1"}, False, False),
        ({"NO_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1"}, True, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": ""}, True, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
    ],
)
def test_when_colours_are_wanted(env: dict[str, str], terminal: bool, pipe: bool) -> None:
    assert colours_wanted(_Terminal(), env) is terminal
    assert colours_wanted(io.StringIO(), env) is pipe


def test_a_closed_stream_wants_no_colours() -> None:
    closed = io.StringIO()
    closed.close()
    assert colours_wanted(closed, {}) is False


def test_colours_mark_the_code_and_the_carets() -> None:
    drawn = frame(error("(f x)", "x"), colour=True)
    assert drawn.startswith("\x1b[1;31mE-EVAL-001:\x1b[0m")
    assert "\x1b[1;31m^\x1b[0m" in drawn


# One near word

_NAMES = ["softmax", "log-softmax", "sum", "mean", "max", "min", "relu", "gelu", "layer-norm", "x", "loss"]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("sofmax", "softmax"), ("sotfmax", "softmax"), ("softmaxx", "softmax"), ("osftamx", "softmax"),
        ("mxa", "max"), ("maen", "mean"), ("sun", "sum"), ("elu", "gelu"), ("layernorm", "layer-norm"),
        ("Loss", "loss"), ("softmax", None), ("y", None), ("xx", "x"), ("attention", None), ("", None), ("xam", None),
    ],
)  # fmt: skip
def test_a_near_word_is_suggested(word: str, near: str | None) -> None:
    assert suggest(word, _NAMES) == near
    assert suggest(word, reversed(_NAMES)) == near


def _distance(left: str, right: str) -> int:
    """The edit distance by its definition, without a table."""
    if not left or not right:
        return len(left) + len(right)
    found = min(
        _distance(left[1:], right) + 1,
        _distance(left, right[1:]) + 1,
        _distance(left[1:], right[1:]) + (left[0] != right[0]),
    )
    if len(left) > 1 and len(right) > 1 and left[:2] == right[1::-1]:
        found = min(found, _distance(left[2:], right[2:]) + 1)
    return found


@settings(deadline=None)
@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_near_is_a_third_of_the_length(word: str, other: str) -> None:
    distance = _distance(word, other)
    is_near = len(word) > 1 and 0 < distance <= max(1, len(word) // 3) and distance < max(len(word), len(other))
    assert suggest(word, [other]) == (other if is_near else None)


@pytest.mark.parametrize(
    ("line", "width", "lines"),
    [
        ("  gives:  f32[*m n]", 40, ["  gives:  f32[*m n]"]),
        ("  n:      the length of the last axis", 20, ["  n:      the length", "  of the last axis"]),
        ("aaa bbb", 3, ["aaa", "bbb"]),
        ("", 10, [""]),
    ],
)
def test_the_lines_of_a_line_begin_as_it_does(line: str, width: int, lines: list[str]) -> None:
    assert indented(line, width) == lines
