"""Kill runs at random moments and go on with them: what they leave is whole, and they end as if never killed.

Every run is performed by a process forked from this one, which has imported and checked everything, and is
killed (SIGKILL) after a random time.  After each kill: the newest checkpoint is whole, every line of the
stream that has an end is one, `sxi status` says dead.  A run is then gone on with, killed again and so on;
when it has ended, its last checkpoint and its stream's points are those of a run that was never killed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness, programs
from sxi import checkpoint, commands, folder
from sxi.backends import open_backend
from sxi.run import Runner
from sxi.source import Source
from sxi.stages import CheckedStage
from sxi.status import read_status
from sxi.stream import read

STEPS = 24
PROGRAM = f"""
(data points (npz "points.npz") :split {{:train 0.8 :held 0.2}})
(define (error batch)
  (mean (square (- (@ (tanh (@ (:x batch) (param "in" [8 48] :init glorot))) (param "out" [48] :init ones-init))
                   (:y batch)))))
(model net (batch) (error batch))
(objective (batch) (let ((loss (net batch))) (metric "train/loss" loss :below 1e6) loss))
(evaluate held (batch) (output "x" (:x batch)) (metric "held/loss" (net batch)))
(run r :data points :batch 32 :microbatches 2 :steps {STEPS} :optimizer (adamw :lr 0.01)
  :evaluate [(held :data points :split :held :batch 64 :every 4)]
  :checkpoint-every 3 :keep-checkpoints 2 :keep-best ["held/loss" :min])
"""


@dataclass
class Tally:
    """What was seen.

    kills:  how many runs were killed; states: where they were: no folder yet, no checkpoint yet, …
    ended:  runs that came to their end; wrong: what was not as it must be, a line each
    """

    kills: int = 0
    ended: int = 0
    states: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Runs:
    """Performs runs of the one program in folders of `home`."""

    def __init__(self, home: Path) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(200, 8)).astype(np.float32)
        np.savez(home / "points.npz", x=x, y=x.sum(axis=1))
        self.home = home
        self.source = Source(str(home / "kill.sx"), PROGRAM)
        self.stages: list[CheckedStage] = programs.stages(home / "kill.sx", PROGRAM)

    def perform(self, where: Path) -> int:
        """Begin the run in the folder `where`, or go on with it, to its end: the exit status."""
        runner = Runner(self.stages, open_backend("cpu"), open_backend("cpu"))
        there = folder.Folder(where)
        begun = there.identity_file.exists()
        identity = there.identity() if begun else folder.new_identity(self.source.path, {}, {})
        if not begun:
            runner.begin()
            there = folder.make(where)
        with folder.held(there):
            job = commands.job_of(runner, there, identity, [self.source], None)
            if begun:
                folder.clean(there)
                job.go_on()
            return job.perform()[0]

    def forked(self, where: Path, seconds: float | None) -> bool:
        """Perform a run in a process of its own, killed after `seconds`; whether it came to its end."""
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                status = self.perform(where)
            finally:
                os._exit(status)  # no handler of the parent's runs here
        if seconds is not None:
            time.sleep(seconds)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            raise AssertionError(f"the run in {where} ended with {os.WEXITSTATUS(status)}")
        return os.WIFEXITED(status)


def points(where: Path) -> list[dict[str, Any]]:
    """The points of a stream as a reader sees them."""
    return [line for line in read(where / "stream.jsonl") if line["kind"] == "point"]


def final(where: Path) -> dict[str, Any]:
    """What an ended run leaves, but for what no two runs share."""
    arrays, rest = checkpoint.load(where / "checkpoints" / f"{STEPS:06d}")
    best, _ = checkpoint.load(where / "checkpoints" / "best")
    del rest["run_id"]
    found: dict[str, Any] = {name: x.tobytes() for name, x in arrays.items()}
    found |= {f"best {name}": x.tobytes() for name, x in best.items()}
    outputs = {str(p.relative_to(where)): p.read_bytes() for p in (where / "outputs").rglob("*.safetensors")}
    temporary = [str(p) for p in where.rglob(".*")]
    return {**found, **outputs, "rest": repr(rest), "points": points(where), "temporary": temporary}


def looked_at(where: Path) -> tuple[str, list[str]]:
    """How far a killed run was, and what of it is not as it must be."""
    if not (where / "status.json").exists():
        return "no status yet", []
    wrong: list[str] = []
    there = folder.Folder(where)
    state = read_status(where)["state"]
    if state == "done" and (there.checkpoints / f"{STEPS:06d}").exists():
        return "after its end", wrong
    if state != "dead":
        wrong.append(f"status says {state}")
    if not there.identity_file.exists():
        return "no program yet", wrong
    numbered = sorted(int(p.name) for p in there.checkpoints.glob("[0-9]*")) if there.checkpoints.exists() else []
    newest, skipped = checkpoint.newest(there.checkpoints, there.identity().run_id)
    if skipped or (newest is None) == bool(numbered):
        wrong.append(f"of the checkpoints {numbered} {newest} is taken: {skipped}")
    if os.path.lexists(there.checkpoints / "best"):
        checkpoint.load(there.checkpoints / "best")
    if there.stream.exists():
        whole = there.stream.read_bytes().split(b"\n")[:-1]
        for line in whole:
            json.loads(line)
        list(read(there.stream))
    partial = list(there.checkpoints.glob(".tmp-*")) if there.checkpoints.exists() else []
    if partial:
        return "writing a checkpoint", wrong
    return "no checkpoint yet" if newest is None else "between checkpoints", wrong


def kills(n: int, seed: int, home: Path) -> Tally:
    """Kill `n` runs, going on with each until it has come to its end."""
    runs, chance, tally = Runs(home), random.Random(seed), Tally()
    begun = time.perf_counter()
    runs.forked(home / "whole", None)
    longest = time.perf_counter() - begun
    wanted, number = final(home / "whole"), 0
    while tally.kills < n:
        number += 1
        where, begun_again = home / f"run{number}", 0
        while True:
            last = tally.kills >= n
            if runs.forked(where, None if last else chance.uniform(0.0, longest)):
                break
            tally.kills += 1
            state, wrong = looked_at(where)
            tally.states[state] += 1
            tally.wrong += [f"{where.name}: {line}" for line in wrong]
            if state in ("no status yet", "no program yet"):  # nothing that could go on: the next begins elsewhere
                begun_again += 1
                where = home / f"run{number}-{begun_again}"
        tally.ended += 1
        if final(where) != wanted:
            tally.wrong.append(f"{where.name} did not end as the run that was never killed")
    return tally


def main(given: Sequence[str] | None = None) -> int:
    """Kill runs, and say what they left; 1 where something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="kill ten")
    options = parser.parse_args(given)
    with tempfile.TemporaryDirectory(prefix="sxi-kill-") as home:
        tally = kills(10 if options.quick else options.kills, options.seed, Path(home))
    print(f"{tally.kills} kills, {tally.ended} runs that came to their end")
    for state, count in sorted(tally.states.items()):
        print(f"  {count:5} {state}")
    for line in tally.wrong:
        print(f"wrong: {line}")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    harness.enter_own_environment()
    sys.exit(main())
