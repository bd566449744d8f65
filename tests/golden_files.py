"""A golden program, `tests/golden/<feature>/<case>.sx`, holds what is done with it and what must come of it.

    ;! run --steps 3                   the command; `run` where there is no such line
    ;! data bad: f32[6] 0*4 nan 0      a column of data.npz beside the program; `0*4` is four zeros
    ;! file more.sx: (define n 3)      a line of another file beside it
    (guard 3)
    ; ^ E-EVAL-005                     a refused program: the code under the form's first character
    ;< E-CONTRACT-025                  the same for a form in column 1

    ;> exit 3
    ;> stdout: …    ;> stderr: …       every line of both, the progress line left out
    ;> status failed step=2
    ;> series guard/x/large layer=3: 0 0 2
    ;> series accuracy pass=held: 2=0.5 4=0.75
    ;> annotation 3 guard x/large failed
    ;> checkpoints 000002

`exit`, `stdout` and `stderr` are always compared whole.  Of the others a kind is compared whole where the file
has one of it, series excepted: those named are compared, all their values; one without values is not there.
A series has a value a step from step 1 on, else each is written `step=value`.

A program that is run is run three times: as it is, with `--no-plan`, where the stream must be the same to the
last bit, and with `--device strict`, where the host may read once a step and once a pass.
`pytest --update-golden` rewrites the `;>` lines, and gives a file without any all that there is; review the diff.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent / "golden"
# What follows the loss on a progress line depends on the machine.
PROGRESS = re.compile(r"^step \d+/\d+ ")
READS = re.compile(r"^\d+ × \S+ at ")
MARK = re.compile(r"\s*;(?: *\^|<) (E-[A-Z]+-\d{3})")


# Plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite what golden programs and documents expect")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".sx" and file_path.is_relative_to(ROOT):
        return GoldenFile.from_parent(parent, path=file_path)
    return None


class GoldenFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        text = self.path.read_text(encoding="utf-8")
        yield GoldenItem.from_parent(self, name="plain", check=compare_plain)
        if Golden(self.path.name, text).command[0] == "run":
            yield GoldenItem.from_parent(self, name="no-plan", check=compare_without_plan)
            yield GoldenItem.from_parent(self, name="strict", check=compare_strict)


class GoldenItem(pytest.Item):
    def __init__(self, *, check: Any, **rest: Any) -> None:
        super().__init__(**rest)
        self.check = check

    def runtest(self) -> None:
        folders = self.config._tmp_path_factory.mktemp("golden")  # type: ignore[attr-defined]  # an item has no fixtures
        if self.name == "plain" and self.config.getoption("--update-golden"):
            update(self.path, folders)
        self.check(Golden(self.path.name, self.path.read_text(encoding="utf-8")), folders)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Mismatch):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.relative_to(ROOT)} ({self.name})"


class Mismatch(AssertionError):
    """What a program gave differs from what it says."""


# Reading a program


@dataclass
class Golden:
    """A golden program: its text, its command, the files beside it, what it expects."""

    name: str
    text: str
    command: list[str] = field(init=False)

    def __post_init__(self) -> None:
        given = [line for line in self.headers() if not re.match(r"(data|file) ", line)]
        if len(given) > 1:
            raise ValueError(f"{self.name} has two commands")
        self.command = shlex.split(given[0]) if given else ["run"]

    def headers(self) -> list[str]:
        return [line[2:].strip() for line in self.text.splitlines() if line.startswith(";!")]

    @property
    def expected(self) -> list[str]:
        return [line[3:] for line in self.text.splitlines() if line.startswith(";>")]

    @property
    def marks(self) -> list[tuple[int, int, str]]:
        """Line, column and code of each place that a comment points at, in the line above it."""
        found, above = [], 0
        for number, line in enumerate(self.text.splitlines(), 1):
            mark = MARK.fullmatch(line)
            if mark is None:
                above = number
            else:
                found.append((above, line.index("^") + 1 if "^" in line else 1, mark[1]))
        return found

    def write(self, folder: Path) -> None:
        """Put the program, its data and its other files into `folder`."""
        (folder / self.name).write_text(self.text, encoding="utf-8")
        columns = {}
        for line in self.headers():
            kind, _, rest = line.partition(" ")
            name, _, value = rest.partition(":")
            if kind == "data":
                columns[name] = column(value)
            elif kind == "file":
                with open(folder / name, "a", encoding="utf-8") as file:
                    file.write(value.strip() + "\n")
        if columns:
            import numpy as np  # noqa: PLC0415  # conftest imports this file before it sets the threads

            np.savez(folder / "data.npz", **columns)


def column(text: str) -> Any:
    """The array that `f32[3] 1 nan*2` writes."""
    import numpy as np  # noqa: PLC0415  # as above

    kind, _, values = text.strip().partition("]")
    dtype, _, shape = kind.partition("[")
    numbers: list[Any] = []
    for word in values.split():
        value, _, times = word.partition("*")
        numbers += [value] * int(times or 1)
    kinds: dict[str, Any] = {"i": int, "b": lambda x: x == "true"}
    read = kinds.get(dtype[0], float)
    names = {"f32": "float32", "f64": "float64", "f16": "float16", "i32": "int32", "i64": "int64", "bool": "bool"}
    return np.array([read(x) for x in numbers], names[dtype]).reshape([int(n) for n in shape.split()])


# Running it


@dataclass
class Outcome:
    """What a command gave: its status, its lines, and what a run left.

    series:  name and metadata -> (step, value as written), in order
    """

    exit: int
    stdout: list[str]
    stderr: list[str]
    found: list[tuple[int, int, str]]
    status: str | None = None
    series: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    annotations: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    stream: list[str] = field(default_factory=list)

    def lines(self, expected: list[str]) -> list[str]:
        """What a file that expects the kinds and series of `expected` must say; all where it expects nothing."""
        kinds = {re.match(r"\w*", line)[0] for line in expected}  # type: ignore[index]  # it matches nothing too
        everything = not expected
        lines = [f"exit {self.exit}"]
        lines += [f"stdout: {line}".rstrip() for line in self.stdout]
        lines += [f"stderr: {line}".rstrip() for line in self.stderr]
        if self.status is not None and (everything or "status" in kinds):
            lines.append(f"status {self.status}")
        named = [series_named(line) for line in expected if line.startswith("series ")]
        for name in list(self.series) if everything else named:
            lines.append(f"series {name}: {values_of(self.series.get(name, []))}".rstrip())
        if everything or "annotation" in kinds:
            lines += [f"annotation {a}" for a in self.annotations]
        if self.status is not None and (everything or "checkpoints" in kinds):
            lines.append(f"checkpoints {' '.join(self.checkpoints)}".rstrip())
        return lines


def series_named(line: str) -> str:
    """The name and metadata in `series NAME k=v: values`."""
    return re.match(r"series (.*?):(?: |$)", line)[1]  # type: ignore[index]  # a line without a colon is a mistake


def values_of(points: list[tuple[int, str]]) -> str:
    in_a_row = [step for step, _ in points] == list(range(1, len(points) + 1))
    return " ".join([value if in_a_row else f"{step}={value}" for step, value in points])


def run_command(golden: Golden, folder: Path, *more: str) -> Outcome:
    """Perform the program's command in a new folder that holds it."""
    folder.mkdir()
    golden.write(folder)
    command, *rest = golden.command
    out = ["--out", "out"] if command == "run" and "--out" not in rest else []
    with working_in(folder):
        exit, stdout, stderr = perform([command, golden.name, *out, *rest, *more])
        found = places(golden.name, settings_in(rest)) if exit == 4 else []
    kept = [line for line in stderr if not PROGRESS.match(line) and not READS.match(line)]
    outcome = Outcome(exit, stdout, kept, found)
    if (folder / "out").is_dir():
        read_folder(folder / "out", outcome)
    return outcome


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def perform(arguments: list[str]) -> tuple[int, list[str], list[str]]:
    """The status and the lines of stdout and stderr of `sxi` with these arguments, in this process."""
    from sxi.checking import deep_calls  # noqa: PLC0415  # conftest imports this file before it sets the threads
    from sxi.cli import main  # noqa: PLC0415  # as above

    written = [io.BytesIO(), io.BytesIO()]
    out, err = [io.TextIOWrapper(b, encoding="utf-8", write_through=True) for b in written]
    with redirect_stdout(out), redirect_stderr(err), deep_calls():
        exit = main(arguments)
    texts = [b.getvalue().decode().splitlines() for b in written]
    return exit, texts[0], texts[1]


