"""The table of contract rules: every entry is whole, says what it should, and is applied."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from types import SimpleNamespace

import pytest

from sxi import contracts
from sxi.arraytype import ArrayType
from sxi.checking import check_text
from sxi.contracts import RULES, Rule
from sxi.contracts.rule import written
from sxi.errors import CODES, Label, SxiError
from sxi.reader import Group, read
from sxi.source import Source, Span

ROOT = Path(__file__).parents[1]
EACH_RULE = pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.code.code)


@dataclass(frozen=True)
class Keyword:
    """A keyword as the evaluator has it: known to a rule by its looks only."""

    name: str

    def __str__(self) -> str:
        return f":{self.name}"


def t(text: str) -> ArrayType:
    return ArrayType.parse(text)


def marks(text: str) -> Iterator[tuple[int, int, str]]:
    """Line, column and code of every place that a comment's caret points at: the line above it."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.fullmatch(r"\s*; *\^ (E-[A-Z]+-\d{3})", line)
        if found:
            yield number - 1, line.index("^") + 1, found[1]


def places(form: object) -> Iterator[tuple[int, int]]:
    """Where a form and those in it begin."""
    yield form.span.line, form.span.column
    for inner in form.items if isinstance(form, Group) else ():
        yield from places(inner)


# The table


def test_the_numbers_run_from_1_to_26() -> None:
    assert sorted(RULES) == list(range(1, 27))


@EACH_RULE
def test_a_rule_is_a_code_like_any_other(rule: Rule) -> None:
    assert rule.code.code == f"E-CONTRACT-{rule.number:03d}"
    assert CODES[rule.code.code] is rule.code
    assert RULES[rule.number] is rule
    assert getattr(contracts, rule.holds.__name__) is rule


def test_every_contract_code_is_a_rule() -> None:
    assert {c for c in CODES if c.startswith("E-CONTRACT-")} == {rule.code.code for rule in RULES.values()}


@EACH_RULE
def test_a_message_is_one_short_line(rule: Rule) -> None:
    message = rule.code.message
    assert 0 < len(message) <= 100
    assert message.isprintable()
    assert not message.endswith(".")


@EACH_RULE
def test_templates_are_filled_from_the_predicates_arguments(rule: Rule) -> None:
    taken = rule.holds.__code__.co_varnames[: rule.holds.__code__.co_argcount]
    for template in (rule.code.message, rule.code.help):
        assert {fact for _, fact, _, _ in Formatter().parse(template) if fact} <= {*taken, *rule.words}


@EACH_RULE
def test_the_reason_is_a_few_whole_sentences(rule: Rule) -> None:
    for paragraph in rule.code.why.split("\n\n"):
        assert paragraph.endswith(".")
        assert "\n" not in paragraph
    sentences = re.findall(r"[.](?= [A-Z`]|\n\n|$)", rule.code.why)
    assert 2 <= len(sentences) <= 5


@EACH_RULE
def test_the_broken_program_has_one_caret_with_this_code_under_a_form(rule: Rule) -> None:
    text = rule.code.breaks
    ((line, column, code),) = marks(text)
    assert code == rule.code.code
    starts = [place for form in read(Source("x.sx", text)) for place in places(form)]
    assert (line, column) in starts


@EACH_RULE
def test_the_repaired_program_is_another_one_without_carets(rule: Rule) -> None:
    read(Source("x.sx", rule.code.fixed))
    assert "^" not in rule.code.fixed
    unmarked = [line for line in rule.code.breaks.splitlines() if "^" not in line]
    assert rule.code.fixed.splitlines() != unmarked


@EACH_RULE
def test_both_programs_are_whole(rule: Rule) -> None:
    for text in (rule.code.breaks, rule.code.fixed):
        heads = [form.head for form in read(Source("x.sx", text))]
        assert {"generator", "objective"} < set(heads)
        assert heads.count("run") == 1


