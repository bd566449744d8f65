"""The prompt without a terminal: inputs, guards, values, the loaded run, its redefinition, bad input."""

from __future__ import annotations

import _thread
import io
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sxi.lexemes import inputs
from sxi.prompt_commands import COMMANDS, table
from sxi.reader import Text, read
from sxi.session import Screen, Session, run_piped
from sxi.source import Source
from sxi.values import written

LINE = """; a line through points, by gradient descent
(setting rate 0.1 :doc "of the descent")
(define slope 3.0)
(generator points (n)
  (let ((x (uniform [n 1] :low -1.0 :high 1.0)))
    {:x x :y (* slope x)}))
(define (fitted-to x) (@ x (param "w" [1 1] :init zeros-init)))
(objective (batch)
  (let ((loss (mean (square (- (fitted-to (:x batch)) (:y batch))))))
    (guard "loss/high" (count-where (> loss 100.0)))
    (metric "train/loss" loss)
    loss))
(run line :data points :batch 8 :steps 40 :optimizer (sgd :lr rate))
"""


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(device="cpu")
    yield made
    made.close()


@pytest.fixture
def line(tmp_path: Path) -> str:
    path = tmp_path / "line.sx"
    path.write_text(LINE)
    return str(path)


def codes_in(lines: list[str]) -> list[str]:
    return [found[0] for line in lines if (found := re.match(r"E-[A-Z]+-\d{3}", line))]


# Inputs and values


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("(+ 1 2)", ["3"]),
        ("1 2.5 true", ["1", "2.5", "true"]),
        ('"a\\"b"', ['"a\\"b"']),
        ("[1 [2 :k]] {:a 1}", ["[1 [2 :k]]", "{:a 1}"]),
        ("'(f x)", ["(f x)"]),
        ("nil", []),
        ("; nothing", []),
        ("", []),
        ("(define x 4)", []),
        ('(print "a" 1 [2])', ["a 1 [2]"]),
        ("(define (twice n) (* 2 n)) (twice 21)", ["42"]),
        ("(define (f) (g)) (define (g) 7) (f)", ["7"]),
        ("(array [1.0 2.0])", ["f32[2] cpu [1.0 2.0]"]),
        ("(array [[1 2] [3 40]])", ["i32[2 2] cpu", "[ 1  2]", "[ 3 40]"]),
        ("(sum (array [1.0 2.0]))", ["f32[] cpu 3.0"]),
        ("((value-and-grad (lambda (x) (* x x))) 3.0)", ["0  f32[] cpu 9.0", "1  f32[] cpu 6.0"]),
        ('(guard "zero" 0.0)', ["0.0"]),
        ("(step)", ["i32[] cpu 1"]),
    ],
)
def test_an_input_is_answered_with_its_values(session: Session, text: str, lines: list[str]) -> None:
    assert session.respond(text) == lines


def test_the_last_values_and_the_last_error_have_names(session: Session) -> None:
    session.respond("1")
    session.respond("2 3")
    assert session.respond("[*1 *2 *3]") == ["[3 2 1]"]
    session.respond("(nope)")
    assert session.respond("(:code *e)") == ['"E-EVAL-001"']


def test_a_definition_keeps_the_last_value_that_it_saw(session: Session) -> None:
    session.respond("10")
    session.respond("(define ten *1)")
    session.respond("20")
    session.respond("(define + (lambda (a b) 0))")  # makes the whole program again
    assert session.respond("ten") == ["10"]


def test_a_redefinition_reaches_whatever_depends_on_it(session: Session) -> None:
    session.respond("(define a 1)")
    session.respond("(define b (* 10 a))")
    session.respond("(define (f) (+ a b))")
    session.respond("(define a 2)")
    assert session.respond("[a b (f)]") == ["[2 20 22]"]


def test_a_redefinition_may_use_a_name_that_was_typed_later(session: Session) -> None:
    session.respond("(define a 1)")
    session.respond("(define b (* 10 a))")
    session.respond("(define c 5)")
    session.respond("(define a c)")
    assert session.respond("b") == ["50"]


