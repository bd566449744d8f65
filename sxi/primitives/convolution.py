"""Convolutions and pooling of sequences [batch time channels] and images [batch height width channels].

All are made of one linear map and its transpose: `patches`, which lays the windows of an image out beside
each other, and `unpatch`, which adds them back where they came from.  Each is the other's gradient, so
that gradients are exact to any order; the arithmetic is one matrix product.

A window is said by six numbers for each of the two axes' pairs: `size [kh kw]`, `stride [sh sw]`, and
`before [top left]`, `after [bottom right]`, the zeros put around the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from sxi import codes
from sxi.arraytype import ArrayType
from sxi.codes import Refusal
from sxi.primitives.declare import REAL, Array, Value, case, composite, primitive
from sxi.primitives.elementwise import mul
from sxi.primitives.linalg import matmul
from sxi.primitives.reduce import max_, sum_
from sxi.primitives.shape import expand, reshape, squeeze, transpose

Pair: TypeAlias = tuple[int, int]

_MOST = 2**31 - 1


def _windows(lengths: Sequence[int], size: Pair, stride: Pair, before: Pair, after: Pair) -> Pair:
    """How many windows there are along each axis."""
    padded = [n + b + a for n, b, a in zip(lengths, before, after, strict=True)]
    counts = [(n - k) // s + 1 for n, k, s in zip(padded, size, stride, strict=True)]
    return counts[0], counts[1]


def _images(x: ArrayType) -> None:
    if x.ndim != 4:
        raise Refusal(codes.WRONG_NDIM, 0, wanted="4", ndim=x.ndim)


def _patches_type(x: ArrayType, *, size: Pair, stride: Pair, before: Pair, after: Pair) -> ArrayType:
    _images(x)
    rows, columns = _windows(x.shape[1:3], size, stride, before, after)
    if rows < 1 or columns < 1:
        axis = 0 if rows < 1 else 1
        high = x.shape[1 + axis] + before[axis] + after[axis]
        raise Refusal(codes.OUT_OF_BOUNDS, what="the window's length", given=size[axis], low=1, high=high)
    return x.with_shape((x.shape[0], rows, columns, *size, x.shape[3]))


def _patches_back(g: Any, out: Any, x: Any, **window: Any) -> Any:
    return unpatch(g, lengths=x.shape[1:3], **window)


_WINDOWS: tuple[dict[str, Any], ...] = (
    {"size": (2, 3), "stride": (1, 1), "before": (0, 0), "after": (0, 0)},
    {"size": (3, 2), "stride": (2, 1), "before": (1, 0), "after": (1, 1)},
    {"size": (1, 1), "stride": (2, 3), "before": (0, 0), "after": (0, 0)},
)


def _places(counts: Pair, stride: Pair, row: int, column: int) -> tuple[slice, slice]:
    """Where element (row, column) of every window lies in the padded image."""
    rows = slice(row, row + stride[0] * (counts[0] - 1) + 1, stride[0])
    columns = slice(column, column + stride[1] * (counts[1] - 1) + 1, stride[1])
    return rows, columns


@primitive(
    "patches", "x size:shape stride:shape before:shape after:shape", type=_patches_type, promote="-", moves=True,
    vjp=(_patches_back,), sample=(REAL,), cases=tuple(case((2, 4, 5, 2), **w) for w in _WINDOWS), internal=True,
)  # fmt: skip
def patches(xp: Any, x: Array, *, size: Pair, stride: Pair, before: Pair, after: Pair) -> Array:
    """The windows of images.

    x:      f32[batch height width channels]
    gives:  f32[batch rows columns kh kw channels]
    """
    batch, height, width, channels = x.shape
    counts = _windows((height, width), size, stride, before, after)
    if any(before) or any(after):
        padded = xp.zeros((batch, height + before[0] + after[0], width + before[1] + after[1], channels), dtype=x.dtype)
        padded[:, before[0] : before[0] + height, before[1] : before[1] + width] = x
        x = padded
    out = xp.empty((batch, *counts, *size, channels), dtype=x.dtype)
    for row in range(size[0]):
        for column in range(size[1]):
            rows, columns = _places(counts, stride, row, column)
            out[:, :, :, row, column] = x[:, rows, columns]
    return out


def _unpatch_type(x: ArrayType, *, lengths: Pair, **window: Any) -> ArrayType:
    return x.with_shape((x.shape[0], *lengths, x.shape[5]))


def _unpatch_back(g: Any, out: Any, x: Any, *, lengths: Pair, **window: Any) -> Any:
    return patches(g, **window)


@primitive(
    "unpatch", "x lengths:shape size:shape stride:shape before:shape after:shape", type=_unpatch_type, promote="-",
    vjp=(_unpatch_back,), sample=(REAL,), internal=True,
    cases=(
        case((2, 3, 3, 2, 3, 2), lengths=(4, 5), **_WINDOWS[0]),
        case((2, 2, 5, 3, 2, 2), lengths=(4, 5), **_WINDOWS[1]),
        case((2, 2, 2, 1, 1, 2), lengths=(4, 5), **_WINDOWS[2]),
    ),
)  # fmt: skip
def unpatch(xp: Any, x: Array, *, lengths: Pair, size: Pair, stride: Pair, before: Pair, after: Pair) -> Array:
    """Images of `lengths`, each pixel the sum of its elements in all windows: the transpose of `patches`.

    x:      f32[batch rows columns kh kw channels]
    gives:  f32[batch height width channels]
    """
    batch, *counts, _, _, channels = x.shape
    height, width = lengths
    total = xp.zeros((batch, height + before[0] + after[0], width + before[1] + after[1], channels), dtype=x.dtype)
    for row in range(size[0]):
        for column in range(size[1]):
            rows, columns = _places((counts[0], counts[1]), stride, row, column)
            total[:, rows, columns] += x[:, :, :, row, column]
    return total[:, before[0] : before[0] + height, before[1] : before[1] + width]


# What a call says of its windows


def _pair(given: Any, what: str, operand: int | str) -> Pair:
    """A positive length for each of the two axes, from one for both or a list."""
    both = [given, given] if isinstance(given, int) else list(given)
    if len(both) != 2:
        raise Refusal(
            codes.WRONG_KIND, operand, what=what, given=f"a list of {len(both)}", wanted="a number or a list of 2"
        )
    for n in both:
        if not 1 <= n <= _MOST:
            raise Refusal(codes.OUT_OF_BOUNDS, operand, what=what, given=n, low=1, high=_MOST)
    return both[0], both[1]


def _padding(given: Any, lengths: Sequence[int], size: Pair, stride: Pair) -> tuple[Pair, Pair]:
    """The zeros before and after each axis that `:padding` asks for.

    `same` gives ⌈length / stride⌉ windows, with the odd zero after.
    """
    if given == "valid":
        return (0, 0), (0, 0)
    if given == "same":
        needed = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(lengths, size, stride, strict=True)]
        return (needed[0] // 2, needed[1] // 2), (needed[0] - needed[0] // 2, needed[1] - needed[1] // 2)
    pairs = [[given, given]] * 2 if _is_count(given) else given
    well_formed = isinstance(pairs, list | tuple) and len(pairs) == 2
    if not well_formed or not all(
        isinstance(p, list | tuple) and len(p) == 2 and all(map(_is_count, p)) for p in pairs
    ):
        wanted = ":same, :valid, a length, or [before after] for each axis"
        raise Refusal(codes.WRONG_KIND, "padding", what=":padding", given=given, wanted=wanted)
    (top, bottom), (left, right) = pairs
    return (top, left), (bottom, right)


def _is_count(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and 0 <= x <= _MOST


def _axes(x: Any, ndim: int, operand: int) -> None:
    have = x.ndim if isinstance(x, Value) else 0
    if have != ndim:
        raise Refusal(codes.WRONG_NDIM, operand, wanted=str(ndim), ndim=have)


def _channels(x: Value, k: Value) -> None:
    _axes(x, 4, 0)
    _axes(k, 4, 1)
    if x.shape[3] != k.shape[2]:
        raise Refusal(codes.SHAPES_DIFFER, 1, left=f"{x.shape[3]} channels", right=f"the kernel's {k.shape[2]}")
    _pair(k.shape[:2], "the kernel's length", 1)


# Convolutions


def _convolve(x: Any, k: Any, stride: Any, padding: Any) -> Any:
    size, steps = (k.shape[0], k.shape[1]), _pair(stride, ":stride", "stride")
    before, after = _padding(padding, x.shape[1:3], size, steps)
    seen = x
    if size != (1, 1) or steps != (1, 1) or any(before) or any(after):
        seen = patches(x, size=size, stride=steps, before=before, after=after)
    shape = (*seen.shape[:3], k.shape[3])
    inputs, outputs = size[0] * size[1] * x.shape[3], k.shape[3]
    rows = reshape(seen, shape=(shape[0] * shape[1] * shape[2], inputs))
    return reshape(matmul(rows, reshape(k, shape=(inputs, outputs))), shape=shape)


@composite(
    "conv2d", "x k :stride ints=1 :padding padding=:same", promote="ff", sample=(REAL, REAL),
    cases=(
        case((2, 4, 5, 3), (3, 2, 3, 4), stride=1, padding="same"),
        case((1, 5, 5, 2), (3, 3, 2, 1), stride=(2, 1), padding="valid"),
        case((1, 3, 3, 2), (1, 1, 2, 3), stride=1, padding="valid"),
        case((1, 4, 3, 1), (2, 2, 1, 2), stride=2, padding=((1, 0), (0, 2))),
    ),
)  # fmt: skip
def conv2d(x: Any, k: Any, *, stride: Any, padding: Any) -> Any:
    """Images, each pixel the products of a kernel and the window it is laid on, summed; the kernel is not turned.

    x:        f32[batch height width channels]
    k:        f32[kh kw channels outputs]
    stride:   how far the window moves, a number or [vertical horizontal]
    padding:  zeros around the image: :same for height / stride rows, rounded up, the odd zero below or right;
              :valid for none; a number for each side; or [[top bottom] [left right]]
    gives:    f32[batch rows columns outputs]

    (conv2d (ones [1 2 2 1]) (ones [2 2 1 1]) :padding :valid) ; => f32[1 1 1 1] [[[[4.0]]]]
    """
    _channels(x, k)
    return _convolve(x, k, stride, padding)


@composite(
    "conv1d", "x k :stride int=1 :padding padding=:same", promote="ff", sample=(REAL, REAL),
    cases=(
        case((2, 5, 3), (3, 3, 4), stride=1, padding="same"),
        case((1, 6, 2), (2, 2, 1), stride=2, padding=(1, 0)),
    ),
)  # fmt: skip
def conv1d(x: Any, k: Any, *, stride: int, padding: Any) -> Any:
    """Sequences, each element the products of a kernel and the window it is laid on, summed.

    x:        f32[batch time channels]
    k:        f32[size channels outputs]
    stride:   how far the window moves
    padding:  :same, :valid, a number of zeros for both ends, or [before after]
    gives:    f32[batch windows outputs]

    (conv1d (ones [1 3 1]) (ones [2 1 1]) :padding :valid) ; => f32[1 2 1] [[[2.0] [2.0]]]
    """
    _axes(x, 3, 0)
    _axes(k, 3, 1)
    ends = [padding, padding] if _is_count(padding) else padding
    image, kernel = expand(x, axis=1), expand(k, axis=0)
    _channels(image, kernel)
    around = ends if isinstance(ends, str) else [[0, 0], ends]
    return squeeze(_convolve(image, kernel, [1, stride], around), axis=1)


def _transposed(x: Any, k: Any, steps: Pair, padding: Any) -> tuple[Pair, Pair, Pair]:
    """The lengths of the result of `conv-transpose2d`, and the padding of the convolution it transposes."""
    size = (k.shape[0], k.shape[1])
    if padding == "same":
        lengths = (x.shape[1] * steps[0], x.shape[2] * steps[1])
        return (lengths, *_padding(padding, lengths, size, steps))
    before, after = _padding(padding, x.shape[1:3], size, steps)
    whole = [(n - 1) * s + k for n, s, k in zip(x.shape[1:3], steps, size, strict=True)]
    height, width = (n - b - a for n, b, a in zip(whole, before, after, strict=True))
    for left, n in zip((height, width), whole, strict=True):
        if left < 0:
            raise Refusal(codes.OUT_OF_BOUNDS, "padding", what="the padding", given=n - left, low=0, high=n)
    return (height, width), before, after


@composite(
    "conv-transpose2d", "x k :stride ints=1 :padding padding=:same", promote="ff", sample=(REAL, REAL),
    cases=(
        case((2, 2, 3, 3), (3, 2, 3, 4), stride=2, padding="same"),
        case((1, 3, 2, 2), (3, 3, 2, 1), stride=(2, 1), padding="valid"),
        case((1, 3, 3, 2), (2, 2, 2, 3), stride=1, padding=((1, 0), (0, 1))),
    ),
)  # fmt: skip
def conv_transpose2d(x: Any, k: Any, *, stride: Any, padding: Any) -> Any:
    """Images in which each pixel of `x` adds the kernel times itself at a stride: conv2d's transpose.

    x:        f32[batch height width channels]
    k:        f32[kh kw channels outputs]
    stride:   how far apart two pixels of `x` come to lie, a number or [vertical horizontal]
    padding:  :same for height × stride rows; otherwise the rows and columns cut off the whole, of
              (height − 1) × stride + kh rows: :valid for none, a number for each side, [[top bottom] [left right]]
    gives:    f32[batch rows columns outputs]

    (conv-transpose2d (ones [1 1 1 1]) (ones [2 2 1 1]) :stride 2) ; => f32[1 2 2 1] [[[[1.0] [1.0]] [[1.0] [1.0]]]]
    """
    _channels(x, k)
    steps = _pair(stride, ":stride", "stride")
    lengths, before, after = _transposed(x, k, steps, padding)
    batch, height, width, inputs = x.shape
    rows, columns, _, outputs = k.shape
    kernel = reshape(transpose(k, axes=(2, 0, 1, 3)), shape=(inputs, rows * columns * outputs))
    spread = matmul(reshape(x, shape=(batch * height * width, inputs)), kernel)
    windows = reshape(spread, shape=(batch, height, width, rows, columns, outputs))
    return unpatch(windows, lengths=lengths, size=(rows, columns), stride=steps, before=before, after=after)


# Pooling


def _pools(x: Any, n: Any, stride: Any) -> tuple[Any, Pair]:
    """The windows of `x`, each as the elements of one axis before the channels, and their size."""
    _axes(x, 4, 0)
    size = _pair(n, "the window's length", "n")
    steps = size if stride is None else _pair(stride, ":stride", "stride")
    seen = patches(x, size=size, stride=steps, before=(0, 0), after=(0, 0))
    return reshape(seen, shape=(*seen.shape[:3], size[0] * size[1], seen.shape[5])), size


_POOLED = (case((2, 4, 6, 3), n=2, stride=None), case((1, 5, 5, 2), n=(3, 2), stride=(2, 1)))


@composite("max-pool2d", "x n:ints :stride ints=nil", promote="f", sample=(REAL,), cases=_POOLED)
def max_pool2d(x: Any, *, n: Any, stride: Any) -> Any:
    """The greatest of each window of images, channel by channel; a rest too small for a window is left out.

    x:       f32[batch height width channels]
    n:       the window's length, a number or [vertical horizontal]
    stride:  how far the window moves, likewise; n by default
    gives:   f32[batch rows columns channels]

    (max-pool2d (reshape (arange 4) [1 2 2 1]) 2) ; => f32[1 1 1 1] [[[[3.0]]]]
    """
    windows, _ = _pools(x, n, stride)
    return max_(windows, axis=3, keep=False)


@composite("avg-pool2d", "x n:ints :stride ints=nil", promote="f", sample=(REAL,), cases=_POOLED)
def avg_pool2d(x: Any, *, n: Any, stride: Any) -> Any:
    """The mean of each window of images, channel by channel; a rest too small for a window is left out.

    x:       f32[batch height width channels]
    n:       the window's length, a number or [vertical horizontal]
    stride:  how far the window moves, likewise; n by default
    gives:   f32[batch rows columns channels]

    (avg-pool2d (reshape (arange 4) [1 2 2 1]) 2) ; => f32[1 1 1 1] [[[[1.5]]]]
    """
    windows, size = _pools(x, n, stride)
    return mul(sum_(windows, axis=3, keep=False), 1 / (size[0] * size[1]))
