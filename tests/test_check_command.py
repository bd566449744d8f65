"""`sxi check FILE…`: several files, each once; what is written as text, as JSON, for GitHub; the exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from sxi.errors import CODES
from tests.golden_files import perform

GOOD = """(generator points (n) {:x (normal [n 3])})
(objective (batch) (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
(run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
"""
SHARED = '(define (checked x)\n  (guard "far" (> x 9.0))\n  x)\n'
USES = f'(import "shared.sx")\n{GOOD.replace("(:x batch)", "(checked (:x batch))")}'


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = {
        "good.sx": GOOD, "shared.sx": SHARED, "one.sx": USES, "two.sx": USES + "(define y (sqare 2.0))\n",
        "name.sx": "(define y (sqare 2.0))\n(define z (sqare 3.0))\n",
        "odd, name: %.sx": "(define x (1",
    }  # fmt: skip
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")


def check(*arguments: str) -> tuple[int, list[str]]:
    status, out, err = perform(["check", *arguments])
    assert err == []
    return status, out


def heads(lines: list[str]) -> list[str]:
    """What is said of each file and each error: its line, or its code and its place."""
    text = "\n".join(lines)
    return [
        f"{m[1]} {m[2]}" if m[1] else m[0]
        for m in re.finditer(r"(?m)^(E-\S+): .*\n(?:.*\n)*? *--> (.*)|^.*: no .*", text)
    ]


def test_a_file_without_an_error() -> None:
    assert check("good.sx") == (0, ["good.sx: no contract is broken"])


def test_the_errors_of_a_file_stand_apart() -> None:
    status, out = check("name.sx")
    assert (status, heads(out)) == (4, ["E-EVAL-001 name.sx:1:12", "E-EVAL-001 name.sx:2:12"])
    assert out[out.index("why:  sxi explain E-EVAL-001") + 1] == ""


def test_files_are_told_in_the_order_given_and_each_once() -> None:
    status, out = check("name.sx", "good.sx", "name.sx")
    assert status == 4
    assert heads(out) == ["E-EVAL-001 name.sx:1:12", "E-EVAL-001 name.sx:2:12", "good.sx: no contract is broken"]


def test_what_several_files_import_is_told_once() -> None:
    # the guard of the shared file is refused in both; where the second could not be resolved, it was not walked
    status, out = check("one.sx", "one.sx", "good.sx")
    assert (status, heads(out)) == (4, ["E-CONTRACT-020 shared.sx:2:16", "good.sx: no contract is broken"])
    Path("two.sx").write_text(USES, encoding="utf-8")
    assert heads(check("one.sx", "two.sx")[1]) == ["E-CONTRACT-020 shared.sx:2:16"]
    assert check("two.sx", "good.sx")[0] == 4


def test_a_missing_file_is_wrong_usage_and_the_others_are_checked() -> None:
    status, out = check("god.sx", "good.sx")
    assert status == 2
    assert out[:2] == ["E-USE-003: there is no file god.sx", "help: did you mean good.sx?"]
    assert out[-1] == "good.sx: no contract is broken"
    # a refused program weighs more
    assert check("god.sx", "name.sx")[0] == 4


def test_settings() -> None:
    Path("set.sx").write_text("(setting n 1)\n(define x (nth [1 2] n))\n", encoding="utf-8")
    assert check("set.sx", "--set", "n=0")[0] == 0
    assert heads(check("set.sx", "--set", "n=2")[1]) == ["E-EVAL-012 set.sx:2:22"]
    status, out = check("set.sx", "--set", "m=2")
    assert (status, out[0]) == (4, "E-EVAL-016: setting m: the file has no such setting")


# JSON


def test_json_is_one_list_of_every_finding() -> None:
    status, out = check("name.sx", "one.sx", "god.sx", "good.sx", "--format", "json")
    found = json.loads("\n".join(out))
    assert status == 4
    assert [e["code"] for e in found] == ["E-EVAL-001", "E-EVAL-001", "E-CONTRACT-020", "E-USE-003"]
    for error in found:
        assert_is_a_diagnostic(error)
    assert check("good.sx", "--format", "json") == (0, ["[]"])


def test_what_a_finding_holds() -> None:
    status, out = check("one.sx", "--format", "json")
    (found,) = json.loads("\n".join(out))
    assert status == 4
    assert found == {
        "code": "E-CONTRACT-020", "severity": "error",
        "message": "the count of guard far is bool[4 3], and a count is a numeric scalar",
        "file": "shared.sx", "span": span((2, 16), (2, 25)), "label": "bool[4 3]", "labels": [],
        "chain": [{"call": "checked", "file": "one.sx", "span": span((3, 37), (3, 57))}],
        "notes": [], "help": "count the mask: (count-where (> x 9.0))", "data": {},
    }  # fmt: skip


def span(start: tuple[int, int], end: tuple[int, int]) -> dict[str, Any]:
    return {
        "start": {"line": start[0], "column": start[1]},
        "end": {"line": end[0], "column": end[1]},
    }


def assert_is_a_diagnostic(found: dict[str, Any]) -> None:
    kinds = {
        "code": str, "severity": str, "message": str, "file": str | None, "span": dict | None, "label": str,
        "labels": list, "chain": list, "notes": list, "help": str, "data": dict,
    }  # fmt: skip
    assert list(found) == list(kinds)
    for key, kind in kinds.items():
        assert isinstance(found[key], kind), key
    assert found["code"] in CODES
    assert found["severity"] == "error"
    assert (found["file"] is None) == (found["span"] is None)
    for place in [found, *found["labels"], *found["chain"]]:
        if place["span"] is not None:
            ends = [(place["span"][end]["line"], place["span"][end]["column"]) for end in ("start", "end")]
            assert (1, 1) <= ends[0] <= ends[1]


# GitHub


def test_github_gets_one_line_for_each_finding() -> None:
    status, out = check("name.sx", "god.sx", "good.sx", "--format", "github")
    assert status == 4
    assert out == [
        "::error file=name.sx,line=1,col=12::E-EVAL-001: sqare is not defined",
        "::error file=name.sx,line=2,col=12::E-EVAL-001: sqare is not defined",
        "::error::E-USE-003: there is no file god.sx",
    ]


def test_github_reads_every_path_and_message_whole() -> None:
    _, out = check("odd, name: %.sx", "--format", "github")
    assert out == ["::error file=odd%2C name%3A %25.sx,line=1,col=11::E-READ-003: ( is not closed"]


# Colours


@pytest.mark.parametrize(("colour", "escapes"), [(None, False), ("0", False), ("1", True)])
def test_colours_are_for_who_wants_them(colour: str | None, escapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR")
    if colour is not None:
        monkeypatch.setenv("FORCE_COLOR", colour)
    text = "\n".join(check("name.sx")[1])
    assert ("\x1b" in text) == escapes
    if escapes:
        assert "\x1b[1;31mE-EVAL-001:\x1b[0m\x1b[1m sqare is not defined\x1b[0m" in text
        assert "\x1b[1;31m^^^^^\x1b[0m" in text
        assert "\x1b[1;32mhelp:\x1b[0m did you mean square?" in text
        assert "\x1b[2mwhy:\x1b[0m  \x1b[2msxi explain E-EVAL-001\x1b[0m" in text