def settings_in(arguments: list[str]) -> list[str]:
    """The `--set name=value` among a command's arguments."""
    return [part for i, word in enumerate(arguments) if word == "--set" for part in arguments[i : i + 2]]


def places(name: str, settings: list[str]) -> list[tuple[int, int, str]]:
    """Line, column and code of each error of the program that has a place in it."""
    _, lines, _ = perform(["check", "--format", "json", name, *settings])
    errors = [e for e in json.loads("\n".join(lines)) if e["file"] == name]
    starts = [e["span"]["start"] for e in errors]
    return [(at["line"], at["column"], e["code"]) for at, e in zip(starts, errors, strict=True)]


def read_folder(folder: Path, outcome: Outcome) -> None:
    status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    outcome.status = f"{status['state']} step={status['step']}"
    for line in (folder / "stream.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        record.pop("run_id", None)
        record.pop("device", None)
        outcome.stream.append(json.dumps(record))
        if record["kind"] == "point":
            meta = [f"{key}={shown(value)}" for key, value in record["meta"].items()]
            name = " ".join([record["series"], *meta])
            outcome.series.setdefault(name, []).append((record["step"], shown(record["value"])))
        elif record["kind"] == "annotation":
            outcome.annotations.append(f"{record['step']} {record['text']}")
    if (folder / "checkpoints").is_dir():
        outcome.checkpoints = sorted(os.listdir(folder / "checkpoints"))


def shown(value: Any) -> str:
    """A value of the stream: a whole number without its point, others as they are written."""
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return value if isinstance(value, str) else json.dumps(value)


# Comparing


def compare(golden: Golden, outcome: Outcome) -> None:
    if not golden.expected:
        raise Mismatch(f"{golden.name} expects nothing: give it ;> lines, or run pytest --update-golden")
    differences = [f"- {line}" for line in golden.expected] + [f"+ {line}" for line in outcome.lines(golden.expected)]
    if golden.expected != outcome.lines(golden.expected):
        raise Mismatch(f"{golden.name} expects (-) and gave (+):\n" + "\n".join(differences))
    if golden.marks != outcome.found:
        raise Mismatch(f"{golden.name} marks {golden.marks}, and sxi check finds {outcome.found}")


def compare_plain(golden: Golden, folder: Path) -> None:
    compare(golden, run_command(golden, folder / "plain"))


def compare_without_plan(golden: Golden, folder: Path) -> None:
    planned = run_command(golden, folder / "planned")
    plain = run_command(golden, folder / "no-plan", "--no-plan")
    compare(golden, plain)
    if planned.stream != plain.stream:
        differing = [pair for pair in zip(planned.stream, plain.stream, strict=False) if pair[0] != pair[1]]
        raise Mismatch(f"{golden.name}: with and without a plan differ at\n" + "\n".join(differing[0]))


def compare_strict(golden: Golden, folder: Path) -> None:
    """The same output; the host reads once a step and once a pass, and what it saves."""
    counts: list[tuple[str, int]] = []
    with counting_reads(counts):
        outcome = run_command(golden, folder / "strict", "--device", "strict")
    compare(golden, outcome)
    if [n for _, n in counts if n != 1]:
        raise Mismatch(f"{golden.name}: reads of each step and pass: {counts}")


@contextmanager
def counting_reads(counts: list[tuple[str, int]]) -> Iterator[None]:
    """Note for each step and pass how often the host read; what it writes to `outputs/` is not counted."""
    from sxi.run import Runner  # noqa: PLC0415  # conftest imports this file before it sets the threads

    def counted(name: str) -> Any:
        take = getattr(Runner, name)

        def taken(runner: Any, *args: Any) -> Any:
            before = len(runner.backend.reads)
            report = take(runner, *args)
            saved = sum([len(batches) for batches in report.outputs.values()])
            counts.append((name, len(runner.backend.reads) - before - saved))
            return report

        return taken

    with pytest.MonkeyPatch.context() as patch:
        for name in ("take_step", "take_pass"):
            patch.setattr(Runner, name, counted(name))
        yield


# Updating


def update(path: Path, folder: Path) -> None:
    """Rewrite the marks and the expectation of a program from what it gives."""
    golden = Golden(path.name, path.read_text(encoding="utf-8"))
    expected = golden.expected
    body = [line for line in golden.text.splitlines() if not line.startswith(";>") and not MARK.fullmatch(line)]
    found = run_command(Golden(path.name, "\n".join(body) + "\n"), folder / "marks").found
    for line, column, code in sorted(found, reverse=True):
        mark = f"; {'^':>{column - 2}} {code}" if column > 2 else f";^ {code}" if column == 2 else f";< {code}"
        body.insert(line, mark)
    text = "\n".join(body).rstrip("\n") + "\n"
    outcome = run_command(Golden(path.name, text), folder / "update")
    given = "".join([f";> {line}".rstrip() + "\n" for line in outcome.lines(expected)])
    if text + given != golden.text:
        sys.stderr.write(f"rewrote {path}\n")
        path.write_text(text + given, encoding="utf-8")
