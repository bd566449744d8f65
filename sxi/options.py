"""What is run: the options of a `run`, each checked, with its default, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sxi import contracts
from sxi.eager import Eager
from sxi.forms.data import rows_of
from sxi.forms.declare import RunForm
from sxi.forms.runs import optimizer_of
from sxi.source import Span
from sxi.suggest import did_you_mean
from sxi.values import DataRecord, Generator, Group, Instance, Key, is_number, kind_of, written


@dataclass(slots=True, eq=False)
class Pass:
    """One evaluation pass: `(NAME :data D :split S :batch n :every k)`.

    every:     after how many steps; None: after the last step only
    examples:  how many a generator makes
    """

    name: str
    instance: Instance
    data: DataRecord | Generator
    split: str | None
    batch: int
    every: int | None
    examples: int
    span: Span


@dataclass(slots=True, eq=False)
class Run:
    """The options of a run, complete and consistent.

    spans:  option -> where its value is written; parts: where its elements are, if it is written as a list
    """

    name: str
    span: Span
    data: DataRecord | Generator
    steps: int
    optimizer: list[Group]
    split: str | None = None
    shuffle: bool = True
    batch: int = 32
    microbatches: int = 1
    evaluate: list[Pass] = field(default_factory=list)
    seed: int = 0
    start_from: list[tuple[str, str]] = field(default_factory=list)
    checkpoint_every: int | None = None
    keep_checkpoints: int = 3
    keep_best: tuple[str, str] | None = None
    diagnostics: list[str] = field(default_factory=list)
    sample_every: int = 100
    guard_finite: bool = True
    report_limit: int = 10_000
    has_groups: bool = False
    spans: dict[str, Span] = field(default_factory=dict)
    parts: dict[str, list[Span]] = field(default_factory=dict)

    def element(self, option: str, i: int) -> Span:
        """Where element `i` of an option's list is written, the option where it is not written as a list."""
        parts = self.parts.get(option, [])
        return parts[i] if i < len(parts) else self.spans[option]

    @property
    def examples(self) -> int:
        """How many examples a microbatch has."""
        return self.batch // self.microbatches

    @property
    def _rows(self) -> int | None:
        """How many examples an epoch has; None for a generator."""
        return rows_in(self.data, self.split, self.span) if isinstance(self.data, DataRecord) else None

    @property
    def fixed(self) -> dict[str, Any]:
        """What must be the same for a saved run to go on bit for bit."""
        return {
            "data": self.data.name, "split": self.split, "shuffle": self.shuffle, "batch": self.batch,
            "microbatches": self.microbatches, "seed": self.seed, "examples": self._rows,
        }  # fmt: skip


def refuse(span: Span | None, what: str, help: str = "") -> None:
    """Refuse a run whose options do not fit together: contract 025."""
    contracts.run_options_are_consistent.refuse(span, what=what, help=help)


# Kinds of option values: (what is wanted, test).


def _whole(least: int) -> tuple[str, Callable[[Any], bool]]:
    return f"a whole number from {least}", lambda x: isinstance(x, int) and not isinstance(x, bool) and x >= least


_BOOL: tuple[str, Callable[[Any], bool]] = ("on or off", lambda x: isinstance(x, bool))
_GLOBS: tuple[str, Callable[[Any], bool]] = (
    'a list of globs, ["geometry/*"]', lambda x: isinstance(x, list) and all([isinstance(g, str) for g in x]),
)  # fmt: skip
_SPLIT: tuple[str, Callable[[Any], bool]] = ("a keyword, :train", lambda x: isinstance(x, Key))
_DATA: tuple[str, Callable[[Any], bool]] = ("data or a generator", lambda x: isinstance(x, DataRecord | Generator))
_ANY: tuple[str, Callable[[Any], bool]] = ("", lambda _: True)
_START = ('a path, or a list of ("glob" "path")', lambda x: isinstance(x, str | list))
_BEST: tuple[str, Callable[[Any], bool]] = (
    'a metric and :min or :max, ["accuracy" :max]',
    lambda x: isinstance(x, list) and len(x) == 2 and isinstance(x[0], str) and x[1] in (Key("min"), Key("max")),
)  # fmt: skip

