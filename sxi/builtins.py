"""Functions of host values that the interpreter brings: lists, records, strings, shapes, gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sxi import codes
from sxi.codes import Refusal
from sxi.eval import call_value, no_such_key, turn
from sxi.primitives.declare import Value
from sxi.source import Span
from sxi.values import Builtin, Gradient, Key, is_number, kind_of, number_text, written

BUILTINS: dict[str, Builtin] = {}
Call = Callable[..., Any]
# What a host value may grow to: a list's elements, a string's characters.
MOST_ELEMENTS = 10_000_000


def builtin(
    name: str, usage: str, least: int, most: int | None, keywords: tuple[str, ...] = (), *, takes_spans: bool = False
) -> Callable[[Call], Call]:
    """Enter a function of host values; its docstring is what `,doc` shows.

    A `Refusal` that it raises is placed at the argument that it names; with `takes_spans` the last
    argument of `call` is the spans of the positional ones.
    """

    def entry(call: Call) -> Call:
        BUILTINS[name] = Builtin(name, call, least, most, keywords, usage, inspect.getdoc(call) or "", takes_spans)
        return call

    return entry


def expect(args: list[Any], i: int, kinds: type | tuple[type, ...], wanted: str, name: str) -> None:
    """Refuse argument `i` where it is not of `kinds`; a bool is not a number here."""
    if not isinstance(args[i], kinds) or (isinstance(args[i], bool) and kinds is int):
        help = _OF_AN_ARRAY.get(name, "") if isinstance(args[i], Value) else ""
        raise Refusal(
            codes.WRONG_KIND, i, what=f"an operand of {name}", given=kind_of(args[i]), wanted=wanted, help=help
        )


# What a list's function does to a list -> how the same is written of an array.
_OF_AN_ARRAY = {
    "nth": "of an array: (at x i)", "first": "of an array: (at x 0)", "rest": "of an array: (slice x 0 1 (dim x 0))",
    "count": "of an array: (size x), or (dim x 0) for its rows", "append": "of arrays: (concat [x y])",
    "reverse": "of an array: (flip x)", "map": "an array's functions are elementwise: (f x)",
    "filter": "of an array: (where mask x 0.0)",
}  # fmt: skip


def check_size(size: int, name: str, kind: str, span: Span) -> None:
    """Refuse what would grow past what a host value may: a loop that doubles it must not take the machine."""
    if size > MOST_ELEMENTS:
        raise codes.WRONG_KIND.at(
            span, what=name, given=f"{kind} of {number_text(size)}", wanted=f"one of at most {MOST_ELEMENTS:,}"
        )


@builtin("list", "(list e …)", 0, None)
def list_(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The list of the values.

    (list 1 :two [3]) ; => [1 :two [3]]
    """
    return list(args)