def test_a_number_is_given_once() -> None:
    with pytest.raises(ValueError, match="E-CONTRACT-020 is already taken"):
        contracts.rule.rule(20, "again", breaks="", fixed="")(lambda: True)
    assert RULES[20].holds.__name__ == "count_is_a_number"


# What holds: worked out by hand from the reference, a line for each case.

NUMBERS = [0, -3, 1.5, float("inf"), float("nan"), t("f32[]"), t("i32[]"), t("bf16[]"), t("f64[]")]
NO_NUMBERS = [True, False, None, "1", Keyword("one"), [1], {}, t("bool[]"), t("f32[1]"), t("f32[0]"), t("i64[2 3]")]


def cases() -> Iterator[tuple[str, dict[str, object], bool]]:
    for name in ("a", "train/loss", "Layer-3_w.b", "guards/x", "0", "/", "."):
        for form in ("metric", "diagnostic", "guard", "param"):
            yield "name_is_valid", {"form": form, "name": name}, True
    for name in ("", "a b", "a\n", "é", "a:b", "a*", "٣", 3, None, Keyword("a"), t("f32[]"), ["a"]):
        yield "name_is_valid", {"form": "metric", "name": name}, False
    for form, ok in (("metric", False), ("diagnostic", False), ("guard", True), ("param", True)):
        yield "name_is_valid", {"form": form, "name": "guard/x"}, ok
    yield "metadata_is_pairs", {"form": "guard", "what": ""}, True
    yield "metadata_is_pairs", {"form": "guard", "what": "7 is not a keyword"}, False
    for value in (0, 1.5, "deep", Keyword("deep"), True, False, ""):
        yield "metadata_is_static", {"form": "metric", "key": "layer", "value": value}, True
    for value in (None, [1], (1,), {}, t("i32[]"), t("bool[]"), len):
        yield "metadata_is_static", {"form": "metric", "key": "layer", "value": value}, False
    for number in NUMBERS:
        yield "value_is_a_numeric_scalar", {"form": "metric", "name": "a", "value": number}, True
        yield "objective_is_a_numeric_scalar", {"loss": number}, True
        yield "count_is_a_number", {"name": "a", "count": number, "text": "x"}, True
    for other in NO_NUMBERS:
        yield "value_is_a_numeric_scalar", {"form": "metric", "name": "a", "value": other}, False
        yield "objective_is_a_numeric_scalar", {"loss": other}, False
        yield "count_is_a_number", {"name": "a", "count": other}, False
    for word in ("mean", "sum", "min", "max", "last"):
        yield "reduce_is_known", {"form": "metric", "name": "a", "reduce": Keyword(word)}, True
        yield "reduce_is_known", {"form": "metric", "name": "a", "reduce": word}, False
    for value in (Keyword("first"), None, 1, t("f32[]")):
        yield "reduce_is_known", {"form": "metric", "name": "a", "reduce": value}, False
    for kind, reduce, ok in (("metric", "max", True), ("metric", "mean", False), ("diagnostic", "max", False)):
        facts = {"name": "a", "kind": kind, "reduce": reduce, "first_kind": "metric", "first_reduce": "max"}
        yield "one_name_one_kind", facts, ok
    for key in ("split", "pass", "stage", "param", "step", "rank"):
        yield "metadata_is_not_the_runtimes", {"form": "guard", "key": key}, False
    for key in ("layer", "steps", "Step", "reduce"):
        yield "metadata_is_not_the_runtimes", {"form": "guard", "key": key}, True
    yield from cases_of_graphs()
    yield from cases_of_guards()
    yield from cases_of_runs()


