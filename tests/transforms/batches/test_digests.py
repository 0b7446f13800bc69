"""Digests: which are one and the same, which cannot be compared, and which are none."""

import base64
import hashlib
import zlib

import numpy as np
import pyarrow as pa
import pytest

from policies.history.visits import REWRITTEN, same_form
from transforms.batches.digests import digests
from transforms.batches.hashing import stable_hash


def _hashes(values, kind=None):
    return digests(values if isinstance(values, pa.Array) else pa.array(values, kind))[0].to_pylist()


def _form(value, kind=None):
    """The form that is compared, of one digest."""
    form = digests(pa.array([value], kind))[1][0].as_py()
    return form & ~REWRITTEN


def _alike(one, other):
    forms = np.array([_form(one), _form(other)], np.uint32)
    return bool(same_form(forms[:1], forms[1:])[0])


MD5, SHA1, SHA256, SHA512 = (hashlib.new(n, b"x").digest() for n in ("md5", "sha1", "sha256", "sha512"))
B32, B64 = base64.b32encode(SHA1).decode(), base64.b64encode(MD5).decode()


def test_digests_by_their_text():
    same = ["abc", " abc ", "sha1:abc", "SHA-1:abc", "urn:sha1:abc", "sha256-abc", "md5=abc", "xxh3: abc"]
    assert set(_hashes(same)) == {stable_hash("abc")}
    assert _hashes(["A", "a"]) == [stable_hash("A"), stable_hash("a")]
    assert _hashes(["", "-", "null", None, "None", "NaN", "sha1:", "md5: "]) == [None] * 8
    assert _hashes([12, None]) == [stable_hash("12"), None]
    assert _hashes(pa.array(["x", "y", "x"]).dictionary_encode()) == [stable_hash(t) for t in "xyx"]


@pytest.mark.parametrize("raw", [MD5, SHA1, SHA256, SHA512, zlib.crc32(b"x").to_bytes(4)])
def test_case_is_no_part_of_hex_and_base32(raw):
    text, b32 = raw.hex(), base64.b32encode(raw).decode()
    assert len(set(_hashes([text, text.upper(), f" {text.upper()}", f"md5:{text}"]))) == 1
    assert _form(text) == _form(text.upper())
    if len(raw) >= 16:
        mixed = text[:9].upper() + text[9:]
        assert len(set(_hashes([b32, b32.lower(), mixed, text]))) == 2
        assert _form(b32) == _form(b32.lower()) != _form(text)
    b64 = base64.b64encode(raw).decode()
    assert len(set(_hashes([b64, b64.swapcase()]))) == 2


@pytest.mark.parametrize(
    "tag", ["x", "33a64df551425fcc55e4d42a148795d9f25f89d4", "5f3a-1b", "a gzip", "-gzip-1"]
)
def test_validators_are_compared_weakly(tag):
    spelled = [f'"{tag}"', f'W/"{tag}"', f'w/"{tag}"', f'"{tag}-gzip"', f'"{tag}--gzip"', f'"{tag};gz"',
               f'"{tag}-br"', f'"{tag};br"', f'W/"{tag}-zstd"', f'"{tag}"-gzip', f'"{tag}-GZIP"',
               f'"{tag}-df"', f'"{tag}:deflate"', f'"{tag};;;"', f' W/"{tag}" ']  # fmt: skip
    assert set(_hashes(spelled)) == {stable_hash(f'"{tag}"')}
    assert {_form(t) for t in spelled} == {_form('"y"')}


def test_only_what_is_quoted_is_a_validator():
    texts = [
        "x-gzip",
        "x",
        "W/x",
        "W/x-gzip",
        '"x',
        'x"',
        '"x-gzip',
        '"x" "y"',
        '"x-gzipped"',
        '"x-1"',
        '"gzip"',
    ]
    hashes = _hashes(texts)
    assert len(set(hashes)) == len(texts)
    assert hashes[:4] == [stable_hash(t) for t in texts[:4]]