def test_a_redefinition_that_goes_round_in_a_circle_is_refused_and_leaves_the_old_one(session: Session) -> None:
    session.respond("(define a 1)")
    session.respond("(define b a)")
    assert codes_in(session.respond("(define a b)"))[0] == "E-EVAL-008"
    assert session.respond("[a b]") == ["[1 1]"]


def test_nothing_of_an_input_with_an_error_holds(session: Session) -> None:
    session.respond("(define a 1)")
    assert codes_in(session.respond("(define b 2)\n(define c (nth [] 0))\n(define a 9)")) == ["E-EVAL-012"]
    assert session.respond("a") == ["1"]
    assert codes_in(session.respond("b")) == ["E-EVAL-001"]


def test_all_errors_of_a_pasted_block_are_told_at_once_and_nothing_is_done(session: Session) -> None:
    lines = session.respond("(define a 1)\n(define b (+ c 1))\n(print 5)\n(define d (+ e 1))")
    assert codes_in(lines) == ["E-EVAL-001", "E-EVAL-001"]
    assert "5" not in lines
    assert " --> <repl>:2:14" in lines
    assert " --> <repl>:4:14" in lines


def test_what_was_printed_before_an_error_is_shown(session: Session) -> None:
    lines = session.respond('(print "before") (nth [] 0)')
    assert lines[0] == "before"
    assert codes_in(lines) == ["E-EVAL-012"]


def test_draws_differ_within_an_input_and_between_inputs_and_last(session: Session) -> None:
    session.respond("(define a (normal [3]))")
    first, second = session.respond("(normal [3]) (normal [3])")
    assert first != second
    assert session.respond("(normal [3])") != [first]
    shown = session.respond("a")
    session.respond("(define relu 1)")  # makes the whole program again
    assert session.respond("a") == shown


# Guards at the prompt


def test_a_guard_that_counts_is_the_error_of_a_run_with_its_form_marked(session: Session) -> None:
    session.respond("1")
    lines = session.respond('(+ 1.0\n   (guard "a/b" 2.0 :layer 3 :kind :x))')
    text = " ".join(lines)
    assert "E-GUARD-001: guard a/b layer=3 kind=x counted 2 at step 2, expected 0; it is written at <repl>:2:4" in text
    marked = lines.index('2 |    (guard "a/b" 2.0 :layer 3 :kind :x))')
    assert lines[marked + 1] == "  |    " + "^" * len('(guard "a/b" 2.0 :layer 3 :kind :x)')


def test_nothing_is_carried_from_a_failing_input_into_the_next(session: Session) -> None:
    session.respond("5")
    session.respond('(define x (guard "a" 2.0))')
    assert codes_in(session.respond("x")) == ["E-EVAL-001"]
    assert session.respond('*1 (guard "a" 0.0)') == ["5", "0.0"]


def test_the_forms_of_one_series_are_summed_over_an_input_and_the_first_that_counts_is_told(session: Session) -> None:
    text = " ".join(session.respond('(guard "a" 0.0) (guard "a" 3.0) (guard "a" 4.0)'))
    assert "guard a counted 7 at step 1" in text
    assert "<repl>:1:17" in text


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ('(assert-finite "f" (array [nan inf 1.0]))', "guard f counted 2"),
        ('(metric "m" 3.0 :below 1.0 :above 5.0)', "guard m counted 2"),
        ('(metric "m" nan :below 1.0)', "guard m counted 1"),
        ('(diagnostic "d" 3.0 :above 3.0)', "guard d counted 1"),
        ('(define (f x) (guard "in" (count-where (> x 0.0)))) (f (ones [5]))', "guard in counted 5"),
    ],
)
def test_every_kind_of_guard_works_at_the_prompt(session: Session, text: str, counted: str) -> None:
    assert counted in " ".join(session.respond(text))