# option -> (what its value is, test of it); the defaults are the fields of `Run`.
OPTIONS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "steps": _whole(1), "epochs": _whole(1), "data": _DATA, "split": _SPLIT, "shuffle": _BOOL, "batch": _whole(1),
    "microbatches": _whole(1), "optimizer": _ANY, "evaluate": _ANY, "seed": _whole(0), "start-from": _START,
    "checkpoint-every": _whole(1), "keep-checkpoints": _whole(1), "keep-best": _BEST, "diagnostics": _GLOBS,
    "sample-every": _whole(1), "guard-finite": _BOOL, "report-limit": _whole(1),
}  # fmt: skip


def run_of(form: RunForm, frame: Eager, *, trains: bool = True) -> Run:
    """The run that `form` describes.  Raises E-CONTRACT-025 at the option that does not hold.

    trains:  whether steps will be taken; without, the data may have fewer examples than a step takes
    """
    values: dict[str, Any] = {}
    spans: dict[str, Span] = {}
    for name, (node, key_span, span) in form.options.items():
        if name not in OPTIONS:
            refuse(key_span, f":{name} is not an option of run", did_you_mean(name, OPTIONS, ":{}"))
        wanted, holds = OPTIONS[name]
        value = node(frame, [None] * form.size)
        if not holds(value):
            refuse(span, f":{name} is {shown(value)}, expected {wanted}")
        values[name], spans[name] = value, span
    for needed in ("data", "optimizer"):
        if needed not in values:
            refuse(form.span, f"the run has no :{needed}", f"add :{needed}")
    made = Run(form.name, form.span, values["data"], 0, _groups(values["optimizer"], spans["optimizer"]), spans=spans)
    made.parts = form.parts
    made.has_groups = isinstance(values["optimizer"], list)
    for name in (
        "shuffle",
        "batch",
        "microbatches",
        "seed",
        "checkpoint-every",
        "keep-checkpoints",
        "diagnostics",
        "sample-every",
        "guard-finite",
        "report-limit",
    ):
        if name in values:
            setattr(made, name.replace("-", "_"), values[name])
    if "keep-best" in values:
        made.keep_best = values["keep-best"][0], values["keep-best"][1].name
    made.start_from = _start(values.get("start-from"), spans.get("start-from"))
    made.split = _split_of(made.data, values.get("split"), spans.get("split", form.span), training=True)
    if made.batch % made.microbatches:
        refuse(
            spans.get("microbatches", form.span),
            f":microbatches {made.microbatches} does not divide :batch {made.batch}",
            f"take :batch {_next_multiple(made.batch, made.microbatches)}",
        )  # fmt: skip
    made.steps = _steps(made, values, spans)
    if trains and isinstance(made.data, DataRecord):
        _check_batch(made, made.data)
    made.evaluate = _passes(values.get("evaluate", []), spans.get("evaluate", form.span))
    return made


def shown(value: Any) -> str:
    """A value in a message about options."""
    return (
        written(value) if value is None or isinstance(value, bool | str | Key) or is_number(value) else kind_of(value)
    )


