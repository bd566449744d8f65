"""What networks are made of: softmax, the cross-entropy, normalisations, attention.

Convolutions and pooling are in `convolution.py`, dropout is in `random.py`.

Each is computed in f32 at least: an f16 operand is widened first and the result rounded once.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives.compare import where
from sxi.primitives.declare import INDEX, MASK, POSITIVE, REAL, UNIT, Array, Value, case, composite, primitive
from sxi.primitives.elementwise import add, div, mul, square, sub
from sxi.primitives.host import real
from sxi.primitives.linalg import matmul
from sxi.primitives.reduce import mean, sum_
from sxi.primitives.rules import axis_of, words
from sxi.primitives.shape import broadcast_to, expand, shape_of, transpose
from sxi.primitives.transcendental import exp


def reals(x: ArrayType, operand: int = 0) -> None:
    """Refuse an operand that holds no reals."""
    if not x.is_float:
        raise Refusal(codes.NOT_FLOAT, operand, type=x)


def at_least(ndim: int, x: Any, operand: int = 0) -> None:
    """Refuse an operand of fewer than `ndim` axes: a type, a value or a host number."""
    have = x.ndim if isinstance(x, ArrayType | Value) else 0
    if have < ndim:
        raise Refusal(codes.WRONG_NDIM, operand, wanted=f"{ndim} or more", ndim=have)


def _wide(x: Array) -> Array:
    return x.astype("float32") if x.dtype == "float16" else x


# Softmax


def _along(x: ArrayType, *, axis: int, **static: Any) -> ArrayType:
    reals(x)
    axis_of(axis, x.ndim)
    return x


_AXES = (
    case((2, 3), axis=-1),
    case((2, 3, 4), axis=1),
    case((5,), axis=0),
    case((0, 3), axis=-1),
    case((3, 0), axis=-1),
)


def _less_greatest(xp: Any, x: Array, axis: int) -> Array:
    """`x` less its greatest along `axis`, in f32 at least: exp of it cannot overflow."""
    wide = _wide(x)
    # The greatest of nothing is an error in array modules.
    return wide - xp.max(wide, axis=axis, keepdims=True) if x.size else wide


def _softmax_back(g: Any, out: Any, x: Any, *, axis: int) -> Any:
    return mul(out, sub(g, sum_(mul(g, out), axis=axis, keep=True)))


@primitive("softmax", "x :axis int=-1", type=_along, promote="f", vjp=(_softmax_back,), sample=(REAL,), cases=_AXES)
def softmax(xp: Any, x: Array, *, axis: int) -> Array:
    """Shares of a whole along an axis: exp of each element over the sum of all.

    x:      f32[*n]
    axis:   the axis along which the results sum to 1
    gives:  f32[*n]; NaN along an axis that holds a NaN, inf, or nothing but -inf

    (softmax (array [0.0 0.0])) ; => f32[2] [0.5 0.5]
    """
    e = xp.exp(_less_greatest(xp, x, axis))
    e /= xp.sum(e, axis=axis, keepdims=True)
    return e.astype(x.dtype, copy=False)


def _log_softmax_back(g: Any, out: Any, x: Any, *, axis: int) -> Any:
    return sub(g, mul(exp(out), sum_(g, axis=axis, keep=True)))


@primitive(
    "log-softmax", "x :axis int=-1", type=_along, promote="f", vjp=(_log_softmax_back,), sample=(REAL,), cases=_AXES
)
def log_softmax(xp: Any, x: Array, *, axis: int) -> Array:
    """The logarithm of softmax, exact where that itself would be rounded to 0.

    x:      f32[*n]
    axis:   the axis along which exp of the results sums to 1
    gives:  f32[*n]

    (log-softmax (array [0.0])) ; => f32[1] [0.0]
    """
    z = _less_greatest(xp, x, axis)
    return (z - xp.log(xp.sum(xp.exp(z), axis=axis, keepdims=True))).astype(x.dtype, copy=False)


# Cross-entropy


def _labelled(logits: ArrayType, labels: ArrayType) -> None:
    reals(logits)
    at_least(1, logits)
    if logits.shape[-1] == 0:
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what="the number of classes", given=0, low=1, high=2**31 - 1)
    if not labels.is_integer:
        raise Refusal(codes.NOT_INTEGER, 1, type=labels)
    if labels.shape != logits.shape[:-1]:
        leading = f"the logits' leading axes {words(logits.shape[:-1])}"
        raise Refusal(codes.SHAPES_DIFFER, 1, left=leading, right=f"the labels' {words(labels.shape)}")


def _each_label(logits: ArrayType, labels: ArrayType, *, smoothing: float) -> ArrayType:
    _labelled(logits, labels)
    return logits.with_shape(labels.shape)


def _each_logit(logits: ArrayType, labels: ArrayType, *, smoothing: float) -> ArrayType:
    _labelled(logits, labels)
    return logits


def _cross_entropy_back(g: Any, out: Any, logits: Any, labels: Any, *, smoothing: float) -> Any:
    return mul(expand(g, axis=-1), cross_entropy_slope(logits, labels, smoothing=smoothing))


def _slope_back(g: Any, out: Any, logits: Any, labels: Any, *, smoothing: float) -> Any:
    p = softmax(logits)
    return mul(p, sub(g, sum_(mul(g, p), axis=-1, keep=True)))


_BATCHES = ((4,), (2, 3), (), (0,))
_LABELLED = tuple(case((*b, n), b, smoothing=s) for b in _BATCHES for n, s in ((3, 0.0), (2, 0.25)))


@primitive(
    "cross-entropy-each", "logits labels smoothing:number", type=_each_label, promote="f-",
    vjp=(_cross_entropy_back, None), sample=(REAL, INDEX), cases=_LABELLED, internal=True,
)  # fmt: skip
def cross_entropy_each(xp: Any, logits: Array, labels: Array, *, smoothing: float) -> Array:
    """ln Σ exp(x) − (1 − s) x[label] − s mean(x), NaN where there is no such label.

    logits:  f32[*b n]
    labels:  i32[*b]
    gives:   f32[*b]
    """
    z = _less_greatest(xp, logits, -1)
    n = z.shape[-1]
    loss = xp.log(xp.sum(xp.exp(z), axis=-1))
    chosen = xp.take_along_axis(z, xp.clip(labels, 0, n - 1)[..., None], axis=-1)[..., 0]
    loss -= (1 - smoothing) * chosen if smoothing else chosen
    if smoothing:
        loss -= smoothing * xp.mean(z, axis=-1)
    return xp.where((labels >= 0) & (labels < n), loss, float("nan")).astype(logits.dtype, copy=False)


@primitive(
    "cross-entropy-slope", "logits labels smoothing:number", type=_each_logit, promote="f-",
    vjp=(_slope_back, None), sample=(REAL, INDEX), cases=_LABELLED, internal=True,
)  # fmt: skip
def cross_entropy_slope(xp: Any, logits: Array, labels: Array, *, smoothing: float) -> Array:
    """The derivative of each `cross-entropy-each` by its logits: softmax − (1 − s) one-hot − s / n.

    logits:  f32[*b n]
    labels:  i32[*b]
    gives:   f32[*b n]; NaN where there is no such label
    """
    n = logits.shape[-1]
    flat = xp.exp(_less_greatest(xp, logits, -1)).reshape(-1, n)
    chosen = labels.reshape(-1)
    known = (chosen >= 0) & (chosen < n)
    flat /= xp.where(known, xp.sum(flat, axis=-1), float("nan")).astype(flat.dtype)[:, None]
    if smoothing:
        flat -= smoothing / n
    flat[xp.arange(flat.shape[0]), xp.clip(chosen, 0, n - 1)] -= 1 - smoothing
    return flat.reshape(logits.shape).astype(logits.dtype, copy=False)


@composite(
    "cross-entropy", "logits labels :weights array=nil :smoothing number=0.0 :reduce keyword=:mean", promote="f-f",
    sample=(REAL, INDEX, POSITIVE),
    cases=(
        case((4, 3), (4,), smoothing=0.0, reduce="mean"),
        case((2, 3, 5), (2, 3), smoothing=0.1, reduce="none"),
        case((4, 3), (4,), (4,), smoothing=0.0, reduce="mean"),
        case((2, 3, 5), (2, 3), (3,), smoothing=0.1, reduce="none"),
    ),
)  # fmt: skip
def cross_entropy(logits: Any, labels: Any, weights: Any, *, smoothing: float, reduce: str) -> Any:
    """How badly logits predict labels: minus the logarithm of softmax at the label.

    logits:     f32[*b n]
    labels:     i32[*b], classes from 0 to n − 1; another one gives NaN
    weights:    f32[*w] that broadcasts to *b, a weight for each label
    smoothing:  s from 0 to 1: the label's share is (1 − s) + s / n and that of any other class s / n
    reduce:     :mean, the sum over all labels of weight × loss over the sum of the weights; :none, each of those
    gives:      f32[], or f32[*b] under :none

    (cross-entropy (zeros [2 1]) (array [0 0])) ; => f32[] 0.0
    """
    if reduce not in ("mean", "none"):
        raise Refusal(codes.WRONG_KIND, "reduce", what=":reduce", given=f":{reduce}", wanted=":mean or :none")
    if not 0 <= smoothing <= 1:
        raise Refusal(codes.OUT_OF_BOUNDS, "smoothing", what=":smoothing", given=smoothing, low=0, high=1)
    at_least(1, logits)
    each = cross_entropy_each(logits, labels, smoothing=float(smoothing))
    if reduce == "mean" and not isinstance(weights, Value):
        return mean(each)  # equal weights cancel
    if weights is None:
        return each
    weighted = mul(each, weights)
    _keeps(each, weighted, weights, 2)
    return weighted if reduce == "none" else div(sum_(weighted), sum_(broadcast_to(weights, shape=each.shape)))


def _keeps(x: Value, result: Value, by: Any, operand: int) -> None:
    """Refuse an operand that broadcasts `x` to a larger shape."""
    if result.shape != x.shape:
        raise Refusal(
            codes.SHAPES_DIFFER, operand, left=words(shape_of(by)), right=f"{words(x.shape)}, which it enlarges,"
        )


# Normalisation over the last axis


def _last(x: ArrayType, **static: Any) -> ArrayType:
    reals(x)
    at_least(1, x)
    if x.shape[-1] == 0:
        raise Refusal(codes.OUT_OF_BOUNDS, 0, what="the length of the last axis,", given=0, low=1, high=2**31)
    return x


def _last_kept(x: ArrayType, **static: Any) -> ArrayType:
    return _last(x).with_shape((*x.shape[:-1], 1))


def _centre(x: Any, centred: bool) -> Any:
    return sub(x, mean(x, axis=-1, keep=True)) if centred else x


def _standardize_back(g: Any, out: Any, x: Any, *, eps: float, centred: bool) -> Any:
    across = _centre(sub(g, mul(out, mean(mul(g, out), axis=-1, keep=True))), centred)
    return mul(across, inverse_deviation(x, eps=eps, centred=centred))


def _inverse_deviation_back(g: Any, out: Any, x: Any, *, eps: float, centred: bool) -> Any:
    return mul(_centre(x, centred), mul(g, square(out), out, -1 / x.shape[-1]))


_NORMED = tuple(case(s, eps=1e-5, centred=c) for s in ((4,), (2, 3), (2, 2, 5), (0, 3)) for c in (True, False))


def _moment(xp: Any, x: Array, eps: float, centred: bool) -> tuple[Array, Array]:
    """`x`, less its mean where `centred`, and 1 / √(the mean of its square + eps), in f32 at least."""
    wide = _wide(x)
    if centred:
        wide = wide - xp.mean(wide, axis=-1, keepdims=True)
    return wide, 1 / xp.sqrt(xp.mean(wide * wide, axis=-1, keepdims=True) + eps)


@primitive(
    "standardize", "x eps:number centred:bool", type=_last, promote="f", vjp=(_standardize_back,), sample=(REAL,),
    cases=_NORMED, internal=True,
)  # fmt: skip
def standardize(xp: Any, x: Array, *, eps: float, centred: bool) -> Array:
    """Elements, less their mean over the last axis where `centred`, over the root of their mean square + eps.

    x:      f32[*b n]
    gives:  f32[*b n]
    """
    values, inverse = _moment(xp, x, eps, centred)
    return (values * inverse).astype(x.dtype, copy=False)


@primitive(
    "inverse-deviation", "x eps:number centred:bool", type=_last_kept, promote="f", vjp=(_inverse_deviation_back,),
    sample=(REAL,), cases=_NORMED, internal=True,
)  # fmt: skip
def inverse_deviation(xp: Any, x: Array, *, eps: float, centred: bool) -> Array:
    """What `standardize` multiplies by.

    x:      f32[*b n]
    gives:  f32[*b 1]
    """
    return _moment(xp, x, eps, centred)[1].astype(x.dtype, copy=False)


@composite(
    "layer-norm", "x scale bias :eps number=1e-5", promote="fff", sample=(REAL, POSITIVE, REAL),
    cases=(case((2, 4), (4,), (4,), eps=1e-5), case((3,), (3,), (), eps=1e-3)),
)  # fmt: skip
def layer_norm(x: Any, scale: Any, bias: Any, *, eps: float) -> Any:
    """Elements brought to mean 0 and variance 1 over the last axis, then scaled and moved.

    x:      f32[*b n]
    scale:  f32[n]
    bias:   f32[n]
    eps:    added to the variance, the mean squared distance from the mean
    gives:  f32[*b n]

    (layer-norm (array [2.0 2.0]) 1.0 0.5) ; => f32[2] [0.5 0.5]
    """
    at_least(1, x)
    scaled = mul(standardize(x, eps=real(eps), centred=True), scale)
    _keeps(x, scaled, scale, 1)
    moved = add(scaled, bias)
    _keeps(x, moved, bias, 2)
    return moved


@composite(
    "rms-norm", "x scale :eps number=1e-6", promote="ff", sample=(REAL, POSITIVE),
    cases=(case((2, 4), (4,), eps=1e-6), case((3,), (), eps=1e-3)),
)  # fmt: skip
def rms_norm(x: Any, scale: Any, *, eps: float) -> Any:
    """Elements over the root of their mean square along the last axis, then scaled.

    x:      f32[*b n]
    scale:  f32[n]
    eps:    added to the mean square
    gives:  f32[*b n]

    (rms-norm (zeros [2]) 1.0) ; => f32[2] [0.0 0.0]
    """
    at_least(1, x)
    scaled = mul(standardize(x, eps=real(eps), centred=False), scale)
    _keeps(x, scaled, scale, 1)
    return scaled


# Attention


def _matrices(x: ArrayType, **static: Any) -> ArrayType:
    reals(x)
    at_least(2, x)
    return x


def _hide_back(g: Any, out: Any, x: Any, *, fill: float) -> Any:
    return hide_future(g, fill=0.0)


@primitive(
    "hide-future", "x fill:number", type=_matrices, promote="-", vjp=(_hide_back,), sample=(REAL,), internal=True,
    cases=(case((3, 3), fill=0.0), case((2, 2, 4), fill=-1.0), case((0, 2), fill=0.0)),
)  # fmt: skip
def hide_future(xp: Any, x: Array, *, fill: float) -> Array:
    """`x` where the last axis is not ahead of the one before it, `fill` elsewhere; both end together.

    x:      f32[*b m n]
    gives:  f32[*b m n]
    """
    m, n = x.shape[-2:]
    return xp.where(xp.tri(m, n, n - m, dtype="bool"), x, fill)


def _attends(q: Any, k: Any, v: Any, mask: Any) -> None:
    for i, x in enumerate((q, k, v)):
        at_least(2, x, i)
    if k.shape[-1] != q.shape[-1]:
        raise Refusal(
            codes.SHAPES_DIFFER, 1, left=f"the queries' depth {q.shape[-1]}", right=f"the keys' {k.shape[-1]}"
        )
    if v.shape[-2] != k.shape[-2]:
        raise Refusal(codes.SHAPES_DIFFER, 2, left=f"{k.shape[-2]} keys", right=f"{v.shape[-2]} values")
    if mask is not None and not (isinstance(mask, Value) and mask.dtype == "bool"):
        raise Refusal(codes.NOT_BOOL, 3, type=mask.type if isinstance(mask, Value) else mask)


@composite(
    "attention", "q k v :causal bool=false :mask array=nil", promote="fff-", sample=(UNIT, UNIT, UNIT, MASK),
    cases=(
        case((2, 3, 4), (2, 3, 4), (2, 3, 5), causal=False),
        case((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 2), causal=True),
    ),
)  # fmt: skip
def attention(q: Any, k: Any, v: Any, mask: Any, *, causal: bool) -> Any:
    """Values averaged by how well their keys fit each query: softmax(q kᵀ / √depth) v.

    q:       f32[batch heads m depth]; any number of leading axes
    k:       f32[batch heads n depth]
    v:       f32[batch heads n width]
    causal:  whether query i sees only keys up to i + n − m: itself, where the last query is the last key
    mask:    bool[*b m n] that broadcasts to the queries by keys; a query sees a key where it is true
    gives:   f32[batch heads m width]; NaN for a query that sees no key

    (attention (ones [1 2]) (ones [1 2]) (ones [1 3])) ; => f32[1 3] [[1.0 1.0 1.0]]
    """
    _attends(q, k, v, mask)
    scores = matmul(mul(q, 1 / sqrt(max(q.shape[-1], 1))), transpose(k))
    if causal:
        scores = hide_future(scores, fill=-inf)
    if mask is not None:
        seen = where(mask, scores, -inf)
        _keeps(scores, seen, mask, 3)
        scores = seen
    return matmul(softmax(scores), v)