def test_the_inputs_are_the_steps_of_the_session_series(session: Session) -> None:
    session.respond('(metric "m" 1.0) (metric "m" 2.0)')
    session.respond('(metric "m" 4.0 :reduce :max) (metric "m" 7.0 :reduce :max)')
    session.respond('(guard "g" 2.0)')
    tracks = {t.label: list(t.recent) for t in session.tracks()}
    assert tracks == {"m": [(1, 1.5), (2, 7.0)], "guard/g": [(3, 2.0)]}


def test_what_the_function_of_a_gradient_reports_is_reported(session: Session) -> None:
    # y² at 2: where the second factor is tapped, its cotangent is the first factor
    assert session.respond("""((grad (lambda (y) (metric "m" (* 3.0 y)) (guard "g" (count-where (> y 2.0)))
        (diagnostic "d" y :below 3.0) (* y (tap-gradient y (lambda (g) (diagnostic "t" (* 10.0 g))))))) 2.0)""") == [
        "f32[] cpu 4.0"
    ]
    tracks = {t.label: list(t.recent) for t in session.tracks()}
    assert tracks == {"m": [(1, 6.0)], "guard/g": [(1, 0.0)], "d": [(1, 2.0)], "guard/d": [(1, 0.0)], "t": [(1, 20.0)]}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('(guard "bad" (count-where (> y 1.0))) (sum (* y y))', "guard bad counted 2 "),
        ('(sum (* y (assert-finite "bad" (/ y 0.0))))', "guard bad counted 3 "),
        ('(metric "bad" (sum y) :below 5.0) (sum (* y y))', "guard bad counted 1 "),
        ('(sum (* y (tap-gradient y (lambda (g) (diagnostic "bad" (max g) :below 2.0)))))', "guard bad counted 1 "),
    ],
)
def test_a_guard_in_the_function_of_a_gradient_refuses_the_input(session: Session, body: str, told: str) -> None:
    lines = session.respond(f"(define x ((grad (lambda (y) {body})) (array [1.0 2.0 3.0])))")
    assert codes_in(lines) == ["E-GUARD-001"]
    assert told in " ".join(lines)
    assert codes_in(session.respond("x")) == ["E-EVAL-001"]


def test_the_function_of_a_gradient_knows_the_step_of_the_session(session: Session) -> None:
    session.respond("1")
    assert session.respond("((grad (lambda (y) (* y (step)))) 1.0)") == ["f32[] cpu 2.0"]


def test_the_function_of_a_gradient_prints_nothing(session: Session) -> None:
    assert codes_in(session.respond("((grad (lambda (y) (print y) (* y y))) 2.0)")) == ["E-CONTRACT-015"]


def test_a_contract_holds_at_the_prompt_with_its_explanation(session: Session) -> None:
    lines = session.respond('(guard "x" (> 1.0 0.5))')
    assert codes_in(lines) == ["E-CONTRACT-020"]
    assert session.respond(",explain") == session.respond(",explain 020")


def test_the_value_of_a_guard_tells_what_violated(session: Session) -> None:
    session.respond("(define x (array [[1.0 2.0] [30.0 nan]]))")
    session.respond('(guard "big" (count-where (> x 9.0)))')
    text = "\n".join(session.respond(",value"))
    assert "f32[2 2], from 1 to 30, 1 NaN, 1 violating" in text
    assert "[1 0] 30.0" in text
    session.respond('(assert-finite "bad" (/ x 0.0))')
    assert "3 +inf" in "\n".join(session.respond(",value"))


def test_the_value_is_that_of_the_failing_input_whatever_was_typed_since(session: Session) -> None:
    session.respond('(guard "drawn" (count-where (< (uniform [4]) 2.0)))')
    first = session.respond(",value")
    session.respond("1")
    assert session.respond(",value") == first
    assert "4 violating" in " ".join(first)


# After an error


def test_why_where_and_fix(session: Session) -> None:
    assert codes_in(session.respond(",why")) == ["E-USE-021"]
    session.respond("(define (half x) (/ x (quotient 1 0)))")
    lines = session.respond("(half 3)")
    assert codes_in(lines) == ["E-EVAL-010"]
    assert session.respond(",where") == lines
    assert session.respond(",why")[0].startswith("E-EVAL-010")
    session.respond(",fix")
    # the fault is in the function, so the function comes back, the cursor on the division
    assert session.prefill == ("(define (half x) (/ x (quotient 1 0)))", 22)


