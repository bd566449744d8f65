"""Random numbers as a function of where they are drawn: no generator state runs from draw to draw.

A draw is the output of Philox4x64 with 10 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
as easy as 1, 2, 3", SC 2011) under

    key      the first 16 bytes of BLAKE2b over "draw", seed, place and name, as two little-endian words;
             each part is its UTF-8 text behind its length in eight little-endian bytes
    counter  [block, 0, microbatch, step], block = 0, 1, 2, …; each block gives four words of 64 bits

A number is made from its words by a formula that is given with the function, in operations which IEEE 754
rounds correctly (+ − × ÷ √) or which are exact, one array operation each so that none are fused: the same
bits on every machine.  Everything is drawn on the host in NumPy and then handed to the array module.

Element i of a draw depends on its own words alone: a longer draw begins with the shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import factorial, prod
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
HostArray: TypeAlias = Any  # numpy.ndarray

_WORD = 2**64
# Pairs of words that are made into normals at a time: the temporaries stay in the second-level cache.
_CHUNK = 8192

_LN2 = float.fromhex("0x1.62e42fefa39efp-1")
_TWO_PI = float.fromhex("0x1.921fb54442d18p+2")
_ROOT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
# Python divides integers with one correct rounding, so these are the same everywhere.
_LOG = tuple(2 / (2 * k + 1) for k in range(12))
_COS = tuple((-1) ** k / factorial(2 * k) for k in range(12))
_SIN = tuple((-1) ** k / factorial(2 * k + 1) for k in range(12))


class Philox:
    """Philox4x64-10 by NumPy's raw words: one generator, whose state is set for each draw.

    Constructing NumPy's object costs thirty times what setting its state does.  Not for two threads at once.
    """

    def __init__(self) -> None:
        self._generator: Any = np.random.Philox(key=0)
        self._state: dict[str, Any] = dict(self._generator.state)

    def words(self, key: tuple[int, int], counter: int, n: int) -> HostArray:
        """The first `n` words, u64[n], of the blocks that begin with `counter`, 256 bits, its low word first."""
        # NumPy counts up before it makes a block.
        before = (counter - 1) % _WORD**4
        lanes = [(before >> shift) % _WORD for shift in (0, 64, 128, 192)]
        self._state["state"] = {"counter": lanes, "key": key}
        self._generator.state = self._state
        return self._generator.random_raw(n)


def key_of(*parts: object) -> tuple[int, int]:
    """The two words of the key that the texts of `parts` make."""
    digest = blake2b()
    for part in parts:
        text = str(part).encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    taken = digest.digest()
    return int.from_bytes(taken[:8], "little"), int.from_bytes(taken[8:16], "little")


def uniforms(words: HostArray) -> HostArray:
    """Uniform on [0, 1), f64[n] of u64[n]: the top 53 bits times 2⁻⁵³, exact."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def uniforms_f32(words: HostArray) -> HostArray:
    """Uniform on [0, 1), f32[n] of u64[n]: the top 24 bits times 2⁻²⁴.

    Exact in f32, so the largest is 1 − 2⁻²⁴; rounding the f64 draw would give 1 now and then.
    """
    return (words >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)


def normals(words: HostArray) -> HostArray:
    """Standard normals, f64[2 n] of u64[2 n], by the method of Box and Muller (1958).

    Words 2 i and 2 i + 1 make u = (top 52 bits + ½) 2⁻⁵², which is neither 0 nor 1, and v = top 53 bits × 2⁻⁵³;
    numbers 2 i and 2 i + 1 are √(−2 ln u) times the cosine and the sine of 2 π v.
    """
    out = np.empty(len(words), np.float64)
    for start in range(0, len(words), 2 * _CHUNK):
        part = slice(start, start + 2 * _CHUNK)
        _box_muller(words[part], out[part])
    return out