def cases_of_graphs() -> Iterator[tuple[str, dict[str, object], bool]]:
    for test in (True, None, 0, "", [], {}):
        yield "branches_are_static", {"form": "if", "test": test}, True
    for test in (t("bool[]"), t("f32[3]")):
        yield "branches_are_static", {"form": "if", "test": test}, False
    for value, ok in ((3, True), ([3, 4], True), ([], True), (t("i32[]"), False), ([3, t("i32[]")], False)):
        yield "shapes_are_static", {"form": "zeros", "value": value}, ok
    for context in ("objective", "model"):
        yield "parameters_are_made_by_the_model", {"form": "param", "context": context}, True
    for context in ("evaluate", "generator", "initializer", "optimizer", "prepare", "curriculum"):
        yield "parameters_are_made_by_the_model", {"form": "state", "context": context}, False
    for what, first, second, ok in (
        ("shape", [3, 1], [3, 1], True),
        ("shape", [3, 1], [3, 2], False),
        ("type", t("f32[3]"), t("f64[3]"), False),
        ("initializer", "zeros-init", "zeros-init", True),
    ):
        yield "a_parameter_is_declared_alike", {"name": "w", "what": what, "first": first, "second": second}, ok
    yield "an_optimizer_ends_in_update", {"name": "o", "what": ""}, True
    yield "an_optimizer_ends_in_update", {"name": "o", "what": "m is not given"}, False
    for sizes, ok in (
        ({"x": 4, "y": 4}, True),
        ({"x": 0}, True),
        ({"x": 4, "y": 3}, False),
        ({"x": 4, "y": None}, False),
        ({"x": None}, False),
        ({}, False),
    ):
        yield "leading_sizes_agree", {"name": "points", "sizes": sizes}, ok
    for context, ok in ((None, True), ("objective", False), ("curriculum", False)):
        yield "graphs_do_nothing_to_the_host", {"form": "print", "context": context}, ok


def cases_of_guards() -> Iterator[tuple[str, dict[str, object], bool]]:
    for context, ok in ((None, False), ("objective", True), ("prompt", True)):
        yield "reporting_stands_in_a_graph", {"form": "metric", "context": context}, ok
    for form, ok in (("diagnostic", True), ("metric", False), ("guard", False), ("assert-finite", False)):
        yield "a_tap_holds_diagnostics_only", {"form": form}, ok
    for context, metric, diagnostic, guard in (
        ("objective", True, True, True),
        ("prepare", True, True, True),
        ("model", True, True, True),
        ("evaluate", True, True, True),
        ("optimizer", True, True, True),
        ("generator", False, True, False),
        ("initializer", False, False, False),
        ("curriculum", False, False, False),
    ):
        yield "these_contexts_report_nothing", {"form": "metric", "context": context}, metric
        yield "these_contexts_report_nothing", {"form": "diagnostic", "context": context}, diagnostic
        for form in ("guard", "assert-finite", "bound"):
            yield "guard_has_a_step", {"form": form, "context": context}, guard
    for operand in (t("bool[]"), t("bool[3 4]"), t("bool[0]"), True):
        yield "counts_take_the_right_operand", {"form": "count-where", "operand": operand}, True
        yield "counts_take_the_right_operand", {"form": "assert-finite", "operand": operand}, False
    for operand in (t("f32[]"), t("i32[3]"), t("bf16[2 2]"), 1, 1.5):
        yield "counts_take_the_right_operand", {"form": "count-where", "operand": operand}, False
        yield "counts_take_the_right_operand", {"form": "assert-finite", "operand": operand}, True
    for operand in (None, "x", [1.0], {}):
        yield "counts_take_the_right_operand", {"form": "count-where", "operand": operand}, False
        yield "counts_take_the_right_operand", {"form": "assert-finite", "operand": operand}, False
    for value in (0, -1.5, 10**400, float("inf")):
        yield "bound_is_a_static_number", {"form": "metric", "key": "below", "value": value}, True
        yield "bound_is_a_static_number", {"form": "diagnostic", "key": "above", "value": value}, True
        yield "bound_is_a_static_number", {"form": "guard", "key": "below", "value": value}, False
    for value in (float("nan"), True, None, "1", Keyword("one"), t("f32[]"), [1]):
        yield "bound_is_a_static_number", {"form": "metric", "key": "below", "value": value}, False
    yield "bound_is_a_static_number", {"form": "assert-finite", "key": "reduce", "value": Keyword("max")}, False


