"""What a run writes while it runs: the stream, the status file, the progress line, and what a kill leaves of them."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sxi.errors import SxiError
from sxi.progress import Progress
from sxi.status import Status, read_status
from sxi.stream import Stream, read


def no_constants(constant: str) -> None:
    raise AssertionError(f"{constant} is no strict JSON")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=no_constants) for line in path.read_text().splitlines()]


def error_of(code: str, caught: pytest.ExceptionInfo[SxiError]) -> SxiError:
    assert caught.value.code == f"E-RUN-{code}"
    assert caught.value.help
    return caught.value


# The stream.


def test_a_run_in_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    stream = Stream(path)
    stream.record("open", run="digits", seed=0)
    stream.point(1, "train/loss", {}, 0.1)
    stream.point(1, "guard/x", {"layer": 3, "kind": 'a"b'}, 0.0)
    stream.annotation(1, "guard x failed", guard="x", meta={"layer": 3}, count=2**60, source="f.sx:1:2")
    stream.close()
    assert path.read_text() == (
        '{"kind":"open","run":"digits","seed":0}\n'
        '{"kind":"point","step":1,"series":"train/loss","meta":{},"value":0.1}\n'
        '{"kind":"point","step":1,"series":"guard/x","meta":{"layer":3,"kind":"a\\"b"},"value":0.0}\n'
        '{"kind":"annotation","step":1,"text":"guard x failed","guard":"x","meta":{"layer":3},'
        '"count":1152921504606846976,"source":"f.sx:1:2"}\n'
    )
    assert list(read(path)) == lines_of(path)


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_values_are_the_shortest_f32(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("stream") / "stream.jsonl"
    stream = Stream(path)
    stream.points(1, [stream.series("x", {"i": i}) for i in range(len(values))], values)
    stream.close()
    for line, value in zip(lines_of(path), values, strict=True):
        written = line["value"]
        if math.isfinite(value):
            assert repr(written) == repr(float(str(np.float32(value))))
        else:
            assert written == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    for line, value in zip(read(path), values, strict=True):
        assert np.float32(line["value"]).tobytes() == np.float32(value).tobytes() or math.isnan(value)


def test_what_is_not_finite_is_strict_json_everywhere(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "s")
    stream.annotation(1, "failed", count=math.nan, meta={"low": -math.inf, "n": [np.float32(math.inf), np.int64(3)]})
    stream.point(1, "x", {"at": math.inf}, 1e300)
    stream.close()
    note, point = lines_of(tmp_path / "s")
    assert note["count"] == "NaN"
    assert note["meta"] == {"low": "-Infinity", "n": ["Infinity", 3]}
    assert (point["meta"], point["value"]) == ({"at": "Infinity"}, "Infinity")


def test_lines_are_held_until_the_flush(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "s")
    stream.point(1, "x", {}, 1.0)
    assert (tmp_path / "s").read_text() == ""
    stream.flush()
    assert len(lines_of(tmp_path / "s")) == 1
    stream.flush()
    assert len(lines_of(tmp_path / "s")) == 1
    stream.close()
    stream.close()


def test_series_of_one_name_differ_by_metadata_and_its_order(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "s")
    for meta in ({"a": 1}, {"a": 2}, {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}):
        stream.point(1, "x", meta, 0.0)
    stream.close()
    assert [list(line["meta"].items()) for line in lines_of(tmp_path / "s")] == [
        [("a", 1)],
        [("a", 2)],
        [],
        [("a", 1), ("b", 2)],
        [("b", 2), ("a", 1)],
    ]  # fmt: skip - short


def test_metadata_that_only_compares_equal_is_told_apart(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "s")
    for value in (1, True, 1.0):
        stream.point(1, "x", {"a": value}, 0.0)
    stream.close()
    assert [repr(line["meta"]["a"]) for line in lines_of(tmp_path / "s")] == ["1", "True", "1.0"]


def attempt(path: Path, *steps: int, resume: int | None = None, last: str | None = None) -> None:
    stream = Stream(path)
    if resume is not None:
        stream.resume(resume)
    for step in steps:
        stream.point(step, "x", {}, step * 10.0 + (resume or 0))
        stream.flush()
    if last is not None:
        stream.annotation(steps[-1], last)
    stream.close()


def seen(path: Path) -> list[str]:
    return [f"{line['step']}:{line.get('text', line.get('value', 'resume'))}" for line in read(path)]


def test_readers_drop_what_was_written_past_a_resume(tmp_path: Path) -> None:
    path = tmp_path / "s"
    attempt(path, 1, 2, 3, 4, last="failed: E-GUARD-001")
    attempt(path, 3, 4, 5, 6, resume=2)
    attempt(path, 6, resume=5, last="done")
    assert seen(path) == [
        "1:10.0",
        "2:20.0",
        "2:resume",
        "3:32.0",
        "4:42.0",
        "5:52.0",
        "5:resume",
        "6:65.0",
        "6:done",
    ]  # fmt: skip - short
    attempt(path, 2, resume=1)  # an earlier checkpoint: the resumptions past it are gone too
    assert seen(path) == ["1:10.0", "1:resume", "2:21.0"]
    assert len(lines_of(path)) == 15


def test_metadata_that_looks_like_a_resume(tmp_path: Path) -> None:
    stream = Stream(tmp_path / "s")
    stream.point(5, "x", {}, 1.0)
    stream.point(0, "x", {"kind": "resume"}, 1.0)
    stream.close()
    assert len(list(read(tmp_path / "s"))) == 2


@pytest.mark.parametrize("torn", [b'{"kind":"poi', b"\0\0\0\0", b'{"kind":"x\0\0"}\n', b"\0" * 100_000, b"x" * 200_000])
def test_a_torn_last_line_is_skipped_and_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "s"
    attempt(path, 1, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    if not torn.endswith(b"\n"):
        assert seen(path) == ["1:10.0", "2:20.0"]
    attempt(path, 3, resume=2)
    assert path.read_bytes().startswith(whole + b'{"kind":"resume","step":2}\n')
    assert seen(path) == ["1:10.0", "2:20.0", "2:resume", "3:32.0"]


@pytest.mark.parametrize("content", [b"", b"{", b"\0\0"])
def test_a_stream_without_a_whole_line_starts_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "s").write_bytes(content)
    attempt(tmp_path / "s", 1)
    assert seen(tmp_path / "s") == ["1:10.0"]


def test_every_length_that_a_kill_leaves(tmp_path: Path) -> None:
    path = tmp_path / "s"
    attempt(path, 1, 2)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        assert len(list(read(path))) == complete
        attempt(path, 9)
        assert len(lines_of(path)) == complete + 1


@pytest.mark.parametrize(
    "line",
    [
        "no",
        "[1]",
        "1",
        "{}",
        '{"kind":"point","step":1}',
        '{"kind":"point","step":1,"value":[]}',
        '{"kind":"resume"}',
        '{"kind":"open","step":"a"}',
        '{"kind":"point","value":1}',
        "[" * 100_000,
    ],
)  # fmt: skip - a table
def test_a_stream_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "s").write_text(f'{{"kind":"open"}}\n{line}\n{{"kind":"open"}}\n')
    with pytest.raises(SxiError) as caught:
        list(read(tmp_path / "s"))
    assert "line 2" in error_of("031", caught).message


def test_a_stream_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SxiError) as caught:
        list(read(tmp_path / "s"))
    error_of("031", caught)


def test_a_full_disk(tmp_path: Path) -> None:
    (tmp_path / "s").symlink_to("/dev/full")
    stream = Stream(tmp_path / "s")
    stream.point(1, "x", {}, 1.0)
    with pytest.raises(SxiError) as caught:
        stream.flush()
    assert os.strerror(errno.ENOSPC) in error_of("030", caught).message
    stream.point(2, "x", {}, 1.0)
    with pytest.raises(SxiError) as caught:
        stream.close()
    error_of("030", caught)
    stream.close()


def test_a_write_that_fails_half_way_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    stream = Stream(path)
    stream.point(1, "x", {}, 1.0)
    stream.flush()
    write, calls = os.pwrite, []

    def half(descriptor: int, content: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "full")
        return write(descriptor, content[:10], at)

    monkeypatch.setattr(os, "pwrite", half)
    stream.point(2, "x", {}, 1.0)
    with pytest.raises(SxiError) as caught:
        stream.flush()
    error_of("030", caught)
    monkeypatch.undo()
    assert len(lines_of(path)) == 1
    stream.annotation(2, "failed: E-RUN-030")  # room again: the stream is closed as it should be
    stream.close()
    assert [line["kind"] for line in lines_of(path)] == ["point", "annotation"]


def test_a_write_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, at: write(descriptor, content[:7], at))
    attempt(tmp_path / "s", 1, 2, 3)
    assert seen(tmp_path / "s") == ["1:10.0", "2:20.0", "3:30.0"]


def test_a_stream_where_none_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "s", tmp_path / "none" / "s"):
        with pytest.raises(SxiError) as caught:
            Stream(path)
        error_of("030", caught)


# The status.


class Clock:
    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def written(folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads((folder / "status.json").read_text(), parse_constant=no_constants)
    return fields


def test_a_run_in_its_status(tmp_path: Path) -> None:
    clock = Clock()
    status = Status(tmp_path, clock=clock, ranks=2, device="cpu")
    first = written(tmp_path)
    assert (first["state"], first["step"], first["error"], first["pid"]) == ("starting", 0, None, os.getpid())
    assert (first["ranks"], first["device"]) == (2, "cpu")
    assert first["started"] == first["updated"] == "2023-11-14T22:13:20.000Z"
    status.update(state="running", step=1)
    assert written(tmp_path)["step"] == 1  # the state changed
    status.update(step=2)
    clock.now += 0.9
    status.update(step=3, throughput=math.nan)
    assert written(tmp_path)["step"] == 1  # within the second
    clock.now += 0.2
    status.update(step=4)
    assert (written(tmp_path)["step"], written(tmp_path)["throughput"]) == (4, "NaN")
    assert written(tmp_path)["updated"] == "2023-11-14T22:13:21.100Z"
    status.update(step=5, force=True)
    assert written(tmp_path)["step"] == 5
    clock.now -= 3600
    status.update(step=6)  # a clock set back does not silence it
    assert written(tmp_path)["step"] == 6
    status.update(state="failed", error={"code": "E-GUARD-001", "count": math.inf})
    assert written(tmp_path)["error"] == {"code": "E-GUARD-001", "count": "Infinity"}
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_the_status_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = Status(tmp_path)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for called in ("replace", "fsync"):
        monkeypatch.setattr(os, called, fail)
        with pytest.raises(SxiError) as caught:
            status.update(state="running")
        error_of("032", caught)
        monkeypatch.undo()
        status.fields["state"] = "starting"
        assert written(tmp_path)["state"] == "starting"
        assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_status_where_none_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(SxiError) as caught:
            Status(folder)
        error_of("032", caught)


def changed(folder: Path, **fields: Any) -> str:
    """The state that is read after `fields` were changed in the file."""
    (folder / "status.json").write_text(json.dumps({**written(folder), **fields}))
    return str(read_status(folder)["state"])


def test_a_run_whose_process_is_gone_is_dead(tmp_path: Path) -> None:
    Status(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert read_status(tmp_path)["state"] == "starting"
    assert changed(tmp_path, state="running") == "running"
    assert changed(tmp_path, pid=child.pid, pid_started=None) == "running"
    child.communicate(b"\n")
    assert changed(tmp_path) == "dead"
    assert changed(tmp_path, host="elsewhere") == "running"
    assert changed(tmp_path, host=None) == "dead"
    for state in ("done", "failed", "stopped"):
        assert changed(tmp_path, state=state) == state
    for pid in (None, "x", -1, 0, 2**40, True):
        assert changed(tmp_path, state="running", pid=None if pid is True else pid) == "dead"


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc to ask")


@needs_proc
def test_another_process_of_the_same_number_is_not_believed(tmp_path: Path) -> None:
    Status(tmp_path)
    assert changed(tmp_path, state="running") == "running"
    assert changed(tmp_path, pid_started=written(tmp_path)["pid_started"] + 1) == "dead"


@needs_proc
def test_a_process_that_nobody_waited_for_is_dead(tmp_path: Path) -> None:
    Status(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert changed(tmp_path, state="running", pid=child.pid, pid_started=None) == "dead"
    child.wait()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"state": 3}', "[" * 100_000])
def test_a_status_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "status.json").write_text(content)
    with pytest.raises(SxiError) as caught:
        read_status(tmp_path)
    error_of("033", caught)


def test_a_status_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SxiError) as caught:
        read_status(tmp_path)
    error_of("033", caught)


# The progress line.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        """The lines that stand on the screen."""
        lines = [""]
        for piece in self.getvalue().split("\n"):
            row = ""
            for text in piece.split("\r"):
                row = text + row[len(text) :]
            lines[-1] = row.rstrip()
            lines.append("")
        return lines[:-1]


METRICS = [("train/loss", 0.432123), ("guard/x", 0.0), ("train/accuracy", 0.5)]


def test_progress_on_a_terminal() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(out, 400, clock=clock, width=100)
    for step in range(1, 121):
        clock.now += 1 / 38
        progress.update(step, METRICS)
    # A step takes 1/38 s, so the first past a tenth of a second is every fourth: 1, 5, …, 117.
    assert out.screen == ["step 117/400  train/loss 0.4321  train/accuracy 0.5  38 steps/s  eta 0:07"]
    assert out.getvalue().count("\r") == 30
    progress.close(120, METRICS)
    assert out.screen[0].startswith("step 120/400  ")
    assert out.getvalue().endswith("\n")


def test_a_line_that_gets_shorter_leaves_nothing_behind() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(out, 9, clock=clock, width=80)
    progress.update(1, [("a/long/name", 1.0)])
    clock.now += 1
    progress.update(2)
    assert out.screen == ["step 2/9  2.0 steps/s  eta 0:04"]
    out.write("^C")
    clock.now += 1
    progress.update(3)
    assert out.screen == ["step 3/9  1.5 steps/s  eta 0:04"]
    progress.clear()
    assert out.screen == [""]
    progress.close()
    assert out.screen == [""]


@pytest.mark.parametrize("width", range(1, 90))
def test_the_line_fits_the_terminal(width: int) -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(out, 400, clock=clock, width=width)
    clock.now += 1
    progress.update(5, METRICS)
    assert len(out.screen[0]) <= width - 1
    assert "guard" not in out.getvalue()
    if width >= 34:
        assert "eta" in out.screen[0]
    elif width > len("step 5/400"):  # what stands there is whole
        assert re.fullmatch(r"step 5/400(  5\.0 steps/s(  eta 1:19)?)?", out.screen[0])


def test_progress_elsewhere_is_a_line_at_every_twentieth() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, 400, clock=clock)
    for step in range(1, 401):
        clock.now += 0.01
        progress.update(step, METRICS)
    progress.close(400, METRICS)
    lines = out.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == [f"{step}/400" for step in range(20, 401, 20)]
    assert lines[0] == "step 20/400  train/loss 0.4321  train/accuracy 0.5  100 steps/s  eta 0:04"
    assert "\r" not in out.getvalue()


def test_progress_elsewhere_is_a_line_every_half_minute() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, 100_000, done=1000, clock=clock)
    for step in range(1001, 1101):
        clock.now += 2.5
        progress.update(step)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [
        f"{step}/100000" for step in range(1012, 1100, 12)
    ]
    assert "2.5 s/step  eta 68:" in out.getvalue()
    progress.close(1100)
    assert out.getvalue().splitlines()[-1].startswith("step 1100/100000")


def test_metrics_are_not_read_where_nothing_is_shown() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, 1000, clock=clock)

    def metrics() -> Any:
        raise AssertionError("read")
        yield

    progress.update(1, metrics())
    assert out.getvalue() == ""


def test_a_closed_terminal_does_not_stop_the_run() -> None:
    out, clock = Terminal(), Clock()
    progress = Progress(out, 9, clock=clock, width=80)
    progress.update(1)
    out.close()
    for step in range(2, 10):
        clock.now += 1
        progress.update(step)
    progress.clear()
    progress.close(9)