def _box_muller(words: HostArray, out: HostArray) -> None:
    u = ((words[::2] >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    radius = np.sqrt(-2.0 * _log(u))
    turns = uniforms(words[1::2])
    quarters = np.floor(turns * 4.0 + 0.5)
    angle = (turns - quarters * 0.25) * _TWO_PI  # within π/4 of a whole number of quarter turns
    squared = angle * angle
    cos, sin = _horner(_COS, squared), angle * _horner(_SIN, squared)
    quarter = quarters.astype(np.int64)
    swapped = (quarter & 1).astype(bool)
    # cos(a + k π/2) and sin(a + k π/2): exchanged for odd k, the signs by k mod 4.
    np.multiply(radius, np.where(swapped, sin, cos) * _sign(quarter + 1), out=out[::2])
    np.multiply(radius, np.where(swapped, cos, sin) * _sign(quarter), out=out[1::2])


def _sign(quarter: HostArray) -> HostArray:
    """+1 where a quarter is 0 or 1 modulo 4, −1 where it is 2 or 3."""
    return 1.0 - (quarter & 2).astype(np.float64)


def _log(u: HostArray) -> HostArray:
    """ln u = e ln 2 + 2 artanh s for u = m 2ᵉ, √½ ≤ m < √2, s = (m − 1) / (m + 1)."""
    m, e = np.frexp(u)
    low = m < _ROOT_HALF
    m = np.where(low, m * 2.0, m)
    s = (m - 1.0) / (m + 1.0)
    return (e - low).astype(np.float64) * _LN2 + s * _horner(_LOG, s * s)


def _horner(coefficients: Sequence[float], x: HostArray) -> HostArray:
    """Σ coefficients[k] xᵏ: a multiplication and an addition at a time, never a fused one."""
    total = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        total *= x
        total += c
    return total


def integers_below(words: HostArray, n: int) -> HostArray:
    """Integers in [0, n), u64[k] of u64[k], 1 ≤ n < 2⁶⁴: the high 64 bits of the 128-bit word × n (Lemire 2019).

    No word is rejected, so that element i stays a function of word i; the probabilities of two integers
    differ by at most 2⁻⁶⁴.
    """
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    w1, w0 = words >> half, words & low
    n1, n0 = np.uint64(n >> 32), np.uint64(n % 2**32)
    middle = w1 * n0 + (w0 * n0 >> half)  # at most (2³² − 1)² + 2³² − 1: fits
    carry = (middle & low) + w0 * n1
    return w1 * n1 + (middle >> half) + (carry >> half)


def permutation_of(n: int, seed: int, *labels: object) -> HostArray:
    """A permutation of 0 … n − 1, i64[n], as a function of `seed` and the texts of `labels`.

    The stable order of n Philox words under the key of "order", `seed` and `labels` and the counter from 0 on.
    """
    return order(Philox().words(key_of("order", seed, *labels), 0, n))


def order(words: HostArray) -> HostArray:
    """The positions, i64[n], of `words` in ascending order; equal words stay in theirs."""
    return np.argsort(words, kind="stable").astype(np.int64)


class Draws:
    """A run's draws: what a draw primitive is given to draw from.

    `at` says which step and microbatch the next draws are of.  One object for each thread.
    """

    def __init__(self, seed: int, asarray: Callable[[HostArray], Array]) -> None:
        """`asarray` takes a NumPy array to the array module that draws are for."""
        self.seed, self.asarray = seed, asarray
        self._philox = Philox()
        self._keys: dict[tuple[str, str], tuple[int, int]] = {}
        self.at(0, 0)

    def at(self, step: int, microbatch: int, name: str = "") -> None:
        """Draw for `microbatch` (from 0; a pass's batch) of `step`, and in an optimizer for the parameter `name`."""
        self.step, self.microbatch, self.name = step, microbatch, name

    def words(self, place: str, n: int) -> HostArray:
        """`n` words on the host, u64[n], of the draw at `place`."""
        key = self._keys.get((place, self.name))
        if key is None:
            key = self._keys[place, self.name] = key_of("draw", self.seed, place, self.name)
        return self._philox.words(key, self.step << 192 | self.microbatch << 128, n)

    def uniform(self, place: str, shape: Sequence[int]) -> Array:
        """Uniform on [0, 1), f32[*shape]: see `uniforms_f32`."""
        return self.asarray(uniforms_f32(self.words(place, prod(shape))).reshape(shape))

    def uniform_f64(self, place: str, shape: Sequence[int]) -> Array:
        """Uniform on [0, 1), f64[*shape]: see `uniforms`."""
        return self.asarray(uniforms(self.words(place, prod(shape))).reshape(shape))

    def normal(self, place: str, shape: Sequence[int]) -> Array:
        """Standard normals, f32[*shape]: see `normals`; an odd number of them leaves the last sine out."""
        n = prod(shape)
        drawn = normals(self.words(place, n + n % 2))[:n]
        return self.asarray(drawn.astype(np.float32).reshape(shape))

    def integers(self, place: str, shape: Sequence[int], low: int, high: int) -> Array:
        """Integers in [low, high), i64[*shape]: `low` + `integers_below(high - low)`."""
        above = integers_below(self.words(place, prod(shape)), high - low)
        return self.asarray((above + np.uint64(low % _WORD)).view(np.int64).reshape(shape))

    def halves(self, place: str, shape: Sequence[int]) -> tuple[Array, Array]:
        """The high and the low 32 bits of each word, two i64[*shape]: for ranges that only the device knows."""
        words = self.words(place, prod(shape)).reshape(shape)
        high, low = words >> np.uint64(32), words & np.uint64(2**32 - 1)
        return self.asarray(high.astype(np.int64)), self.asarray(low.astype(np.int64))

    def keep(self, place: str, shape: Sequence[int], p: float, dtype: str = "float32") -> Array:
        """0 with probability `p` and 1 / (1 − p) otherwise, `dtype`[*shape].

        It is 0 where the uniform f32 draw is below `p`, rounded to f32.
        """
        kept = uniforms_f32(self.words(place, prod(shape))) >= p
        return self.asarray((kept * np.dtype(dtype).type(1 / (1 - p))).reshape(shape))

    def permutation(self, place: str, n: int) -> Array:
        """A permutation of 0 … n − 1, i32[n]: see `order`."""
        return self.asarray(order(self.words(place, n)).astype(np.int32))
