"""The processes that share a run: one grouped reduction a step, behind one protocol."""

from __future__ import annotations

from typing import Protocol

from sxi.backends import Array


class Ranks(Protocol):
    """The processes of a run.

    rank:  this process's number, from 0        size:  how many there are
    """

    rank: int
    size: int

    def reduce(
        self, gradients: list[Array], sums: Array, extremes: Array | None, failed: bool
    ) -> tuple[list[Array], Array, Array | None, bool]:
        """One grouped all-reduce: gradients and sums added, extremes maximized, whether any rank failed.

        gradients:  f32 arrays of one shape on every rank      sums:  f64[n]      extremes:  f64[m] or None
        """

    def microbatches(self, m: int) -> range:
        """Which of a step's `m` microbatches are this rank's: the rank-th of equal runs."""

    def batches(self, n: int) -> range:
        """Which of a pass's `n` batches are this rank's."""


class Solo:
    """One process."""

    rank = 0
    size = 1

    def reduce(
        self, gradients: list[Array], sums: Array, extremes: Array | None, failed: bool
    ) -> tuple[list[Array], Array, Array | None, bool]:
        return gradients, sums, extremes, failed

    def microbatches(self, m: int) -> range:
        return range(m)

    def batches(self, n: int) -> range:
        return range(n)