def test_fix_brings_an_input_back_as_it_was_typed(session: Session) -> None:
    session.respond("(+ 1\n   (nope 2))")
    assert session.respond(",fix") == ["(+ 1", "   (nope 2))", "    ^"]
    assert session.prefill == ("(+ 1\n   (nope 2))", 9)


# Files


def test_a_file_is_loaded_and_its_names_are_in_scope(session: Session, line: str) -> None:
    assert "run line of 40 steps" in session.respond(f",load {line}")[-1]
    assert session.respond("(* 2.0 slope)") == ["6.0"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("(setting rate", "(setting rate (", "E-READ-003"),
        ("slope x", "slop x", "E-EVAL-001"),
        ("(count-where (> loss 100.0))", "(> loss 100.0)", "E-CONTRACT-020"),
        (":batch 8", ":bach 8", "E-CONTRACT-025"),
    ],
)
def test_a_file_with_an_error_is_refused_at_its_place(
    session: Session, line: str, old: str, new: str, code: str
) -> None:
    Path(line).write_text(LINE.replace(old, new))
    lines = session.respond(f",load {line}")
    assert code in codes_in(lines)
    assert any([f"{line}:" in text for text in lines])
    assert session.respond("(+ 1 1)") == ["2"]


@pytest.mark.parametrize(
    ("good", "bad"), [("slope x)}", "slop x)}"), ("(count-where (> loss 100.0))", "(> loss 100.0)")]
)
def test_a_refused_file_is_repaired_at_the_prompt(session: Session, line: str, good: str, bad: str) -> None:
    Path(line).write_text(LINE.replace(good, bad))
    assert codes_in(session.respond(f",load {line}"))
    session.respond(",fix")
    assert session.prefill is not None
    text, cursor = session.prefill
    assert text[cursor:].startswith(bad.split(maxsplit=1)[0])
    session.respond(text.replace(bad, good))
    assert "step 1/40" in session.respond(",step")[0]


def test_loading_another_time_takes_the_file_and_keeps_what_it_does_not_define(session: Session, line: str) -> None:
    session.respond("(define own 1) (define slope 99.0)")
    session.respond(f",load {line}")
    assert session.respond("[own slope]") == ["[1 3.0]"]
    session.respond("(define slope 5.0)")
    assert session.respond("slope") == ["5.0"]
    session.respond(",reload")
    assert session.respond("slope") == ["3.0"]


def test_a_file_that_changes_while_it_is_loaded_changes_nothing_until_it_is_read_again(
    session: Session, line: str
) -> None:
    session.respond(f",load {line}")
    Path(line).write_text("(((")
    assert "step 2/40" in session.respond(",step 2")[0]
    assert codes_in(session.respond(",reload"))
    assert "step 3/40" in session.respond(",step")[0]
    Path(line).unlink()
    assert codes_in(session.respond(",reload")) == ["E-READ-002"]


def test_save_writes_the_program_as_it_stands(session: Session, line: str, tmp_path: Path) -> None:
    session.respond(f",load {line}")
    session.respond("(define slope 4.0) (define more 1)")
    target = tmp_path / "saved.sx"
    session.respond(f",save {target}")
    assert target.read_text() == LINE.replace("(define slope 3.0)", "(define slope 4.0)") + "(define more 1)\n"
    other = Session(device="cpu")
    assert not codes_in(other.respond(f",load {target}"))
    other.close()
    assert codes_in(session.respond(f",save {line}")) == ["E-USE-021"]
    assert Path(line).read_text() == LINE


# The run


def test_steps_are_taken_one_by_one_and_the_run_ends(session: Session, line: str) -> None:
    session.respond(f",load {line}")
    assert session.respond(",step 3")[0] == "line  step 3/40  stopped"
    assert session.respond(",run")[0] == "line  step 40/40  done"
    assert codes_in(session.respond(",step")) == ["E-USE-021"]
    session.respond(",reload")
    assert session.respond(",step")[0] == "line  step 1/40  stopped"


