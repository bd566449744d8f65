"""Random draws.

A draw depends on the run's seed, the step, the microbatch and the place in the program: `sxi/random.py`
says how.  Those with parameters that may be arrays are made of a standard draw, which has no gradient,
and of arithmetic, which has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives.compare import cast, lt
from sxi.primitives.declare import INTEGER, POSITIVE, REAL, Array, Domain, Emitter, Value, case, composite, primitive
from sxi.primitives.elementwise import add, mul, sub
from sxi.primitives.host import real
from sxi.primitives.rules import broadcast_shape, words
from sxi.primitives.shape import sized

if TYPE_CHECKING:
    from sxi.random import Draws

_PROBABILITY = Domain("f32", 0, 1)
_SHAPES = (case(shape=(2, 3)), case(shape=()), case(shape=(0,)))


def _reals(*types: ArrayType, shape: tuple[int, ...], **static: Any) -> ArrayType:
    return ArrayType("f32", sized(shape))


@primitive(
    "draw-normal", "shape:shape", type=_reals, promote="", vjp=None, sample=(), cases=_SHAPES, draws=True, internal=True
)
def draw_normal(xp: Any, draws: Draws, *, shape: tuple[int, ...], place: str) -> Array:
    """Standard normals."""
    return draws.normal(place, shape)


@primitive(
    "draw-uniform",
    "shape:shape",
    type=_reals,
    promote="",
    vjp=None,
    sample=(),
    cases=_SHAPES,
    draws=True,
    internal=True,
)
def draw_uniform(xp: Any, draws: Draws, *, shape: tuple[int, ...], place: str) -> Array:
    """Uniform on [0, 1)."""
    return draws.uniform(place, shape)


def _kept(*types: ArrayType, shape: tuple[int, ...], dtype: str, **static: Any) -> ArrayType:
    return ArrayType(dtype, sized(shape))


@primitive(
    "draw-keep", "shape:shape p:number dtype:dtype", type=_kept, promote="", vjp=None, sample=(),
    cases=(case(shape=(2, 3), p=0.25, dtype="f32"), case(shape=(0,), p=0.5, dtype="f64")), draws=True, internal=True,
)  # fmt: skip
def draw_keep(xp: Any, draws: Draws, *, shape: tuple[int, ...], p: float, dtype: str, place: str) -> Array:
    """0 with probability `p` and 1 / (1 − p) otherwise; `dtype` is f32 or f64."""
    return draws.keep(place, shape, p, ArrayType(dtype).carrier)


def _integers(*types: ArrayType, shape: tuple[int, ...], low: int, high: int, **static: Any) -> ArrayType:
    return ArrayType(_integer_dtype(low, high), sized(shape))


def _integer_dtype(low: int, high: int) -> str:
    return "i32" if low >= -(2**31) and high <= 2**31 else "i64"


@primitive(
    "draw-integers", "shape:shape low:int high:int", type=_integers, promote="", vjp=None, sample=(),
    cases=(case(shape=(2, 3), low=-2, high=3), case(shape=(0,), low=0, high=2**40)), draws=True, internal=True,
)  # fmt: skip
def draw_integers(xp: Any, draws: Draws, *, shape: tuple[int, ...], low: int, high: int, place: str) -> Array:
    """Integers in [`low`, `high`)."""
    return draws.integers(place, shape, low, high).astype(ArrayType(_integer_dtype(low, high)).carrier)


def _between(low: ArrayType, high: ArrayType, *, shape: tuple[int, ...], **static: Any) -> ArrayType:
    for i, t in enumerate((low, high)):
        if not t.is_integer:
            raise Refusal(codes.NOT_INTEGER, i, type=t)
        if t.dtype != "i32":
            raise Refusal(codes.TYPES_DIFFER, i, left=t, right=t.with_dtype("i32"))
    made = ArrayType("i32", sized(shape))
    _fill(made.shape, broadcast_shape(low, high, made))
    return made


@primitive(
    "draw-integers-between", "low high shape:shape", type=_between, promote="--", vjp=None, sample=(INTEGER, INTEGER),
    cases=(case((), (), shape=(2, 3)), case((3,), (2, 1), shape=(2, 3))), draws=True, internal=True,
)  # fmt: skip
def draw_integers_between(
    xp: Any, draws: Draws, low: Array, high: Array, *, shape: tuple[int, ...], place: str
) -> Array:
    """Integers in [`low`, `high`), and `low` where that is empty.

    The same integers as `draw-integers` gives between the same bounds: the high 64 bits of word × range.
    """
    upper, lower = draws.halves(place, shape)
    wide = low.astype(xp.int64)
    # The range is below 2³² and so is each half: every product fits 64 bits without a sign.
    n = xp.maximum(high.astype(xp.int64) - wide, 0).astype(xp.uint64)
    above = (upper.astype(xp.uint64) * n + (lower.astype(xp.uint64) * n >> 32)) >> 32
    return (above.astype(xp.int64) + wide).astype(xp.int32)


def _fill(shape: tuple[int, ...], result: tuple[int, ...]) -> None:
    if result != shape:
        raise Refusal(
            codes.SHAPES_DIFFER, "shape", left=f"the shape {words(shape)}", right=f"that of the result, {words(result)}"
        )


def _refuse_mask(x: Any, operand: int) -> None:
    if isinstance(x, bool) or (isinstance(x, Value) and x.dtype == "bool"):
        raise Refusal(codes.NOT_FLOAT, operand, type=x.type if isinstance(x, Value) else "bool[]")


def _is(x: Any, number: float) -> bool:
    return not isinstance(x, Value) and bool(x == number)


def _affine(drawn: Value, scale: Any, offset: Any) -> Any:
    """`drawn` × scale + offset, without the operations that would change nothing."""
    scaled = drawn if _is(scale, 1.0) else mul(drawn, scale)
    moved = scaled if _is(offset, 0.0) else add(scaled, offset)
    _fill(drawn.shape, moved.shape)
    return moved


@composite(
    "normal", "shape:shape :mean array=0.0 :scale array=1.0", promote="-", sample=(REAL, POSITIVE),
    cases=(case((), (), shape=(2, 3)), case((3,), (2, 1), shape=(2, 3))), draws=True, needs_emitter=True,
)  # fmt: skip
def normal(emitter: Emitter, mean: Any, scale: Any, *, shape: tuple[int, ...], place: str) -> Any:
    """Numbers drawn from normal distributions: the mean plus the scale times standard normals.

    shape:  lengths of the result
    mean:   f32[*m] or a number; it broadcasts to the shape
    scale:  f32[*m] or a number, the standard deviation
    gives:  f32[*shape], with a gradient by mean and scale

    (shape (normal [2 3])) ; => [2 3]
    """
    for i, x in enumerate((mean, scale)):
        _refuse_mask(x, i)
    drawn = emitter.apply(draw_normal, (), {"shape": shape, "place": place})
    return _affine(drawn, 1.0 if scale is None else scale, 0.0 if mean is None else mean)


@composite(
    "uniform", "shape:shape :low array=0.0 :high array=1.0", promote="-", sample=(REAL, REAL),
    cases=(case((), (), shape=(2, 3)), case((3,), (2, 1), shape=(2, 3))), draws=True, needs_emitter=True,
)  # fmt: skip
def uniform(emitter: Emitter, low: Any, high: Any, *, shape: tuple[int, ...], place: str) -> Any:
    """Numbers drawn uniformly between two bounds: low plus (high − low) times a draw from [0, 1).

    shape:  lengths of the result
    low:    f32[*m] or a number; it broadcasts to the shape
    high:   f32[*m] or a number
    gives:  f32[*shape], with a gradient by low and high

    With `:low 0` no number reaches `high`; with another the sum may round to it.

    (shape (uniform [2 3])) ; => [2 3]
    (all (< (uniform [100]) 1.0)) ; => bool[] true
    """
    low, high = 0.0 if low is None else low, 1.0 if high is None else high
    for i, x in enumerate((low, high)):
        _refuse_mask(x, i)
    drawn = emitter.apply(draw_uniform, (), {"shape": shape, "place": place})
    if isinstance(low, Value) or isinstance(high, Value):
        return _affine(drawn, high if _is(low, 0.0) else sub(high, low), low)
    return _affine(drawn, real(high) - real(low), low)


@composite(
    "integers", "shape:shape :low array=0 :high array=nil", promote="-", sample=(INTEGER, INTEGER),
    cases=(case((), (), shape=(2, 3)), case((3,), (2, 1), shape=(2, 3))), draws=True, needs_emitter=True,
)  # fmt: skip
def integers(emitter: Emitter, low: Any, high: Any, *, shape: tuple[int, ...], place: str) -> Any:
    """Integers drawn uniformly from low, low + 1, …, high − 1.

    shape:  lengths of the result
    low:    a whole number, or i32[*m]; it broadcasts to the shape
    high:   a whole number, or i32[*m]; required
    gives:  i32[*shape], or i64 where a bound that is a number is past i32

    Bounds that are numbers leave at least one integer between them; where arrays leave none, the result is low.

    (integers [3] :low 7 :high 8) ; => i32[3] [7 7 7]
    """
    low = 0 if low is None else low
    if high is None:
        raise Refusal(codes.MISSING_KEYWORD, name="integers", keyword="high")
    for i, x in enumerate((low, high)):
        if isinstance(x, bool | float):
            raise Refusal(codes.NOT_INTEGER, i, type="bool[]" if isinstance(x, bool) else "f32[]")
    if isinstance(low, Value) or isinstance(high, Value):
        return emitter.apply(draw_integers_between, (low, high), {"shape": shape, "place": place})
    if not -(2**63) <= low < 2**63:
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what="low", given=low, low=-(2**63), high=2**63 - 1)
    if not low < high <= 2**63:
        raise Refusal(codes.OUT_OF_BOUNDS, 1, what="high", given=high, low=low + 1, high=2**63)
    return emitter.apply(draw_integers, (), {"shape": shape, "low": low, "high": high, "place": place})


@composite(
    "bernoulli", "shape:shape :p array=0.5", promote="-", sample=(_PROBABILITY,),
    cases=(case((), shape=(2, 3)), case((2, 1), shape=(2, 3))), draws=True, needs_emitter=True,
)  # fmt: skip
def bernoulli(emitter: Emitter, p: Any, *, shape: tuple[int, ...], place: str) -> Any:
    """A mask whose elements are true with a probability: where a draw from [0, 1) is below it.

    shape:  lengths of the result
    p:      f32[*m] or a number from 0 to 1; it broadcasts to the shape
    gives:  bool[*shape]

    (bernoulli [2] :p 1.0) ; => bool[2] [true true]
    """
    p = 0.5 if p is None else p
    _refuse_mask(p, 0)
    if not isinstance(p, Value):
        _probability(p, 0)
    mask = lt(emitter.apply(draw_uniform, (), {"shape": shape, "place": place}), p)
    _fill(sized(shape), mask.shape)
    return mask


def _probability(p: float, operand: int | str) -> None:
    if not 0 <= p <= 1:  # a NaN is not either
        raise Refusal(codes.OUT_OF_BOUNDS, operand, what="the probability", given=p, low=0, high=1)


def _permutation(*, n: int, **static: Any) -> ArrayType:
    return ArrayType("i32", sized((n,)))


@primitive(
    "permutation", "n:int", type=_permutation, promote="", vjp=None, sample=(), cases=(case(n=5), case(n=0)), draws=True
)
def permutation(xp: Any, draws: Draws, *, n: int, place: str) -> Array:
    """The numbers 0, 1, …, n − 1 in an order drawn at random.

    n:      a whole number
    gives:  i32[n]

    (sort (permutation 4)) ; => i32[4] [0 1 2 3]
    """
    return draws.permutation(place, n)


def _categorical(logits: ArrayType, **static: Any) -> ArrayType:
    if not logits.is_float:
        raise Refusal(codes.NOT_FLOAT, 0, type=logits)
    if logits.ndim == 0:
        raise Refusal(codes.WRONG_NDIM, 0, wanted="at least 1", ndim=0)
    if logits.shape[-1] == 0:
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what="the number of classes", given=0, low=1, high=2**31 - 1)
    return ArrayType("i32", logits.shape[:-1])


@primitive(
    "categorical", "logits", type=_categorical, promote="f", vjp=None, sample=(REAL,),
    cases=(case((4,)), case((2, 3, 5)), case((0, 3)), case((2, 1))), draws=True,
)  # fmt: skip
def categorical(xp: Any, draws: Draws, logits: Array, *, place: str) -> Array:
    """Classes drawn with probabilities in proportion to exp of the logits.

    logits:  f32[*b n]
    gives:   i32[*b], each from 0 to n − 1

    By the inverse of the cumulative distribution, in f64: the class is how many of the first n − 1 running
    sums of exp(logit − greatest) are at most u times their whole sum, u drawn from [0, 1).  A logit of −inf
    is never drawn; a NaN, or nothing but −inf, gives class 0.

    (categorical (array [-inf 0.0 -inf])) ; => i32[] 1
    """
    wide = logits.astype(xp.float64)
    sums = xp.cumsum(xp.exp(wide - xp.max(wide, axis=-1, keepdims=True)), axis=-1)
    reached = draws.uniform_f64(place, logits.shape[:-1])[..., None] * sums[..., -1:]
    return xp.sum(sums[..., :-1] <= reached, axis=-1, dtype=xp.int32)


@composite(
    "dropout", "x p:number", promote="f", sample=(REAL,), cases=(case((2, 3), p=0.5), case((2, 3), p=0.0)),
    draws=True, needs_emitter=True, uses_training=True,
)  # fmt: skip
def dropout(emitter: Emitter, x: Any, *, p: float, place: str, training: bool) -> Any:
    """Each element zeroed with probability p and otherwise divided by 1 − p, so that the mean stays.

    x:      f32[*n]
    p:      a number, at least 0 and below 1
    gives:  f32[*n]; x itself where `(training?)` is false

    A NaN or an infinity in x does not hide: times zero it is NaN.

    (dropout (ones [3]) 0.0) ; => f32[3] [1.0 1.0 1.0]
    """
    _refuse_mask(x, 0)
    _probability(p, "p")
    if p == 1:
        raise Refusal(codes.OUT_OF_BOUNDS, "p", what="the probability", given=p, low=0, high="below 1")
    if not training or p == 0:
        return x
    shape, dtype = (x.shape, x.dtype) if isinstance(x, Value) else ((), "f32")
    drawn = dtype if dtype in ("f32", "f64") else "f32"
    mask = emitter.apply(draw_keep, (), {"shape": shape, "p": float(p), "dtype": drawn, "place": place})
    return mul(x, mask if drawn == dtype else cast(mask, dtype=dtype))
