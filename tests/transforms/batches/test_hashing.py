"""The hash depends on the bytes of a text alone, and spreads them well."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.batches.hashing import (
    BLOCK_BYTES,
    hash_pages,
    hash_prefixes,
    hash_texts,
    hash_texts_and_prefixes,
    stable_hash,
)
from transforms.batches.texts import LONG_BYTES, Texts

TYPES = [pa.binary(), pa.large_binary()]
urlish = st.builds(
    lambda head, rest: head + rest,
    st.sampled_from([b"http://", b"https://", b"HTTP://", b"https:/", b"ftp://", b""]),
    st.lists(st.sampled_from([bytes([c]) for c in b"/?#@:\\ .ab1\x00\x80\xff"]), max_size=40).map(b"".join),
)
plain = st.builds(
    lambda head, host, rest: (head + "h" * host + rest).encode(),
    st.sampled_from(["http://", "https://"]),
    st.integers(0, 30),
    st.sampled_from(["", "/", "?", "/x?y", "?x/y", "/index.html", "#x/y"]),
)
texts_ = st.lists(st.one_of(st.binary(max_size=80), urlish, plain, plain), max_size=40)


def test_values_are_pinned():
    """State files hold hashes: they may never change."""
    texts = ["", "a", "https://example.com/", "x" * 20000]
    pinned = ["ef46db3751d8e999", "5f341730a3e50685", "7aaf98c3abfc8af6", "28aa2bcbf1934756"]
    assert [f"{stable_hash(t):016x}" for t in texts] == pinned


@settings(deadline=None, max_examples=80)
@given(texts_, st.sampled_from(TYPES), st.integers(0, 40), st.integers(0, 40))
def test_vector_equals_scalar_for_any_cut(values, kind, start, length):
    array = pa.array(values, kind)
    expected = [stable_hash(v) for v in values]
    assert hash_texts(array).tolist() == expected
    part = array.slice(start, length)
    assert hash_texts(part).tolist() == expected[start : start + length]
    whole, prefix = hash_texts_and_prefixes(Texts(part))
    assert whole.tolist() == expected[start : start + length]
    expected = [stable_hash(_prefix(v)) for v in values[start : start + length]]
    assert prefix.tolist() == expected
    for hashes in (hash_prefixes, hash_pages):
        assert hashes(Texts(part))[1].tolist() == expected


def _prefix(raw: bytes) -> bytes:
    match = re.match(rb"https?://[^/?][^/?]*", raw, re.IGNORECASE)
    return match[0] if match else raw


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([0, 1, 7, 8, 9, 16, 40, 8191, 8192, 8193, 30000]), max_size=12))
def test_long_and_short_rows_side_by_side(sizes):
    values = [bytes([i % 251]) * size for i, size in enumerate(sizes)]
    for kind in TYPES:
        assert hash_texts(pa.array(values, kind)).tolist() == [stable_hash(v) for v in values]


def test_rows_of_one_size_take_a_short_cut_to_the_same_hash():
    rng = np.random.default_rng(1)
    for size in (8, 32, 40, 64, 41):
        values = [rng.bytes(size) for _ in range(100)]
        expected = [stable_hash(v) for v in values]
        assert hash_texts(pa.array(values, pa.binary())).tolist() == expected
        shifted = pa.array([b"xyz", *values, b"a"], pa.binary())[1:-1]
        assert hash_texts(shifted).tolist() == expected


def test_chunks_do_not_show():
    n = 20_000
    array = pc.binary_join_element_wise("https://a.test/", pc.cast(pa.array(np.arange(n)), pa.string()), "")
    whole = hash_texts(array)
    parts = np.concatenate([hash_texts(array.slice(a, 777)) for a in range(0, n, 777)])
    assert np.array_equal(whole, parts)
    assert np.array_equal(whole, hash_texts(array.cast(pa.large_string())))
    assert np.array_equal(whole, hash_texts(array.dictionary_encode()))


def test_a_megabyte_row_and_its_neighbours():
    values = [b"a" * 1_000_003, b"https://a.test/x", b"b" * (LONG_BYTES + 1), b"", b"c" * 1_000_000]
    assert hash_texts(pa.array(values, pa.binary())).tolist() == [stable_hash(v) for v in values]
    blocks = b"".join(stable_hash(b"a" * BLOCK_BYTES).to_bytes(8, "little") for _ in range(4))
    assert stable_hash(b"a" * BLOCK_BYTES * 4) != stable_hash(blocks)


def test_nulls_and_unaligned_buffers():
    array = pa.array(["abc", None, "https://a.test/1"])
    assert hash_texts(array).tolist() == [stable_hash(t) for t in ("abc", "", "https://a.test/1")]
    assert hash_texts(pa.nulls(2, pa.string())).tolist() == [stable_hash("")] * 2
    raw = np.frombuffer(b"?" + b"https://a.test/12", np.uint8)[1:]
    offsets = pa.array([0, 17], pa.int32()).buffers()[1]
    odd = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(raw)])
    assert hash_texts(odd)[0] == stable_hash("https://a.test/12")


def test_many_neighbouring_urls_do_not_collide():
    n = 400_000
    numbers = pc.cast(pa.array(np.arange(n)), pa.string())
    hashes = hash_texts(pc.binary_join_element_wise("https://shop.test/item/", numbers, "/index.html", ""))
    assert len(np.unique(hashes)) == n
    # Halves of the hash are as good: expected collisions of 4e5 values in 2**32 are 19, sd 4.
    for half in (hashes >> np.uint64(32), hashes & np.uint64(0xFFFFFFFF)):
        assert abs(n - len(np.unique(half)) - 19) < 26


@pytest.mark.parametrize("modulus", [2, 3, 7, 16, 64, 1000])
def test_shards_are_even(modulus):
    """Chi-squared of neighbouring names over shards: mean m - 1, deviation sqrt(2 (m - 1)); five of them."""
    n = 200_000
    hosts = pc.binary_join_element_wise("www", pc.cast(pa.array(np.arange(n)), pa.string()), ".test", "")
    counts = np.bincount((hash_texts(hosts) % np.uint64(modulus)).astype(np.int64), minlength=modulus)
    chi = float(((counts - n / modulus) ** 2 / (n / modulus)).sum())
    assert abs(chi - (modulus - 1)) < 5 * np.sqrt(2 * (modulus - 1))


def test_every_input_bit_moves_half_of_the_output_bits():
    rng = np.random.default_rng(7)
    base = rng.integers(0, 256, (400, 21), dtype=np.uint8)
    before = hash_texts(pa.array([r.tobytes() for r in base], pa.binary()))
    for byte in range(21):
        for bit in range(8):
            other = base.copy()
            other[:, byte] ^= np.uint8(1 << bit)
            changed = before ^ hash_texts(pa.array([r.tobytes() for r in other], pa.binary()))
            flips = np.unpackbits(changed.view(np.uint8).reshape(400, 8), axis=1).mean(axis=0)
            # 400 trials of 1/2 have a deviation of 0.025; six of them, over 11,000 cells.
            assert np.abs(flips - 0.5).max() < 0.15