def losses(session: Session) -> list[float]:
    assert session.live is not None
    return [v for t in session.live.log.in_order() if t.name == "train/loss" for _, v in t.recent]


def test_a_setting_takes_effect_at_the_next_step_and_the_state_goes_on(session: Session, line: str) -> None:
    session.respond(f",load {line}")
    session.respond(",step 5")
    session.respond(",set rate 0.0")
    session.respond(",step 5")
    session.respond(",set rate 0.5")
    session.respond(",step 20")
    assert session.live is not None
    w = session.live.runner.state.current.params["w"]
    # with a rate of zero the parameter stood still, and after it the run went on to the slope
    assert float(w[0, 0]) == pytest.approx(3.0, abs=0.1)
    assert len(losses(session)) == 30


def test_a_guard_that_fails_stops_at_its_step_and_repaired_the_run_goes_on(session: Session, line: str) -> None:
    session.respond(f",load {line}")
    session.respond(",step 2")
    session.respond(
        """(objective (batch)
             (let ((loss (mean (square (- (fitted-to (:x batch)) (:y batch))))))
               (guard "loss/high" (count-where (> loss -1.0)))
               (metric "train/loss" loss)
               loss))"""
    )
    text = " ".join(session.respond(",run"))
    assert "guard loss/high counted 1 at step 3, expected 0; it is written at <repl>:3:16" in text
    assert "line  step 2/40  failed" in text
    assert "what was compared: f32[]" in " ".join(session.respond(",value"))
    assert session.live is not None
    (failed,) = [t for t in session.live.log.in_order() if t.failed is not None]
    assert (failed.label, failed.failed) == ("guard/loss/high", 3)
    session.respond("(objective (batch) (let ((loss (mean (square (- (fitted-to (:x batch)) (:y batch)))))) loss))")
    assert session.respond(",run")[0] == "line  step 40/40  done"


def test_a_redefinition_that_changes_a_parameter_is_refused_and_nothing_is_lost(session: Session, line: str) -> None:
    session.respond(f",load {line}")
    session.respond(",step 2")
    session.respond('(define (fitted-to x) (* x (param "w" [1] :init zeros-init)))')
    lines = session.respond(",step")
    assert codes_in(lines) == ["E-USE-006"]
    assert "f32[1 1]" in " ".join(lines)
    session.respond('(define (fitted-to x) (@ x (param "w" [1 1] :init zeros-init)))')
    assert session.respond(",step")[0] == "line  step 3/40  stopped"


@pytest.fixture
def going_on(line: str) -> Iterator[Session]:
    """A run of very many steps that goes on behind the prompt."""
    Path(line).write_text(LINE.replace(":steps 40", ":steps 1_000_000"))
    made = Session(device="cpu", behind=True)
    assert not codes_in(made.respond(f",load {line}"))
    assert made.respond(",run") == []
    yield made
    made.close()


def steps_until(session: Session, step: int) -> None:
    assert session.live is not None
    end = time.monotonic() + 30
    while session.live.step < step and session.live.is_running:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_the_prompt_is_usable_while_a_run_goes_on_and_stop_stops_it(going_on: Session) -> None:
    steps_until(going_on, 3)
    assert going_on.respond("(+ 1 2)") == ["3"]
    assert going_on.live is not None
    assert going_on.live.is_running
    assert codes_in(going_on.respond(",step")) == ["E-USE-021"]
    assert going_on.respond(",stop")[0].endswith("stopped")
    assert not going_on.live.is_running