@builtin("nth", "(nth list i)", 2, 2)
def nth(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The element at place i, counted from 0, or from the end where i is negative.

    (nth [10 20 30] -1) ; => 30
    """
    items, i = args
    expect(args, 0, list, "a list", "nth")
    expect(args, 1, int, "a whole number", "nth")
    if not -len(items) <= i < len(items):
        raise Refusal(codes.NO_SUCH_ELEMENT, 1, count=len(items), index=i)
    return items[i]


@builtin("first", "(first list)", 1, 1)
def first(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The first element.

    (first [10 20 30]) ; => 10
    """
    expect(args, 0, list, "a list", "first")
    if not args[0]:
        raise codes.NO_SUCH_ELEMENT.at(span, count=0, index=0)
    return args[0][0]


@builtin("rest", "(rest list)", 1, 1)
def rest(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The list without its first element.

    (rest [10 20 30]) ; => [20 30]
    """
    expect(args, 0, list, "a list", "rest")
    return args[0][1:]


@builtin("append", "(append list …)", 0, None)
def append(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The lists joined.

    (append [1 2] [] [3]) ; => [1 2 3]
    """
    for i in range(len(args)):
        expect(args, i, list, "a list", "append")
    check_size(sum([len(a) for a in args]), "append", "a list", span)
    return [e for a in args for e in a]


@builtin("reverse", "(reverse list)", 1, 1)
def reverse(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The list from its end.

    (reverse [1 2 3]) ; => [3 2 1]
    """
    expect(args, 0, list, "a list", "reverse")
    return args[0][::-1]


@builtin("count", "(count list)", 1, 1)
def count(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """How many elements a list, keys a record, or characters a string has.

    (count {:x 1 :y 2}) ; => 2
    """
    expect(args, 0, (list, dict, str), "a list, a record or a string", "count")
    return len(args[0])


@builtin("range", "(range from to step)", 1, 3)
def range_(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The list of whole numbers from `from`, 0 where only `to` is given, to before `to`.

    (range 3) ; => [0 1 2]
    (range 1 7 2) ; => [1 3 5]
    """
    for i in range(len(args)):
        expect(args, i, int, "a whole number", "range")
    if len(args) == 3 and args[2] == 0:
        raise codes.WRONG_KIND.at(span, what="the step of range", given="0", wanted="a whole number other than 0")
    made = range(*args)
    # `len` would take a number of more than 63 bits for an error of its own
    check_size(-((made.start - made.stop) // made.step), "range", "a list", span)
    return list(made)


@builtin("map", "(map f list)", 2, 2)
def map_(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The list of f of each element.

    (map (lambda (n) (* n n)) [1 2 3]) ; => [1 4 9]
    """
    f, items = args
    expect(args, 1, list, "a list", "map")
    return _each(frame, f, items, span)


@builtin("filter", "(filter f list)", 2, 2)
def filter_(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The elements for which f holds.

    (filter (lambda (n) (> n 1)) [1 2 3]) ; => [2 3]
    """
    f, items = args
    expect(args, 1, list, "a list", "filter")
    kept = _each(frame, f, items, span)
    for k in kept:
        if isinstance(k, Value):
            raise codes.WRONG_KIND.at(
                span, what="what the function of filter gives", given=kind_of(k), wanted="a host value"
            )
    return [x for x, k in zip(items, kept, strict=True) if k is not None and k is not False]


def _each(frame: Any, f: Any, items: list[Any], span: Span) -> list[Any]:
    out = []
    for i, x in enumerate(items):
        with turn(frame, i):
            out.append(call_value(frame, f, [x], {}, span, "f"))
    return out


@builtin("str", "(str e …)", 0, None)
def str_(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The values as one string, without separators.

    (str "layer" 3 "/w") ; => "layer3/w"
    """
    parts = []
    for i, a in enumerate(args):
        if isinstance(a, Value):
            raise Refusal(
                codes.WRONG_KIND, i, what="an operand of str", given=kind_of(a), wanted="a host value",
                help="make names of host values, as the number of a layer is; a metric reports the array's own",
            )  # fmt: skip
        parts.append(
            a
            if isinstance(a, str)
            else a.name
            if isinstance(a, Key)
            else number_text(a)
            if is_number(a)
            else written(a)
        )
    check_size(sum([len(part) for part in parts]), "str", "a string", span)
    return "".join(parts)


@builtin("get", "(get record :key default)", 2, 3)
def get(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """A field of a record; where it has none, the default if one is given.

    (get {:x 1} :y 0) ; => 0
    """
    record, key, *default = args
    expect(args, 0, dict, "a record", "get")
    expect(args, 1, (Key, str), "a keyword", "get")
    name = key.name if isinstance(key, Key) else key
    if name in record:
        return record[name]
    if default:
        return default[0]
    raise no_such_key(name, record, span)


@builtin("with", "(with record :key e …)", 1, 1, ("*",))
def with_(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The record with fields added or replaced.

    (with {:x 1} :y 2) ; => {:x 1 :y 2}
    """
    expect(args, 0, dict, "a record", "with")
    return {**args[0], **keywords}


@builtin("keys", "(keys record)", 1, 1)
def keys(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The keys of a record, in their order.

    (keys {:x 1 :y 2}) ; => [:x :y]
    """
    expect(args, 0, dict, "a record", "keys")
    return [Key(k) for k in args[0]]


@builtin("shape", "(shape x)", 1, 1)
def shape(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The lengths of an array's axes, a list of whole numbers; [] for a number.

    (shape (ones [2 3])) ; => [2 3]
    """
    return list(_shape(args[0], "shape"))


@builtin("size", "(size x)", 1, 1)
def size(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """How many elements an array has.

    (size (ones [2 3])) ; => 6
    """
    total = 1
    for n in _shape(args[0], "size"):
        total *= n
    return total


@builtin("dim", "(dim x axis)", 2, 2)
def dim(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The length of one axis, which may count from the end.

    (dim (ones [2 3]) -1) ; => 3
    """
    lengths = _shape(args[0], "dim")
    expect(args, 1, int, "a whole number", "dim")
    if not -len(lengths) <= args[1] < len(lengths):
        raise Refusal(codes.AXIS_OUT_OF_RANGE, 1, axis=args[1], ndim=len(lengths), label=kind_of(args[0]))
    return lengths[args[1]]


def _shape(x: Any, name: str) -> tuple[int, ...]:
    if isinstance(x, Value):
        return x.shape
    if is_number(x) or isinstance(x, bool):
        return ()
    raise Refusal(codes.WRONG_KIND, 0, what=f"the operand of {name}", given=kind_of(x), wanted="an array")


@builtin("grad", "(grad f)", 1, 1)
def grad(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The function that gives the gradient of f by its first argument.

    ((grad (lambda (x) (sum (square x)))) (array [1.0 -2.0])) ; => f32[2] [2.0 -4.0]
    """
    return Gradient(_function(args[0], "grad"), with_value=False)


@builtin("value-and-grad", "(value-and-grad f)", 1, 1)
def value_and_grad(frame: Any, args: list[Any], keywords: dict[str, Any], span: Span) -> Any:
    """The function that gives [value gradient] of f by its first argument.

    (nth ((value-and-grad square) 3.0) 1) ; => f32[] 6.0
    """
    return Gradient(_function(args[0], "value-and-grad"), with_value=True)


def _function(f: Any, name: str) -> Any:
    if isinstance(f, Value | list | dict | str | bool | int | float) or f is None:
        raise Refusal(codes.WRONG_KIND, 0, what=f"the operand of {name}", given=kind_of(f), wanted="a function")
    return f
