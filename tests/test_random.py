"""Draws: Philox's words against published and independent ones, and the formulas that make numbers of them."""

import hashlib

import mpmath  # type: ignore[import-untyped]  # it has no types
import numpy as np
import pytest

from sxi import random
from sxi.random import Draws, Philox

ALL = 2**64 - 1


def pack(*lanes: int) -> int:
    return sum(lane << 64 * i for i, lane in enumerate(lanes))


def philox4x64(key: tuple[int, int], counter: int, n: int) -> list[int]:
    """Philox4x64-10 in Python's integers, from the paper's description of a round."""
    words: list[int] = []
    while len(words) < n:
        c = [(counter >> 64 * i) & ALL for i in range(4)]
        k0, k1 = key
        for _ in range(10):
            a, b = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
            c = [(b >> 64) ^ c[1] ^ k0, b & ALL, (a >> 64) ^ c[3] ^ k1, a & ALL]
            k0, k1 = (k0 + 0x9E3779B97F4A7C15) & ALL, (k1 + 0xBB67AE8584CAA73B) & ALL
        words += c
        counter = (counter + 1) % 2**256
    return words[:n]


# Random123's known answers for philox4x64 with 10 rounds.
KNOWN = [
    ((0, 0), 0, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
    ((ALL, ALL), 2**256 - 1, [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0]),
    (
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        pack(0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
    ),
]


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_the_words_are_the_published_ones(key: tuple[int, int], counter: int, words: list[int]) -> None:
    assert Philox().words(key, counter, 4).tolist() == words
    assert philox4x64(key, counter, 4) == words


def test_an_object_used_before_gives_the_same_words() -> None:
    generator = Philox()
    for key, counter, n in [((1, 2), 5, 3), ((1, 2), 2**128 - 1, 11), ((ALL, 7), 2**256 - 2, 9), ((1, 2), 5, 0)]:
        assert generator.words(key, counter, n).tolist() == philox4x64(key, counter, n)


def test_a_draw_s_key_and_counter_are_as_documented() -> None:
    parts = [b"draw", b"-7", "objective/net#0/é".encode(), b"net/w"]
    digest = hashlib.blake2b(b"".join(len(p).to_bytes(8, "little") + p for p in parts)).digest()
    key = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:16], "little")
    draws = Draws(-7, np.array)
    draws.at(3, 2, "net/w")
    assert draws.words("objective/net#0/é", 9).tolist() == philox4x64(key, pack(0, 0, 2, 3), 9)


def test_every_part_of_a_draw_s_position_changes_it() -> None:
    seen = set()
    for seed in (0, 1):
        draws = Draws(seed, np.array)
        for place in ("a", "b", "ab"):
            for step, microbatch, name in [(0, 0, ""), (1, 0, ""), (0, 1, ""), (0, 0, "a"), (0, 0, "b")]:
                draws.at(step, microbatch, name)
                seen.add(draws.words(place, 2).tobytes())
    assert len(seen) == 30
    # Lengths are hashed too: moving a letter from the place to the name is another draw.
    assert random.key_of("ab", "c") != random.key_of("a", "bc")


