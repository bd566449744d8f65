"""What a failing guard looked at: which values those are, in figures, in `failure/`, as lines.

failure.json          what failed, where, and each array in figures
arrays.safetensors    the arrays, and the prepared microbatch they came from
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sxi import checkpoint, codes
from sxi.arraytype import ArrayType
from sxi.backends import HostArray
from sxi.graph import Op, written_call
from sxi.guards import Guard, count_text, json_count
from sxi.source import Span
from sxi.stream import plain
from sxi.values import written

FIRST = 10
LONGEST_FORM_SHOWN = 72

# Which values a guard looks at


@dataclass(frozen=True, slots=True)
class Part:
    """One of the values that a guard looks at.

    name:   `mask`, `compared`, `compared-2`, …, `count` or `operand`
    title:  what a line calls it
    value:  an op or a host number
    test:   what each violating element is, `> 0.001`; "" where no static number says it
    form:   how the program writes it
    """

    name: str
    title: str
    value: Any
    test: str = ""
    form: str = ""


# What changes no count and no mask.
_SAME = frozenset({"cast", "identity", "round-bf16", "stop-gradient"})
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "/=": "/="}
_TESTS = frozenset({"finite?", "nan?", "inf?"})
_JOINED = {"logical-and": " and ", "logical-or": " or "}
_OF_OTHER_SHAPE = frozenset({"any", "all", "squeeze", "expand", "reshape", "broadcast-to", "transpose"})


def parts_of(guard: Guard, operand: Any) -> list[Part]:
    """What an evaluation of `guard` looks at: of a `count-where` the mask and what it compares.

    operand:  what that evaluation was given, an op or a host number
    """
    if guard.bound is not None:
        sign = "<" if guard.form == ":below" else ">"
        return [Part("operand", "what was looked at", operand, f"not {sign} {written(guard.bound)}", form_of(operand))]
    if guard.form == "assert-finite":
        return [Part("operand", "what was looked at", operand, "not finite", form_of(operand))]
    count = _behind(operand)
    if not isinstance(count, Op) or count.name != "count-where":
        return [Part("count", "the count", operand, "", form_of(count))]
    mask = count.operands[0]
    arrays, test = _compared(mask)
    names = [f"compared-{i}" if i > 1 else "compared" for i in range(1, len(arrays) + 1)]
    return [
        Part("mask", "the mask", mask, "", form_of(mask)),
        *[
            Part(n, "what was compared", x, test if len(arrays) == 1 else "", form_of(x))
            for n, x in zip(names, arrays, strict=True)
        ],
    ]


def _behind(x: Any) -> Any:
    """The op that `x` takes its value from, rounded or of another type at most."""
    while isinstance(x, Op) and x.name in _SAME:
        x = x.operands[0]
    return x


def _number(x: Any) -> bool | int | float | None:
    """The host number that `x` is, where it is one."""
    x = _behind(x)
    of_static = {"constant": "value", "array": "numbers"}
    value = x.static[of_static[x.name]] if isinstance(x, Op) and x.name in of_static else x
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value.item()
    return value if isinstance(value, bool | int | float) else None


def _compared(mask: Any, deep: int = 8) -> tuple[list[Op], str]:
    """The arrays that a mask compares, each once, and what it asks of the only one against static numbers.

    deep:  how many masks within masks are gone through, since a mask of two masks may be one of any number
    """
    if not isinstance(mask, Op) or mask.primitive is None or deep == 0:
        return [], ""
    name, operands = mask.name, mask.operands
    arrays = [x for x in operands if isinstance(x, Op) and _number(x) is None]
    if name in _TESTS:
        return arrays, name
    if name in _FLIPPED:
        left, right = map(_number, operands)
        if right is not None:
            return arrays, f"{name} {written(right)}"
        return _each_once(arrays), f"{_FLIPPED[name]} {written(left)}" if left is not None else ""
    if name == "logical-not":
        found, test = _compared(operands[0], deep - 1)
        return found, f"not {_enclosed(test)}" if test else ""
    if name in _JOINED:
        each = [_compared(x, deep - 1) for x in operands]
        found = _each_once([x for xs, _ in each for x in xs])
        tests = [test for _, test in each]
        whole = len(found) == 1 and all(tests)
        return found, _JOINED[name].join(map(_enclosed, tests)) if whole else ""
    return (_compared(operands[0], deep - 1)[0], "") if name in _OF_OTHER_SHAPE or name in _SAME else ([], "")


def _enclosed(test: str) -> str:
    return f"({test})" if " and " in test or " or " in test else test


def _each_once(ops: Sequence[Op]) -> list[Op]:
    return list({x.index: x for x in ops}.values())


def form_of(x: Any) -> str:
    """How the program writes what `x` is computed from, on one line and not at length."""
    if not isinstance(x, Op):
        return written(x)
    if x.primitive is None or x.span is None:
        return written_call(x)
    text = " ".join(x.span.text.split())
    return text if len(text) <= LONGEST_FORM_SHOWN else f"{text[: LONGEST_FORM_SHOWN - 1]}…"


# What was found


@dataclass(frozen=True, slots=True)
class Seen:
    """One of those values as it was computed.

    violating:  which elements violate, of a shape that the array's broadcasts to; None where none says so
    """

    part: Part
    array: HostArray
    violating: HostArray | None


@dataclass(slots=True)
class Evidence:
    """What a failure's second look found.

    where:    `microbatch 1`, `batch 3` or ``, counted from 0
    arrays:   what was looked at, by the name of its part
    batch:    the prepared microbatch it came from, by name
    rows:     which rows of the data that was, i64[n]; None where it is not of a data source
    counted:  the count of the evaluation that is shown; None where there is none
    calls:    the calls that led to that evaluation, innermost first
    """

    where: str = ""
    arrays: dict[str, Seen] = field(default_factory=dict)
    batch: dict[str, HostArray] = field(default_factory=dict)
    rows: HostArray | None = None
    counted: float | None = None
    calls: Sequence[tuple[str, Span]] | None = None


def seen(parts: Sequence[Part], arrays: Sequence[HostArray]) -> dict[str, Seen]:
    """The parts as computed, each with the elements that violate."""
    mask = next((x for part, x in zip(parts, arrays, strict=True) if part.name == "mask"), None)
    found = {}
    for part, x in zip(parts, arrays, strict=True):
        if mask is not None:
            violating = mask if _broadcasts(x.shape, mask.shape) else None
        elif part.test == "not finite":
            violating = not_finite(x)
        else:
            violating = np.ones(x.shape, bool)
        found[part.name] = Seen(part, x, violating)
    return found


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    own = (1,) * (len(to) - len(shape)) + shape
    return len(own) == len(to) and all(a in (1, b) for a, b in zip(own, to, strict=True))


def not_finite(x: HostArray, *, own: bool = False) -> HostArray:
    """Which elements are not finite as f32, as `assert-finite` tests, or in their `own` type, bool[*n]."""
    if x.dtype.kind != "f":
        return np.zeros(x.shape, bool)
    with np.errstate(all="ignore"):
        return ~np.isfinite(x if own else x.astype(np.float32))


# In figures


def figures(one: Seen) -> dict[str, Any]:
    """An array as a message shows it: type, range, how many are NaN and infinite, the first that violate."""
    x, type = one.array, ArrayType.of(one.array)
    found: dict[str, Any] = {"title": one.part.title, "form": one.part.form, "test": one.part.test, "type": str(type)}
    if x.shape == ():
        found["value"] = _json_of(x[()])
    if type.is_float:
        finite = x[np.isfinite(x)]
        found["nan"], found["+inf"], found["-inf"] = [int(m.sum()) for m in (np.isnan(x), x == np.inf, x == -np.inf)]
        if finite.size:
            found["min"], found["max"] = _json_of(finite.min()), _json_of(finite.max())
    elif x.size and type.is_numeric:
        found["min"], found["max"] = _json_of(x.min()), _json_of(x.max())
    if one.violating is not None:
        shape = one.violating.shape
        places = np.flatnonzero(one.violating)
        found["violations"] = len(places)
        indices = [tuple(map(int, np.unravel_index(p, shape))) for p in places[:FIRST]]
        values = np.broadcast_to(x, shape)
        found["first"] = [[list(index), _json_of(values[index])] for index in indices]
    return found


def _json_of(x: Any) -> Any:
    """An element as strict JSON has it, in the fewest digits that give it in its own type."""
    value = x.item()
    if not isinstance(value, float):
        return value
    return float(str(x)) if math.isfinite(value) else plain(value)


def described(evidence: Evidence) -> dict[str, Any]:
    """What `failure.json` says of what was found."""
    return {
        "where": evidence.where,
        "counted": None if evidence.counted is None else json_count(evidence.counted),
        "arrays": {name: figures(one) for name, one in evidence.arrays.items()},
        "batch": {name: str(ArrayType.of(x)) for name, x in evidence.batch.items()},
    }


def _facts(error: Mapping[str, Any], calls: Sequence[tuple[str, Span]], evidence: Evidence) -> dict[str, Any]:
    shown = calls if evidence.calls is None else evidence.calls
    return {**error, "calls": [f"{name} called at {span}" for name, span in shown], **described(evidence)}


def keep(folder: Path, error: Mapping[str, Any], calls: Sequence[tuple[str, Span]], evidence: Evidence) -> None:
    """Write `failure/`.  Raises E-RUN-023 where it cannot be written."""
    arrays = {f"guard/{name}": one.array for name, one in evidence.arrays.items()}
    arrays |= {f"batch/{name}": x for name, x in evidence.batch.items()}
    if evidence.rows is not None:
        arrays["rows"] = evidence.rows
    facts = _facts(error, calls, evidence)
    checkpoint.save_arrays(folder, "arrays.safetensors", arrays)
    checkpoint.save_text(folder, "failure.json", json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False))


# Shown


def show(folder: Path) -> list[str]:
    """What `failure/` holds, as lines.  Raises E-RUN-044 where it holds nothing that can be read."""
    try:
        return list(_lines(json.loads((folder / "failure.json").read_text(encoding="utf-8"))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        raise codes.NO_FAILURE.at(None, path=folder) from None


def shown(error: Mapping[str, Any], calls: Sequence[tuple[str, Span]], evidence: Evidence) -> list[str]:
    """What a failure's second look found, as lines, without a folder."""
    return list(_lines(_facts(error, calls, evidence)))


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"{facts['code']}: {facts['message']}"
    for call in facts["calls"]:
        yield f"  in {call}"
    if facts["where"]:
        counted = facts["counted"]
        part = "" if counted in (None, facts["count"]) else f"; this evaluation counted {count_text(float(counted))}"
        yield f"  in {facts['where']}, counted from 0{part}"
    arrays = facts["arrays"]
    if not arrays:
        yield "computed again, it does not violate: this device does not give the same bits twice"
    listed = [name for name, figure in arrays.items() if name != "mask" and figure.get("first")] or list(arrays)[:1]
    for name, figure in arrays.items():
        yield f"{figure['title']}: {figure_text(figure)}"
        if name == "mask" or "compared-2" in arrays:
            yield f"  {figure['form']}"
        if name == listed[-1]:
            yield from _first([arrays[n] for n in listed])
    if facts["batch"]:
        kind = facts["where"].partition(" ")[0]
        yield f"the {kind} it came from: " + ", ".join(f"{name} {type}" for name, type in facts["batch"].items())


