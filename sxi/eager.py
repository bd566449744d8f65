"""The walk that computes: the top level of a file, an initializer, the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from sxi import codes, contracts
from sxi.arraytype import ArrayType
from sxi.calls import CallSite
from sxi.emit import BaseEmitter
from sxi.frames import Frame, as_count, gathered, rebuilt
from sxi.graph import Graph, Link, Op
from sxi.guards import Guard
from sxi.primitives.declare import Primitive, Static, Value
from sxi.primitives.host import real
from sxi.series import Series
from sxi.show import printed
from sxi.source import Span
from sxi.trace import Recording, Registry, Trace
from sxi.values import Gradient, is_number


class EagerArray(Value):
    """A computed array: `data` is the array module's, `type` what the language calls it."""

    __slots__ = ("data",)

    def __init__(self, type: ArrayType, emitter: EagerEmitter, data: Any) -> None:
        super().__init__(type, emitter)
        self.data = data


class EagerEmitter(BaseEmitter):
    """Computes each operation at once on a backend.

    draws:  what random primitives draw from, or None where drawing is refused
    """

    def __init__(self, backend: Any, draws: Any = None) -> None:
        self.backend, self.draws = backend, draws
        self.span: Span | None = None
        self.call: Link | None = None

    def emit(self, primitive: Primitive, operands: tuple[Any, ...], static: Static, type: ArrayType) -> EagerArray:
        if primitive.draws and self.draws is None:
            raise codes.NO_DRAWS.at(self.span, form=primitive.name.removeprefix("draw-"))
        first = (self.draws,) if primitive.draws else ()
        given = [x.data if isinstance(x, EagerArray) else x for x in operands]
        assert primitive.forward is not None
        try:
            with self.backend.computing():
                data = primitive.forward(self.backend.xp, *first, *given, **static)
        except MemoryError:
            raise codes.OUT_OF_MEMORY.at(self.span, type=type) from None
        return EagerArray(type, self, data)

    def constant(self, value: Any, dtype: str | None = None) -> EagerArray:
        if isinstance(value, bool | int | float):
            type = ArrayType(dtype or "f32")
            with self.backend.computing():
                return EagerArray(type, self, self.backend.xp.full((), value, dtype=type.carrier))
        return EagerArray(ArrayType.of(value), self, self.backend.asarray(value))

    def adopt(self, x: Value) -> Value:
        if isinstance(x, EagerArray):
            return x if x.emitter is self else EagerArray(x.type, self, x.data)
        raise codes.ESCAPED.at(self.span)


@dataclass(slots=True, eq=False)
class Reported:
    """What an eager walk reported, in order: (guard, count) and (series, value)."""

    guards: list[tuple[Guard, float]] = field(default_factory=list)
    series: list[tuple[Series, float]] = field(default_factory=list)


class Eager(Frame):
    """A walk that computes: the top level of a file, an initializer, the prompt.

    reported:  where reports go at the prompt
    steps, stage_steps, history:  what the curriculum reads
    printed:   what `print` wrote, a text each
    """

    def __init__(self, emitter: EagerEmitter, globals: list[Any], context: str | None, place: str) -> None:
        super().__init__(emitter, globals, context, place)
        self.reported = Reported()
        self.steps = 0
        self.stage_steps = 0
        self.history: Any = None
        self.printed: list[str] = []

    def _number(self, x: Any) -> float:
        return float(self.emitter.backend.to_host(x.data)) if isinstance(x, EagerArray) else real(x)

    def tally(self, guard: Guard, count: Any) -> None:
        with self.unrounded():
            self.reported.guards.append(
                (replace(guard, calls=self.calls()), self._number(as_count(self.emitter, count)))
            )

    def report(self, series: Series, value: Any) -> None:
        self.reported.series.append((series, self._number(value)))

    def print(self, values: list[Any], span: Span) -> None:
        if self.context not in (None, "prompt"):
            contracts.graphs_do_nothing_to_the_host(span, form="print", context=self.context)
        self.printed.append(" ".join([printed(v) for v in values]))

    def runs_diagnostic(self, name: str, span: Span) -> bool:
        return self.context == "prompt"

    def step(self) -> Any:
        if self.context == "curriculum":
            return self.steps
        return self.emitter.constant(self.steps, "i32")

    def param(self, name: str, type: ArrayType | None, init: Any, site: CallSite) -> Any:
        self._refuse_declaration("param", site)

    def state(self, name: str, type: ArrayType | None, init: Any, site: CallSite) -> Any:
        self._refuse_declaration("state", site)

    def _refuse_declaration(self, form: str, site: CallSite) -> NoReturn:
        contracts.parameters_are_made_by_the_model.refuse(
            site.span, form=form, context=self.context or "top level of a file"
        )

    def differentiate(
        self, f: Gradient, args: list[Any], keywords: dict[str, Any], span: Span, number: str, call: Any
    ) -> Any:
        """Trace the function, differentiate the graph, compute it and what it reported."""
        leaves = [
            self.emitter.constant(real(x), "f32") if is_number(x) else x
            for x in self.leaves(args[0] if args else None, span)
        ]
        graph = Graph("prompt")
        frame = _Differentiated(graph, self)
        inputs = [graph.input("input", str(i), x.type) for i, x in enumerate(leaves)]
        first = rebuilt(args[0], iter(inputs)) if not is_number(args[0]) else inputs[0]
        out = frame.differentiate(f, [first, *args[1:]], keywords, span, number, call)
        found: list[Value] = []
        gathered(out, found)
        given = {op.index: x for op, x in zip(inputs, leaves, strict=True)}
        recording = frame.recording
        counts = [count for _, count in recording.tallies]
        series = [(s, x) for s in recording.series.all() for x in s.values]
        done = iter(self.computed(graph, [*found, *counts, *[x for _, x in series]], given))
        made = rebuilt(out, done)
        guards = [recording.guards.guards[slot] for slot, _ in recording.tallies]
        self.reported.guards += [(g, self._number(next(done))) for g in guards]
        self.reported.series += [(s, self._number(next(done))) for s, _ in series]
        return made

    def computed(self, graph: Graph, outputs: Sequence[Any], given: dict[int, Any]) -> list[Any]:
        """What each of `outputs` is: an op's array, computed from those `given` by number, or a host number itself."""
        values = dict(given)
        for op in graph.needed_for(outputs):
            if op.index in values:
                continue
            if op.primitive is None:
                values[op.index] = self.emitter.constant(op.static["value"], op.dtype)
                continue
            operands = tuple([values[x.index] if isinstance(x, Op) else x for x in op.operands])
            values[op.index] = self.emitter.emit(op.primitive, operands, op.static, op.type)
        return [values[x.index] if isinstance(x, Op) else x for x in outputs]


class _Differentiated(Trace):
    """The walk of a gradient's function where arrays are computed: recorded, and all else is as it is around it."""

    def __init__(self, graph: Graph, around: Eager) -> None:
        super().__init__(
            graph, around.globals, around.context, around.place, Registry(), Recording(), selected=["*"], sampled=True
        )
        self.around = around
        self.call, self.training, graph.rounding = around.chain(), around.training, around.emitter.rounding
        self.stage_steps, self.history = around.stage_steps, around.history

    def step(self) -> Any:
        return self.around.step()

    def param(self, name: str, type: ArrayType | None, init: Any, site: CallSite) -> Any:
        return self.around.param(name, type, init, site)

    def state(self, name: str, type: ArrayType | None, init: Any, site: CallSite) -> Any:
        return self.around.state(name, type, init, site)