KINDS = {
    "uniform": lambda d, n: d.uniform("p", (n,)),
    "uniform_f64": lambda d, n: d.uniform_f64("p", (n,)),
    "normal": lambda d, n: d.normal("p", (n,)),
    "integers": lambda d, n: d.integers("p", (n,), -5, 2**40),
    "keep": lambda d, n: d.keep("p", (n,), 0.3),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_draw_begins_with_the_shorter_one(kind: str) -> None:
    draws = Draws(11, np.array)
    long = KINDS[kind](draws, 20_001)
    for n in (0, 1, 2, 7, 16_384, 16_385):
        assert np.array_equal(KINDS[kind](draws, n), long[:n])


def test_uniforms_are_the_top_bits_and_never_one() -> None:
    words = np.array([0, 1 << 11, 1 << 40, 1 << 63, ALL], np.uint64)
    assert random.uniforms(words).tolist() == [0.0, 2.0**-53, 2.0**-24, 0.5, 1 - 2.0**-53]
    f32 = random.uniforms_f32(words)
    assert f32.dtype == np.float32
    assert f32.tolist() == [0.0, 0.0, 2.0**-24, 0.5, 1 - 2.0**-24]


def exact_normals(words: list[int]) -> list[mpmath.mpf]:
    out = []
    for a, b in zip(words[::2], words[1::2], strict=True):
        u, v = (mpmath.mpf(a >> 12) + mpmath.mpf("0.5")) / 2**52, mpmath.mpf(b >> 11) / 2**53
        radius = mpmath.sqrt(-2 * mpmath.log(u))
        out += [radius * mpmath.cos(2 * mpmath.pi * v), radius * mpmath.sin(2 * mpmath.pi * v)]
    return out


def test_normals_are_box_and_muller_s() -> None:
    extremes = [(a, b) for a in (0, ALL, 1 << 63, (1 << 63) - 1) for b in (0, ALL, 1 << 62, 1 << 63, 3 << 61, 1 << 61)]
    words = [w for pair in extremes for w in pair] + philox4x64((5, 6), 0, 4000)
    got = random.normals(np.array(words, np.uint64))
    with mpmath.workprec(200):
        exact = exact_normals(words)
        error = max(abs(mpmath.mpf(float(g)) - e) for g, e in zip(got, exact, strict=True))
        assert error < mpmath.mpf("3e-15")
        nearest = np.array([float(e) for e in exact])
    assert np.all(np.abs(got.astype(np.float32) - nearest) <= np.spacing(np.abs(nearest).astype(np.float32)))


def test_normals_have_the_moments_of_the_normal_distribution() -> None:
    z = Draws(2, np.array).normal("m", (400_000,)).astype(np.float64)
    assert [round(float(m), 1) + 0.0 for m in (z.mean(), z.var(), (z**3).mean(), (z**4).mean())] == [0, 1, 0, 3]
    # Neighbours are one pair's cosine and sine: uncorrelated, and so are their squares.
    a, b = z[::2], z[1::2]
    assert abs((a * b).mean()) < 0.01
    assert abs(((a * a - 1) * (b * b - 1)).mean()) < 0.02


@pytest.mark.parametrize("n", [1, 2, 3, 10, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**61 + 5, 2**63, ALL])
def test_integers_are_the_high_half_of_a_product(n: int) -> None:
    words = [0, 1, 2**32 - 1, 2**32, 2**63, ALL - 1, ALL, *philox4x64((n, 1), 0, 200)]
    assert random.integers_below(np.array(words, np.uint64), n).tolist() == [w * n >> 64 for w in words]


@pytest.mark.parametrize(
    ("low", "high"), [(0, 2), (-3, 4), (-(2**63), 2**63 - 1), (2**63 - 5, 2**63), (-(2**31), 2**31)]
)
def test_integers_lie_between_their_bounds(low: int, high: int) -> None:
    draws = Draws(0, np.array)
    got = draws.integers("i", (3000,), low, high)
    assert got.dtype == np.int64
    assert got.tolist() == [low + (w * (high - low) >> 64) for w in draws.words("i", 3000).tolist()]
    if high - low < 10:
        assert set(got.tolist()) == set(range(low, high))


def test_halves_are_a_word_s_upper_and_lower_bits() -> None:
    draws = Draws(0, np.array)
    high, low = draws.halves("h", (5, 2))
    assert high.shape == low.shape == (5, 2)
    words = draws.words("h", 10).tolist()
    assert [(h << 32) + w for h, w in zip(high.ravel().tolist(), low.ravel().tolist(), strict=True)] == words


def test_what_is_kept_is_scaled_so_that_the_mean_stays() -> None:
    kept = Draws(0, np.array).keep("k", (100, 1000), 0.2)
    assert kept.dtype == np.float32
    assert set(kept.ravel().tolist()) == {0.0, 1.25}
    assert abs(float((kept == 0).mean()) - 0.2) < 0.005
    assert np.array_equal(Draws(0, np.array).keep("k", (4,), 0.0), np.ones(4, np.float32))


def test_a_permutation_is_one_and_is_the_order_of_its_words() -> None:
    draws = Draws(0, np.array)
    got = draws.permutation("p", 1000)
    assert got.dtype == np.int32
    words = draws.words("p", 1000).tolist()
    assert got.tolist() == sorted(range(1000), key=words.__getitem__)
    equal = np.array([5, 1, 5, 1, 0], np.uint64)
    assert random.order(equal).tolist() == [4, 1, 3, 0, 2]


def test_a_batch_order_is_a_function_of_seed_and_labels() -> None:
    first = random.permutation_of(50, 3, "train", 1)
    assert first.dtype == np.int64
    assert sorted(first.tolist()) == list(range(50))
    assert np.array_equal(first, random.permutation_of(50, 3, "train", 1))
    moved: list[tuple[int, tuple[object, ...]]] = [
        (4, ("train", 1)),
        (3, ("train", 2)),
        (3, ("test", 1)),
        (3, ("train1",)),
    ]
    others = [random.permutation_of(50, seed, *labels) for seed, labels in moved]
    assert len({o.tobytes() for o in [first, *others]}) == 5
    assert random.permutation_of(0, 3).tolist() == []


def digest(x: np.ndarray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(x).tobytes(), digest_size=8).hexdigest()


# What a seed draws is part of what a run is: these change only with a new major version.
GOLDEN = {
    "uniform": "1f34ed3808aaa1ee",
    "uniform_f64": "c17407345f36c65f",
    "normal": "879ebf7746df0417",
    "integers": "1690b82c1783bf9d",
    "keep": "870060ae0c8d3b10",
    "permutation": "e4808205b56caeea",
    "order": "2d0d70a0e868b9b0",
}


@pytest.mark.parametrize("kind", [*KINDS, "permutation", "order"])
def test_the_bits_of_a_draw_never_change(kind: str) -> None:
    draws = Draws(1234, np.array)
    draws.at(17, 3, "net/w")
    if kind == "order":
        got = random.permutation_of(10_000, 1234, "train", 2)
    else:
        got = draws.permutation("p", 10_000) if kind == "permutation" else KINDS[kind](draws, 50_001)
    assert digest(got.astype(got.dtype.newbyteorder("<"))) == GOLDEN[kind]


def test_a_draw_goes_through_the_array_module_s_own_conversion() -> None:
    seen = []
    draws = Draws(0, lambda host: seen.append(host.shape) or host)  # type: ignore[func-returns-value]  # a recorder
    draws.normal("a", (2, 3))
    draws.permutation("b", 4)
    assert seen == [(2, 3), (4,)]
