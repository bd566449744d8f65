"""Data in a file: the sources on disk, their splits, their parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from sxi import codes, contracts, data
from sxi.arraytype import ArrayType
from sxi.builtins import builtin
from sxi.calls import unknown_keyword
from sxi.eager import EagerArray, EagerEmitter
from sxi.eval import USAGE, malformed, resolve
from sxi.forms.core import keyword_pairs, operands
from sxi.forms.declare import Step, World, declaration, name_of
from sxi.names import Scope
from sxi.reader import Group, Keyword
from sxi.source import Span
from sxi.suggest import did_you_mean
from sxi.values import (
    DataRecord,
    Key,
    Node,
    is_number,
    kind_of,
    plain,
    written,
)

SOURCES = ("npz", "npy", "csv", "safetensors", "text")


@declaration("data", '(data NAME (npz "f.npz") :split {:train 0.8 :held-out 0.2})')
def data_(form: Group, scope: Scope) -> tuple[str | None, Step]:
    _, source, *rest = operands(form, 2)
    name = name_of(form)
    if not isinstance(source, Group) or source.head not in SOURCES:
        head = source.head if isinstance(source, Group) else ""
        near = did_you_mean(head, SOURCES, "({} …)") or None
        malformed(source, "data", f"a source is one of {', '.join([f'({s} …)' for s in SOURCES])}", help=near)
    positional = [f for f in source.items[1:2] if not isinstance(f, Keyword)]
    if not positional:
        malformed(source, "data", f"({source.head} …) needs the path of its file")
    path = resolve(positional[0], scope)
    options = {k.name: (resolve(v, scope), v.span) for k, v in keyword_pairs(source.items[2:], source)}
    keys = {k.name: k.span for k, _ in keyword_pairs(source.items[2:], source)}
    for key, span in keys.items():
        if key not in ("columns", "dtype"):
            raise unknown_keyword(span, source.head, key, ("columns", "dtype"))
    split = None
    for key_form, f in keyword_pairs(rest, form):
        if key_form.name != "split":
            raise unknown_keyword(key_form.span, "data", key_form.name, ("split",), USAGE["data"])
        split = resolve(f, scope), f.span
    own = _DataForm(name, source.head, path, positional[0].span, options, split, source.span, scope)
    return name, own.perform


@dataclass(slots=True, eq=False)
class _DataForm:
    name: str
    kind: str
    path: Node
    path_span: Span
    options: dict[str, tuple[Node, Span]]
    split: tuple[Node, Span] | None
    span: Span
    scope: Scope

    def perform(self, world: World) -> DataRecord:
        env: list[Any] = [None] * self.scope.size
        files = self._files(self.path(world.frame, env))
        given = {k: plain(node(world.frame, env)) for k, (node, _) in self.options.items()}
        columns, dtype = self._options(given)
        base = os.path.join(world.working, os.path.dirname(self.span.source.path))
        key = (self.kind, repr(files), base, repr(columns), repr(dtype))
        if key not in world.files:
            world.files[key] = data.load(
                self.kind, files, base, self.span, columns=columns, dtype=dtype,
                spans={"path": self.path_span, **{k: span for k, (_, span) in self.options.items()}},
            )  # fmt: skip
        found = world.files[key]
        held = {n: c for n, c in found.items() if isinstance(c, data.Column)}
        fields = {n: ColumnArray(c, world.frame.emitter) if n in held else c for n, c in found.items()}
        record = DataRecord(self.name, fields, held, {}, self.span)
        if self.split is not None:
            record.splits = self._splits(record, self.split[0](world.frame, env), self.split[1])
        world.declared.data[self.name] = record
        return record

    def _files(self, value: Any) -> str | dict[str, str]:
        if isinstance(value, str) and self.kind != "npy":
            return value
        if (
            self.kind == "npy"
            and isinstance(value, dict)
            and value
            and all([isinstance(v, str) for v in value.values()])
        ):
            return value
        wanted = 'a record of paths, {:x "x.npy"}' if self.kind == "npy" else "a path, a string"
        raise codes.WRONG_KIND.at(self.path_span, what=f"the file of {self.kind}", given=kind_of(value), wanted=wanted)

    def _options(self, given: dict[str, Any]) -> tuple[list[str] | None, dict[str, str] | None]:
        columns, dtype = given.get("columns"), given.get("dtype")
        if columns is not None and not (isinstance(columns, list) and all([isinstance(c, str) for c in columns])):
            raise codes.WRONG_KIND.at(
                self.options["columns"][1], what=":columns", given=kind_of(columns), wanted="a list of names"
            )
        if dtype is not None and not (isinstance(dtype, dict) and all([isinstance(d, str) for d in dtype.values()])):
            raise codes.WRONG_KIND.at(
                self.options["dtype"][1], what=":dtype", given=kind_of(dtype), wanted="a record of types, {:x :f64}"
            )
        names = None if columns is None else [c.removeprefix(":") for c in columns]
        return names, None if dtype is None else {k: v.removeprefix(":") for k, v in dtype.items()}

    def _splits(self, record: DataRecord, fractions: Any, span: Span) -> dict[str, Any]:
        if not isinstance(fractions, dict) or not all([is_number(v) for v in fractions.values()]):
            raise codes.WRONG_KIND.at(
                span,
                what=":split",
                given=kind_of(fractions),
                wanted="a record of fractions, {:train 0.8 :held-out 0.2}",
            )
        return data.split(rows_of(record, span), fractions, span)


def rows_of(record: DataRecord, span: Span) -> int:
    """How many examples the data has.  Raises E-CONTRACT-014 where its arrays differ in that, E-RUN-013 at none."""
    sizes = data.leading_sizes(record.columns)
    if sizes:
        contracts.leading_sizes_agree(span, name=record.name, sizes=sizes)
    rows = next(iter(sizes.values()), None)
    if not rows:
        raise codes.DATA_EMPTY.at(span)
    return rows


class ColumnArray(EagerArray):
    """A whole column as an array of the language, read when it is first used."""

    __slots__ = ("_read", "column")

    def __init__(self, column: data.Column, emitter: EagerEmitter) -> None:
        self.column = column
        self._read: Any = None
        self.type: ArrayType = column.type
        self.emitter = emitter

    @property
    def data(self) -> Any:
        if self._read is None:
            self._read = self.column.whole()
        return self._read


@builtin("part", "(part NAME :train)", 2, 2)
def part(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The record of a split's arrays."""
    record, key = args
    if not isinstance(record, DataRecord):
        raise codes.WRONG_KIND.at(span, what="the operand of part", given=kind_of(record), wanted="data")
    name = key.name if isinstance(key, Key) else None
    if name not in record.splits:
        known = " ".join([f":{s}" for s in record.splits]) or "none"
        raise codes.NO_SUCH_KEY.at(
            span,
            key=name or written(key),
            help=did_you_mean(name or "", record.splits, ":{}"),
            notes=(f"the splits of {record.name}: {known}",),
        )
    rows = record.splits[name]
    emitter = next(iter(record.values())).emitter
    arrays = {
        n: EagerArray(ArrayType(c.type.dtype, (len(rows), *c.type.shape[1:])), emitter, c.rows(rows))
        for n, c in record.columns.items()
    }
    return {**record, **arrays}  # what is no array, a text's vocabulary, is that of the whole
