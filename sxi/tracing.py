"""A program's declarations -> its graphs: every contract checked, every parameter and guard found.

One walk for each graph and static signature: the step's graph (sampled and not), each pass's for each
size of batch, the update's, an initializer's for each parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sxi import codes, contracts
from sxi.arraytype import ArrayType
from sxi.calls import LONGEST_CALL_SHOWN
from sxi.errors import Label, SxiError
from sxi.eval import call_function, call_value
from sxi.grad import gradients
from sxi.graph import Graph, Op
from sxi.options import Pass, Run
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Value
from sxi.primitives.host import real
from sxi.program import Program
from sxi.series import matches_glob
from sxi.source import Span
from sxi.suggest import some_of, suggest_glob
from sxi.trace import Param, Recording, Registry, Trace
from sxi.values import Builtin, DataRecord, Function, Generator, Group, Update, is_number, kind_of


@dataclass(slots=True, eq=False)
class StepGraph:
    """What a microbatch computes: the generator, `prepare`, the objective with its gradient.

    batch:   names of the columns that are given, in order
    params:  names of the parameters, in the order of creation; grads: their gradients
    nexts:   (state name, reduce, values) in order
    """

    graph: Graph
    recording: Recording
    sampled: bool
    batch: list[str]
    loss: Any
    params: list[str] = field(default_factory=list)
    grads: list[Op] = field(default_factory=list)
    prepared: Any = None


@dataclass(slots=True, eq=False)
class PassGraph:
    """What a batch of a pass computes, for one size of batch.

    generator, made:  the graph of a generator that makes the batch, and what it makes by name: a graph
                      of its own, since every pass draws as at step 0
    """

    graph: Graph
    recording: Recording
    examples: int
    batch: list[str]
    generator: Graph | None = None
    made: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class UpdateGraph:
    """What commits a step: every parameter's update.

    params:  in the order of creation: (name, new value, {state name: new value})
    states:  (param, state name) -> type
    groups:  parameter -> its group
    totals:  what `total` has summed over all parameters, so that it is walked once
    numbers: (group, where a total stands) -> parameter -> the host numbers that each of its walks read
    """

    graph: Graph
    recording: Recording
    sampled: bool
    params: list[tuple[str, Any, dict[str, Any]]] = field(default_factory=list)
    states: dict[tuple[str, str], ArrayType] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    totals: dict[Any, Any] = field(default_factory=dict)
    numbers: dict[tuple[str, Span], dict[str, set[Any]]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Tracer:
    """Traces the graphs of one program under one run.

    walks:  graph and static signature -> how often its body was walked
    """

    program: Program
    run: Run
    registry: Registry = field(default_factory=Registry)
    walks: dict[str, int] = field(default_factory=dict)

    def _frame(self, graph: Graph, recording: Recording, context: str, place: str, sampled: bool) -> Trace:
        return Trace(
            graph, self.program.globals, context, place, self.registry, recording,
            selected=self.run.diagnostics, sampled=sampled,
        )  # fmt: skip

    def _walked(self, signature: str) -> None:
        self.walks[signature] = self.walks.get(signature, 0) + 1

    # The step

    def step(self, sampled: bool) -> StepGraph:
        """The graph of a microbatch.  Raises an SxiError where a contract does not hold."""
        objective = self.program.declared.objective
        run = self.run
        if objective is None:
            contracts.run_options_are_consistent.refuse(
                run.span, what="the file has no objective", help="(objective (batch) …)"
            )
        graph, recording = Graph("step"), Recording()
        self._walked(f"step n={run.examples} sampled={sampled}")
        made = StepGraph(graph, recording, sampled, [], None)
        batch = self._batch(graph, recording, run.data, run.examples, made.batch, sampled)
        prepare = self.program.declared.prepare
        if prepare is not None:
            frame = self._frame(graph, recording, "prepare", "prepare", sampled)
            frame.training = True
            batch = call_function(frame, prepare, [batch], {}, prepare.body.span, "")
        made.prepared = batch
        frame = self._frame(graph, recording, "objective", "objective", sampled)
        frame.training = True
        loss = call_function(frame, objective, [batch], {}, objective.body.span, "")
        self._check_loss(loss, objective)
        made.loss = graph.adopt(loss) if isinstance(loss, Value) else graph.constant(real(loss), "f32")
        made.params = list(self.registry.params)
        self._differentiate(made, frame)
        return made

    def _check_loss(self, loss: Any, objective: Function) -> None:
        last = objective.body.last
        contracts.objective_is_a_numeric_scalar(last, loss=loss)

    def _differentiate(self, made: StepGraph, frame: Trace) -> None:
        graph = made.graph
        sources = [graph.input("param", name, self.registry.params[name].type) for name in made.params]
        if not isinstance(made.loss, Op) or not made.loss.type.is_float:
            made.grads = [graph.emit_zeros(x) for x in sources]
            return
        made.grads = gradients(graph, made.loss, sources, on_tap=lambda op, g: frame.walk_tap(op, g, call_value))

    def _batch(
        self, graph: Graph, recording: Recording, data: DataRecord | Generator, n: int, names: list[str], sampled: bool
    ) -> dict[str, Any]:
        """The raw batch: inputs for the columns of data, or what a generator makes."""
        if isinstance(data, Generator):
            return self._generated(graph, recording, data, n, sampled)
        batch: dict[str, Any] = {}
        for name, column in data.columns.items():
            names.append(name)
            batch[name] = graph.input("batch", name, ArrayType(column.type.dtype, (n, *column.type.shape[1:])))
        return batch

    def _generated(self, graph: Graph, recording: Recording, data: Generator, n: int, sampled: bool) -> dict[str, Any]:
        frame = self._frame(graph, recording, "generator", f"generator {data.name}", sampled)
        made = call_function(frame, data.function, [n], {}, data.span, "")
        last = data.function.body.last
        if not isinstance(made, dict) or not made or not all([isinstance(x, Value) for x in made.values()]):
            what, wanted = f"what the generator {data.name} makes", "a record of arrays, {:x …}"
            raise codes.WRONG_KIND.at(last, what=what, given=_members(made), wanted=wanted)
        sizes = {k: (x.shape[0] if x.shape else None) for k, x in made.items()}
        contracts.leading_sizes_agree(last, name=data.name, sizes=sizes, asked=n)
        return made

    # Passes

    def evaluation(self, option: Pass, examples: int, sampled: bool) -> PassGraph:
        """The graph of one batch of a pass."""
        graph, recording = Graph(f"pass {option.name}"), Recording()
        self._walked(f"pass {option.name} n={examples} sampled={sampled}")
        made = PassGraph(graph, recording, examples, [])
        if isinstance(option.data, Generator):
            made.generator = Graph(f"generator {option.data.name}")
            made.made = self._generated(made.generator, Recording(), option.data, examples, sampled)
            batch = {name: graph.input("batch", name, x.type) for name, x in made.made.items()}
            made.batch = list(batch)
        else:
            batch = self._batch(graph, recording, option.data, examples, made.batch, sampled)
        frame = self._frame(graph, recording, "evaluate", f"evaluate {option.name}", sampled)
        function = option.instance.definition.function
        call_function(frame, function, [batch], {}, function.body.span, "")
        return made

    # The update

    def groups(self) -> dict[str, Group]:
        """Each parameter's group, the first whose glob takes its name.  Raises E-CONTRACT-026."""
        taken: dict[str, Group] = {}
        for name, param in self.registry.params.items():
            group = next((g for g in self.run.optimizer if matches_glob(g.glob, name)), None)
            if group is None:
                globs = ", ".join([g.glob for g in self.run.optimizer]) or "none"
                where = self.run.spans["optimizer"]
                contracts.every_parameter_has_a_group.refuse(
                    where,
                    what=f"no group takes the parameter {name}: the globs are {globs}",
                    labels=(Label(param.span, f"{name} is made here"),),
                )
            taken[name] = group
        for group in self.run.optimizer:
            if not any([matches_glob(group.glob, name) for name in self.registry.params]):
                what = f"the glob {group.glob} of group {group.name} matches no parameter"
                names = list(self.registry.params)
                near = suggest_glob(group.glob, names)
                contracts.every_parameter_has_a_group.refuse(
                    group.span, what=what, notes=(f"the parameters are {some_of(names)}",),
                    help=f'did you mean "{near}"?' if near else "take the group out, or write a glob that matches one",
                )  # fmt: skip
        return taken

    def update(self, sampled: bool) -> UpdateGraph:
        """The graph that takes parameters, gradients and states to the next ones."""
        graph, recording = Graph("update"), Recording()
        made = UpdateGraph(graph, recording, sampled, groups=self.groups())
        for name, param in self.registry.params.items():
            group = made.groups[name]
            self._walked(f"update {name} {param.type} sampled={sampled}")
            walk = _UpdateWalk(self, made, group, name)
            made.params.append((name, *walk.walked()))
        return made

    # Initializers

    def check_initializer(self, param: Any) -> None:
        """Walk a parameter's or state's initializer: its contracts, and the type of what it gives."""
        instance = param.init
        graph, recording = Graph(f"initializer {instance.name}"), Recording()
        self._walked(f"initializer {param.name} {param.type}")
        frame = self._frame(graph, recording, "initializer", f"initializer {param.name}", False)
        value = initial_value(frame, param)
        check_initial(param, value)


