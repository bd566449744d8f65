"""The neural primitives against their formulas in f64, against loops, and where it is installed against torch."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from sxi import codes
from sxi.codes import Refusal
from sxi.primitives import convolution as c
from sxi.primitives import neural as n
from sxi.primitives.declare import Primitive
from sxi.primitives.elementwise import mul
from tests.eager import Eager, call, compute

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


def single(x: Any) -> Any:
    return x.astype(np.float32)


# Formulas


def soft(x: Any, axis: int = -1) -> Any:
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((3, 4), -1), ((3, 4), 0), ((2, 3, 4), 1), ((0, 3), 1)])
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    x = normal(*shape) * 5
    np.testing.assert_allclose(compute(n.softmax, single(x), axis=axis), soft(single(x).astype(float), axis), rtol=1e-6)
    np.testing.assert_allclose(compute(n.log_softmax, x, axis=axis), np.log(soft(x, axis)), rtol=1e-12, atol=1e-14)


def test_softmax_neither_overflows_nor_loses_what_is_small() -> None:
    x = single(np.array([1000.0, 0.0, -1000.0]))
    assert compute(n.softmax, x).tolist() == [1, 0, 0]
    assert compute(n.log_softmax, x).tolist() == [0, -1000, -2000]
    assert compute(n.softmax, single(np.array([0.0, -math.inf]))).tolist() == [1, 0]
    assert compute(n.softmax, np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_an_f16_softmax_is_summed_in_f32() -> None:
    x = np.zeros(70_000, np.float16)
    got = compute(n.log_softmax, x)
    assert got.dtype == np.float16
    assert got[0] == np.float16(-math.log(70_000))


def entropy(x: Any, labels: Any, smoothing: float = 0.0) -> Any:
    share = np.full(x.shape, smoothing / x.shape[-1])
    np.put_along_axis(share, labels[..., None], (1 - smoothing) + smoothing / x.shape[-1], axis=-1)
    return -(share * np.log(soft(x))).sum(-1)


@pytest.mark.parametrize("batch", [(), (6,), (2, 3), (0,)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_is_minus_the_logarithm_of_the_label_s_share(batch: tuple[int, ...], smoothing: float) -> None:
    x, labels = normal(*batch, 5) * 4, RNG.integers(0, 5, batch, dtype=np.int32)
    labels = np.asarray(labels, np.int32)
    each = compute(n.cross_entropy, x, labels, smoothing=smoothing, reduce="none")
    np.testing.assert_allclose(each, entropy(x, labels, smoothing), rtol=1e-10)
    if each.size:
        whole = compute(n.cross_entropy, single(x), labels, smoothing=smoothing)
        assert whole.dtype == np.float32
        assert float(whole) == pytest.approx(float(entropy(x, labels, smoothing).mean()), rel=1e-5)


def test_weights_make_the_mean_a_weighted_one() -> None:
    x, labels = normal(2, 4, 3), np.asarray(RNG.integers(0, 3, (2, 4)), np.int32)
    weights = np.array([1.0, 0.0, 3.0, 0.5])
    each = entropy(x, labels)
    np.testing.assert_allclose(compute(n.cross_entropy, x, labels, weights, reduce="none"), each * weights)
    expected = (each * weights).sum() / (2 * weights.sum())
    assert float(compute(n.cross_entropy, x, labels, weights)) == pytest.approx(expected)
    assert float(compute(n.cross_entropy, x, labels, 2.0)) == pytest.approx(each.mean())


@pytest.mark.parametrize("label", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_label_that_is_no_class_gives_nan_there_alone(label: int) -> None:
    eager = Eager()
    x, labels = eager.value(normal(3, 3)), np.array([0, label, 2], np.int32)
    each = call(n.cross_entropy, eager, [x, eager.value(labels)], reduce="none")
    assert np.isnan(each.array).tolist() == [False, True, False]
    (back,) = eager.gradients(each, [x])
    assert np.isnan(back.array).tolist() == [[False] * 3, [True] * 3, [False] * 3]


def test_a_class_ruled_out_by_minus_infinity_costs_nothing_elsewhere() -> None:
    eager = Eager()
    x = eager.value(np.array([[0.0, -math.inf, 1.0]]))
    loss = call(n.cross_entropy, eager, [x, eager.value(np.array([2], np.int32))])
    assert float(loss.array) == pytest.approx(math.log(1 + math.exp(-1)))
    (back,) = eager.gradients(loss, [x])
    np.testing.assert_allclose(back.array, [[1 / (1 + math.e), 0, -1 / (1 + math.e)]])


def test_the_gradient_by_logits_that_lie_transposed() -> None:
    x, labels = np.asfortranarray(normal(4, 3)), np.array([0, 1, 2, 0], np.int32)
    slope = compute(n.cross_entropy_slope, x, labels, smoothing=0.0)
    np.testing.assert_allclose(slope, soft(x) - np.eye(3)[labels])


def test_layer_norm_and_rms_norm() -> None:
    x, scale, bias = normal(2, 3, 8) * 3 + 5, normal(8), normal(8)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    expected = (x - mean) / np.sqrt(var + 1e-5) * scale + bias
    np.testing.assert_allclose(compute(n.layer_norm, x, scale, bias), expected)
    np.testing.assert_allclose(compute(n.layer_norm, *map(single, (x, scale, bias))), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        compute(n.rms_norm, x, scale, eps=0.5), x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.5) * scale
    )
    assert compute(n.layer_norm, np.full((2, 3), 7.0, np.float32), 2.0, 0.25).tolist() == [[0.25] * 3] * 2


def test_an_f16_norm_squares_in_f32() -> None:
    got = compute(n.rms_norm, np.array([3000, -3000], np.float16), 1.0)
    assert got.dtype == np.float16
    assert got.tolist() == [1, -1]


def attend(q: Any, k: Any, v: Any, seen: Any) -> Any:
    """Attention query by query: `seen` says whether query i sees key j."""
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for at in np.ndindex(q.shape[:-1]):
        keys = [j for j in range(k.shape[-2]) if seen(at, j)]
        shares = soft(np.array([q[at] @ k[at[:-1]][j] / math.sqrt(q.shape[-1]) for j in keys]))
        out[at] = sum(s * v[at[:-1]][j] for s, j in zip(shares, keys, strict=True))
    return out


def test_attention() -> None:
    q, k, v = normal(2, 3, 4, 5), normal(2, 3, 6, 5), normal(2, 3, 6, 7)
    np.testing.assert_allclose(compute(n.attention, q, k, v), attend(q, k, v, lambda at, j: True))
    np.testing.assert_allclose(
        compute(n.attention, q, k, v, causal=True), attend(q, k, v, lambda at, j: j <= at[2] + 2)
    )
    mask = RNG.random((2, 1, 1, 6)) < 0.5
    mask[..., 0] = True
    got = compute(n.attention, q, k, v, mask)
    np.testing.assert_allclose(got, attend(q, k, v, lambda at, j: mask[at[0], 0, 0, j]))
    both = compute(n.attention, q, k, v, mask, causal=True)
    np.testing.assert_allclose(both, attend(q, k, v, lambda at, j: j <= at[2] + 2 and mask[at[0], 0, 0, j]))


def test_a_query_that_sees_nothing_is_nan_and_the_others_are_not() -> None:
    q = normal(3, 2)
    with np.errstate(invalid="ignore"):
        got = compute(n.attention, q, q, q, np.array([[True], [False], [True]]))
    assert np.isnan(got).all(axis=1).tolist() == [False, True, False]
    assert np.isnan(got).any(axis=1).tolist() == [False, True, False]


# Convolutions against loops


def convolve(x: Any, k: Any, stride: Any, pads: Any) -> Any:
    x = np.pad(x, [(0, 0), *pads, (0, 0)])
    (kh, kw), (sh, sw) = k.shape[:2], stride
    rows, columns = (x.shape[1] - kh) // sh + 1, (x.shape[2] - kw) // sw + 1
    out = np.zeros((x.shape[0], rows, columns, k.shape[3]))
    for b, i, j, o in np.ndindex(out.shape):
        out[b, i, j, o] = (x[b, i * sh : i * sh + kh, j * sw : j * sw + kw] * k[..., o]).sum()
    return out


SIZES = [
    ((2, 5, 6, 3), (3, 2, 3, 4), 1, "same", (1, 1), [(1, 1), (0, 1)]),
    ((1, 5, 6, 2), (3, 3, 2, 2), 2, "same", (2, 2), [(1, 1), (0, 1)]),
    ((1, 7, 7, 1), (2, 2, 1, 1), (3, 2), "same", (3, 2), [(0, 1), (0, 1)]),
    ((1, 5, 6, 2), (3, 3, 2, 2), (2, 1), "valid", (2, 1), [(0, 0), (0, 0)]),
    ((1, 4, 4, 2), (3, 3, 2, 2), 1, 2, (1, 1), [(2, 2), (2, 2)]),
    ((1, 4, 4, 2), (3, 2, 2, 2), 1, [[0, 2], [3, 1]], (1, 1), [(0, 2), (3, 1)]),
    ((2, 3, 3, 4), (1, 1, 4, 5), 1, "same", (1, 1), [(0, 0), (0, 0)]),
    ((2, 4, 4, 2), (1, 1, 2, 3), 3, "same", (3, 3), [(0, 0), (0, 0)]),
    ((0, 3, 3, 2), (2, 2, 2, 3), 1, "same", (1, 1), [(0, 1), (0, 1)]),
]


@pytest.mark.parametrize("case", SIZES)
def test_conv2d(case: tuple[Any, ...]) -> None:
    image, kernel, stride, padding, steps, pads = case
    x, k = normal(*image), normal(*kernel)
    np.testing.assert_allclose(compute(c.conv2d, x, k, stride=stride, padding=padding), convolve(x, k, steps, pads))


@pytest.mark.parametrize(
    ("stride", "padding", "pads"), [(1, "same", (1, 1)), (2, "valid", (0, 0)), (1, 2, (2, 2)), (3, [1, 0], (1, 0))]
)
def test_conv1d(stride: int, padding: Any, pads: Any) -> None:
    x, k = normal(2, 7, 3), normal(3, 3, 4)
    expected = convolve(x[:, None], k[None], (1, stride), [(0, 0), pads])[:, 0]
    np.testing.assert_allclose(compute(c.conv1d, x, k, stride=stride, padding=padding), expected)


@pytest.mark.parametrize(
    "case",
    [
        ((3, 2), 2, "same", (2, 2), [(0, 1), (0, 0)], (6, 8)),
        ((2, 2), 3, "same", (3, 3), [(0, 0), (0, 0)], (9, 12)),
        ((3, 3), (2, 1), "valid", (2, 1), [(0, 0), (0, 0)], (7, 6)),
        ((3, 3), 1, 1, (1, 1), [(1, 1), (1, 1)], (3, 4)),
        ((4, 3), 2, [[1, 2], [0, 1]], (2, 2), [(1, 2), (0, 1)], (5, 8)),
    ],
)
def test_conv_transpose2d_is_the_transpose_of_conv2d(case: tuple[Any, ...]) -> None:
    kernel, stride, padding, steps, pads, lengths = case
    x, k = normal(2, 3, 4, 5), normal(*kernel, 5, 2)
    got = compute(c.conv_transpose2d, x, k, stride=stride, padding=padding)
    assert got.shape == (2, *lengths, 2)
    y = normal(*got.shape)
    # <transposed x, y> = <x, convolved y> for every y.
    forth = convolve(y, k.swapaxes(2, 3), steps, pads)
    assert forth.shape == x.shape
    assert float((got * y).sum()) == pytest.approx(float((x * forth).sum()))


@pytest.mark.parametrize(("size", "stride", "steps"), [(2, None, (2, 2)), ((3, 2), (2, 1), (2, 1)), (1, 2, (2, 2))])
def test_pooling(size: Any, stride: Any, steps: Any) -> None:
    x = normal(2, 7, 6, 3)
    kh, kw = (size, size) if isinstance(size, int) else size
    rows, columns = (7 - kh) // steps[0] + 1, (6 - kw) // steps[1] + 1
    best, mean = np.zeros((2, rows, columns, 3)), np.zeros((2, rows, columns, 3))
    for i, j in np.ndindex(rows, columns):
        window = x[:, i * steps[0] : i * steps[0] + kh, j * steps[1] : j * steps[1] + kw]
        best[:, i, j], mean[:, i, j] = window.max((1, 2)), window.mean((1, 2))
    np.testing.assert_allclose(compute(c.max_pool2d, x, n=size, stride=stride), best)
    np.testing.assert_allclose(compute(c.avg_pool2d, x, n=size, stride=stride), mean)


# Gradients

LABELS, MASK = np.array([0, 2, 1], np.int32), np.array([[True, False, True]] * 2)

DIFFERENTIABLE: dict[str, tuple[Primitive, list[Any], dict[str, Any]]] = {
    "softmax": (n.softmax, [normal(3, 4)], {"axis": 0}),
    "log-softmax": (n.log_softmax, [normal(3, 4)], {}),
    "cross-entropy": (n.cross_entropy, [normal(3, 4), LABELS], {}),
    "cross-entropy weighted": (n.cross_entropy, [normal(3, 4), LABELS, RNG.random(3)], {"smoothing": 0.2}),
    "cross-entropy each": (n.cross_entropy, [normal(3, 4), LABELS], {"reduce": "none"}),
    "layer-norm": (n.layer_norm, [normal(2, 3, 4), normal(4), normal(4)], {}),
    "rms-norm": (n.rms_norm, [normal(3, 4), normal(4)], {}),
    "attention": (n.attention, [normal(2, 2, 3), normal(2, 3, 3), normal(2, 3, 2)], {"causal": True}),
    "attention masked": (n.attention, [normal(2, 2, 3), normal(2, 3, 3), normal(2, 3, 2), MASK], {}),
    "conv2d": (c.conv2d, [normal(1, 4, 3, 2), normal(2, 3, 2, 2)], {"stride": 2}),
    "conv1d": (c.conv1d, [normal(1, 5, 2), normal(3, 2, 2)], {}),
    "conv-transpose2d": (c.conv_transpose2d, [normal(1, 2, 3, 2), normal(3, 3, 2, 1)], {"stride": 2}),
    "max-pool2d": (c.max_pool2d, [normal(1, 4, 5, 2)], {"n": (3, 2), "stride": 1}),
    "avg-pool2d": (c.avg_pool2d, [normal(1, 4, 5, 2)], {"n": 2, "stride": 1}),
}


def numeric_gradient(f: Callable[..., Any], arrays: Sequence[Any], index: int, step: float = 1e-5) -> Any:
    """The gradient of the sum of `f` by `arrays[index]`, f64, by central differences."""
    out = np.zeros_like(arrays[index])
    for at in np.ndindex(out.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[index][at] += sign * step
            ends.append(np.sum(f(*moved)))
        out[at] = (ends[0] - ends[1]) / (2 * step)
    return out


def weigh(shape: tuple[int, ...]) -> Any:
    """Fixed weights, so that the gradient of a sum that is constant (softmax) is none."""
    return np.cos(np.arange(math.prod(shape), dtype=float)).reshape(shape)


@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_the_gradient_is_that_of_central_differences(case: str) -> None:
    primitive, arrays, static = DIFFERENTIABLE[case]

    def weighed(*given: Any) -> Any:
        out = compute(primitive, *given, **static)
        return out * weigh(out.shape)

    eager = Eager()
    values = [eager.value(a) for a in arrays]
    out = call(primitive, eager, values, **static)
    exact = eager.gradients(mul(out, eager.value(weigh(out.shape))), values)
    for i, a in enumerate(arrays):
        if a.dtype == np.float64:
            np.testing.assert_allclose(exact[i].array, numeric_gradient(weighed, arrays, i), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("case", [c for c in DIFFERENTIABLE if "each" not in c])
def test_the_gradient_s_gradient_is_that_of_central_differences(case: str) -> None:
    primitive, arrays, static = DIFFERENTIABLE[case]

    def first(*given: Any) -> tuple[Eager, Any, Any]:
        eager = Eager()
        values = [eager.value(a) for a in given]
        out = call(primitive, eager, values, **static)
        weighed = mul(out, out, eager.value(weigh(out.shape)))
        return eager, values, eager.gradients(weighed, values[:1])[0]

    eager, values, slope = first(*arrays)
    exact = eager.gradients(mul(slope, eager.value(weigh(slope.shape))), values)
    for i, a in enumerate(arrays):
        if a.dtype == np.float64:
            numeric = numeric_gradient(lambda *g: first(*g)[2].array * weigh(slope.shape), arrays, i)
            np.testing.assert_allclose(exact[i].array, numeric, rtol=1e-5, atol=1e-7)


# Refusals


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


REFUSED: list[tuple[Primitive, list[Any], dict[str, Any], Any]] = [
    (n.softmax, [np.array([True])], {}, codes.NOT_FLOAT),
    (n.softmax, [ones(3)], {"axis": 1}, codes.AXIS_OUT_OF_RANGE),
    (n.softmax, [ones()], {}, codes.AXIS_OUT_OF_RANGE),
    (n.cross_entropy, [ones(3, 4), ones(3)], {}, codes.NOT_INTEGER),
    (n.cross_entropy, [ones(3, 4), np.ones(4, np.int32)], {}, codes.SHAPES_DIFFER),
    (n.cross_entropy, [ones(3, 4), LABELS, ones(2, 3)], {}, codes.SHAPES_DIFFER),
    (n.cross_entropy, [ones(3, 4), LABELS], {"reduce": "sum"}, codes.WRONG_KIND),
    (n.cross_entropy, [ones(3, 4), LABELS], {"smoothing": 1.5}, codes.OUT_OF_BOUNDS),
    (n.cross_entropy, [ones(3, 0), LABELS], {}, codes.OUT_OF_BOUNDS),
    (n.cross_entropy, [1.0, 2], {}, codes.WRONG_NDIM),
    (n.layer_norm, [1.0, 1.0, 1.0], {}, codes.WRONG_NDIM),
    (n.layer_norm, [ones(3), ones(2, 3), 0.0], {}, codes.SHAPES_DIFFER),
    (n.layer_norm, [ones(3), 1.0, ones(2, 3)], {}, codes.SHAPES_DIFFER),
    (n.layer_norm, [ones(3), ones(4), 0.0], {}, codes.SHAPES_DIFFER),
    (n.rms_norm, [ones(2, 0), 1.0], {}, codes.OUT_OF_BOUNDS),
    (n.attention, [ones(3), ones(3), ones(3)], {}, codes.WRONG_NDIM),
    (n.attention, [ones(3, 2), ones(3, 4), ones(3, 4)], {}, codes.SHAPES_DIFFER),
    (n.attention, [ones(3, 2), ones(3, 2), ones(4, 2)], {}, codes.SHAPES_DIFFER),
    (n.attention, [ones(3, 2), ones(3, 2), ones(3, 2), ones(3, 3)], {}, codes.NOT_BOOL),
    (n.attention, [ones(3, 2), ones(3, 2), ones(3, 2), np.ones((2, 3, 3), bool)], {}, codes.SHAPES_DIFFER),
    (c.conv2d, [ones(4, 4, 1), ones(2, 2, 1, 1)], {}, codes.WRONG_NDIM),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 1)], {}, codes.WRONG_NDIM),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 3, 1)], {}, codes.SHAPES_DIFFER),
    (c.conv2d, [ones(1, 4, 4, 1), ones(5, 2, 1, 1)], {"padding": "valid"}, codes.OUT_OF_BOUNDS),
    (c.conv2d, [ones(1, 4, 4, 1), ones(0, 2, 1, 1)], {}, codes.OUT_OF_BOUNDS),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 1, 1)], {"stride": 0}, codes.OUT_OF_BOUNDS),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 1, 1)], {"stride": [1, 2, 3]}, codes.WRONG_KIND),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 1, 1)], {"padding": "full"}, codes.WRONG_KIND),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 1, 1)], {"padding": -1}, codes.WRONG_KIND),
    (c.conv2d, [ones(1, 4, 4, 1), ones(2, 2, 1, 1)], {"padding": [1, 2]}, codes.WRONG_KIND),
    (c.conv2d, [1.0, ones(2, 2, 1, 1)], {}, codes.WRONG_NDIM),
    (c.conv1d, [ones(4, 1), ones(2, 1, 1)], {}, codes.WRONG_NDIM),
    (c.conv1d, [ones(1, 4, 1), ones(2, 1, 1)], {"padding": [1]}, codes.WRONG_KIND),
    (c.conv_transpose2d, [ones(1, 1, 1, 1), ones(2, 2, 1, 1)], {"padding": 2}, codes.OUT_OF_BOUNDS),
    (c.max_pool2d, [ones(1, 4, 4, 1)], {"n": 5}, codes.OUT_OF_BOUNDS),
    (c.max_pool2d, [ones(4, 4)], {"n": 2}, codes.WRONG_NDIM),
]


@pytest.mark.parametrize(("primitive", "operands", "static", "code"), REFUSED)
def test_what_does_not_fit_is_refused(
    primitive: Primitive, operands: list[Any], static: dict[str, Any], code: Any
) -> None:
    with pytest.raises(Refusal) as refused:
        compute(primitive, *operands, **static)
    assert refused.value.code is code
    assert refused.value.error().message


# Against torch: values and gradients


def to_nchw(x: Any) -> Any:
    return x.permute(0, 3, 1, 2)


def to_nhwc(x: Any) -> Any:
    return x.permute(0, 2, 3, 1)


def torch_conv(f: Any, x: Any, k: Any, stride: int) -> Any:
    return to_nhwc(f.conv2d(to_nchw(x), k.permute(3, 2, 0, 1), stride=stride, padding=1))


def torch_conv_transpose(f: Any, x: Any, k: Any) -> Any:
    return to_nhwc(f.conv_transpose2d(to_nchw(x), k.permute(2, 3, 0, 1), stride=2, padding=1))


TORCH: dict[str, tuple[Primitive, list[Any], dict[str, Any], Callable[..., Any]]] = {
    "softmax": (n.softmax, [normal(3, 5)], {}, lambda f, x: f.softmax(x, -1)),
    "log-softmax": (n.log_softmax, [normal(3, 5)], {}, lambda f, x: f.log_softmax(x, -1)),
    "cross-entropy": (n.cross_entropy, [normal(3, 5), LABELS], {"smoothing": 0.1},
                      lambda f, x, y: f.cross_entropy(x, y.long(), label_smoothing=0.1)),
    "layer-norm": (n.layer_norm, [normal(3, 5), normal(5), normal(5)], {},
                   lambda f, x, s, b: f.layer_norm(x, (5,), s, b)),
    "rms-norm": (n.rms_norm, [normal(3, 5), normal(5)], {}, lambda f, x, s: f.rms_norm(x, (5,), s, 1e-6)),
    "attention": (n.attention, [normal(2, 3, 4, 5)] * 3, {"causal": True},
                  lambda f, q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True)),
    "conv2d": (c.conv2d, [normal(2, 6, 5, 3), normal(3, 3, 3, 4)], {"stride": 2, "padding": 1},
               lambda f, x, k: torch_conv(f, x, k, 2)),
    "conv-transpose2d": (c.conv_transpose2d, [normal(2, 4, 3, 3), normal(3, 4, 3, 2)], {"stride": 2, "padding": 1},
                         torch_conv_transpose),
    "max-pool2d": (c.max_pool2d, [normal(2, 6, 5, 3)], {"n": 3, "stride": 2},
                   lambda f, x: to_nhwc(f.max_pool2d(to_nchw(x), 3, 2))),
    "avg-pool2d": (c.avg_pool2d, [normal(2, 6, 5, 3)], {"n": 2}, lambda f, x: to_nhwc(f.avg_pool2d(to_nchw(x), 2))),
}  # fmt: skip


@pytest.mark.filterwarnings("default")  # torch's own warnings are not this project's
@pytest.mark.parametrize("case", TORCH)
def test_values_and_gradients_are_torch_s(case: str) -> None:
    torch = pytest.importorskip("torch", reason="only a development environment has torch")
    primitive, arrays, static, theirs = TORCH[case]
    eager = Eager()
    values = [eager.value(a) for a in arrays]
    out = call(primitive, eager, values, **static)
    ours = eager.gradients(mul(out, eager.value(weigh(out.shape))), values)
    tensors = [torch.tensor(a, requires_grad=a.dtype == np.float64) for a in arrays]
    expected = theirs(torch.nn.functional, *tensors)
    np.testing.assert_allclose(out.array, expected.detach().numpy(), rtol=1e-9, atol=1e-12)
    (expected * torch.tensor(weigh(out.shape))).sum().backward()
    for g, t in zip(ours, tensors, strict=True):
        if t.requires_grad:
            np.testing.assert_allclose(g.array, t.grad.numpy(), rtol=1e-9, atol=1e-12)
