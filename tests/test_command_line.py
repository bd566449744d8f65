"""The command line wrongly used: one error of ours with its exit status, its usage and one near word."""

from __future__ import annotations

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
    ("run --device cuad p.sx", "--device: cuad is not one of auto, cpu, cuda, strict", "did you mean cuda?"),
    ("check p.sx --format jsn", "--format: jsn is not one of text, json, github", "did you mean json?"),
    ("run --steps x p.sx", "--steps: x is not a whole number", "sxi run --help tells what it takes"),
    ("run --steps 0 p.sx", "--steps: 0 is not in the range x>=1", "sxi run --help tells what it takes"),
    ("run --seed", "--seed needs a value", "sxi --help tells what it takes"),
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
