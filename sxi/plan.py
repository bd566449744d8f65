"""A graph and the outputs wanted of it -> a plan: a list of calls that is run straight through.

Dead code is left out, common code is computed once (draws never are), a buffer that nothing else needs
is written in place, and what is spent is let go at its last use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sxi import codes
from sxi.backends import Array, Backend
from sxi.errors import SxiError
from sxi.graph import Graph, Op
from sxi.random import Draws

# Results that are new buffers of their own, which an accumulating primitive may write into.
_FRESH = frozenset({"zeros-like", "zeros", "fill"})


@dataclass(slots=True)
class Instruction:
    """One call: `values[out] = call(xp, *[values[i] for i in operands], **static)`."""

    call: Callable[..., Array]
    operands: tuple[int, ...]
    static: dict[str, Any]
    out: int
    spent: tuple[int, ...]
    draws: bool
    in_place: int | None
    op: Op


@dataclass(slots=True, eq=False)
class Plan:
    """A graph made ready for one backend.

    inputs:   (kind, name) -> the place of what is given for each run
    preset:   the values that stand before the first call: constants and host numbers
    outputs:  the places of what was asked for
    """

    backend: Backend
    name: str
    preset: list[Any]
    inputs: dict[tuple[str, str], int]
    instructions: list[Instruction]
    outputs: list[int]
    extra: dict[str, Any] = field(default_factory=dict)

    def run(self, given: dict[tuple[str, str], Array], draws: Draws) -> list[Array]:
        """The outputs for these inputs.

        Raises E-RUN-040 where the memory does not suffice, at the operation that asked for it.
        """
        values = self.preset.copy()
        for key, place in self.inputs.items():
            values[place] = given[key]
        xp = self.backend.xp
        at: Instruction | None = None
        try:
            for at in self.instructions:
                operands = [values[i] for i in at.operands]
                if at.draws:
                    values[at.out] = at.call(xp, draws, *operands, **at.static)
                elif at.in_place is not None:
                    values[at.out] = at.call(xp, *operands, **at.static, out=values[at.in_place])
                else:
                    values[at.out] = at.call(xp, *operands, **at.static)
                for i in at.spent:
                    values[i] = None
        except MemoryError:
            assert at is not None
            raise out_of_memory(at.op) from None
        return [values[i] for i in self.outputs]


def out_of_memory(op: Op) -> SxiError:
    """The error of an operation whose result has no room."""
    size = op.type.size * {"f64": 8, "i64": 8, "f16": 2, "bool": 1}.get(op.dtype, 4)
    error = codes.RUN_OUT_OF_MEMORY.at(op.span, bytes=f"{size:,}", type=op.type, what=op.name)
    error.chain = op.call.calls() if op.call else []
    return error


def plan(graph: Graph, outputs: Sequence[Any], backend: Backend, *, plain: bool = False) -> Plan:
    """The plan that computes `outputs`, ops or host numbers, of `graph`.

    plain:  every operation as it was recorded, into a buffer of its own: what the bits are held against
    """
    ops = graph.needed_for(outputs)
    same = {op.index: op for op in ops} if plain else _common(ops)
    kept = [op for op in ops if same[op.index] is op]
    return _Builder(graph, backend, kept, same, outputs, plain).plan


def _common(ops: Sequence[Op]) -> dict[int, Op]:
    """For each op the first one that computes the same; a draw only ever itself."""
    same: dict[int, Op] = {}
    first: dict[Any, Op] = {}
    on_grid: set[int] = set()
    for op in ops:
        if op.name == "round-bf16" and same[op.operands[0].index].index in on_grid:
            same[op.index] = same[op.operands[0].index]
            continue
        if op.primitive is None or op.primitive.draws:
            key: Any = _source_key(op)
        else:
            operands = tuple([("op", same[x.index].index) if isinstance(x, Op) else _literal(x) for x in op.operands])
            key = (op.primitive.name, operands, _static_key(op.static), op.type)
        same[op.index] = first.setdefault(key, op)
        if _is_on_grid(op, on_grid, same):
            on_grid.add(same[op.index].index)
    return same


def _is_on_grid(op: Op, on_grid: set[int], same: dict[int, Op]) -> bool:
    """Whether all elements are surely bf16's: rounding them again changes nothing."""
    if op.primitive is None or op.dtype != "f32":
        return False
    if op.name == "round-bf16":
        return True
    known = [isinstance(x, Op) and (not x.type.is_float or same[x.index].index in on_grid) for x in op.operands]
    return op.primitive.moves and all(known)


