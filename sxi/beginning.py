"""The state that a run begins with: what initializers, `:start-from` and the optimizers' first values give."""

from __future__ import annotations

from typing import Any

from sxi.backends import Backend
from sxi.compiled import Checked
from sxi.eager import Eager, EagerArray, EagerEmitter
from sxi.primitives.host import real
from sxi.random import Draws
from sxi.start import first_values
from sxi.state import State, Values
from sxi.tracing import first_states, initial_value


def first_state(checked: Checked, host: Backend, backend: Backend) -> State:
    """The first value of every parameter, state and optimizer state, made on `host` and taken over by `backend`.

    Initializers draw by the seed and the parameter's name alone, so they give the same bits for any backend.
    Raises the errors of `:start-from`.
    """
    draws = Draws(checked.run.seed, host.asarray)
    emitter = EagerEmitter(host, draws)
    registry = checked.tracer.registry
    given = first_values(checked)
    values = Values()
    params: dict[str, EagerArray] = {}
    for name, declared in registry.params.items():
        x = emitter.constant(given[name]) if name in given else None
        params[name] = _made(checked, emitter, name, declared, x)
        values.params[name] = backend.asarray(host.to_host(params[name].data))
    for name, state in registry.states.items():
        values.states[name] = backend.asarray(host.to_host(_made(checked, emitter, name, state, None).data))
    for name, p in params.items():
        for key, x in _optimizer_states(checked, emitter, name, p).items():
            values.optimizer[key] = backend.asarray(host.to_host(x.data))
    return State(values)


def _made(checked: Checked, emitter: EagerEmitter, name: str, declared: Any, given: EagerArray | None) -> EagerArray:
    """The first value of a parameter or a state, of its type."""
    emitter.draws.at(0, 0)
    frame = Eager(emitter, checked.program.globals, "initializer", f"initializer {name}")
    x = initial_value(frame, declared) if given is None else given
    if not isinstance(x, EagerArray):
        return emitter.constant(real(x), declared.type.dtype)
    cast = emitter.cast(x, declared.type.dtype)
    assert isinstance(cast, EagerArray)
    return cast


def _optimizer_states(checked: Checked, emitter: EagerEmitter, name: str, p: EagerArray) -> dict[str, EagerArray]:
    """The first values of the states that a parameter's optimizer keeps, by `state/parameter`."""
    update = checked.updates[False]
    optimizer = update.groups[name].optimizer
    frame = Eager(emitter, checked.program.globals, "initializer", f"optimizer {optimizer.name} {name}")
    found = {}
    for state, x in first_states(frame, optimizer.definition, p, dict(optimizer.keywords)).items():
        type = update.states.get((name, state))
        if type is not None:
            found[f"{state}/{name}"] = x if isinstance(x, EagerArray) else emitter.constant(x, type.dtype)
    return found