def test_a_definition_during_a_run_takes_effect_at_a_step_or_is_refused(going_on: Session) -> None:
    steps_until(going_on, 3)
    (said,) = going_on.respond("(define slope -2.0)")
    step = int(said.rsplit(" ", 1)[1])
    steps_until(going_on, step + 2000)
    assert going_on.live is not None
    refused = going_on.respond('(define (fitted-to x) (* x (param "w" [1] :init zeros-init)))')
    assert codes_in(refused) == ["E-USE-006"]
    contract = going_on.respond('(objective (batch) (guard "x" (> (mean (fitted-to (:x batch))) 0.0)))')
    assert codes_in(contract) == ["E-CONTRACT-020"]
    assert going_on.live.is_running
    going_on.respond(",stop")
    # it went on with the slope of the redefinition: what was refused changed nothing
    w = going_on.live.runner.state.current.params["w"]
    assert float(w[0, 0]) == pytest.approx(-2.0, abs=0.01)


def test_a_guard_that_fails_behind_the_prompt_is_heard_once(going_on: Session) -> None:
    steps_until(going_on, 3)
    going_on.respond(
        '(objective (batch) (guard "now" (count-where (= (fitted-to (:x batch)) (fitted-to (:x batch))))))'
    )
    assert going_on.live is not None
    assert going_on.live.wait(30)
    heard = going_on.hear()
    assert codes_in(heard) == ["E-GUARD-001"]
    assert "guard now counted 8 at step" in " ".join(heard)
    assert going_on.hear() == []
    panel = going_on.panel(80, 10)
    assert ("failed", "✗ ") in [fragment for row in panel for fragment in row]


def test_an_interrupted_evaluation_loses_nothing(session: Session) -> None:
    session.respond("(define a 1)")
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    lines = session.respond("(define b 2) (fold (n 0) (i (range 10000000)) (+ n i))")
    timer.join()
    assert lines == ["interrupted"]
    assert session.respond("a") == ["1"]


def test_steps_that_are_interrupted_have_ended_when_the_prompt_is_back(session: Session, line: str) -> None:
    Path(line).write_text(LINE.replace(":steps 40", ":steps 100_000_000"))
    session.respond(f",load {line}")
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    told = session.respond(",step 100000000")
    timer.join()
    assert session.interrupted
    assert re.fullmatch(r"line  step \d+/100000000  stopped", told[0])
    assert session.live is not None
    step = session.live.step
    assert session.respond(",step")[0] == f"line  step {step + 1}/100000000  stopped"
    assert not session.interrupted


def test_an_interrupted_pipe_says_so_and_ends(line: str) -> None:
    Path(line).write_text(LINE.replace(":steps 40", ":steps 100_000_000"))
    long = "1\n,help\n(fold (n 0) (i (range 10_000_000)) (fold (k 0) (j (range 1_000)) k))\n2"
    for text, out in ((f",load {line}\n,run\n1", "  stopped\n"), (long, "")):
        results, errors = io.StringIO(), io.StringIO()
        timer = threading.Timer(1.0, _thread.interrupt_main)
        timer.start()
        assert run_piped(text, results, errors, device="cpu") == 130
        timer.join()
        assert errors.getvalue() == ("" if out else "interrupted\n")
        assert out in results.getvalue()
        assert not results.getvalue().endswith(("1\n", "2\n"))


# Commands


def test_every_command_has_help_and_is_listed(session: Session) -> None:
    listed = "\n".join(session.respond(",help"))
    for name, command in COMMANDS.items():
        assert command.usage in listed
        assert session.respond(f",help {name}")[0] == command.usage
        assert command.doc.endswith(".")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (",type (sum (zeros [3 4]) :axis 0)", ["f32[4]"]),
        (",type (fold (n 0) (i (range 3)) (+ n i))", ["the number 3"]),
        (",type {:a (zeros [2]) :b 1}", ["a record", "  a f32[2]", "  b the number 1"]),
        (",graph (+ (ones [2]) 1.0)", ["%0 f32[2] = (ones :dtype f32 :shape [2])", "%1 f32[2] = (+ %0 1.0)"]),
        (
            ",doc nth",
            [
                "(nth list i)",
                "The element at place i, counted from 0, or from the end where i is negative.",
                "",
                "(nth [10 20 30] -1) ; => 30",
            ],
        ),
        (",doc guard", ['(guard "name" count :key value …)', "Counts `count`, a numeric scalar, and gives it back."]),
        (",series", ["there are no series yet"]),
        (",guards", ["there are no guards"]),
    ],
)
def test_what_is_looked_up(session: Session, text: str, lines: list[str]) -> None:
    assert session.respond(text) == lines


