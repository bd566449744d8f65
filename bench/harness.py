"""How to measure beside other work: candidates in turn, in one process, on one thread each, by CPU time.

Wall clock on a shared machine moves by a factor of two; CPU time moves less, and the ratio of two
candidates of the same round least of all.  So a script prints ratios to a peer and the time beside them.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# One thread in every library that reads a variable for it; CPU time of more would count their waiting too.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
# Chosen kernels and the cache size they assume belong together: one without the other is a third configuration.
KERNELS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


def own_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment that is measured in: `given` with one thread a library and BLAS's own choice of kernels."""
    kept = {name: value for name, value in given.items() if name not in KERNELS}
    return {**kept, **dict.fromkeys(THREADS, "1")}


def enter_own_environment() -> None:
    """Start this process again where its environment is not the one to measure in; libraries read theirs once."""
    wanted = own_environment(os.environ)
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted)


def torch_or_none() -> Any:
    """PyTorch on one thread, or None where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        return None
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return torch


def arguments(description: str | None, given: Sequence[str] | None) -> argparse.Namespace:
    """What every script is told: `--quick`, a smoke run whose times mean nothing."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smoke run: the times it prints mean nothing")
    return parser.parse_args(given)


def nothing() -> None:
    """What a candidate does before a round where it keeps nothing from one to the next."""


@dataclass(slots=True)
class Candidate:
    """One of the things that are compared.

    run:    what is timed, once a turn
    begin:  what makes it ready for a round, not timed
    times:  how many units of work one `run` does; a time is that of one unit
    """

    run: Callable[[], object]
    begin: Callable[[], object] = nothing
    times: int = 1


@dataclass(slots=True)
class Times:
    """What was measured of one unit of a candidate's work, for each round.

    cpu, wall:  seconds
    faults:     pages of memory that the system had to hand over; in a step that allocates nothing, none
    """

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median CPU time, in seconds."""
        return statistics.median(self.cpu)

    def ratios(self, peer: Times) -> list[float]:
        """This candidate's CPU time over the peer's, round by round."""
        return [own / other for own, other in zip(self.cpu, peer.cpu, strict=True)]

    def ratio(self, peer: Times) -> float:
        """The median of `ratios`."""
        return statistics.median(self.ratios(peer))


def repeated(run: Callable[[], object], times: int) -> Callable[[], None]:
    """`run`, done `times` times, for work too short to time once."""

    def all_of_them() -> None:
        for _ in range(times):
            run()

    return all_of_them


def measure(
    candidates: Mapping[str, Candidate],
    rounds: int,
    *,
    clock: Callable[[], float] = time.process_time,
) -> dict[str, Times]:
    """Time each candidate once a round, after one round that is not counted (where one is all there is, it is).

    Every round begins with another candidate, so that none always follows the same one.  The collector of
    cycles is off meanwhile and runs between the rounds, as its turn would fall to one of them by chance.

    clock:  gives the CPU time that the work took, in seconds since any moment
    """
    names = list(candidates)
    measured = {name: Times() for name in names}
    was_on = gc.isenabled()
    try:
        for number in range(1 if rounds == 1 else 0, rounds + 1):
            gc.enable()
            gc.collect()
            gc.disable()
            for i in range(len(names)):
                name = names[(i + number) % len(names)]
                if number:
                    _time(candidates[name], clock, measured[name])
                else:
                    _time(candidates[name], clock, Times())
    finally:
        if was_on:
            gc.enable()
    return measured


def _time(candidate: Candidate, clock: Callable[[], float], into: Times) -> None:
    candidate.begin()
    faults = _faults()
    wall, cpu = time.perf_counter(), clock()
    candidate.run()
    spent = clock() - cpu
    into.wall.append((time.perf_counter() - wall) / candidate.times)
    # Never 0, since others divide by it.
    into.cpu.append(max(spent, 1e-9) / candidate.times)
    into.faults.append((_faults() - faults) / candidate.times)


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def table(title: str, measured: Mapping[str, Times], peer: str, *, unit: str = "ms", faults: bool = True) -> str:
    """The measurements as text: CPU time, its ratio to the `peer` with the quartiles over the rounds, page faults.

    faults:  whether page faults are shown: those of this process
    """
    scale = {"s": 1.0, "ms": 1e3, "us": 1e6}[unit]
    width = max([len(name) for name in measured])
    last = "; page faults" if faults else ""
    lines = [f"{title} (one thread, CPU time, {len(measured[peer].cpu)} rounds; ratio to {peer}{last})"]
    for name, times in measured.items():
        low, high = quartiles(times.ratios(measured[peer]))
        ratio = times.ratio(measured[peer])
        shown = f"{times.median * scale:9.3f} {unit}  x {ratio:6.3f}  [{low:.3f} {high:.3f}]"
        counted = f"  {statistics.median(times.faults):5.0f}" if faults else ""
        lines.append(f"  {name:<{width}}  {shown}{counted}")
    return "\n".join(lines)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper quartile; of one value, the value."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high