def _members(made: Any) -> str:
    """What is no record of arrays, in words: of a record its first member that is no array."""
    if not isinstance(made, dict):
        return kind_of(made)
    found = next(((k, x) for k, x in made.items() if not isinstance(x, Value)), None)
    return f"a record whose :{found[0]} is {kind_of(found[1])}" if found else "an empty record"


@contextmanager
def chained(name: str, span: Span) -> Iterator[None]:
    """Tell of an error within that it is in what the run calls by `name` at `span`."""
    try:
        yield
    except SxiError as error:
        error.chain.append((name, span))
        raise


def initial_value(frame: Any, param: Any) -> Any:
    """What the initializer of a parameter or a state gives in `frame`."""
    function, init = param.init.definition.function, param.init
    with chained(init.name, init.span):
        return call_function(frame, function, [list(param.type.shape)], dict(init.keywords), init.span, "")


def check_initial(param: Any, value: Any) -> None:
    """Refuse an initializer whose value is not of the parameter's type; a scalar fills any shape no less."""
    found = value.type if isinstance(value, Value) else None
    if found is None and is_number(value) and param.type.shape == ():
        return
    if found is None or found.shape != param.type.shape or not found.is_numeric:
        contracts.a_parameter_is_declared_alike.refuse(
            param.span,
            name=param.name, what="first value", first=str(param.type), second=str(found or kind_of(value)),
            form="parameter" if isinstance(param, Param) else "state",
            labels=(Label(param.init.definition.function.body.last, "its first value"),),
        )  # fmt: skip


