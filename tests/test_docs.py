"""Every page is a test: its programs are checked, its commands run, its transcripts answered, in the page's order.

In a page of README.md, tutorials/ and docs/, within a copy of the folder `tutorials`:

    ```sx            a program: no contract of it may be broken; with `sx> ` lines, inputs of one session for the page,
                     each followed by its answer; an input goes on in lines indented by four while a form is open
    ```sh            `$ ` lines are commands, each followed by all that it prints; a block without such is not run

and before a block

    <!-- file: runs/mine.sx -->         the program, of sx or Python, is kept under that name
    <!-- refused: E-CONTRACT-020 -->    the program is refused, by these codes
    <!-- fragment -->                   what can be read, and is no program
    <!-- not run -->                    commands for the reader alone

In what is printed `…` stands for any text of the line, and alone on a line for any lines.
`pytest --update-golden` writes what is printed now where it differs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sxi.checking import check_text
from sxi.errors import Incomplete
from sxi.reader import read
from sxi.session import Session
from sxi.source import Source

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "tutorials").glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PROMPT, SHELL = "sx> ", "$ "
# A command of a page trains for seconds, not for minutes.
SECONDS = 120


@dataclass
class Block:
    """A fenced block: its language, the number of its first line from 0, its lines, the comments before it."""

    language: str
    start: int
    lines: list[str]
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join([line + "\n" for line in self.lines])

    def turns(self, sign: str) -> list[Turn]:
        """What is entered behind `sign`, and what is printed until the next."""
        found: list[Turn] = []
        for number, line in enumerate(self.lines, self.start):
            if line.startswith(sign):
                found.append(Turn(line.removeprefix(sign), number + 1, []))
            elif found and not found[-1].printed and goes_on(found[-1].entered, line, sign):
                found[-1] = Turn(f"{found[-1].entered}\n{line}", number + 1, [])
            else:
                assert found, f"line {number + 1} stands before the first {sign!r}"
                found[-1].printed.append(line)
        return found


@dataclass
class Turn:
    """An input, the number of the line behind it from 0, and what it is said to print."""

    entered: str
    start: int
    printed: list[str]


def goes_on(entered: str, line: str, sign: str) -> bool:
    """Whether a line is the next one of an input."""
    if sign == SHELL:
        return entered.endswith("\\")
    if not line.startswith("    "):
        return False
    try:
        read(Source("page", entered))
    except Incomplete:
        return True
    return False


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page, each with the comments right before it."""
    found: list[Block] = []
    marks: dict[str, str] = {}
    open_block: Block | None = None
    for number, line in enumerate(text.splitlines()):
        if open_block is not None:
            if line == "```":
                found.append(open_block)
                open_block = None
            else:
                open_block.lines.append(line)
        elif line.startswith("```"):
            open_block = Block(line[3:].strip(), number + 1, [], marks)
            marks = {}
        elif comment := re.fullmatch(r"<!-- (file|refused|fragment|not run)(?:: (.*?))? -->", line):
            marks[comment[1]] = comment[2] or ""
        elif line.strip():
            marks = {}
    assert open_block is None, "a block is not closed"
    return found


# Doing what a page says


class Page:
    """One page, worked through in a copy of the tutorials."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.blocks = blocks_of(path.read_text(encoding="utf-8"))
        # the README's commands are given from the repository's folder
        self.working = folder if path.name == "README.md" else folder / "tutorials"
        self.tutorials = folder / "tutorials"
        self.session: Session | None = None
        self.done = 0
        self.changes: list[tuple[int, int, list[str]]] = []

    def perform(self) -> None:
        """Do every block.  Raises AssertionError at a program that is not what it is said to be."""
        try:
            for block in self.blocks:
                self.done += self.perform_block(block)
        finally:
            if self.session is not None:
                self.session.close()

    def perform_block(self, block: Block) -> bool:
        """Whether there was something to do."""
        if block.language == "sx" and block.text.startswith(PROMPT):
            self.compare(block.turns(PROMPT), self.answer)
        elif block.language == "sx":
            self.check_program(block)
        elif block.language == "sh" and block.text.startswith(SHELL) and "not run" not in block.marks:
            self.compare(block.turns(SHELL), self.run)
        elif block.language == "python" and "file" in block.marks:
            (self.tutorials / block.marks["file"]).write_text(block.text, encoding="utf-8")
        else:
            return False
        return True

    def check_program(self, block: Block) -> None:
        if "fragment" in block.marks:
            read(Source("page", block.text))
            return
        name = block.marks.get("file", "page.sx")
        path, shipped = self.tutorials / name, ROOT / "tutorials" / name
        if shipped.exists():
            assert shipped.read_text(encoding="utf-8") == block.text, f"line {block.start}: {name} ships otherwise"
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        errors = check_text(block.text, str(path))
        where = f"line {block.start}: " + "; ".join([f"{e.span}: {e}" for e in errors])
        assert [e.code for e in errors] == block.marks.get("refused", "").split(), where

    def answer(self, text: str) -> list[str]:
        if self.session is None:
            self.session = Session(device="cpu")
        return [part for line in self.session.respond(text) for part in line.split("\n")]

    def run(self, command: str) -> list[str]:
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.working, env=environment, stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
        )  # fmt: skip
        return done.stdout.splitlines()

    def compare(self, turns: list[Turn], respond: Callable[[str], list[str]]) -> None:
        for turn in turns:
            printed = [line.rstrip() for line in respond(turn.entered)]
            if not re.fullmatch(pattern(turn.printed), "".join([line + "\n" for line in printed])):
                self.changes.append((turn.start, len(turn.printed), printed))

    def changed(self) -> list[str]:
        """The page's lines with what is printed now."""
        lines = list(self.lines)
        for start, count, printed in reversed(self.changes):
            lines[start : start + count] = printed
        return lines


