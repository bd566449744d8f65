"""How a value prints: a host value as it is written, an array as its type, its device and its corners.

Only what is shown of an array is copied to the host: of a matrix in a device's memory its corners, of a
column on disk its first and last rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from sxi.primitives.declare import Primitive, Value
from sxi.values import Builtin, Definition, Function, Instance, kind_of, written

# A value is given this much room where no screen says otherwise.
WIDTH, HEIGHT = 80, 24
# How many entries of each axis before the last two are shown.
_LEADING = 4
# Lists and records that nest deeper are told by their kind.
_DEEPEST = 20
_DEVICES = {"numpy": "cpu", "cupy": "cuda"}


def value_lines(value: Any, *, width: int = WIDTH, height: int = HEIGHT, unicode: bool = True) -> list[str]:
    """A value as the prompt prints it, within `width` columns and about `height` lines.

    unicode:  whether `…` may stand for what is left out
    """
    if isinstance(value, Value):
        return array_lines(value, width=width, height=height, unicode=unicode)
    if isinstance(value, list | dict) and any([isinstance(x, Value) for x in _members(value)]):
        return _labelled(value, width, height, unicode)
    if isinstance(value, Function | Primitive | Builtin | Definition | Instance):
        return [f"{kind_of(value)}{_usage(value)}"]
    text = _text(value, width * max(2, height - 2), _DEEPEST)
    more = "…" if unicode else "..."
    return [line if len(line) <= width * height else f"{line[: width * height]}{more}" for line in text.split("\n")]


def printed(value: Any) -> str:
    """A value as `print` writes it: a string without its quotes."""
    return value if isinstance(value, str) else "\n".join(value_lines(value))


def _members(value: list[Any] | dict[str, Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _usage(value: Any) -> str:
    if isinstance(value, Function):
        parameters = value.body.parameters
        return f", ({value.name}{' ' if parameters else ''}{parameters})"
    return f", {value.usage}" if isinstance(value, Primitive | Builtin) else ""


# Host values


def _text(value: Any, room: int, depth: int) -> str:
    """`value` as the language writes it, in about `room` characters."""
    if isinstance(value, list):
        return f"[{_joined([_Lazy(x) for x in value], room, depth)}]" if depth else "[…]"
    if isinstance(value, dict):
        return f"{{{_joined([_Lazy(x, f':{k} ') for k, x in value.items()], room, depth)}}}" if depth else "{…}"
    text = written(value)
    if len(text) <= max(room, 40):
        return text
    half = max(room, 40) // 2
    return f"{text[:half]}…{text[-half:]}"


class _Lazy:
    """A member of a list or record that is written only where there is room for it."""

    __slots__ = ("lead", "value")

    def __init__(self, value: Any, lead: str = "") -> None:
        self.value, self.lead = value, lead


def _joined(members: Sequence[_Lazy], room: int, depth: int) -> str:
    """As many members as fit, the first and the last ones."""
    head: list[str] = []
    used = 0
    for number, member in enumerate(members):
        text = member.lead + _text(member.value, room - used, depth - 1)
        used += len(text) + 1
        if used > room and number + 1 < len(members):
            last = members[-1].lead + _text(members[-1].value, 40, depth - 1)
            return " ".join([*head, "…", last])
        head.append(text)
    return " ".join(head)


def _labelled(value: list[Any] | dict[str, Any], width: int, height: int, unicode: bool) -> list[str]:
    """A list or record that holds arrays: a member a line, by its place or key."""
    items = [(f":{k}", x) for k, x in value.items()] if isinstance(value, dict) else list(enumerate(value))
    lines: list[str] = []
    for label, x in items:
        if len(lines) >= height:
            lines.append(f"… {len(value):,} in all")
            break
        lead = f"{label}  "
        room = max(4, (height - len(lines)) // 2)
        own = value_lines(x, width=max(20, width - len(lead)), height=room, unicode=unicode)
        lines += [lead + own[0], *[" " * len(lead) + line for line in own[1:]]]
    return lines


# Arrays


def device_of(x: Value) -> str:
    """Where an array's numbers are: `cpu`, `cuda`, `strict`; `disk` of a column that has not been read."""
    if getattr(x, "column", None) is not None:
        return "disk"
    name = getattr(getattr(x.emitter, "backend", None), "name", "")
    return _DEVICES.get(name, name)