def test_type_computes_nothing(session: Session) -> None:
    begun = time.monotonic()
    product = "(@ (zeros [40000 40000]) (zeros [40000 40000]))"
    assert session.respond(f",type {product}") == ["f32[40000 40000]"]
    assert time.monotonic() - begun < 5  # computed it would take 6 GB and minutes


def test_apropos_time_contracts_and_graphs(session: Session, line: str) -> None:
    assert any([text.startswith("softmax") for text in session.respond(",apropos softmax")])
    assert re.match(r"[\d.]+ (s|ms|µs) \(best of \d+\): f32\[\]", session.respond(",time (sum (ones [10]))")[0])
    rules = re.findall(r"^E-CONTRACT-\d+", "\n".join(session.respond(",contracts")), re.MULTILINE)
    assert rules == [f"E-CONTRACT-{number:03}" for number in range(1, 27)]
    session.respond(f",load {line}")
    assert any(["(mean" in text or "(sum" in text for text in session.respond(",graph step")])
    assert "loss/high" in session.respond(",guards")[0]


def test_a_file_is_told_with_its_own_names(session: Session, line: str) -> None:
    session.respond("(define typed 1) (define slope 4.0)")
    assert session.respond(f",load {line}")[0].startswith(f"{line}: 4 names, run line of 40 steps; ")


@pytest.mark.parametrize("word", ["help", "quit", "exit", "?"])
def test_a_command_of_other_prompts_is_told_as_it_is_written_here(session: Session, word: str) -> None:
    meant = {"exit": "quit", "?": "help"}.get(word, word)
    for text in (word, f"({word})"):
        assert f"help: commands of the prompt begin with a comma: ,{meant}" in session.respond(text)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (80, ["loss/high-of-all layer=3  10  guard  step, pass accuracy  runs/a.sx:8:5"]),
        (
            60,
            [
                "loss/high-of-all layer=3  10  guard  step, pass accuracy",
                "    runs/a.sx:8:5",
            ],
        ),
        (
            40,
            [
                "loss/…ayer=3  10  guard  step, …curacy",
                "    runs/a.sx:8:5",
            ],
        ),
    ],
)
def test_a_table_fits_and_keeps_its_last_column_whole(width: int, lines: list[str]) -> None:
    row = ("loss/high-of-all layer=3", "10", "guard", "step, pass accuracy", "runs/a.sx:8:5")
    assert table([row], width, unicode=True) == lines
    # a row without a last column has no line below
    rest = table([row, ("x", "1", "", "prompt", "")], width, unicode=True)
    assert (rest[:-1], rest[-1].split()) == (lines, ["x", "1", "prompt"])


@pytest.mark.parametrize(
    "text",
    [
        ",", ",nope", ",load", ",load /nowhere/x.sx", ",load .", ",step", ",step x", ",step 0", ",step ²", ",run",
        ",stop", ",set", ",set x", ",set nope 3", ",watch", ",plot", ",plot nope", ",why", ",where", ",value", ",fix",
        ",explain E-NOPE", ",doc", ",doc nope", ",apropos", ",type", ",type (", ",type 1 2", ",type (define x 1)",
        ",graph", ",graph nope", ",time", ",time )", ",save", ",save /", ",save /nowhere/at/all", ",reset now", ",\n",
        ",,", ",\x00", ",load \x00", ",quit please", ",help nope", ",type (print 1)", ",type (param \"w\" [1])",
    ],
)  # fmt: skip
def test_a_command_given_wrongly_says_so_and_the_session_goes_on(session: Session, text: str) -> None:
    lines = session.respond(text)
    assert "E-RUN-041" not in codes_in(lines)
    assert session.respond("(+ 1 1)") == ["2"]


