"""What a run carries from step to step: parameters, states and optimizer state, and their commit.

A step computes the next values beside the current ones.  Commit is a swap after the verdict, always, so
that the state before a step lives until the next swap: a refused step leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from sxi.backends import Array, Backend, HostArray


@dataclass(slots=True)
class Values:
    """One version of everything that is carried.

    params:     name -> array                      states:  name -> array
    optimizer:  `state/parameter` -> array
    """

    params: dict[str, Array] = field(default_factory=dict)
    states: dict[str, Array] = field(default_factory=dict)
    optimizer: dict[str, Array] = field(default_factory=dict)

    def named(self) -> Iterator[tuple[str, Array]]:
        """Every array with its name in a checkpoint."""
        for kind, arrays in (("param", self.params), ("state", self.states), ("optimizer", self.optimizer)):
            for name, x in arrays.items():
                yield f"{kind}/{name}", x


@dataclass(slots=True)
class State:
    """The current values, the ones before the last commit, and the ones a step has computed."""

    current: Values = field(default_factory=Values)
    before: Values | None = None
    spare: Values | None = None

    def offer(self, values: Values) -> None:
        """Hold what a step computed until its verdict is known."""
        self.spare = values

    def commit(self) -> None:
        """Make the offered values the current ones."""
        assert self.spare is not None
        self.before, self.current, self.spare = self.current, self.spare, None

    def refuse(self) -> None:
        """Let go of the offered values: everything is as it was before the step."""
        self.spare = None

    def inputs(self) -> dict[tuple[str, str], Array]:
        """The current values as the inputs of a graph."""
        given: dict[tuple[str, str], Array] = {}
        for kind, arrays in (
            ("param", self.current.params), ("state", self.current.states), ("optimizer", self.current.optimizer),
        ):  # fmt: skip
            for name, x in arrays.items():
                given[kind, name] = x
        return given

    def to_host(self, backend: Backend) -> dict[str, HostArray]:
        """The current values as NumPy arrays, by their names in a checkpoint."""
        return {name: backend.to_host(x) for name, x in self.current.named()}

    def load(self, arrays: dict[str, HostArray], backend: Backend) -> None:
        """Make the arrays of a checkpoint the current values."""
        made = Values()
        parts = {"param": made.params, "state": made.states, "optimizer": made.optimizer}
        for name, x in arrays.items():
            kind, _, rest = name.partition("/")
            parts[kind][rest] = backend.asarray(x)
        self.current, self.before, self.spare = made, None, None