class _UpdateWalk:
    """The walk of one parameter's update."""

    def __init__(self, tracer: Tracer, made: UpdateGraph, group: Group, name: str) -> None:
        self.tracer, self.made, self.group, self.name = tracer, made, group, name
        self.definition = group.optimizer.definition
        self.type = tracer.registry.params[name].type
        self.frame = self._frame(name)

    def _frame(self, name: str) -> Trace:
        tracer, made = self.tracer, self.made
        frame = tracer._frame(
            made.graph, made.recording, "optimizer", f"optimizer {self.definition.name} {name}", made.sampled
        )
        frame.param_name = name
        frame.group = self.group.name
        frame.training = True
        frame.on_total, frame.totals = self._total, made.totals
        return frame

    def _operands(self, name: str) -> tuple[Op, Op]:
        graph = self.made.graph
        type = self.tracer.registry.params[name].type
        return graph.input("param", name, type), graph.input("grad", name, type)

    def _keywords(self, frame: Trace) -> dict[str, Any]:
        """The keywords given, schedules taken at this step."""
        given = {}
        for key, value in self.group.optimizer.keywords.items():
            is_schedule = isinstance(value, Function | Builtin)
            given[key] = (
                call_value(frame, value, [frame.step()], {}, self.group.optimizer.span, f"schedule {key}")
                if is_schedule
                else value
            )
        return given

    def walked(self) -> tuple[Any, dict[str, Any]]:
        """The new parameter and its new states."""
        frame, definition = self.frame, self.definition
        p, g = self._operands(self.name)
        keywords = self._keywords(frame)
        types = first_state_types(self.tracer, definition, self.name, self.type, self.group)
        for state, type in types.items():
            bound = definition.bound[state]
            if type is None:
                keywords[bound] = None
                continue
            self.made.states[self.name, state] = type
            keywords[bound] = self.made.graph.input("optimizer", f"{state}/{self.name}", type)
        with chained(definition.name, self.group.optimizer.span):
            out = call_function(frame, definition.function, [p, g], keywords, self.group.optimizer.span, "")
        return self._checked(out, types)

    def _checked(self, out: Any, types: dict[str, ArrayType | None]) -> tuple[Any, dict[str, Any]]:
        name = self.definition.name
        last = self.definition.function.body.last

        def refuse(what: str, span: Span = last) -> None:
            contracts.an_optimizer_ends_in_update.refuse(span, name=name, what=what)

        if not isinstance(out, Update):
            refuse(f"it ends in {kind_of(out)}")
        new = self._as_type(out.parameter, self.type)
        if new is None:
            refuse(
                f"the new parameter is {kind_of(out.parameter)}, and the parameter {self.name} is {self.type}", out.span
            )
        existing = {s: t for s, t in types.items() if t is not None}
        for state in existing:
            if state not in out.states:
                refuse(f"the state {state} is not given", out.span)
        states = {}
        for state, value in out.states.items():
            if state not in types:
                refuse(f"{state} is not one of its states", out.span)
            type = types[state]
            if type is None:
                if value is not None:
                    refuse(f"the state {state} does not exist here, since its first value is nil", out.span)
                continue
            states[state] = self._as_type(value, type)
            if states[state] is None:
                refuse(f"the state {state} becomes {kind_of(value)}, and it is {type}", out.span)
        return new, states

    def _as_type(self, value: Any, type: ArrayType) -> Any:
        """`value` as an array of exactly `type`, or None; a host number fills a scalar."""
        if is_number(value) and type.shape == ():
            return self.made.graph.constant(real(value), type.dtype)
        if not isinstance(value, Value) or value.shape != type.shape or not value.type.is_numeric:
            return None
        if value.dtype != type.dtype and not (value.type.is_float and type.is_float):
            return None
        op = self.made.graph.adopt(value)
        return self.made.graph.cast(op, type.dtype)

    # `total`: the same scalar of every parameter, summed

    def _total(self, node: Any, env: list[Any], span: Span) -> Any:
        graph = self.made.graph
        at = self.frame.param_name  # within another total, the parameter that one is at
        assert at is not None
        own = self._operands(at)
        key = span, tuple([self._identity(x, own) for x in env])
        known = self.frame.totals.get(key)
        if known is not None:
            return known
        sum_: Any = None
        for name in self.tracer.registry.params:
            swapped = dict(zip([id(x) for x in own], self._operands(name), strict=True))
            self._look_at(name)
            start = len(graph.ops)
            seen = _Watched([swapped.get(id(x), x) for x in env])
            value = node(self.frame, seen)
            if not (is_number(value) or (isinstance(value, Value) and value.shape == () and value.type.is_numeric)):
                raise codes.WRONG_KIND.at(
                    span, what="what total sums", given=kind_of(value), wanted="a numeric scalar",
                    help="reduce it: (total (sum …))" if isinstance(value, Value) else "",
                )  # fmt: skip
            self._check_reads(value, start, span)
            self._check_numbers(at, [env[i] for i in sorted(seen.read)], span)
            sum_ = value if sum_ is None else graph.apply(PRIMITIVES["+"], [sum_, value], {})
        self._look_at(at)
        self.frame.totals[key] = sum_
        return sum_

    def _check_numbers(self, at: str, read: list[Any], span: Span) -> None:
        """Refuse a total that reads a number which is another for another parameter of the group, as its size is."""
        asked = self.made.numbers.setdefault((self.made.groups[at].name, span), {})
        own = asked.setdefault(at, set())
        own.add(tuple([repr(x) for x in read if is_number(x)]))
        first = next(iter(asked.values()))
        if not own <= first:
            raise codes.WRONG_KIND.at(
                span, what="what total reads", given="a number that differs from parameter to parameter",
                wanted="p, g, keywords and (step)", help="compute it in the total, of p and g",
            )  # fmt: skip

    def _look_at(self, name: str) -> None:
        self.frame.param_name, self.frame.group = name, self.made.groups[name].name

    def _identity(self, x: Any, own: tuple[Op, Op]) -> Any:
        """What of a binding makes a total another one.

        What was computed of one parameter does not: a total that reads it is refused.
        """
        if not isinstance(x, Op):
            return repr(x)
        if x is own[0] or x is own[1]:
            return "p" if x is own[0] else "g"
        return "of a parameter" if self._is_of_a_parameter(x) else x.index

    def _check_reads(self, value: Any, start: int, span: Span) -> None:
        """Refuse a total that reads what was computed of one parameter before: it would be summed for each."""
        made = self.made.graph.ops[start:]
        read = [x for op in made for x in op.operands if isinstance(x, Op)] + [value]
        for x in read:
            if not isinstance(x, Op):
                continue
            state = x.source == "optimizer"
            known = f"the state {x.static['name'].partition('/')[0]}" if state else f"{_text_of(x)} of one parameter"
            computed = x.index < start and x.primitive is not None and self._is_of_a_parameter(x)
            if computed or state:
                raise codes.WRONG_KIND.at(
                    span, what="what total reads", given=known, wanted="p, g, keywords and (step)",
                    help="compute it in the total, of p and g",
                )  # fmt: skip

    def _is_of_a_parameter(self, op: Op) -> bool:
        """Whether an op depends on one parameter, its gradient or a state of its optimizer; a total is of all."""
        totals = {x.index for x in self.frame.totals.values() if isinstance(x, Op)}
        seen, open_ = {op.index}, [op]
        while open_:
            op = open_.pop()
            if op.index in totals:
                continue
            if op.source in ("param", "grad", "optimizer"):
                return True
            for x in op.operands:
                if isinstance(x, Op) and x.index not in seen:
                    seen.add(x.index)
                    open_.append(x)
        return False