def cases_of_runs() -> Iterator[tuple[str, dict[str, object], bool]]:
    for count, ok in ((0, True), (9_999, True), (10_000, True), (10_001, False)):
        yield "run_reports_within_its_limit", {"count": count, "limit": 10_000}, ok
    for kind, ok in (("metric", True), ("diagnostic", False), ("guard", False), (None, False)):
        yield "the_curriculum_reads_metrics", {"name": "a", "kind": kind}, ok
    for name in ("run_options_are_consistent", "every_parameter_has_a_group"):
        yield name, {"what": ""}, True
        yield name, {"what": "net/w is in none"}, False


CASES = list(cases())


@pytest.mark.parametrize(("name", "facts", "holds"), CASES)
def test_a_predicate_holds_where_the_reference_says_so(name: str, facts: dict[str, object], holds: bool) -> None:
    rule: Rule = getattr(contracts, name)
    span = Span(Source("x.sx", "(f x)"), 0, 5)
    if holds:
        rule(span, **facts)
        return
    with pytest.raises(SxiError) as caught:
        rule(span, **facts)
    assert caught.value.code == rule.code.code
    assert caught.value.span == span
    assert caught.value.message.isprintable()


def test_every_predicate_is_tried_both_ways() -> None:
    tried = {(name, holds) for name, _, holds in CASES}
    assert tried == {(rule.holds.__name__, holds) for rule in RULES.values() for holds in (True, False)}


# What is said