def test_digests_of_other_forms():
    """Length, alphabet and algorithm each make a form; what says no more than the length does not."""
    forms = [
        _form(t)
        for t in (
            MD5.hex(),
            SHA1.hex(),
            SHA256.hex(),
            SHA512.hex(),
            SHA256.hex()[:42],
            MD5.hex()[:16],
            "1f2e3d4c",
            B32,
            B64,
            B64.rstrip("="),
            base64.b32encode(SHA256).decode(),
            base64.b64encode(SHA1).decode(),
            f"blake3:{SHA256.hex()}",
            f"sha3-256:{SHA256.hex()}",
            f"BLAKE2b:{SHA256.hex()}",
            '"5f3a-1b"',
            "v12",
        )
    ]
    forms += [_form(MD5, pa.binary()), _form(SHA256, pa.binary(32))]
    assert len(set(forms)) == len(forms)
    known = np.array(forms, np.uint32)
    assert same_form(known[:, None], known[None]).sum() == len(forms)
    for one, other in (
        (f"md5:{MD5.hex()}", MD5.hex()),
        (f"sha1:{B32}", B32),
        (f"urn:sha-256:{SHA256.hex()}", SHA256.hex()),
        (f"sha256-{base64.b64encode(SHA256).decode()}", base64.b64encode(SHA256).decode()),
        ("v12", "2026-06-01T00:00:00Z"),
        ("9999999", "10000000000"),
        ("18446744073709551615", "1844674407370955161"),  # 64 bits as a number
        ('"5f3a-1b"', '"5f3a4b-1b2c3d4e5f60718293"'),
        ("2c0e7-1a2b-5f3a4b5c6d7e8", "2c0e7-1a2b3-5f3a4b5c6d7e8"),  # inode, size and time
    ):
        assert _alike(one, other), (one, other)
    # Made up, as in tests: of one length at least.
    assert _alike("f" * 40, "g" * 40) and _alike("A" * 32, "Z" * 32)
    assert not _alike("g" * 40, MD5.hex()) and not _alike("v12", MD5.hex())


def test_forms_do_not_hang_on_other_rows():
    texts = [
        MD5.hex(),
        B32,
        B64,
        '"x"',
        None,
        "",
        SHA256.hex().upper(),
        f"sha1:{B32}",
        "\x00é",
        "v1",
        SHA1.hex(),
    ]
    whole = digests(pa.array(texts))
    for i in range(len(texts)):
        one = digests(pa.array(texts).slice(i, 1))
        assert [c[0].as_py() for c in one] == [c[i].as_py() for c in whole], texts[i]


EMPTY = ["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "sha3_512", "blake2b", "blake2s"]


@pytest.mark.parametrize("name", EMPTY)
def test_the_digest_of_an_empty_body_is_none(name):
    raw, other = hashlib.new(name, b"").digest(), hashlib.new(name, b"x").digest()
    spellings = (
        bytes.hex,
        lambda d: d.hex().upper(),
        lambda d: base64.b32encode(d).decode(),
        lambda d: base64.b32encode(d).decode().lower(),
        lambda d: base64.b64encode(d).decode(),
        lambda d: base64.b64encode(d).decode().rstrip("="),
        lambda d: base64.urlsafe_b64encode(d).decode(),
        lambda d: f"{name}:{d.hex()}",
        lambda d: f'W/"{d.hex()}-gzip"',
        lambda d: f" urn:{name}:{base64.b32encode(d).decode()}",
    )
    for spell in spellings:
        values = _hashes([spell(raw), spell(other), spell(raw)])
        assert values[0] is values[2] is None, spell(raw)
        assert values[1] is not None
    for kind in (pa.binary(), pa.large_binary(), pa.binary(len(raw))):
        assert _hashes([raw, other, None], kind) == [None, stable_hash(other), None]


def test_other_names_for_nothing():
    nothing = [
        "crc32:00000000",
        "fnv1a:811c9dc5",
        '""',
        'W/""',
        "''",
        "ef46db3751d8e999",
        "EF46DB3751D8E999",
        "17241709254077376921",
        "00000000",
        "xxh3:2d06800538d394c2",
        "99aa06d3014798d86001c324468d497f",
        "cbf29ce484222325",
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    ]
    assert _hashes(nothing) == [None] * len(nothing)
    assert None not in _hashes(["0", "1", "000000000", '"0"', "ef46db3751d8e998"])


def test_raw_digests_keep_every_byte():
    raw = [b"\x01\x20", b"\x01", b'W/"x"\x20']
    assert _hashes(raw[:2], pa.binary()) == [stable_hash(t) for t in raw[:2]]
    assert len(set(_hashes(raw, pa.binary()))) == 3


def test_slices_do_not_show():
    pool = [
        "200",
        "x",
        "",
        None,
        '"x-gzip"',
        "9" * 30,
        " 7 ",
        MD5.hex().upper(),
        f"sha1:{B32}",
        B64,
        MD5.hex(),
    ]
    array = pa.array((pool * 3)[:25])
    whole = [c.to_pylist() for c in digests(array)]
    for start in range(25):
        for length in (1, 3, 25):
            some = [c.to_pylist() for c in digests(array.slice(start, length))]
            assert some == [c[start : start + length] for c in whole]