# Bad input


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "(]", '"', "#|", "'", "#;", "\x00", "\x1b[31m(+ 1 2)", "(+ 1 “2”)", "(define)", "(define 3 4)",
        "(define *1 3)", "(let ((x)) x)", "(run r)", "(objective (b) 1)", "(param \"w\" [1])", "(import \"no.sx\")",
        "(" * 5_000, "[" * 900 + "]" * 900, "(define (f n) (f (+ n 1))) (f 0)", "\ud800", "(import)",
        "(data d (npz 3))",
        "(curriculum)", "(setting)", "(prepare)", "(zeros [1000000000000])", "(print)", "()", "(update 3)", "1e999",
    ],
)  # fmt: skip
def test_no_text_ends_the_session(session: Session, text: str) -> None:
    lines = session.respond(text)
    assert "E-RUN-041" not in codes_in(lines)
    assert not any(["Traceback" in line or "\x1b" in line or "\x00" in line for line in lines])
    assert session.respond("(+ 1 1)") == ["2"]


def test_a_megabyte_is_read_and_refused_or_evaluated_within_seconds(session: Session) -> None:
    begun = time.monotonic()
    assert session.respond(f"(+ {'1 ' * 100})\n" * 5_000)[-1] == "100"
    assert codes_in(session.respond("(+ 1\n" * 200_000))
    assert time.monotonic() - begun < 60


# Pipes


@pytest.mark.parametrize(
    ("text", "out", "err", "status"),
    [
        ("(+ 1 2)", "3\n", "", 0),
        ("(define x 2)\n(* x 3)\n", "6\n", "", 0),
        ("(define (f) (g))\n(define (g) 1)\n(f)", "1\n", "", 0),
        ("(+ 1 2)\n(nope)", "", "E-EVAL-001", 4),
        ("(+ 1", "", "E-READ-003", 4),
        ('(guard "a" 1.0)', "", "E-GUARD-001", 3),
        (",nope", "", "E-USE-020", 2),
        ("1\n,nope\n2", "1\n", "E-USE-020", 2),
        ("1\n,quit\n2", "1\n", "", 0),
        (",type (+ 1\n 2)\n5", "the number 3\n5\n", "", 0),
        ("", "", "", 0),
    ],
)
def test_a_pipe_gives_results_errors_and_a_status(text: str, out: str, err: str, status: int) -> None:
    results, errors = io.StringIO(), io.StringIO()
    assert run_piped(text, results, errors, device="cpu") == status
    assert results.getvalue() == out
    assert errors.getvalue().startswith(err)
    assert bool(errors.getvalue()) == bool(err)


def test_places_in_a_pipe_are_those_of_the_whole_text() -> None:
    errors = io.StringIO()
    run_piped("1\n,help\n\n  (nope)", io.StringIO(), errors, device="cpu")
    assert " --> <repl>:4:4" in errors.getvalue()


def test_a_failing_guard_of_a_piped_run_gives_its_status(line: str) -> None:
    Path(line).write_text(LINE.replace("100.0", "-1.0"))
    out, err = io.StringIO(), io.StringIO()
    assert run_piped(f",load {line}\n,run\n", out, err, device="cpu") == 3
    assert "at step 1" in err.getvalue()


def test_inputs_are_cut_at_commands_and_nowhere_else() -> None:
    text = 'a\n,b\n(c\n,d)\n",e\n"\n;(\n,f\n'
    assert [piece for _, piece in inputs(text)] == ["a\n", ",b\n", '(c\n,d)\n",e\n"\n;(\n', ",f\n"]


@given(st.text())
def test_a_string_prints_as_the_language_writes_it(text: str) -> None:
    shown = written(text)
    assert shown.isprintable()
    (form,) = read(Source("t.sx", shown))
    assert isinstance(form, Text)
    assert form.value == text


def test_values_fit_the_screen() -> None:
    session = Session(device="cpu", screen=Screen(width=40, height=12))
    for text in ("(zeros [300 400])", "(zeros [5 6 7 8])", "(range 100000)", "(arange 100000)", "[(zeros [99 99]) 1]"):
        lines = session.respond(text)
        assert max([len(line) for line in lines]) <= 40 or text == "(range 100000)", lines
        assert len(lines) <= 14
    session.close()
