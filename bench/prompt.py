"""How long the prompt takes to appear, beside ptpython's: from the start of the process to its prompt on a terminal.

    python -m bench.prompt [--rounds 15] [--other "COMMAND"]

Each start is a process of its own on a pseudo-terminal of 80 by 24; the two are started in turn, and the medians are
compared.  `ptpython` must be on the path, or given by `--other`; without it only the prompt's own time is shown.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import shlex
import shutil
import signal
import statistics
import struct
import sys
import termios
import time
from collections.abc import Sequence

# What a terminal answers to the question where its cursor is, which ptpython waits for.
_CURSOR_QUESTION, _CURSOR_ANSWER = b"\x1b[6n", b"\x1b[1;1R"
_PATIENCE = 20.0


def seconds_to(command: list[str], prompt: bytes) -> float:
    """The wall time from the start of `command` to `prompt` on its terminal.  Raises TimeoutError after 20 s."""
    start = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", OPENBLAS_NUM_THREADS="1")
        os.execvp(command[0], command)
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        seen = b""
        while prompt not in seen:
            if time.perf_counter() - start > _PATIENCE:
                raise TimeoutError(f"{shlex.join(command)} showed no prompt: {seen[-200:]!r}")
            if select.select([terminal], [], [], 0.1)[0]:
                part = os.read(terminal, 65536)
                if _CURSOR_QUESTION in part:
                    os.write(terminal, _CURSOR_ANSWER)
                seen += part
        return time.perf_counter() - start
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def main(arguments: Sequence[str] | None = None) -> None:
    """Start the two in turn and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--other", default="ptpython")
    parser.add_argument("--quick", action="store_true", help="one round, to see that it works")
    given = parser.parse_args(arguments)
    rounds = 1 if given.quick else given.rounds
    commands = {"sxi": ([sys.executable, "-m", "sxi"], b"sx>")}
    other = shlex.split(given.other)
    if shutil.which(other[0]):
        commands["ptpython"] = (other, b">>>")
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):  # the first round fills the caches and is not counted
        for name, (command, prompt) in commands.items():
            times[name].append(seconds_to(command, prompt))
    medians = {name: statistics.median(taken[1:]) for name, taken in times.items()}
    for name, median in medians.items():
        print(f"{name:10s} {median * 1000:7.0f} ms to the prompt, median of {rounds}")
    if "ptpython" in medians:
        print(f"ratio      {medians['sxi'] / medians['ptpython']:7.2f}")


if __name__ == "__main__":
    main()