MESSAGES = [
    (
        "count_is_a_number",
        {"name": "loss/high", "count": t("bool[]"), "text": "(> loss\n     9.0)"},
        "the count of guard loss/high is a bool, and a count is a numeric scalar",
        "bool[]",
        "count the mask: (count-where (> loss 9.0))",
    ),
    (
        "count_is_a_number",
        {"name": "x", "count": t("bool[64 3]"), "text": f"(> {'x' * 60} 9.0)"},
        "the count of guard x is bool[64 3], and a count is a numeric scalar",
        "bool[64 3]",
        "count the mask: (count-where …)",
    ),
    (
        "count_is_a_number",
        {"name": "x", "count": t("i32[3]"), "text": "counts"},
        "the count of guard x is i32[3], and a count is a numeric scalar",
        "i32[3]",
        "sum the counts: (sum counts)",
    ),
    (
        "count_is_a_number",
        {"name": "x", "count": "9"},
        'the count of guard x is "9", and a count is a numeric scalar',
        "",
        "",
    ),
    (
        "name_is_valid",
        {"form": "metric", "name": "train loss (held out)"},
        'metric cannot be named "train loss (held out)"',
        "",
        'write "train-loss-held-out": a name is of letters, digits and / _ - .',
    ),
    (
        "name_is_valid",
        {"form": "diagnostic", "name": "guard/x"},
        'diagnostic cannot be named "guard/x"',
        "",
        "guard/ begins the series of guards: choose another beginning",
    ),
    (
        "name_is_valid",
        {"form": "param", "name": t("f32[]")},
        "param cannot be named f32[]",
        "f32[]",
        'a name is a string that is known before the first step, as (str "layer" 3) is',
    ),
    ("name_is_valid", {"form": "param", "name": ""}, 'param cannot be named ""', "", None),
    (
        "name_is_valid",
        {"form": "guard", "name": "日本/é"},
        'guard cannot be named "日本/é"',
        "",
        "a name is of letters, digits and / _ - .",
    ),
    (
        "metadata_is_pairs",
        {"form": "metric", "what": "keyword :layer has no value"},
        "the metadata of metric is not in pairs: keyword :layer has no value",
        "",
        None,
    ),
    (
        "metadata_is_static",
        {"form": "guard", "key": "layer", "value": None},
        "the metadata :layer of guard is nil, and metadata is static",
        "",
        None,
    ),
    (
        "value_is_a_numeric_scalar",
        {"form": "metric", "name": "r", "value": t("bool[4]")},
        "the value of metric r is bool[4], and a value is a numeric scalar",
        "bool[4]",
        "count the mask with (count-where …), or take its share with (mean (cast … :f32))",
    ),
    (
        "reduce_is_known",
        {"form": "metric", "name": "r", "reduce": Keyword("average")},
        "metric r is reduced by :average, which is not a reduction",
        "",
        "did you mean :mean?",
    ),
    (
        "reduce_is_known",
        {"form": "metric", "name": "r", "reduce": Keyword("product")},
        "metric r is reduced by :product, which is not a reduction",
        "",
        "write one of :mean :sum :min :max :last",
    ),
    (
        "one_name_one_kind",
        {"name": "r", "kind": "metric", "reduce": "max", "first_kind": "diagnostic", "first_reduce": "mean"},
        "r is a metric reduced by :max, and elsewhere a diagnostic by :mean",
        "",
        None,
    ),
    (
        "objective_is_a_numeric_scalar",
        {"loss": {"loss": "x"}},
        "the objective gives a record, and a loss is a numeric scalar",
        "",
        None,
    ),
    (
        "branches_are_static",
        {"form": "and", "test": t("bool[]")},
        "and tests an array, and a graph never reads an array's numbers",
        "bool[]",
        "combine arrays elementwise: (logical-and …)",
    ),
    (
        "a_parameter_is_declared_alike",
        {"name": "net/w", "what": "shape", "first": (3, 1), "second": (3, 2)},
        "parameter net/w has shape [3 1] and also shape [3 2]",
        "",
        "give the two different names, or declare them alike",
    ),
    (
        "a_parameter_is_declared_alike",
        {"name": "net/w", "what": "initializer", "first": "zeros-init", "second": "he"},
        "parameter net/w has initializer zeros-init and also initializer he",
        "",
        "give the two different names, or declare them alike",
    ),
    (
        "a_parameter_is_declared_alike",
        {"name": "centre", "what": "next value", "first": "f32[3]", "second": "f32[2]", "form": "state"},
        "state centre is f32[3], and its next value is f32[2]",
        "",
        "make it f32[3]",
    ),
    (
        "leading_sizes_agree",
        {"name": "points", "sizes": {"x": 4, "y": None}},
        "the arrays of points have not one leading size: :x has 4, :y has none",
        "",
        None,
    ),
    (
        "guard_has_a_step",
        {"form": "assert-finite", "context": "initializer"},
        "assert-finite stands in the initializer, which has no step to stop",
        "",
        None,
    ),
    (
        "bound_is_a_static_number",
        {"form": "metric", "key": "below", "value": float("nan")},
        "metric takes no :below nan",
        "",
        "nothing is above or below nan, so every value would count: write a number",
    ),
    (
        "bound_is_a_static_number",
        {"form": "guard", "key": "reduce", "value": Keyword("max")},
        "guard takes no :reduce :max",
        "",
        "guard counts by itself and takes no :reduce; metric and diagnostic do",
    ),
    (
        "bound_is_a_static_number",
        {"form": "diagnostic", "key": "above", "value": t("f32[]")},
        "diagnostic takes no :above f32[]",
        "f32[]",
        "compare with an array in a guard: (guard … (count-where (<= value bound)))",
    ),
    (
        "run_reports_within_its_limit",
        {"count": 12, "limit": 10},
        "the fullest step reports 12 values, past the :report-limit of 10",
        "",
        "report less in loops, or raise the limit: :report-limit 12",
    ),
    (
        "the_curriculum_reads_metrics",
        {"name": "guard/x", "kind": "guard"},
        "the curriculum reads guard/x, which is not a metric",
        "",
        "a guard stops the run by itself; to steer by its count, report that with metric too",
    ),
    (
        "the_curriculum_reads_metrics",
        {"name": "loss", "kind": None, "of_pass": "hled"},
        "the curriculum reads loss of the pass hled, which is not a metric",
        "",
        None,
    ),
    (
        "run_options_are_consistent",
        {"what": "3 microbatches do not divide a batch of 4"},
        "the run cannot be made: 3 microbatches do not divide a batch of 4",
        "",
        "",
    ),
]


