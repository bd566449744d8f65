"""The prompt in a real pseudo-terminal: what a user sees, and that the terminal is as it was afterwards."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal import Terminal

RUN = "import sys; from sxi.__main__ import main; sys.argv[1:] = {arguments!r}; main()"
GOING_ON = """
(generator points (n) {:x (uniform [n 1])})
(objective (batch)
  (let ((loss (mean (square (@ (:x batch) (param "w" [1 1] :init zeros-init))))))
    (guard "never" 0.0)
    (metric "train/loss" loss)
    loss))
(run line :data points :batch 4 :steps 100_000_000 :optimizer (sgd :lr 0.0))
"""
FAILING = '(objective (batch) (guard "now" (count-where (< (@ (:x batch) (param "w" [1 1] :init zeros-init)) 1.0))))'

Start = Callable[..., Terminal]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Terminal] = []

    def begin(*arguments: str, columns: int = 80, rows: int = 24, **environment: str) -> Terminal:
        given = {"SXI_HISTORY": str(tmp_path / "history"), **environment}
        terminal = Terminal(["-c", RUN.format(arguments=list(arguments))], columns, rows, given)
        made.append(terminal)
        terminal.wait_for("sx>")
        return terminal

    yield begin
    for terminal in made:
        terminal.close()


@pytest.fixture
def going_on(tmp_path: Path) -> str:
    path = tmp_path / "line.sx"
    path.write_text(GOING_ON)
    return str(path)


def leave(terminal: Terminal) -> int:
    terminal.wait_for_prompt()
    terminal.send("\x04")
    return terminal.end()


def answers(terminal: Terminal) -> bool:
    """Whether the prompt still evaluates."""
    terminal.wait_for_prompt()
    terminal.send("(* 2 3617)\r")
    terminal.wait_for("\n7234", 60)
    return "Traceback" not in terminal.shown()


def test_a_form_over_lines_is_evaluated_and_kept_and_the_terminal_restored(start: Start, tmp_path: Path) -> None:
    terminal = start()
    terminal.send("(define (twice x)\r(* 2 x))\r")
    terminal.send("(twice 21)\r")
    terminal.wait_for("\n42")
    # the second line is indented, and the bracket that is open stands before it
    assert "  (   (* 2 x))" in terminal.lines()
    assert leave(terminal) == 0
    assert terminal.mode() == terminal.initial
    kept = tmp_path / "history"
    assert [json.loads(line) for line in kept.read_text().splitlines()] == [
        "(define (twice x)\n  (* 2 x))",
        "(twice 21)",
    ]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_an_earlier_input_comes_back_by_search(start: Start, tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b'"(+ 1 1)"\n"(* 111 3)"\n\xff\xfe\x00{garbage\n[1]\n"(+ 2 2)"\n')
    terminal = start()
    terminal.send("\x12111")
    terminal.wait_for("(* 111 3)")
    terminal.send("\r")
    terminal.read(0.3)
    terminal.send("\r")
    terminal.wait_for("\n333")


@pytest.mark.parametrize("path", ["/proc/nowhere/history", "."])
def test_a_history_that_cannot_be_written_is_no_reason_to_stop(start: Start, path: str) -> None:
    terminal = start(SXI_HISTORY=path)
    assert answers(terminal)
    assert leave(terminal) == 0


def test_control_c_clears_a_line_and_ends_an_evaluation_and_nothing_is_lost(start: Start) -> None:
    terminal = start()
    terminal.send("(define kept 7)\r(print kept)\r")
    terminal.wait_for("\n7")
    terminal.wait_for_prompt()
    terminal.send("(+ 1 (nope")
    terminal.read(0.3)
    terminal.send("\x03")
    terminal.wait_for_prompt()
    terminal.send("(fold (n 0) (i (range 10_000_000)) (+ n i))\r")
    terminal.read(1.0)
    terminal.send("\x03")
    terminal.wait_for("interrupted")
    terminal.wait_for_prompt()
    terminal.send("(fold (a (ones [800 800])) (i (range 10_000)) (@ a a))\r")  # each product in one call
    terminal.read(1.0)
    terminal.send("\x03")
    terminal.wait_for_prompt()
    terminal.send("(* kept 6)\r")
    terminal.wait_for("\n42")


def test_an_error_is_shown_with_its_form_marked_and_fix_brings_it_back(start: Start) -> None:
    terminal = start()
    terminal.send('(guard "a" 2.0)\r')
    terminal.wait_for("^^^^^^^^^^^^^^^")
    assert "guard a counted 2 at step 1" in terminal.shown()
    terminal.send("(+ 1 (nope 2))\r")
    terminal.wait_for("nope is not defined")
    terminal.send(",fix\r")
    terminal.wait_for_prompt("sx> (+ 1 (nope 2))")
    terminal.read(0.5)
    row = terminal.lines()[terminal.screen.cursor.y]
    assert row[terminal.screen.cursor.x :] == "nope 2))"
    terminal.send("\x1b[3~" * 4 + "abs\r")
    terminal.wait_for("\n3")


def test_completion_and_matching_brackets(start: Start) -> None:
    terminal = start()
    assert answers(terminal)
    terminal.wait_for_prompt()
    terminal.send("(softm\t")
    terminal.wait_for_prompt("sx> (softmax")
    terminal.send(" (zeros [2]) :a\t")
    terminal.wait_for_prompt("sx> (softmax (zeros [2]) :axis")
    terminal.send("\x03")
    terminal.wait_for_prompt()
    terminal.send('(a ")" (b))')
    terminal.wait_for_prompt('sx> (a ")" (b))')
    terminal.read(0.3)
    row = terminal.screen.buffer[terminal.screen.cursor.y]
    # the outer pair, not the bracket in the string
    assert [x for x in range(40) if row[x].underscore] == [4, 14]


def panel_is_whole(lines: list[str]) -> bool:
    """Whether the run is shown once, its guard below its title."""
    titles = [n for n, line in enumerate(lines) if line.startswith("line ")]
    guard = lines[titles[0] + 1] if len(titles) == 1 else ""
    return "guard/never" in guard and "0" in guard.split()


def test_a_run_goes_on_behind_the_prompt_at_every_size(start: Start, going_on: str) -> None:
    terminal = start("repl", going_on)
    terminal.send(",run\r")
    terminal.wait_for("guard/never")
    for columns, rows in ((40, 15), (200, 60), (20, 10), (80, 24)):
        terminal.resize(columns, rows)
        terminal.read(0.8)
        terminal.send("(+ 40 2)")
        terminal.wait_for_prompt("sx> (+ 40 2)")
        if rows > 10:
            terminal.wait_until(panel_is_whole)
        terminal.send("\r")
        terminal.wait_for("\n42")
        terminal.wait_for_prompt()
        terminal.screen.reset()
        terminal.send("\x0c")
        terminal.read(0.3)
    # what is drawn is bounded: five panels a second, each of a few hundred bytes
    before = len(terminal.output)
    terminal.read(2.0)
    assert 0 < len(terminal.output) - before < 2 * 5 * 2_000
    terminal.send(",stop\r")
    terminal.wait_for("stopped")
    assert leave(terminal) == 0


def test_a_guard_that_fails_behind_the_prompt_prints_its_frame_and_is_marked(start: Start, going_on: str) -> None:
    terminal = start("repl", going_on)
    terminal.send(",run\r")
    terminal.wait_for("running")
    terminal.send(FAILING + "\r")
    terminal.wait_for("the run takes it at step")
    terminal.wait_for("guard now counted 4 at step")
    terminal.wait_for("✗ guard/now")
    terminal.send(",value\r")
    terminal.wait_for("what was compared: f32[4 1]")
    assert answers(terminal)


def test_a_megabyte_is_pasted(start: Start) -> None:
    terminal = start()
    assert answers(terminal)
    terminal.wait_for_prompt()
    text = f"(+ {'1 ' * 1_000})\r" * 500
    terminal.send(f"\x1b[200~{text}\x1b[201~")
    terminal.wait_for("characters pasted", 60)
    terminal.wait_for("\n1000", 60)
    terminal.wait_for_prompt(seconds=60)
    terminal.screen.reset()
    terminal.send("\x0c")
    assert answers(terminal)


def test_a_paste_of_anything_is_answered(start: Start) -> None:
    terminal = start(columns=40, rows=12)
    for text in ("(+ 1\x00\x1b[31m 2)", ")))", '"open', "(a\tb\x07c)", "“curly”", "(zeros [30 40])", "\x1b[2J"):
        terminal.wait_for_prompt()
        terminal.send(f"\x1b[200~{text}\x1b[201~\r")
        terminal.read(0.5)
        terminal.send("\x03")
    assert answers(terminal)


def test_lines_of_forty_columns_are_broken_at_spaces(start: Start, going_on: str) -> None:
    terminal = start(columns=40, rows=24)
    assert terminal.lines()[1].strip() == ",help lists the commands, Ctrl-D leaves"
    terminal.send(f",load {going_on}\r")
    terminal.wait_for("takes them")
    assert "steps; ,run or ,step takes them" in " ".join([line.strip() for line in terminal.lines()])
    terminal.wait_for_prompt()
    terminal.send(",guards\r")
    terminal.wait_for("line.sx:5:5")
    assert "never  -  guard  step" in [line.rstrip() for line in terminal.lines()]


def test_an_interrupted_step_is_told_on_a_line_of_its_own(start: Start, going_on: str) -> None:
    terminal = start("repl", going_on)
    terminal.send(",step 100000000\r")
    terminal.read(1.0)
    terminal.send("\x03")
    terminal.wait_for("stopped")
    assert any([line.startswith("line  step ") for line in terminal.lines()])
    assert answers(terminal)


def test_a_terminal_of_twenty_columns(start: Start) -> None:
    terminal = start(columns=20, rows=12)
    terminal.send("(zeros [30 40])\r")
    terminal.wait_for("f32[30 40] cpu")
    terminal.send("(nope)\r")
    terminal.wait_for("E-EVAL-001")
    assert answers(terminal)
    assert leave(terminal) == 0


def test_a_dumb_terminal_has_a_plain_prompt(start: Start) -> None:
    terminal = start(TERM="dumb")
    terminal.send("(+ 40\n2)\n")
    terminal.wait_for("42")
    terminal.send("(nope)\n")
    terminal.wait_for("nope is not defined")
    terminal.send("(+ 1\x03")
    terminal.read(0.3)
    terminal.send("(+ 1 (* 2 21))\n")
    terminal.wait_for("43")
    assert b"\x1b" not in terminal.output
    assert leave(terminal) == 0
    assert terminal.output.endswith(b"\n")


def test_the_terminal_is_restored_when_the_process_is_ended(start: Start) -> None:
    terminal = start()
    assert answers(terminal)
    terminal.wait_for_prompt()
    assert terminal.mode() != terminal.initial
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.end() == 128 + signal.SIGTERM
    assert terminal.mode() == terminal.initial
    assert "Traceback" not in terminal.shown()
