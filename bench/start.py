"""How long a command takes to start: the help, a check of a tutorial, a run of one step of a small file.

Each is a process of its own, beside Python doing nothing and beside one that imports NumPy: what is
left is the interpreter's own.  The time is the process's CPU time, its children's too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import harness, programs
from bench.harness import Candidate

_SMALL = """
(generator lines (n)
  (let ((x (uniform [n 1] :low -1.0 :high 1.0)))
    {:x x :y (+ 1.0 (* 3.0 x))}))
(objective (batch)
  (let ((loss (mean (square (- (linear "net" (:x batch) 1) (:y batch))))))
    (metric "train/loss" loss :below 100.0)
    loss))
(run small :data lines :batch 8 :steps 1 :optimizer (sgd :lr 0.1))
"""


class Failed(Exception):
    """A command that does not end as it should."""


class Command:
    """A command and how often it was given; every run has a folder of its own for what it leaves."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._arguments, self._folder = list(arguments), folder
        # As installed, Python finds its modules compiled, which the round that is not counted sees to.
        self._environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        self._environment["PYTHONPYCACHEPREFIX"] = str(folder.parent / "compiled")
        self._runs = 0

    def run(self) -> None:
        """Give the command and wait.  Raises Failed where it does not end with 0."""
        self._runs += 1
        out = str(self._folder / str(self._runs))
        given = [sys.executable, *[a.replace("OUT", out) for a in self._arguments]]
        done = subprocess.run(given, capture_output=True, text=True, check=False, env=self._environment)
        if done.returncode:
            raise Failed(f"{' '.join(given)}: {done.stderr or done.stdout}")


def children() -> float:
    """The CPU time, in seconds, of all processes that this one has waited for."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured: a name, and what Python is given."""
    small = folder / "small.sx"
    small.write_text(_SMALL, encoding="utf-8")
    sxi = ["-m", "sxi"]
    return {
        "python, nothing": ["-c", "pass"],
        "python, import numpy": ["-c", "import numpy"],
        "sxi --help": [*sxi, "--help"],
        "sxi check, a small file": [*sxi, "check", str(small)],
        "sxi check digits.sx": [*sxi, "check", str(programs.RUNS / "digits.sx")],
        "sxi check lorentz.sx": [*sxi, "check", str(programs.RUNS / "lorentz.sx")],
        "sxi run, one step of it": [*sxi, "run", str(small), "--out", "OUT", "--quiet", "--device", "cpu"],
        "the same, --device auto": [*sxi, "run", str(small), "--out", "OUT", "--quiet"],
    }


def start(rounds: int, names: Sequence[str] = ()) -> str:
    """The table, of all commands or of those named."""
    with tempfile.TemporaryDirectory() as made:
        candidates = {}
        for number, (name, given) in enumerate(commands(Path(made)).items()):
            if not names or name in names:
                folder = Path(made) / str(number)
                folder.mkdir()
                candidates[name] = Candidate(Command(given, folder).run)
        measured = harness.measure(candidates, rounds, clock=children)
    walls = "\n".join([f"  {name}: {min(t.wall) * 1e3:.0f} ms by the wall at best" for name, t in measured.items()])
    return f"{harness.table('start', measured, 'python, nothing', faults=False)}\n{walls}"


def main(given: Sequence[str] | None = None) -> None:
    """Print how long each command takes."""
    quick = harness.arguments(__doc__, given).quick
    print(start(1, ("python, nothing", "sxi --help")) if quick else start(15))


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
