"""A real pseudo-terminal with a process in it, and the screen that its output draws."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence

import pyte

# What a terminal is asked: where the cursor is.
_ASKED = b"\x1b[6n"


class Terminal:
    """A process in a pseudo-terminal of a given size; `screen` is what a user sees."""

    def __init__(
        self, arguments: Sequence[str], columns: int = 80, rows: int = 24, environment: Mapping[str, str] | None = None
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000)
        self.stream = pyte.ByteStream(self.screen)
        self.output = b""
        self.asked = 0
        self.begun = time.monotonic()
        given = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1", **(environment or {})}
        self.pid, self.file = pty.fork()
        if self.pid == 0:
            try:
                os.execve(sys.executable, [sys.executable, *arguments], given)
            finally:
                os._exit(127)
        self.resize(columns, rows)
        self.initial = self.mode()
        self.status: int | None = None

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the window, as its user does."""
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if (columns, rows) != (self.screen.columns, self.screen.lines):
            self.screen.resize(rows, columns)

    def send(self, text: str | bytes) -> None:
        """Type a text, slowly enough for the terminal's buffer."""
        data = text.encode() if isinstance(text, str) else text
        while data:
            _, writable, _ = select.select([], [self.file], [], 5)
            assert writable, "the terminal takes no more input"
            data = data[os.write(self.file, data[:512]) :]
            self.read(0, answers=False)
        self.answer()

    def read(self, seconds: float, *, answers: bool = True) -> None:
        """Take what comes within `seconds`, and answer what the terminal is asked."""
        end = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select([self.file], [], [], max(0, end - time.monotonic()))
            if not ready:
                return
            try:
                data = os.read(self.file, 65_536)
            except OSError:  # the process has ended
                return
            if not data:
                return
            self.output += data
            self.stream.feed(data)
            self.asked += data.count(_ASKED)
            if answers:
                self.answer()

    def answer(self) -> None:
        """Tell where the cursor is, as often as that was asked; never within what is being typed."""
        while self.asked:
            self.asked -= 1
            os.write(self.file, f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R".encode())

    def wait_for_prompt(self, prompt: str = "sx>", seconds: float = 20) -> None:
        """Read until the cursor stands behind a prompt."""
        end = time.monotonic() + seconds
        while self.lines()[self.screen.cursor.y] != prompt:
            assert time.monotonic() < end, f"no prompt on:\n{self.shown()}"
            self.read(0.05)

    def wait_for(self, text: str, seconds: float = 20) -> None:
        """Read until the screen or what has scrolled off it shows `text`."""
        end = time.monotonic() + seconds
        while text not in self.shown():
            assert time.monotonic() < end, f"no {text!r} on:\n{self.shown()}"
            self.read(0.05)

    def wait_until(self, holds: Callable[[list[str]], bool], seconds: float = 20) -> None:
        """Read until something holds of the lines of the screen."""
        end = time.monotonic() + seconds
        while not holds(self.lines()):
            assert time.monotonic() < end, f"not so on:\n{self.shown()}"
            self.read(0.05)

    def shown(self) -> str:
        """All that can be seen, with what has scrolled away."""
        before = ["".join([line[x].data for x in range(self.screen.columns)]) for line in self.screen.history.top]
        return "\n".join([line.rstrip() for line in [*before, *self.screen.display]])

    def lines(self) -> list[str]:
        """The lines of the screen."""
        return [line.rstrip() for line in self.screen.display]

    def mode(self) -> list[object]:
        """The settings of the terminal, to tell whether it was restored."""
        return termios.tcgetattr(self.file)[:4]

    def end(self, seconds: float = 20) -> int:
        """Wait for the process to end by itself: its exit status, a signal's negated."""
        end = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            else:
                assert time.monotonic() < end, f"it goes on:\n{self.shown()}"
                self.read(0.05)
        self.read(0.1)
        return self.status

    def close(self) -> None:
        """End whatever is left."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.file)
