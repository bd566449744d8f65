"""Text to forms: what each token means, where each form stands, and all that can be wrong with a text."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sxi.errors import CODES, Code, Incomplete, SxiError
from sxi.reader import Form, Group, Keyword, Number, Quote, Symbol, Text, load, read, read_all
from sxi.source import Source


def plain(form: Form) -> Any:
    """A form as tuples, so that two readings can be compared."""
    if isinstance(form, Group):
        return (form.bracket, *map(plain, form.items))
    if isinstance(form, Quote):
        return ("'", plain(form.form))
    if isinstance(form, Number):
        return type(form.value), form.value
    return type(form), form.value if isinstance(form, Text) else form.name


def forms(text: str) -> list[Any]:
    return [plain(form) for form in read(Source("t.sx", text))]


def errors(text: str) -> list[SxiError]:
    return read_all(Source("t.sx", text))[1]


def places(text: str) -> list[str]:
    """Each error as `line:column number`."""
    return [f"{str(error.span).removeprefix('t.sx:')} {error.code.removeprefix('E-READ-')}" for error in errors(text)]


# What a token means


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("12", 12), ("-3", -3), ("+5", 5), ("007", 7), ("1_000_000", 1000000), ("-1_0", -10),
        ("0x10", 16), ("0XfF", 255), ("-0x1_0", -16), ("1" + "0" * 30, 10**30),
        ("1.5", 1.5), ("-2e-3", -0.002), (".5", 0.5), ("+.5", 0.5), ("-.5", -0.5), ("5.", 5.0), ("-5.", -5.0),
        ("1e3", 1000.0), ("1E+3", 1000.0), ("5.e1", 50.0), (".5e1", 5.0), ("1_0.2_5", 10.25), ("1e1_0", 1e10),
        ("1e-400", 0.0),
    ],
)  # fmt: skip
def test_a_number(text: str, value: float) -> None:
    (form,) = read(Source("t.sx", text))
    assert isinstance(form, Number)
    assert (type(form.value), form.value) == (type(value), value)


def test_minus_zero_keeps_its_sign() -> None:
    (form,) = read(Source("t.sx", "-0.0"))
    assert isinstance(form, Number)
    assert math.copysign(1.0, form.value) == -1.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1x", "x follows 1"), ("3d-conv", "d-conv follows 3"), ("1.2.3", ".3 follows 1.2"), ("1-2", "-2 follows 1"),
        ("1__0", "an underscore stands between two digits"), ("1_", "an underscore stands between two digits"),
        ("1_.5", "an underscore stands between two digits"), ("1._5", "an underscore stands between two digits"),
        ("0x", "after 0x come the digits 0 to 9 and a to f"), ("0xg", "after 0x come the digits 0 to 9 and a to f"),
        ("0x_1", "after 0x come the digits 0 to 9 and a to f"),
        ("-0x1.8", "after 0x come the digits 0 to 9 and a to f"),
        ("0b101", "only 0x begins a number in another base"), ("0o17", "only 0x begins a number in another base"),
        ("1e", "its exponent has no digits"), ("1e+", "its exponent has no digits"), ("+.5.", ". follows +.5"),
        ("1e400", "it is past the range of reals, which ends at 1.8e308"), ("٣", "its digits are 0 to 9"),
        ("1" * 5000, "it has more than 4,300 digits"), ("0x" + "f" * 5000, "it has more than 4,300 digits"),
    ],
)  # fmt: skip
def test_what_starts_like_a_number_is_one_or_an_error(text: str, reason: str) -> None:
    (error,) = errors(f"(f {text} 2)")
    assert error.code == "E-READ-007"
    assert error.message.endswith(f" is not a number: {reason}")
    assert error.span is not None
    assert error.span.text == text


@pytest.mark.parametrize(
    "name",
    [
        "x", "off-manifold?", "m^", "@", "->", "+", "-", "...", "-.x", "+x", "..5", "a#b", "#t", "|x|", "a:b",
        "`x", ",x", "é", "e\u0301", "π", "名前", "a|#",
    ],
)  # fmt: skip
def test_a_symbol(name: str) -> None:
    assert forms(name) == [(Symbol, name)]


@pytest.mark.parametrize(("text", "name"), [(":below", "below"), (":1", "1"), ("::a", ":a"), (":a:", "a:")])
def test_a_keyword(text: str, name: str) -> None:
    assert forms(text) == [(Keyword, name)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('""', ""),
        ('"a b"', "a b"),
        (r'"\n\t\r\\\""', '\n\t\r\\"'),
        (r'"\u{1F600}\u{41}\u{0}"', "\U0001f600A\0"),
        ('"two\nlines"', "two\nlines"),
        ('"two\r\nlines\rthree"', "two\nlines\nthree"),
        ('"tab\t, no-break\u00a0space, “curly”, ; ( #|"', "tab\t, no-break\u00a0space, “curly”, ; ( #|"),
    ],
)
def test_a_string(text: str, value: str) -> None:
    assert forms(text) == [(Text, value)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r'"ab\q"', ["1:4 009"]),
        (r'"\u{D800}" "\u{110000}" "\u{}" "\u41"', ["1:2 009", "1:13 009", "1:26 009", "1:33 009"]),
        ('"a\nb\\xc"', ["2:2 009"]),
        ('"a\\\nb"', ["1:3 009"]),
        ('"a\x1b[31m"', ["1:3 008"]),
        ('(a "\\q" "\\w")', ["1:5 009", "1:10 009"]),
    ],
)
def test_a_bad_escape_is_reported_at_the_escape(text: str, found: list[str]) -> None:
    assert places(text) == found


@pytest.mark.parametrize(
    ("character", "name", "repair"),
    [
        ("\u00a0", "NO-BREAK SPACE (U+00A0)", "write a plain space instead"),
        ("\u2003", "EM SPACE (U+2003)", "write a plain space instead"),
        ("“", "LEFT DOUBLE QUOTATION MARK (U+201C)", 'write " instead'),
        ("’", "RIGHT SINGLE QUOTATION MARK (U+2019)", "write ' instead"),
        ("\u200b", "ZERO WIDTH SPACE (U+200B)", "take it away"),
        ("\u202e", "RIGHT-TO-LEFT OVERRIDE (U+202E)", "take it away"),
        ("\ufeff", "ZERO WIDTH NO-BREAK SPACE (U+FEFF)", "take it away"),
        ("\u2028", "LINE SEPARATOR (U+2028)", "end the line instead"),
        ("\x00", "NULL (U+0000)", "take it away"),
        ("\x0c", "FORM FEED (U+000C)", "take it away"),
        ("\x01", "a control character (U+0001)", "take it away"),
        ("\u2212", "MINUS SIGN (U+2212)", "write - instead"),
        ("（", "FULLWIDTH LEFT PARENTHESIS (U+FF08)", "write ( instead"),
        ("\ue000", "a private-use character (U+E000)", "take it away"),
        ("\udc80", "half a surrogate pair (U+DC80)", "take it away"),
        ("\U000e0fff", "an unassigned character (U+E0FFF)", "take it away"),
    ],
)
def test_an_odd_character_is_named_with_its_repair(character: str, name: str, repair: str) -> None:
    (error,) = errors(f"(a\nb{character}c d)")
    assert (error.code, str(error.span)) == ("E-READ-008", "t.sx:2:2")
    assert error.message == f"{name} does not belong in a program"
    assert error.help == repair
    assert errors(f"(a ; {character}\n) #| {character} |#") == []


# How tokens make forms


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("", ""),
        (" ; only a comment", ""),
        ("a;b\nc", "a c"),
        ("a ; b\rc", "a c"),
        ("a#|b|#c", "a#|b|#c"),
        ("a #| b #| c |# d |# e", "a e"),
        ("#;a b", "b"),
        ("#; (a b) c", "c"),
        ("#;#;a b c", "c"),
        ("(a #;b)", "(a)"),
        ("(#;#;a b)", "()"),
        ("'#;a b", "'b"),
        ("#;'a b", "b"),
        ("#; ; c\n a b", "b"),
        ("(a)(b)[c]{d}", "(a) (b) [c] {d}"),
        ('a"b"c', 'a "b" c'),
        ("a'b", "a 'b"),
        ("(a\r\n\tb)", "(a b)"),
    ],
)
def test_two_texts_of_the_same_forms(text: str, same: str) -> None:
    assert [form.span.text for form in _leaves(text)] == [form.span.text for form in _leaves(same)]
    assert forms(text) == forms(same)


def _leaves(text: str) -> list[Form]:
    found: list[Form] = []
    rest = list(read(Source("t.sx", text)))
    while rest:
        form = rest.pop(0)
        if isinstance(form, Group):
            rest = [*form.items, *rest]
        elif isinstance(form, Quote):
            rest.insert(0, form.form)
        else:
            found.append(form)
    return found


def test_quotes_nest() -> None:
    assert forms("''(a 'b)") == [("'", ("'", ("(", (Symbol, "a"), ("'", (Symbol, "b")))))]


def test_the_head_of_a_form() -> None:
    heads = [form.head for form in read(Source("t.sx", "(f 1) () (1 f) [f] {f} ((f))")) if isinstance(form, Group)]
    assert heads == ["f", "", "", "", "", ""]


def test_each_form_has_its_place() -> None:
    source = Source("t.sx", '(f [1 x]\r\n  \'"a b" :k)')
    (outer,) = read(source)
    assert isinstance(outer, Group)
    f, group, quote, keyword = outer.items
    assert [form.span.text for form in (outer, f, group, keyword)] == [source.text, "f", "[1 x]", ":k"]
    assert isinstance(quote, Quote)
    assert (quote.span.text, quote.form.span.text) == ('\'"a b"', '"a b"')
    assert (str(quote.span), str(quote.form.span), str(keyword.span)) == ("t.sx:2:3", "t.sx:2:4", "t.sx:2:10")


# Anything that is printed reads back

_NAMES = st.from_regex(r"[a-zé@<>=*/?!^][a-z0-9é@<>=*/?!^:#|.-]{0,6}", fullmatch=True)
_ATOMS = st.one_of(
    st.integers().map(lambda value: (int, value)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: (float, value)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(lambda value: (Text, value)),
    _NAMES.map(lambda name: (Symbol, name)),
    _NAMES.map(lambda name: (Keyword, name)),
)
_FORMS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from("([{"), st.lists(inner, max_size=4)).map(lambda made: (made[0], *made[1])),
        inner.map(lambda form: ("'", form)),
    ),
    max_leaves=20,
)
_SPACES = st.sampled_from(
    [" ", "\n", "\r\n", "\t", ' ; c ( "\n', " #| ' #| ) |# |# ", " #;x ", "\n#;(a [1 'b] #;2 c)\n"]
)


def printed(form: Any, space: Any) -> str:
    """A form as text, with what `space()` gives between its parts."""
    kind = form[0]
    if kind in ("(", "[", "{"):
        inner = "".join(space() + printed(item, space) for item in form[1:])
        return f"{kind}{inner}{space()}{dict(zip('([{', ')]}', strict=True))[kind]}"
    if kind == "'":
        return f"'{space()}{printed(form[1], space)}"
    if kind is Text:
        return '"' + "".join(f"\\u{{{ord(c):X}}}" if not c.isprintable() or c in '"\\' else c for c in form[1]) + '"'
    return (":" if kind is Keyword else "") + (repr(form[1]) if kind in (int, float) else form[1])


@settings(deadline=None)
@given(st.lists(_FORMS, max_size=4), st.data())
def test_what_is_printed_reads_back(made: list[Any], data: st.DataObject) -> None:
    text = "".join(printed(form, lambda: data.draw(_SPACES)) + " " for form in made)
    assert forms(text) == made


@settings(deadline=None)
@given(st.lists(_FORMS, min_size=1, max_size=3))
def test_the_text_of_a_form_reads_as_the_form(made: list[Any]) -> None:
    rest = list(read(Source("t.sx", " ".join(printed(form, lambda: " ") for form in made))))
    while rest:
        form = rest.pop()
        assert forms(form.span.text) == [plain(form)]
        rest += form.items if isinstance(form, Group) else [form.form] if isinstance(form, Quote) else []


# What the text leaves open, or closes wrongly


@pytest.mark.parametrize(
    ("text", "opener", "meant"),
    [
        ("(a (b)", "1:1", "1:7"),
        ("(a [b", "1:4", "1:6"),
        ("(define a (+ 1 2)\n(define b 3)\n", "1:1", "1:18"),
        ("(define (f x)\n  (let ((y (+ x 1))\n    (* y 2)))\n(define g 3)\n", "1:1", "2:20"),
        ("(run x\n  :evaluate [\n    (a)\n  ]\n  :batch 3\n\n; a comment\n(b)", "1:1", "5:11"),
        ("(a\r\n  b\r\n(c)", "1:1", "2:4"),
        ("(a ; one\n  b ; two\n; three", "1:1", "2:4"),
        ('(a "x\ny"\n(b)', "1:1", "2:3"),
        ("(a #| c\n|# b\n(c)", "1:1", "2:5"),
    ],
)
def test_an_unclosed_bracket_is_told_with_the_place_that_indentation_suggests(
    text: str, opener: str, meant: str
) -> None:
    (error,) = errors(text)
    (label,) = error.labels
    assert error.code == "E-READ-003"
    assert (str(error.span), str(label.span)) == (f"t.sx:{opener}", f"t.sx:{meant}")


def test_the_bracket_that_indentation_blames_is_named() -> None:
    (error,) = errors("(define (f x)\n  (let ((y [+ x 1])\n    (* y 2)))\n(define g 3)\n")
    assert [label.text for label in error.labels] == ["indentation suggests ) here, for the ( of line 2"]
    (error,) = errors("(f [1\n(g)\n)")
    assert (error.code, [label.text for label in error.labels]) == ("E-READ-004", ["opened here"])
    (error,) = errors("(f\n [1\n(g)\n")
    assert [label.text for label in error.labels] == ["indentation suggests ] here"]
    (error,) = errors("(f [1")
    assert [label.text for label in error.labels] == ["no bracket closes it up to here"]


def test_a_wrong_closer_names_both_places() -> None:
    (error,) = errors("(f [1\n   2)\n  3]")
    assert error.message == ") does not close ["
    assert (str(error.span), error.label) == ("t.sx:2:5", "expected ]")
    assert [(str(label.span), label.text) for label in error.labels] == [("t.sx:1:4", "opened here")]


def test_a_stray_closer() -> None:
    (error,) = errors("(f 1)) 2]")
    assert (error.message, str(error.span)) == (") closes nothing", "t.sx:1:6")
    assert [str(label.span) for label in error.labels] == ["t.sx:1:5"]


def test_an_unfinished_string_is_told_where_it_began_with_the_one_that_may_have_lost_its_end() -> None:
    (error,) = errors('(a "b)\n(c "d")\n')
    assert (error.code, str(error.span)) == ("E-READ-010", "t.sx:2:6")
    assert [str(label.span) for label in error.labels] == ["t.sx:1:4"]


def test_the_reader_goes_on_at_the_next_top_level_form() -> None:
    text = "\n".join(
        [
            "(define a (+ 1x 2y)",  # two bad numbers in a bracket that is not closed
            "(define b [1 2)) (also 3x)",  # a wrong closer; the rest of its line is not looked at
            "  (nor this 4x)",
            '(define c "\\q")',
            "(define d 1))",
            "' )",
            "(define e 2)",
            "[f 5x]",
            '(g "it has no end)',
            "(h 6x)",
        ]
    )
    forms_read, found = read_all(Source("t.sx", text))
    assert places(text) == [
        "1:1 003", "1:14 007", "1:17 007", "2:15 004", "4:12 009", "5:13 005", "8:4 007", "9:4 010", "10:4 007",
    ]  # fmt: skip
    assert [form.span.text for form in forms_read] == ["(define d 1)", "(define e 2)"]
    with pytest.raises(SxiError) as caught:
        read(Source("t.sx", text))
    assert (caught.value.code, str(caught.value.span)) == (found[0].code, str(found[0].span))


def test_brackets_in_strings_and_comments_begin_no_form() -> None:
    text = '(a ])\n "\n(b 1x)" #|\n(c 2x) |# ;\n  (d 3x)\n(e 4x)'
    assert places(text) == ["1:4 004", "6:4 007"]


def test_whole_forms_after_an_unclosed_one_are_kept() -> None:
    forms_read, found = read_all(Source("t.sx", "(a\n(b)\n(c\n(d) e\n(f) (g"))
    assert [form.span.text for form in forms_read] == ["(b)", "(d)", "e", "(f)"]
    assert [str(error.span) for error in found] == ["t.sx:1:1", "t.sx:3:1", "t.sx:5:5"]


@pytest.mark.parametrize(
    ("broken", "code"),
    [("(c ])", "3:4 004"), ('(c "', "3:4 010"), ("(c #|", "3:4 011"), ("(c " + "(" * 1000, "3:1002 006")],
)
def test_what_breaks_a_later_form_hides_neither_an_unclosed_one_nor_the_forms_between(broken: str, code: str) -> None:
    text = f"(a (b)\n(d)\n{broken}"
    assert places(text) == ["1:1 003", code]
    assert [form.span.text for form in read_all(Source("t.sx", text))[0]] == ["(d)"]


def test_at_most_twenty_errors() -> None:
    assert places("(a 1x)\n" * 50) == [f"{line}:4 007" for line in range(1, 21)]
    assert places("(a ])\n" * 50) == [f"{line}:4 004" for line in range(1, 21)]
    assert len(errors('"' + "\\q" * 50 + '"')) == 20
    assert len(errors("(a\n" * 50)) == 20


@pytest.mark.parametrize(
    "text", ["(", "(a [b", '"', '"a\\"', "#|", "#| #| |#", "(a '", "'", "#;", "''", "#;#;a", '(f "\n']
)
def test_a_text_that_may_go_on_is_incomplete(text: str) -> None:
    with pytest.raises(Incomplete):
        read(Source("t.sx", text))


@pytest.mark.parametrize("text", [")", "(a]", "1x", "(a ')", "(#;)", ":", "|#", "1x ("])
def test_a_text_that_no_further_line_repairs_is_not(text: str) -> None:
    with pytest.raises(SxiError) as caught:
        read(Source("t.sx", text))
    assert not isinstance(caught.value, Incomplete)


_BROKEN = [code for code in CODES.values() if code.code.startswith("E-READ-") and code.breaks]


@pytest.mark.parametrize("code", [code for code in _BROKEN if code.code != "E-READ-002"], ids=lambda code: code.code)
def test_the_program_that_explains_a_code_gives_it_at_its_caret(code: Code) -> None:
    text = dedent(code.breaks).strip("\n")
    caret = next(line.index("^") + 1 for line in text.splitlines() if "^ E-" in line)
    assert [f"E-READ-{place.split()[1]}" for place in places(text)] == [code.code]
    assert places(text)[0].startswith(f"1:{caret} ")


# Depth and size


@pytest.mark.parametrize(("opener", "closer"), ["()", "[]", "{}"])
def test_a_thousand_brackets_nest_and_no_more(opener: str, closer: str) -> None:
    (form,) = read(Source("t.sx", opener * 1000 + closer * 1000))
    assert len(repr(form)) < 100
    assert form == form  # noqa: PLR0124  # the comparison itself must not recurse
    assert isinstance(hash(form), int)
    assert places(opener * 1001 + closer * 1001 + "\n(a 1x)") == ["1:1001 006", "2:4 007"]


def test_quotes_count_as_depth() -> None:
    assert len(read(Source("t.sx", "'" * 1000 + "a"))) == 1
    assert places("'" * 1001 + "a") == ["1:1001 006"]
    assert places("('" * 501 + "a" + ")" * 501) == ["1:1001 006"]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 400_000, "(\n" * 200_000, ")" * 400_000, "'" * 400_000, "#;" * 200_000, "#|" * 200_000,
        '"' + '\\"' * 200_000,
        "(a\n" + "(b)\n" * 60_000, "(a\n" + "  (b)\n" * 60_000, "(a]\n" * 100_000, '("\\"\n' * 80_000, ";\n" * 200_000,
        "1_" * 200_000, "0x" + "1" * 400_000, "“" * 400_000, " " * 400_000, "x" * 400_000, "\r" * 400_000,
        '"\n(' * 100_000,
    ],
    ids=lambda text: repr(text[:6]),
)  # fmt: skip
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()
    read_all(Source("t.sx", text))
    # Under a second on a slow machine; a reading that looks back at all it has read would take minutes.
    assert time.process_time() - began < 10.0


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("()[]{}'\"#;|\\ \n\r\tab1.:-\u00a0“é"), max_size=60))
def test_any_text_gives_forms_or_errors_in_order_each_once(text: str) -> None:
    forms_read, found = read_all(Source("t.sx", text))
    starts = [error.span.start for error in found if error.span]
    assert len(starts) == len(found) <= 20
    assert starts == sorted(set(starts))
    assert all(error.code.startswith("E-READ-") for error in found)
    ends = [(form.span.start, form.span.end) for form in forms_read]
    assert all(before[1] <= after[0] for before, after in pairwise(ends))
    assert all(forms(text[start:end]) == [plain(form)] for form, (start, end) in zip(forms_read, ends, strict=True))


# Files


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.sx"
    path.write_bytes(raw)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        with pytest.raises(SxiError, match="E-READ-001"):
            load(str(path))
    else:
        assert load(str(path)).text == text


@pytest.mark.parametrize(
    ("raw", "place", "byte"),
    [
        (b"(a)\n(b \xe9)", "2:4", "0xE9"),
        (b"\xef\xbb\xbf\xff", "1:1", "0xFF"),
        ("é\r\n名".encode() + b"\x80", "2:2", "0x80"),
        (b"a\xe5\x90", "1:2", "0xE5"),
    ],
)
def test_a_file_that_is_not_utf_8(tmp_path: Path, raw: bytes, place: str, byte: str) -> None:
    path = tmp_path / "bad.sx"
    path.write_bytes(raw)
    with pytest.raises(SxiError) as caught:
        load(str(path))
    assert caught.value.message == f"byte {byte} is not UTF-8 here"
    assert str(caught.value.span) == f"{path}:{place}"


def test_a_file_keeps_its_path_as_given_and_loses_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.sx").write_bytes("\ufeff(a)\r\n1x".encode())
    source = load("./a.sx")
    assert (source.path, source.text) == ("./a.sx", "(a)\r\n1x")
    assert [str(error.span) for error in read_all(source)[1]] == ["./a.sx:2:1"]


@pytest.mark.parametrize("path", ["nowhere.sx", ".", "a\0b"])
def test_a_file_that_cannot_be_read(path: str) -> None:
    (form,) = read(Source("t.sx", "x"))
    for span in (None, form.span):
        with pytest.raises(SxiError) as caught:
            load(path, span=span)
        assert (caught.value.code, caught.value.span) == ("E-READ-002", span)
        shown = path.replace("\0", r"\u{0}")
        assert caught.value.message.startswith(f"{shown} cannot be read: ")