class _Watched(list[Any]):
    """An environment that knows which of its slots were read."""

    def __init__(self, values: list[Any]) -> None:
        super().__init__(values)
        self.read: set[int] = set()

    def __getitem__(self, at: Any) -> Any:
        self.read.add(at % len(self))  # what is captured stands at the end, and is read from there
        return super().__getitem__(at)


def _text_of(op: Op) -> str:
    """The call that an op came from, as written, in few words."""
    text = " ".join(op.span.text.split()) if op.span else op.name
    return text if len(text) <= LONGEST_CALL_SHOWN else f"({op.name} …)"


def first_states(frame: Any, definition: Any, p: Any, keywords: dict[str, Any]) -> dict[str, Any]:
    """The first value of each state of an optimizer for a parameter `p`, in `frame`."""
    body = definition.function.body
    env: list[Any] = [p, None, *body.locals, *definition.function.captured]
    for key, (slot, default) in body.keywords.items():
        if key in keywords:
            env[slot] = keywords[key]
        elif default is not None:
            env[slot] = default(frame, env)
    return {state: env[body.keywords[definition.bound[state]][0]] for state in definition.states}


def first_state_types(
    tracer: Tracer, definition: Any, name: str, type: ArrayType, group: Group
) -> dict[str, ArrayType | None]:
    """The type of each state, None for one that does not exist."""
    if not definition.states:
        return {}
    graph = Graph(f"states of {definition.name}")
    # made before the first step, like a parameter's first value: nothing there can stop a step
    frame = tracer._frame(graph, Recording(), "initializer", f"optimizer {definition.name}", False)
    frame.param_name = name
    p = graph.input("param", name, type)
    found: dict[str, ArrayType | None] = {}
    for state, value in first_states(frame, definition, p, dict(group.optimizer.keywords)).items():
        if value is None:
            found[state] = None
        elif isinstance(value, Value) and value.type.is_numeric:
            found[state] = value.type
        elif is_number(value):
            found[state] = ArrayType("f32" if isinstance(value, float) else "i32")
        else:
            what = f"the state {state} begins as {kind_of(value)}, expected an array or nil"
            contracts.an_optimizer_ends_in_update.refuse(definition.states[state], name=definition.name, what=what)
    return found