def _source_key(op: Op) -> Any:
    if op.primitive is None and op.source == "constant" and isinstance(op.static["value"], bool | int | float):
        return ("constant", _literal(op.static["value"]), op.type)
    return ("own", op.index)


def _static_key(static: dict[str, Any]) -> str:
    """Static operands as text: 1, 1.0 and true are equal to Python and not to an operation."""
    return repr(sorted(static.items()))


def _literal(x: Any) -> Any:
    """A host number told apart by its type and its sign: 1, 1.0, true and -0.0 are four."""
    return (type(x).__name__, repr(x))


class _Builder:
    """Assigns places and finds last uses."""

    def __init__(
        self,
        graph: Graph,
        backend: Backend,
        ops: list[Op],
        same: dict[int, Op],
        outputs: Sequence[Any],
        plain: bool,
    ) -> None:
        self.backend, self.same, self.plain = backend, same, plain
        self.places: dict[int, int] = {}
        self.literals: dict[Any, int] = {}
        self.preset: list[Any] = []
        self.inputs: dict[tuple[str, str], int] = {}
        self.uses: dict[int, list[Op]] = {}
        for op in ops:
            for x in op.operands:
                if isinstance(x, Op):
                    self.uses.setdefault(self._of(x).index, []).append(op)
        self.wanted = {self._of(x).index for x in outputs if isinstance(x, Op)}
        instructions = [i for op in ops if (i := self._instruction(op)) is not None]
        out = [self._place(x) for x in outputs]
        self.plan = Plan(backend, graph.name, self.preset, self.inputs, instructions, out)

    def _of(self, op: Op) -> Op:
        return self.same[op.index]

    def _new_place(self, value: Any = None) -> int:
        self.preset.append(value)
        return len(self.preset) - 1

    def _place(self, x: Any) -> int:
        """Where a value stands: an op's result, or a host number."""
        if isinstance(x, Op):
            return self.places[self._of(x).index]
        key = _literal(x)
        if key not in self.literals:
            self.literals[key] = self._new_place(x)
        return self.literals[key]

    def _instruction(self, op: Op) -> Instruction | None:
        if op.primitive is None:
            self.places[op.index] = self._source(op)
            return None
        operands = tuple([self._place(x) for x in op.operands])
        in_place = self._in_place(op, operands)
        out = self.places[op.index] = self._new_place()
        spent = [
            self.places[x.index]
            for x in {self._of(x).index: self._of(x) for x in op.operands if isinstance(x, Op)}.values()
            if self.uses[x.index][-1] is op and x.index not in self.wanted and x.primitive is not None
        ]
        return Instruction(
            self.backend.function(op.primitive),
            operands,
            op.static,
            out,
            tuple(spent),
            op.primitive.draws,
            in_place,
            op,
        )

    def _source(self, op: Op) -> int:
        if op.source != "constant":
            place = self.inputs[op.source, op.static["name"]] = self._new_place()
            return place
        value = op.static["value"]
        with self.backend.computing():
            if isinstance(value, bool | int | float):
                return self._new_place(self.backend.xp.full((), value, dtype=op.type.carrier))
            return self._new_place(self.backend.asarray(value))

    def _in_place(self, op: Op, operands: tuple[int, ...]) -> int | None:
        """The place of the buffer that `op` may write into: fresh, and used by nothing else."""
        assert op.primitive is not None
        which = op.primitive.in_place
        if which is None or self.plain:
            return None
        x = op.operands[which]
        if not isinstance(x, Op):
            return None
        x = self._of(x)
        made = x.primitive
        is_fresh = made is not None and (made.name in _FRESH or made.in_place is not None)
        alone = len(self.uses[x.index]) == 1 and x.index not in self.wanted
        return operands[which] if is_fresh and alone else None