def pattern(printed: list[str]) -> str:
    """What matches the lines of a page: `…` any text of a line, alone on a line any lines."""
    lines = [r"(?:.*\n)*" if line == "…" else re.escape(line.rstrip()).replace("…", ".*") + "\n" for line in printed]
    return "".join(lines)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_does_what_it_says(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    shutil.copytree(ROOT / "tutorials", tmp_path / "tutorials", ignore=shutil.ignore_patterns("sxi-runs"))
    page = Page(path, tmp_path)
    monkeypatch.chdir(page.working)
    page.perform()
    if page.changes and pytestconfig.getoption("--update-golden"):
        path.write_text("\n".join(page.changed()) + "\n", encoding="utf-8")
        return
    shown = [
        f"line {at}: expected\n{chr(10).join(page.lines[at : at + n])}\nprinted\n{chr(10).join(now)}\n"
        for at, n, now in page.changes
    ]
    assert not page.changes, "\n".join(shown)


@pytest.mark.parametrize("path", sorted((ROOT / "tutorials/runs").glob("*.sx")), ids=lambda p: p.name)
def test_a_program_that_ships_breaks_no_contract(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "tutorials")
    assert check_text(path.read_text(encoding="utf-8"), str(path)) == []


def test_the_blocks_of_the_pages_were_all_found() -> None:
    """Counted another way: by the lines that open a block."""
    text = "\n".join([path.read_text(encoding="utf-8") for path in PAGES])
    fences = re.findall(r"^```(.*)$", text, re.MULTILINE)
    assert len(fences) % 2 == 0
    blocks = [block for path in PAGES for block in blocks_of(path.read_text(encoding="utf-8"))]
    assert len(blocks) == len(fences) // 2
    commands = [block for block in blocks if block.language == "sh" and SHELL in [line[:2] for line in block.lines]]
    assert len(commands) >= 10
    assert len([block for block in blocks if block.language == "sx"]) >= 10
    # what looks like a transcript is one
    for block in blocks:
        signs = [line for line in block.lines if line.startswith((PROMPT, "$ sxi"))]
        assert not signs or block.language in ("sx", "sh"), f"{signs[0]!r} stands in a block of {block.language!r}"


# The pattern itself


@pytest.mark.parametrize(
    ("said", "printed", "matches"),
    [
        (["a"], ["a"], True),
        (["a"], ["a", "b"], False),
        (["a"], [], False),
        ([], [], True),
        ([], ["a"], False),
        (["a", "…"], ["a"], True),
        (["a", "…"], ["a", "b", "c"], True),
        (["a", "…", "c"], ["a", "b"], False),
        (["at step …, 0"], ["at step 195, 0"], True),
        (["at step …, 0"], ["at step 195", "x, 0"], False),
        (["1.5"], ["175"], False),
    ],
)
def test_an_ellipsis_stands_for_what_differs(said: list[str], printed: list[str], matches: bool) -> None:
    assert bool(re.fullmatch(pattern(said), "".join([line + "\n" for line in printed]))) == matches


def test_the_first_command_is_what_ci_runs() -> None:
    """The README's line that sets up and passes the tests, to the letter, after all that CI checks besides."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (command,) = [line for line in readme.splitlines() if line.startswith("python3 -m venv") and "pytest" in line]
    lines = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    assert lines[-1] == command
    assert os.access(ROOT / ".ci/run", os.X_OK)
    for check in ("ruff check .", "ruff format --check .", "mypy"):
        assert f".venv/bin/{check}" in lines