def array_lines(x: Value, *, width: int = WIDTH, height: int = HEIGHT, unicode: bool = True) -> list[str]:
    """Type, device and corners of an array, within `width` columns and about `height` lines.

    f32[2 3] cpu
    [1.0 2.0 3.0]
    [4.0 5.0 6.0]
    """
    header = f"{x.type} {device_of(x)}".rstrip()
    if not hasattr(x, "emitter") or not hasattr(x.emitter, "backend"):
        return [header]
    if x.type.size == 0:
        return [f"{header} []"]
    more = "…" if unicode else "..."
    if not x.shape:
        return [f"{header} {_number(x.emitter.backend.to_host(x.data)[()])}"]  # type: ignore[attr-defined]  # it is computed
    rows = max(4, height - 2)
    keep = [_LEADING] * x.ndim
    keep[-1] = max(2, width // 2)
    if x.ndim > 1:
        keep[-2] = rows
    block, places = _corner(x, keep)
    if x.ndim == 1:
        (line,) = _rows(block.reshape(1, -1), x.shape[-1], width, more)
        one = f"{header} {line}"
        return [one] if len(one) <= width else [header, line]
    lines = [header]
    blocks = list(product(*[range(len(p)) for p in places[:-2]]))
    for number, at in enumerate(blocks):
        if len(lines) > rows and number < len(blocks) - 1:
            lines.append(more)
            break
        lead = ""
        if at:
            lines.append(" ".join([str(places[axis][i]) for axis, i in enumerate(at)]) + ":")
            lead = "  "
        own = _rows(block[at], x.shape[-1], width - len(lead), more)
        if len(places[-2]) < x.shape[-2]:
            own.insert(len(own) // 2, more)
        lines += [lead + line for line in own]
    return lines


def _corner(x: Any, keep: Sequence[int]) -> tuple[Any, list[list[int]]]:
    """The first and last entries of each axis on the host, and which they are: at most `keep` of each axis."""
    places = []
    for n, most in zip(x.shape, keep, strict=True):
        half = max(1, most // 2)
        places.append(list(range(n)) if n <= max(most, 2) else [*range(half), *range(n - half, n)])
    backend = x.emitter.backend
    xp = backend.xp
    column = getattr(x, "column", None)
    with backend.computing():
        if column is not None:
            parts = [column.rows(part) for part in _runs(places[0], x.shape[0])]
            data = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=0)
        else:
            data = _taken(xp, x.data, places[0], 0)
        for axis in range(1, x.ndim):
            data = _taken(xp, data, places[axis], axis)
    return backend.to_host(data), places


def _runs(places: list[int], n: int) -> list[slice]:
    if len(places) == n:
        return [slice(0, n)]
    half = len(places) // 2
    return [slice(0, half), slice(n - half, n)]


def _taken(xp: Any, data: Any, places: list[int], axis: int) -> Any:
    runs = _runs(places, data.shape[axis])
    if len(runs) == 1:
        return data
    lead = (slice(None),) * axis
    return xp.concatenate([data[(*lead, run)] for run in runs], axis=axis)


def _rows(block: Any, columns: int, width: int, more: str) -> list[str]:
    """The rows of a matrix of corners, aligned; what does not fit the width is left out of their middle."""
    texts = [[_number(e) for e in row] for row in block]
    cell = max([len(t) for row in texts for t in row])
    fit = max(2, (width - 2 - len(more) - 1) // (cell + 1))
    shown = len(texts[0])
    whole = shown == columns and (cell + 1) * columns + 1 <= width
    lines = []
    for row in texts:
        cells = [t.rjust(cell) for t in row] if len(texts) > 1 else row
        if not whole:
            left, right = (fit + 1) // 2, fit // 2
            if shown < columns or fit < shown:
                cells = [*cells[: min(left, shown)], more, *cells[max(shown - right, left) :]]
        lines.append(f"[{' '.join(cells)}]")
    return lines


def _number(e: Any) -> str:
    if e.dtype.kind == "b":
        return "true" if e else "false"
    return str(e)
