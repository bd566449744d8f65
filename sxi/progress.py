"""The line on stderr that says how far a run is: rewritten in place on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TextIO

# Seconds between two drawings on a terminal, and between two lines elsewhere.
_REDRAW, _LINE = 0.1, 30.0
# Of all steps, between two lines elsewhere.
_SHARE = 0.05
# Drawings that the speed is taken over.
_WINDOW = 50


class Progress:
    """Shows `step 120/400  train/loss 0.4321  38 steps/s  eta 0:07`; never a guard's series."""

    def __init__(
        self,
        out: TextIO,
        steps: int,
        *,
        done: int = 0,
        clock: Callable[[], float] = time.monotonic,
        width: int | None = None,
    ) -> None:
        """A line that nothing is shown of before the first `update`.

        out:    where it is written, as a rule stderr
        steps:  how many steps the run takes
        done:   the step it goes on from
        clock:  gives the time, in seconds since any moment
        width:  columns of the terminal; without it, what the terminal says each time
        """
        self._out, self._steps, self._clock, self._width = out, steps, clock, width
        self._live = out.isatty() and os.environ.get("TERM") != "dumb"
        self._seen = deque([(clock(), done)], _WINDOW)
        self._next_time = self._seen[0][0] + (0.0 if self._live else _LINE)
        self._next_step = done + self._share() if not self._live else steps
        self._drawn = 0
        self._last: tuple[int, list[tuple[str, float]]] | None = None

    def _share(self) -> float:
        return max(1.0, self._steps * _SHARE)

    def update(self, step: int, metrics: Iterable[tuple[str, float]] = ()) -> None:
        """Says that `step` is done and what was last reported, the most telling first; shows it where it is time.

        metrics:  names and values; read only where the line is shown, so a generator costs nothing else
        """
        now = self._clock()
        if now < self._next_time and step < self._next_step:
            return
        self._show(now, step, metrics)

    def close(self, step: int | None = None, metrics: Iterable[tuple[str, float]] = ()) -> None:
        """Shows the last `step`, where given, and leaves the line standing."""
        if step is not None and (self._live or step != self._seen[-1][1]):
            self._show(self._clock(), step, metrics)
        if self._drawn:
            self._write("\n")
        self._drawn = 0

    def clear(self) -> None:
        """Wipes the line off a terminal, for a message to be written in its place."""
        if self._drawn:
            self._write("\r" + " " * self._drawn + "\r")
        self._drawn = 0

    def _show(self, now: float, step: int, metrics: Iterable[tuple[str, float]]) -> None:
        begun, first = self._seen[0]
        speed = (step - first) / (now - begun) if now > begun else 0.0
        self._seen.append((now, step))
        shown = [f"{name} {value:.4g}" for name, value in metrics if not name.startswith("guard/")]
        if self._live:
            self._next_time = now + _REDRAW
            columns = self._columns() - 1  # a full line would move the cursor to the next
            text = self._fitted(step, shown, speed, columns)
            # two more: a terminal writes what Ctrl-C is behind the line
            self._write("\r" + text.ljust(min(self._drawn + 2 if self._drawn else 0, columns)))
            self._drawn = len(text)
        else:
            self._next_time, self._next_step = now + _LINE, step + self._share()
            self._write(self._fitted(step, shown, speed, None) + "\n")

    def _columns(self) -> int:
        if self._width is not None:
            return self._width
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _fitted(self, step: int, metrics: list[str], speed: float, columns: int | None) -> str:
        """The line in at most `columns`: first metrics go, from the last, then the time and the speed."""
        first = f"step {step}/{self._steps}"
        last = [_speed(speed), f"eta {_duration((self._steps - step) / speed)}"] if speed > 0 else []
        shorter = [[first, *metrics[:kept], *last] for kept in range(len(metrics), -1, -1)]
        for parts in (*shorter, [first, *last[:1]], [first]):
            text = "  ".join(parts)
            if columns is None or len(text) <= columns:
                return text
        return text[: max(0, columns or 0)]

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):
            # A closed terminal ends the line, never the run.
            self._next_time = self._next_step = float("inf")


def _speed(speed: float) -> str:
    """A speed in steps per second, or below one the seconds of a step."""
    if speed >= 1:
        return f"{speed:.0f} steps/s" if speed >= 10 else f"{speed:.1f} steps/s"
    return f"{1 / speed:.3g} s/step"


def _duration(seconds: float) -> str:
    """Hours, where there are any, minutes and seconds: `0:07`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
