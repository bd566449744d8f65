"""The record of a run, `stream.jsonl`: one strict JSON object a line, written once a step, read back by `read`."""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sxi import codes
from sxi.errors import SxiError

_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_BLOCK = 1 << 16


def plain(value: Any) -> Any:
    """`value` in what strict JSON has: a real that is not finite as "NaN", "Infinity" or "-Infinity"."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return json.loads(_NOT_FINITE[str(value)])
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def encoded(value: Mapping[str, Any]) -> str:
    """`value` as one line of strict JSON, without its end."""
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":"))


class Stream:
    """Appends to a stream.  Lines are held until `flush`, which a run calls once a step."""

    def __init__(self, path: Path) -> None:
        """Opens `path`, or makes it; a last line that a kill cut short is cut off.

        Raises E-RUN-030 where it cannot be written, as do `flush` and `close`.
        """
        self.path = path
        self._lines: list[str] = []
        self._series: dict[tuple[str, str], str] = {}
        descriptor = -1
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._end = _whole_end(descriptor)
            if os.lseek(descriptor, 0, os.SEEK_END) > self._end:
                os.ftruncate(descriptor, self._end)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise self._failed(error) from None
        self._descriptor = descriptor

    def record(self, kind: str, **facts: Any) -> None:
        """Adds a line of any kind, its facts in the order given."""
        self._lines.append(encoded({"kind": kind, **facts}) + "\n")

    def annotation(self, step: int, text: str, **facts: Any) -> None:
        """Adds a note at `step`."""
        self.record("annotation", step=step, text=text, **facts)

    def resume(self, step: int) -> None:
        """Says that the run goes on after `step`: what stands above of later steps no longer counts."""
        self.record("resume", step=step)

    def series(self, name: str, meta: Mapping[str, Any]) -> str:
        """What `points` takes for the series of that name and metadata: the part that its lines share."""
        key = name, repr(meta)  # 1, 1.0 and true compare equal, and are three series
        shared = self._series.get(key)
        if shared is None:
            shared = series_text(name, meta)
            self._series[key] = shared
        return shared

    def point(self, step: int, name: str, meta: Mapping[str, Any], value: float) -> None:
        """Adds the value, an f32, of one series at `step`."""
        self.points(step, [self.series(name, meta)], [value])

    def points(self, step: int, series: Sequence[str], values: Sequence[float]) -> None:
        """Adds the value at `step` of each of `series`, f32 each and written in its shortest form."""
        if not values:
            return
        head = f'{{"kind":"point","step":{step}'
        # One conversion of all: of each alone it would cost as much as everything else together.
        texts = np.frombuffer(array("f", values), np.float32).astype("U32").tolist()
        special = _NOT_FINITE.get
        self._lines += [f"{head}{s}{special(text, text)}}}\n" for s, text in zip(series, texts, strict=True)]

    def flush(self) -> None:
        """Hands the lines to the operating system, so that a kill of this process loses none."""
        if not self._lines:
            return
        rest = memoryview("".join(self._lines).encode())
        written = 0
        try:
            # where a second Ctrl-C ends this, the lines are still there: the last flush writes them again, in place
            while written < len(rest):
                written += os.pwrite(self._descriptor, rest[written:], self._end + written)
            self._end, self._lines = self._end + written, []
        except OSError as error:
            self._lines = []
            self._cut_off()
            raise self._failed(error) from None

    def close(self, *, sync: bool = True) -> None:
        """Flushes, hands everything to the disk where `sync`, and closes; a second time it does nothing."""
        if self._descriptor < 0:
            return
        try:
            self.flush()
            if sync:
                os.fsync(self._descriptor)
        except OSError as error:
            raise self._failed(error) from None
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _cut_off(self) -> None:
        """Cuts off what a failed write left of a line, so that a later one stands on a line of its own."""
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError:
            return  # a device, or worse: the error that led here is the one to report

    def _failed(self, error: OSError) -> SxiError:
        return codes.STREAM_NOT_WRITTEN.at(None, path=self.path, reason=error.strerror or error)


def _whole_end(descriptor: int) -> int:
    """The offset behind the last whole line: one with an end, and without the zero bytes a lost disk block reads as."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    while end:
        start = _after_newline(descriptor, end - 1)
        line = os.pread(descriptor, end - start, start)
        if line.endswith(b"}\n") and b"\0" not in line:
            return end
        end = start
    return 0


def _after_newline(descriptor: int, before: int) -> int:
    """The offset behind the last line end in the first `before` bytes."""
    while before:
        start = max(0, before - _BLOCK)
        at = os.pread(descriptor, before - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        before = start
    return 0


def series_text(name: str, meta: Mapping[str, Any]) -> str:
    """The part of a point's line that is the same for all points of a series."""
    return f',"series":{json.dumps(name)},"meta":{encoded(meta)},"value":'


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a stream in order, without those that a run wrote past the step it was later resumed from.

    A point's value is a float.  A last line that is cut short is left out: it may be being written.
    Raises E-RUN-031 where the file cannot be read or another line is no JSON object.
    """
    resumed = [(at, line["step"]) for at, line in _lines(path, b'"kind":"resume"') if line["kind"] == "resume"]
    # Of the resumptions below a line the earliest step decides; the loop walks down the lines.
    limits: list[tuple[int, float]] = []
    least = math.inf
    for at, step in reversed(resumed):
        least = min(least, step)
        limits.append((at, least))
    for at, line in _lines(path, b""):
        while limits and limits[-1][0] <= at:
            limits.pop()
        if limits and line.get("step", 0) > limits[-1][1]:
            continue
        yield line


def _lines(path: Path, having: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The numbers, from 1, and the objects of the whole lines of `path` that have the bytes `having`."""
    try:
        with open(path, "rb") as file:
            for at, text in enumerate(file, 1):
                if having in text and text.endswith(b"\n"):
                    yield at, _line(text)
    except OSError as error:
        raise codes.STREAM_NOT_READ.at(None, path=path, reason=error.strerror or error) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise codes.STREAM_NOT_READ.at(None, path=path, reason=f"line {at} is no line of a stream") from None


def _line(text: bytes) -> dict[str, Any]:
    """The object of one line.  Raises ValueError, TypeError or KeyError where it is none of a stream."""
    line = json.loads(text)
    if not isinstance(line, dict) or not isinstance(line.get("step", 0), int):
        raise ValueError
    if line["kind"] == "point":
        line["value"] = float(line["value"])
    if line["kind"] in ("point", "resume") and "step" not in line:
        raise ValueError
    return line
