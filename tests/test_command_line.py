"""The command line wrongly used: one error of ours with its exit status, its usage and one near word."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.golden_files import perform

MISUSES = [
    ("chekc p.sx", "sxi has no command chekc", "did you mean check?"),
    ("frobnicate", "sxi has no command frobnicate", "sxi --help tells what it takes"),
    ("run --stpes 3 p.sx", "sxi run has no option --stpes", "did you mean --steps?"),
    ("--wat", "sxi has no option --wat", "sxi --help tells what it takes"),
    ("run --device gpu p.sx", "--device: gpu is not one of auto, cpu, cuda, strict", "did you mean cuda?"),
    ("run --device cuad p.sx", "--device: cuad is not one of auto, cpu, cuda, strict", "did you mean cuda?"),
    ("check p.sx --format jsn", "--format: jsn is not one of text, json, github", "did you mean json?"),
    ("run --steps x p.sx", "--steps: x is not a whole number", "sxi run --help tells what it takes"),
    ("run --steps 0 p.sx", "--steps: 0 is not in the range x>=1", "sxi run --help tells what it takes"),
    ("run --seed", "--seed needs a value", "sxi run --help tells what it takes"),
    ("run p.sx --out=", "--out needs a value", "sxi run --help tells what it takes"),
    ("runs/p.sx", "sxi has no command runs/p.sx", "sxi run runs/p.sx trains, sxi repl runs/p.sx prompts"),
    ("(+)", "sxi has no command (+)", "sxi -e TEXT evaluates a text"),
    ("rpl", "sxi has no command rpl", "did you mean repl?"),
    ("run", "sxi run needs FILE", "sxi run --help tells what it takes"),
    ("check", "sxi check needs FILE", "sxi check --help tells what it takes"),
    ("run a.sx b.sx", "sxi run got unexpected extra argument (b.sx)", "sxi run --help tells what it takes"),
]


@pytest.mark.parametrize(("arguments", "message", "repair"), MISUSES)
def test_what_is_wrong_is_told_as_an_error(arguments: str, message: str, repair: str) -> None:
    status, out, err = perform(arguments.split())
    assert (status, out) == (2, [])
    assert err[0] == f"E-USE-009: {message}"
    assert err[1].startswith("note: it is written sxi ")
    assert err[2:] == [f"help: {repair}", "why:  sxi explain E-USE-009"]


@pytest.mark.parametrize("arguments", [[], ["run"], ["check"], ["explain"], ["status"], ["replay"], ["evaluate"]])
@pytest.mark.parametrize("columns", [40, 72, 250])
def test_help_keeps_to_the_terminal(arguments: list[str], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    status, out, err = perform([*arguments, "--help"])
    assert (status, err) == (0, [])
    assert out[0].startswith(f"Usage: {' '.join(['sxi', *arguments])} ")
    # a paragraph that keeps its own lines, as exit statuses do, is not broken anew
    assert [line for line in out if len(line) > max(81, min(columns, 100))] == []


@pytest.mark.parametrize(("columns", "said"), [("30", 40), ("77", 77), ("999", 200), ("", 80), ("x", 80), ("0", 80)])
def test_the_width_is_what_the_environment_says(columns: str, said: int) -> None:
    code = "from sxi.cli import _width; print(_width())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "COLUMNS": columns}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{said}\n"


def shell(line: str, **environment: str) -> tuple[int, str, str]:
    """What `sxi` gives, started as a process by a shell: its status, stdout and stderr."""
    line = line.replace("sxi ", f"{sys.executable} -m sxi ", 1)
    done = subprocess.run(["/bin/sh", "-c", line], env={**os.environ, **environment}, capture_output=True, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize("command", ["explain 020", "check none.sx", "--help", "-e '(+ 1 2)'"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_without_room_for_the_output_is_told(command: str, unbuffered: str) -> None:
    status, _, err = shell(f"sxi {command} > /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert status == 1
    assert err.startswith("E-RUN-034: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("sxi explain 020 >&-", 0),
        ("sxi check none.sx >&-", 2),
        ("sxi run none.sx 2>&-", 2),
        ("sxi -e '(+ 1 2)' >&-", 0),
        ("sxi -e '(+ 1 nowhere)' 2>&-", 4),
        ("sxi - <&-", 0),
        ("sxi repl <&-", 0),
    ],
)
def test_a_closed_stream_is_one_that_leads_nowhere(line: str, status: int) -> None:
    assert shell(line) == (status, "", "")


def test_a_stream_of_ascii_gets_ascii() -> None:
    assert shell("sxi explain guard", PYTHONIOENCODING="ascii")[1].splitlines()[0].endswith(":key value ...)")
    assert shell("sxi -e '\"日本\"'", PYTHONIOENCODING="ascii") == (0, '"\\u{65E5}\\u{672C}"\n', "")
    _, out, _ = shell("sxi check 日本ß.sx --format json", PYTHONIOENCODING="ascii")
    assert json.loads(out)[0]["message"] == "there is no file 日本ß.sx"
    assert out.isascii()