def _first(listed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The first violating elements, an index a line; of several arrays compared, their values beside each other."""
    if all("value" in figure for figure in listed):
        return
    for entries in zip(*[figure["first"] for figure in listed], strict=True):
        yield f"  {place_text(entries[0][0])} {', '.join(_text(value) for _, value in entries)}"
    more = listed[0]["violations"] - len(listed[0]["first"])
    if more > 0:
        yield f"  … and {more} more"


def place_text(place: Sequence[int]) -> str:
    """The index of an element as the language writes it."""
    return f"[{' '.join(map(str, place))}]"


def figure_text(figure: Mapping[str, Any]) -> str:
    """An array's type, range and counts in a line; of a scalar its value."""
    if "value" in figure:
        test = f", {figure['test']}" if figure["test"] else ""
        return f"{figure['type']} {_text(figure['value'])}{test}"
    parts = [figure["type"]]
    if "min" in figure:
        low, high = [f"{x:.6g}" if isinstance(x, float) else f"{x}" for x in (figure["min"], figure["max"])]
        parts.append(f"from {low} to {high}")
    parts += [f"{figure[kind]} {text}" for kind, text in _NOT_FINITE if figure.get(kind)]
    if "violations" in figure:
        parts.append(f"{figure['violations']} violating" + (f": {figure['test']}" if figure["test"] else ""))
    return ", ".join(parts)


_NOT_FINITE = (("nan", "NaN"), ("+inf", "+inf"), ("-inf", "-inf"))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else written(value)