@pytest.mark.parametrize(("name", "facts", "message", "label", "help"), MESSAGES)
def test_what_an_error_says(name: str, facts: dict[str, object], message: str, label: str, help: str | None) -> None:
    with pytest.raises(SxiError) as caught:
        getattr(contracts, name)(None, **facts)
    error = caught.value
    assert (error.message, error.label) == (message, label)
    assert help is None or error.help == help


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        (None, "nil"),
        (1.0, "1.0"),
        (float("inf"), "inf"),
        ('a"b\n\x07', '"a\\"b\\n\\u{7}"'),
        ("x" * 50, f'"{"x" * 39}…"'),
        ([], "[]"),
        (list(range(9)), "a list"),
        (["x"], "a list"),
        ([t("bool[]"), 2], "[a bool 2]"),
        ({}, "{}"),
        (len, "a function"),
        (10**41, "an integer of 137 bits"),
    ],
)
def test_how_a_value_is_written(value: object, shown: str) -> None:
    assert written(value) == shown


def test_a_value_is_known_by_its_type() -> None:
    value = SimpleNamespace(type=t("bool[]"))
    with pytest.raises(SxiError, match="is a bool") as caught:
        contracts.count_is_a_number(None, name="x", count=value, text="m")
    assert caught.value.help == "count the mask: (count-where m)"


def test_what_the_caller_says_stands() -> None:
    span = Span(Source("x.sx", "(f x)"), 0, 5)
    labels = (Label(span, "first here"),)
    with pytest.raises(SxiError) as caught:
        contracts.run_options_are_consistent.refuse(
            span, what="no :steps", label="here", labels=labels, notes=("a fact",), help="give :steps 10"
        )
    error = caught.value
    assert (error.label, error.labels, error.notes, error.help) == ("here", labels, ["a fact"], "give :steps 10")
    assert (error.exit_status, error.family) == (4, "CONTRACT")


def test_a_refusal_asks_no_predicate() -> None:
    with pytest.raises(SxiError, match=r"metric takes no :below 2\.0"):
        contracts.bound_is_a_static_number.refuse(None, form="metric", key="below", value=2.0)


# What is derived


def test_the_page_of_rules_is_written_anew() -> None:
    page = (ROOT / "docs/contracts.md").read_text(encoding="utf-8")
    assert page == contracts.page_of_rules(), "run `python -m sxi.contracts`"


@EACH_RULE
def test_the_page_holds_the_rule_whole(rule: Rule) -> None:
    page = contracts.page_of_rules()
    assert page.count(f"\n## {rule.code.code}\n") == 1
    for part in (rule.code.why, rule.code.breaks, rule.code.fixed):
        assert part in page


def sources() -> dict[Path, str]:
    return {
        path: path.read_text(encoding="utf-8") for path in (ROOT / "sxi").rglob("*.py") if "contracts" not in path.parts
    }


def texts(module: ast.Module) -> Iterator[str]:
    """The texts that a module computes with: all but its docstrings."""
    docs = [node.value for node in ast.walk(module) if isinstance(node, ast.Expr)]
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            yield node.value


def test_no_contract_code_is_raised_outside_the_table() -> None:
    for path, text in sources().items():
        assert [t for t in texts(ast.parse(text)) if re.search(r"E-CONTRACT-\d", t)] == [], path


# What is applied: through `sxi check`'s own function.


@EACH_RULE
def test_a_rule_is_applied(rule: Rule) -> None:
    name = rule.holds.__name__
    assert any(re.search(rf"contracts\.{name}(\.refuse)?\b", text) for text in sources().values())


@EACH_RULE
def test_the_broken_program_gives_this_code_at_its_caret(rule: Rule) -> None:
    errors = check_text(rule.code.breaks)
    assert [(e.span.line, e.span.column, e.code) for e in errors] == list(marks(rule.code.breaks))


@EACH_RULE
def test_the_repaired_program_is_accepted(rule: Rule) -> None:
    assert [str(error) for error in check_text(rule.code.fixed)] == []
