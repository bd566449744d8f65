"""Making arrays from host values: `zeros ones full arange linspace eye array`, and triangles of others.

Those without an array operand take `dtype` in the language's words; NumPy's default types never show.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, TypeAlias

from sxi import codes
from sxi.arraytype import CARRIERS, FLOATS, ArrayType, fits, of_literal
from sxi.codes import Refusal
from sxi.primitives.compare import cast
from sxi.primitives.declare import REAL, Array, Emitter, Value, case, composite, primitive
from sxi.primitives.host import real
from sxi.primitives.shape import MOST_AXES, broadcast_to, can_hold, sized

Number: TypeAlias = bool | int | float


def _made_type(*, shape: Sequence[int], dtype: str) -> ArrayType:
    return ArrayType(dtype, sized(shape))


@primitive(
    "zeros", "shape:shape :dtype dtype=:f32", type=_made_type, promote="", moves=True, vjp=None, sample=(),
    cases=(case(shape=(2, 3), dtype="f32"), case(shape=(), dtype="i32"), case(shape=(0,), dtype="bool")),
)  # fmt: skip
def zeros(xp: Any, *, shape: Sequence[int], dtype: str) -> Array:
    """An array of zeros.

    shape:  its lengths
    dtype:  its type
    gives:  t[*shape]

    (zeros [2]) ; => f32[2] [0.0 0.0]
    """
    return xp.zeros(shape, dtype=CARRIERS[dtype])


@primitive(
    "ones", "shape:shape :dtype dtype=:f32", type=_made_type, promote="", moves=True, vjp=None, sample=(),
    cases=(case(shape=(2, 3), dtype="f32"), case(shape=(), dtype="i32"), case(shape=(0,), dtype="bool")),
)  # fmt: skip
def ones(xp: Any, *, shape: Sequence[int], dtype: str) -> Array:
    """An array of ones.

    shape:  its lengths
    dtype:  its type
    gives:  t[*shape]

    (ones [2] :dtype :i32) ; => i32[2] [1 1]
    """
    return xp.ones(shape, dtype=CARRIERS[dtype])


def _fill_type(*, number: Number, shape: Sequence[int], dtype: str) -> ArrayType:
    return ArrayType(dtype, sized(shape))


@primitive(
    "fill", "number:number shape:shape dtype:dtype", type=_fill_type, promote="", vjp=None, sample=(), internal=True,
    cases=(case(number=0.1, shape=(2, 3), dtype="f64"), case(number=2**40, shape=(), dtype="i64")),
)  # fmt: skip
def fill(xp: Any, *, number: Number, shape: Sequence[int], dtype: str) -> Array:
    """`full` of a host number, rounded once."""
    return xp.full(shape, real(number) if dtype in FLOATS else number, dtype=CARRIERS[dtype])


@composite(
    "full", "shape:shape value :dtype dtype=nil", promote="-", sample=(REAL,), needs_emitter=True,
    cases=(case((), shape=(2, 3), dtype=None), case((), shape=(), dtype="f64"), case((), shape=(0,), dtype=None)),
)  # fmt: skip
def full(emitter: Emitter, value: Any, *, shape: Sequence[int], dtype: str | None) -> Any:
    """An array of one number.

    shape:  its lengths
    value:  t[], or a host number, which the type must be able to hold
    dtype:  its type, that of `value` by default
    gives:  t[*shape], with a gradient by value

    (full [3] 7) ; => i32[3] [7 7 7]
    (full [2] 0.1 :dtype :f64) ; => f64[2] [0.1 0.1]
    """
    if isinstance(value, Value):
        if value.ndim:
            raise Refusal(codes.WRONG_NDIM, 0, wanted="no", ndim=value.ndim)
        return broadcast_to(value if dtype is None else cast(value, dtype=dtype), shape=shape)
    made = dtype or of_literal(value)
    if not can_hold(made, value):
        raise Refusal(codes.DOES_NOT_FIT, 0, value=value, dtype=made)
    return emitter.apply(fill, (), {"number": value, "shape": shape, "dtype": made})


def _eye_type(*, n: int, dtype: str) -> ArrayType:
    return ArrayType(dtype, sized((n, n)))


@primitive(
    "eye", "n:int :dtype dtype=:f32", type=_eye_type, promote="", moves=True, vjp=None, sample=(),
    cases=(case(n=3, dtype="f32"), case(n=0, dtype="i32"), case(n=1, dtype="bool")),
)  # fmt: skip
def eye(xp: Any, *, n: int, dtype: str) -> Array:
    """The identity matrix.

    n:      rows and columns
    dtype:  its type
    gives:  t[n n]

    (eye 2) ; => f32[2 2] [[1.0 0.0] [0.0 1.0]]
    """
    return xp.eye(n, dtype=CARRIERS[dtype])


# Sequences of numbers.  They are computed in f64 by one product and one sum, so that they have the same
# bits on every array module.


def _finite(what: str, name: str, value: Number) -> float:
    """`value` of the operand `name` in f64.  Refused where it is not finite."""
    if not isfinite(real(value)):
        raise Refusal(codes.WRONG_KIND, name, what=what, given=value, wanted="a finite number")
    return real(value)


def _progression(a: Number, b: Number | None, step: Number) -> tuple[Number, int, bool]:
    """The first number of an `arange`, how many there are, and whether they are integers."""
    first, end, ends = (0, a, "a") if b is None else (a, b, "b")
    for what, name, value in (("the first number", "a", first), ("the end", ends, end), ("the step", "step", step)):
        _finite(what, name, value)
    if step == 0:
        raise Refusal(codes.WRONG_KIND, "step", what="the step", given=step, wanted="a number other than 0")
    if b is None and a < 0:
        raise Refusal(codes.OUT_OF_BOUNDS, "a", what="the length", given=a, low=0, high=2**31)
    whole = not any(isinstance(x, float) for x in (first, end, step))
    # exact in integers, where a quotient in f64 could be one off
    count = -((first - end) // step) if whole else ceil(max(min(real(end - first) / real(step), 2.0**62), -1.0))
    count = max(int(count), 0)
    return first if count else 0, count, whole


def _arange_type(*, a: Number, b: Number | None, step: Number) -> ArrayType:
    first, count, whole = _progression(a, b, step)
    shape = sized((count,))
    if whole and count:
        for x in (first, first + (count - 1) * step):
            if not fits(x, "i32"):
                raise Refusal(codes.DOES_NOT_FIT, value=x, dtype="i32")
    return ArrayType("i32" if whole else "f32", shape)


@primitive(
    "arange", "a:number b:number=nil step:number=1", type=_arange_type, promote="", vjp=None, sample=(),
    cases=(
        case(a=4, b=None, step=1),
        case(a=0, b=None, step=1),
        case(a=5, b=-2, step=-3),
        case(a=0.0, b=1.0, step=0.25),
        case(a=2, b=1, step=1),
    ),
)  # fmt: skip
def arange(xp: Any, *, a: Number, b: Number | None, step: Number) -> Array:
    """The numbers from `a` to before `b`, or from 0 to before `a` where there is no `b`.

    a b:    the first and the end; integers give integers
    step:   from one to the next, not 0
    gives:  i32[n] or f32[n]

    (arange 3) ; => i32[3] [0 1 2]
    (arange 1 2 0.5) ; => f32[2] [1.0 1.5]
    """
    first, count, whole = _progression(a, b, step)
    exact, carrier = ("int64", "int32") if whole else ("float64", "float32")
    apart = step if count > 1 else 0  # which may be past i64 where there is no second number
    return (xp.arange(count, dtype=exact) * apart + first).astype(carrier)


def _linspace_type(*, a: Number, b: Number, n: int) -> ArrayType:
    _finite("the first number", "a", a)
    _finite("the last number", "b", b)
    return ArrayType("f32", sized((n,)))


@primitive(
    "linspace", "a:number b:number n:int", type=_linspace_type, promote="", vjp=None, sample=(),
    cases=(case(a=0, b=1, n=5), case(a=2.0, b=-1.0, n=4), case(a=3, b=9, n=1), case(a=0, b=1, n=0)),
)  # fmt: skip
def linspace(xp: Any, *, a: Number, b: Number, n: int) -> Array:
    """Numbers at equal distances, both ends included.

    a b:    the first and the last; `a` alone where there is one number
    n:      how many
    gives:  f32[n]

    (linspace 0 1 5) ; => f32[5] [0.0 0.25 0.5 0.75 1.0]
    """
    first, last = real(a), real(b)
    # halves first, so that the distance of two numbers of f64's range does not overflow
    step = 2.0 * ((last / 2 - first / 2) / (n - 1)) if n > 1 else 0.0
    numbers = xp.arange(n, dtype="float64") * step + first
    if n > 1:
        numbers[n - 1] = last
    return numbers.astype("float32")


# An array of numbers that are written down


def _layout(numbers: Any) -> tuple[tuple[int, ...], list[Number]]:
    """The shape of nested lists and their numbers, in order.  Refused where the lists are not even."""
    shape: list[int] = []
    level = [numbers]
    while any(isinstance(x, (list, tuple)) for x in level):
        for x in level:
            if not isinstance(x, (list, tuple)):
                raise Refusal(codes.WRONG_KIND, "numbers", what="an element beside a list", given=x, wanted="a list")
            if len(x) != len(level[0]):
                left, right = f"the list of {len(level[0])}", f"that of {len(x)} beside it"
                raise Refusal(codes.SHAPES_DIFFER, "numbers", left=left, right=right)
        shape.append(len(level[0]))
        if len(shape) > MOST_AXES:
            raise Refusal(codes.WRONG_NDIM, "numbers", wanted=f"{MOST_AXES} or fewer", ndim=f"{len(shape)} or more")
        level = [x for inner in level for x in inner]
    return tuple(shape), level


def _dtype_of(numbers: Sequence[Number]) -> str:
    if any(isinstance(x, float) for x in numbers) or not numbers:
        return "f32"
    return "bool" if all(isinstance(x, bool) for x in numbers) else "i32"


def _array_type(*, numbers: Any, dtype: str | None) -> ArrayType:
    shape, flat = _layout(numbers)
    made = dtype or _dtype_of(flat)
    for x in flat:
        if not can_hold(made, x):
            raise Refusal(codes.DOES_NOT_FIT, "numbers", value=x, dtype=made)
    return ArrayType(made, shape)


@primitive(
    "array", "numbers:numbers :dtype dtype=nil", type=_array_type, promote="", vjp=None, sample=(),
    cases=(
        case(numbers=((1, 2), (3, 4)), dtype=None),
        case(numbers=(1.5, 2), dtype=None),
        case(numbers=(True, False), dtype=None),
        case(numbers=(), dtype=None),
        case(numbers=((), ()), dtype="i64"),
        case(numbers=3, dtype="f64"),
    ),
)  # fmt: skip
def array(xp: Any, *, numbers: Any, dtype: str | None) -> Array:
    """An array of the numbers of a list, or of lists of one length.

    numbers:  host numbers, nested as deep as the array has axes
    dtype:    its type; by default :i32 of integers, :bool of bools, :f32 where there is a real or nothing
    gives:    t[*n]

    (array [[1 2] [3 4]]) ; => i32[2 2] [[1 2] [3 4]]
    (array [1 2.5]) ; => f32[2] [1.0 2.5]
    """
    shape, flat = _layout(numbers)
    made = dtype or _dtype_of(flat)
    exact = [real(x) for x in flat] if made in FLOATS else flat
    return xp.reshape(xp.asarray(exact, dtype=CARRIERS[made]), shape)


# Arrays like others


def _like(x: ArrayType) -> ArrayType:
    return x


@primitive(
    "zeros-like", "x", type=_like, promote="-", moves=True, vjp=None,
    sample=(REAL,), cases=(case((2, 3)), case(()), case((0,))),
)  # fmt: skip
def zeros_like(xp: Any, x: Array) -> Array:
    """Zeros in the shape and type of an array.

    x:      t[*n]
    gives:  t[*n]

    (zeros-like (array [1 2])) ; => i32[2] [0 0]
    """
    return xp.zeros(x.shape, dtype=x.dtype)


@primitive(
    "ones-like", "x", type=_like, promote="-", moves=True, vjp=None,
    sample=(REAL,), cases=(case((2, 3)), case(()), case((0,))),
)  # fmt: skip
def ones_like(xp: Any, x: Array) -> Array:
    """Ones in the shape and type of an array.

    x:      t[*n]
    gives:  t[*n]

    (ones-like (array [1.5 2.0])) ; => f32[2] [1.0 1.0]
    """
    return xp.ones(x.shape, dtype=x.dtype)


# Triangles


def _matrix_type(x: ArrayType, *, offset: int) -> ArrayType:
    if x.ndim < 2:
        raise Refusal(codes.WRONG_NDIM, 0, wanted="2 or more", ndim=x.ndim)
    return x


def _within(offset: int, shape: Sequence[int]) -> int:
    """`offset`, or the nearest that leaves the same triangle: it may be larger than any that NumPy takes."""
    return max(-shape[-2] - 1, min(offset, shape[-1] + 1))


def _tril_back(g: Any, out: Any, x: Any, *, offset: int) -> Any:
    return tril(g, offset=offset)


@primitive(
    "tril", "x :offset int=0", type=_matrix_type, promote="-", moves=True,
    vjp=(_tril_back,),
    sample=(REAL,), cases=(case((3, 3), offset=0), case((2, 3, 4), offset=-1), case((0, 2), offset=0)),
)  # fmt: skip
def tril(xp: Any, x: Array, *, offset: int) -> Array:
    """Matrices with zeros above their diagonal.

    x:       t[*b n m]
    offset:  the diagonal meant, counted upwards from the main one
    gives:   t[*b n m]

    (tril (ones [2 2])) ; => f32[2 2] [[1.0 0.0] [1.0 1.0]]
    """
    return xp.tril(x, _within(offset, x.shape))


def _triu_back(g: Any, out: Any, x: Any, *, offset: int) -> Any:
    return triu(g, offset=offset)


@primitive(
    "triu", "x :offset int=0", type=_matrix_type, promote="-", moves=True,
    vjp=(_triu_back,),
    sample=(REAL,), cases=(case((3, 3), offset=0), case((2, 3, 4), offset=1), case((0, 2), offset=0)),
)  # fmt: skip
def triu(xp: Any, x: Array, *, offset: int) -> Array:
    """Matrices with zeros below their diagonal.

    x:       t[*b n m]
    offset:  the diagonal meant, counted upwards from the main one
    gives:   t[*b n m]

    (triu (ones [2 2])) ; => f32[2 2] [[1.0 1.0] [0.0 1.0]]
    """
    return xp.triu(x, _within(offset, x.shape))