def _next_multiple(n: int, m: int) -> int:
    return -(-n // m) * m


def _groups(value: Any, span: Span) -> list[Group]:
    if isinstance(value, list):
        if not all([isinstance(g, Group) for g in value]):  # none, where states alone learn
            refuse(span, ":optimizer is a list of something else than groups", '[(group "all" "*" (adamw :lr 1e-3))]')
        names = [g.name for g in value]
        for name in names:
            if names.count(name) > 1:
                refuse(span, f"two groups are named {name}")
        return list(value)
    made = optimizer_of(value, span)
    return [Group(made.name, "*", made, span)]


def _start(value: Any, span: Span | None) -> list[tuple[str, str]]:
    if value is None:
        return []
    if isinstance(value, str):
        return [("*", value)]
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not all([isinstance(x, str) for x in pair]):
            refuse(span, ":start-from is a path or a list of pairs", '[("net/*" "runs/a/checkpoints/000100")]')
    return [(glob, path) for glob, path in value]


def _split_of(data: DataRecord | Generator, split: Key | None, span: Span, training: bool) -> str | None:
    splits = data.splits if isinstance(data, DataRecord) else {}
    if split is not None:
        if split.name not in splits:
            known = ", ".join([f":{s}" for s in splits]) or "none"
            refuse(
                span,
                f"{data.name} has no split :{split.name}; its splits: {known}",
                did_you_mean(split.name, splits, ":{}"),
            )
        return split.name
    if training and splits:
        if "train" not in splits:
            refuse(span, f"{data.name} has no split :train, so the run needs :split", f":split :{next(iter(splits))}")
        return "train"
    return None


def rows_in(data: DataRecord, split: str | None, span: Span) -> int:
    """How many examples a split has, or the whole."""
    return len(data.splits[split]) if split is not None else rows_of(data, span)


def _steps(made: Run, values: dict[str, Any], spans: dict[str, Span]) -> int:
    if "steps" in values and "epochs" in values:
        refuse(spans["epochs"], "a run has :steps or :epochs, not both", "leave one out")
    if "steps" not in values and "epochs" not in values:
        refuse(made.span, "the run has neither :steps nor :epochs", "add :steps 1000")
    if isinstance(made.data, Generator):
        if "epochs" in values:
            refuse(
                spans["epochs"], f":epochs needs data with an end, and {made.data.name} is a generator", "use :steps"
            )
        return int(values["steps"])
    if "steps" in values:
        return int(values["steps"])
    return int(-(-values["epochs"] * rows_in(made.data, made.split, spans["data"]) // made.batch))


def _check_batch(made: Run, record: DataRecord) -> None:
    rows = rows_in(record, made.split, made.spans["data"])
    if rows < made.batch:
        where = f"split :{made.split} of {record.name}" if made.split else record.name
        refuse(
            made.spans.get("batch", made.span),
            f":batch {made.batch} is more than the {rows} examples of {where}",
            f":batch {max(rows, 1)}",
        )


def _passes(value: Any, span: Span) -> list[Pass]:
    if not isinstance(value, list) or not all(
        [isinstance(p, Instance) and p.definition.kind == "evaluate" for p in value]
    ):
        refuse(span, ":evaluate is not a list of evaluations", "[(accuracy :data digits :every 100)]")
    made: list[Pass] = []
    for instance in value:
        made.append(_pass(instance))
        if [p.name for p in made].count(instance.name) > 1:
            refuse(instance.span, f"the evaluation {instance.name} stands twice in :evaluate")
    return made


def _pass(instance: Instance) -> Pass:
    given, spans = instance.keywords, instance.spans

    def at(name: str) -> Span:
        return spans.get(name, instance.span)

    data = given.get("data")
    if not isinstance(data, DataRecord | Generator):
        refuse(at("data"), f"the pass {instance.name} has no data", ":data NAME")
    for name in ("batch", "every", "examples"):
        if name in given and not _whole(1)[1](given[name]):
            refuse(
                at(name), f":{name} of the pass {instance.name} is {shown(given[name])}, expected a whole number from 1"
            )
    split = given.get("split")
    if split is not None and not isinstance(split, Key):
        refuse(at("split"), f":split of the pass {instance.name} is {shown(split)}, expected a keyword")
    if isinstance(data, Generator) and "examples" not in given:
        refuse(
            instance.span, f"the pass {instance.name} over the generator {data.name} has no :examples", ":examples 1000"
        )
    if isinstance(data, DataRecord) and "examples" in given:
        refuse(at("examples"), f":examples is for a generator, and {data.name} is data", "leave it out")
    assert isinstance(data, DataRecord | Generator)
    part = _split_of(data, split, at("split"), training=False)
    examples = rows_in(data, part, at("data")) if isinstance(data, DataRecord) else given["examples"]
    return Pass(
        instance.name, instance, data, part, given.get("batch", 32), given.get("every"), examples, instance.span
    )
