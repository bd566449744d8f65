"""What every kind of walk has: a node asks its frame for whatever depends on the kind.

`trace.py` records graphs over abstract arrays, `eager.py` computes arrays.  A contract is checked by
the node, so it holds in both or in neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sxi import codes
from sxi.calls import CallSite, check_operands, located
from sxi.codes import Refusal
from sxi.emit import BaseEmitter
from sxi.graph import Calls, Link
from sxi.guards import Guard
from sxi.primitives import host
from sxi.primitives.declare import Primitive, Static, Value
from sxi.series import Series
from sxi.source import Span
from sxi.values import is_number, kind_of


class Frame:
    """What every kind of walk has.

    emitter:    where operations go
    globals:    the values of the program's definitions, by number
    context:    what the walk is of, `objective`, or None at the top level of a file
    place:      the head of the places of draws
    scope:      the prefix of the names of parameters
    training:   what `(training?)` gives
    call:       the chain of calls that led here, but for the turn; depth: how many
    turn:       the turn of the innermost fold as long as nothing asked for its link; None outside of one
    """

    def __init__(self, emitter: Any, globals: list[Any], context: str | None, place: str) -> None:
        self.emitter, self.globals, self.context, self.place = emitter, globals, context, place
        self.scope: tuple[str, ...] = ()
        self.training = False
        self.call: Link | None = None
        self.turn: int | None = None
        self.depth = 0
        self.frozen = False
        self.reading: str | None = None

    def apply(self, primitive: Primitive, operands: Sequence[Any], static: Static, site: CallSite) -> Any:
        """The result of a primitive called at `site`."""
        emitter = self.emitter
        emitter.span, emitter.call = site.span, self.chain()
        if primitive.draws:
            static = {**static, "place": self.place_of(site)}
        if primitive.uses_training:
            static = {**static, "training": self.training}
        check_operands(primitive, operands, site)
        try:
            return emitter.apply(primitive, operands, static)
        except Refusal as refusal:
            raise located(refusal, primitive, operands, site) from None
        except ZeroDivisionError:
            raise codes.DIVIDED_BY_ZERO.at(site.span) from None

    def chain(self) -> Link | None:
        """The chain of calls and turns that led here; the turn's link is made now, for most turns never ask."""
        if self.turn is not None:
            self.call, self.turn = Link(self.call, self.turn, "", None), None
        return self.call

    def place_of(self, site: CallSite) -> str:
        """The place of a draw: the graph, the chain of calls and turns, the draw's number."""
        link = self.chain()
        above = f"{link.place()}/" if link else ""
        return f"{self.place}/{above}{site.number}"

    def calls(self) -> Calls:
        return Calls(self.chain())

    @contextmanager
    def unrounded(self) -> Iterator[None]:
        """What a guard, a bound or `assert-finite` tests and sums is f32, in a bf16 region too."""
        outer, self.emitter.rounding = self.emitter.rounding, False
        yield
        self.emitter.rounding = outer

    def full_name(self, name: str) -> str:
        return "/".join([*self.scope, name])

    def leaves(self, x: Any, span: Span) -> list[Any]:
        """The arrays, or the one number, of an argument that a gradient is taken by; refused where there is none."""
        if is_number(x):
            return [x]
        found: list[Any] = []
        gathered(x, found)
        others = [v for v in found if not isinstance(v, Value) or not v.type.is_float]
        if others or not found:
            given = kind_of(others[0]) if others else kind_of(x)
            raise codes.WRONG_KIND.at(
                span,
                what="what the gradient is taken by",
                given=given,
                wanted="an array of reals, or a record or list of them",
            )
        return found

    # What the kinds of walk do differently.

    def tally(self, guard: Guard, count: Any) -> None:
        raise NotImplementedError

    def report(self, series: Series, value: Any) -> None:
        raise NotImplementedError

    def runs_diagnostic(self, name: str, span: Span) -> bool:
        raise NotImplementedError


def gathered(x: Any, found: list[Value]) -> None:
    """Put the arrays of a structure into `found`, in order."""
    if isinstance(x, Value):
        found.append(x)
    elif isinstance(x, list):
        for e in x:
            gathered(e, found)
    elif isinstance(x, dict):
        for e in x.values():
            gathered(e, found)


def rebuilt(x: Any, leaves: Iterator[Any]) -> Any:
    """A structure like `x` with its arrays replaced by `leaves`, in order."""
    if isinstance(x, list):
        return [rebuilt(e, leaves) for e in x]
    if isinstance(x, dict):
        return {k: rebuilt(e, leaves) for k, e in x.items()}
    return next(leaves) if isinstance(x, Value) else x


def as_count(emitter: BaseEmitter, count: Any) -> Any:
    """The count of one evaluation as an f32 scalar: counted whole, rounded once."""
    if isinstance(count, Value):
        return emitter.cast(emitter.adopt(count), "f32")
    return emitter.constant(host.real(count), "f32")
