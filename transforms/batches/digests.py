"""Digests of contents: a stable hash of what they say, and the form in which they say it.

Only digests of one form can be compared: after a crawler went from MD5 to SHA-256 every digest differs, and
no page has changed. The form is what can be seen of the algorithm: length, alphabet, and a name in front.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from policies.history.visits import OTHER, REWRITTEN
from transforms.batches.columns import NOTHING, is_fixed, is_text, plain, trim
from transforms.batches.hashing import hash_texts, stable_hash
from transforms.batches.texts import Hashes, Texts

Mask = NDArray[np.bool_]
Forms = NDArray[np.uint32]

# Appended to only: their places are in the state.
_ALGORITHMS = (
    "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha512224", "sha512256", "sha3224", "sha3256",
    "sha3384", "sha3512", "blake2", "blake2b", "blake2s", "blake3", "xxh32", "xxh64", "xxh3", "xxh128",
    "crc32", "crc32c", "crc64", "adler32", "murmur", "murmur3", "fnv1", "fnv1a", "md4", "ripemd160", "sm3",
)  # fmt: skip
# What a digest of so many bytes is taken for without a name.
_USUAL = {16: "md5", 20: "sha1", 28: "sha224", 32: "sha256", 48: "sha384", 64: "sha512", 4: "crc32"}
_NAMES = (
    "md4|md5|sha-?1|sha-?224|sha-?256|sha-?384|sha-?512(?:[-_/]?2(?:24|56))?|sha-?3[-_]?(?:224|256|384|512)|"
    "blake2[bs]?(?:[-_]?[0-9]{3})?|blake3|xxh(?:ash)?(?:32|64|128|3)?(?:[-_](?:64|128))?|crc-?(?:32c?|64)|"
    "adler-?32|murmur(?:hash)?3?(?:[-_][0-9]{2,3})?|fnv-?1a?(?:[-_](?:32|64))?|ripemd-?160|sm3"
)
_NAMED = rf"^(?i:(?:urn:)?({_NAMES}))[:=-][ \t]*"
# Servers append the coding to the validator of a compressed answer, one of them behind the closing quote.
_CODING = "(?:x-)?(?:gzip|gz|br|brotli|deflate|df|zstd|zst|compress|identity)"
_ENDINGS = (b"ip", b"gz", b"br", b"li", b"te", b"df", b"td", b"st", b"ss", b"ty")
_VALIDATOR = rf'^"([^"]*?)(?i:(?:--?|[;:+.]){_CODING})?;*"(?i:--?{_CODING})?$'

_VALIDATED, _HEX, _BASE32, _BASE64, _RAW = range(OTHER + 1, OTHER + 6)
_SIZES = (4, 8, 16, 20, 28, 32, 48, 64)
_PADDED64 = frozenset(len(base64.b64encode(bytes(n))) for n in _SIZES[2:])
_BARE64 = frozenset(len(base64.b64encode(bytes(n)).rstrip(b"=")) for n in _SIZES[2:])
_LENGTHS32 = frozenset(
    n for size in _SIZES[2:] for t in [base64.b32encode(bytes(size))] for n in (len(t), len(t.rstrip(b"=")))
)
_MOST = 1 << 10


def _bytes_not_in(*alphabets: bytes) -> NDArray[np.uint8]:
    """For each byte one bit an alphabet: set where the byte is not of it."""
    table = np.zeros(256, np.uint8)
    for bit, alphabet in enumerate(alphabets):
        table[np.setdiff1d(np.arange(256), list(alphabet))] |= np.uint8(1 << bit)
    return table


_DIGITS, _LETTERS = b"0123456789", b"abcdefghijklmnopqrstuvwxyz"
_NOT_LOWER_HEX, _NOT_HEX, _NOT_UPPER32, _NOT_LOWER32, _NOT_64, _NOT_TEXT, _NOT_UPPER_HEX = (
    np.uint8(1 << bit) for bit in range(7)
)
_CLASSES = _bytes_not_in(
    _DIGITS + b"abcdef",
    _DIGITS + b"abcdefABCDEF",
    _LETTERS.upper() + b"234567=",
    _LETTERS + b"234567=",
    _DIGITS + _LETTERS + _LETTERS.upper() + b"+/-_=",
    bytes(range(32, 127)),
    _DIGITS + b"ABCDEF",
)


@cache
def _form_tables() -> tuple[Forms, Forms, Forms, Mask]:
    """Forms by length of hex, base32 and base64, 0 where no digest has that length; whether it is padded."""
    tables = np.zeros((3, _MOST), np.uint32)
    for n in range(_MOST):
        if n in (8, 16) or (n >= 24 and n % 2 == 0):
            tables[0, n] = _HEX | n << 4
        if n in _LENGTHS32:
            tables[1, n] = _BASE32 | n << 4
        if n in _PADDED64 | _BARE64:
            tables[2, n] = _BASE64 | n << 4
    padded = np.zeros(_MOST, np.bool_)
    padded[list(_PADDED64 - _BARE64)] = True
    return tables[0], tables[1], tables[2], padded


@cache
def _empty_bodies() -> NDArray[np.uint64]:
    """Hashes of the digests of an empty body in the usual spellings, ascending."""
    raw = [hashlib.new(name, b"", usedforsecurity=False).digest() for name in hashlib.algorithms_guaranteed
           if not name.startswith("shake")]  # fmt: skip
    raw += [hashlib.new(n, b"", usedforsecurity=False).digest()
            for n in ("md4", "ripemd160", "sm3", "sha512_224", "sha512_256") if _has(n)]  # fmt: skip
    raw += [hashlib.blake2b(digest_size=n).digest() for n in (16, 20, 28, 32, 48)]
    raw += [hashlib.blake2s(digest_size=n).digest() for n in (16, 20, 28)]
    known = (
        "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",  # BLAKE3
        "02cc5d05", "ef46db3751d8e999", "2d06800538d394c2", "99aa06d3014798d86001c324468d497f",  # xxHash
        "811c9dc5", "cbf29ce484222325",  # FNV
        "9ae16a3b2f90404f",  # CityHash, FarmHash
        "00000000", "0000000000000000", "00000000000000000000000000000000", "00000001",  # CRC, Murmur, Adler
        "31d6cfe0d16ae931b73c59d7e0c089c0", "9c1185a5c5e9fc54612808977ee8f548b2258d31",  # MD4, RIPEMD-160
    )  # fmt: skip
    raw += [bytes.fromhex(text) for text in known]
    spelled: set[bytes] = set()
    for digest in raw:
        if len(digest) >= 16:
            b32, b64, url = (encode(digest) for encode in (base64.b32encode, base64.b64encode,
                                                            base64.urlsafe_b64encode))  # fmt: skip
            spelled |= {t for text in (b32, b64, url) for t in (text, text.rstrip(b"="))} | {digest}
        elif (number := int.from_bytes(digest, "big")) > 1:  # 0 and 1 may well be versions
            spelled.add(str(number).encode())
        spelled.add(digest.hex().encode())
    quoted = {b'"' + t + b'"' for t in spelled if len(t) >= 16}
    return np.sort(np.array([stable_hash(t) for t in spelled | quoted], np.uint64))


def _has(name: str) -> bool:
    try:
        hashlib.new(name, b"", usedforsecurity=False)
    except ValueError:
        return False
    return True


def digests(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The stable hash of each digest, uint64, and its form, uint32; null where there is none.

    Blanks around a text, the name of an algorithm in front of it, the case of hex and base32, and what is
    weak or of a coding in a validator (``W/"x"``, ``"x-gzip"``) do not count. The digest of an empty body is
    none: a fetch that brought nothing says nothing about the page. For the form see
    `policies.history.visits.Observations`.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        values, forms = digests(array.dictionary)
        return values.take(array.indices), forms.take(array.indices)
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.uint64()), pa.nulls(len(array), pa.uint32())
    raw = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_fixed(kind)
    array = plain(array) if is_text(kind) or is_fixed(kind) else array.cast(pa.string())
    if pa.types.is_large_binary(array.type):
        array = array.cast(pa.binary())
    texts = Texts(array)
    forms = np.zeros(len(array), np.uint32)
    odd = _odd(texts, blanks=not raw)
    if odd.any():
        array, named = _unwrapped(array, odd, blanks=not raw)
        texts = Texts(array)
        forms |= named
    classes = _classes(texts)
    fold_down, fold_up = _folded(texts, classes)
    forms = _forms(texts, classes, forms)
    for rows, fold in ((fold_down, pc.ascii_lower), (fold_up, pc.ascii_upper)):
        if rows.any():
            some = fold(array.filter(pa.array(rows)).view(pa.string()))
            array = pc.replace_with_mask(array, pa.array(rows), some.view(array.type))
            forms[rows] |= np.uint32(REWRITTEN)
    hashes = hash_texts(array)
    none = (texts.size == 0) | _empty(hashes)
    # 0 means "none" downstream.
    hashes[hashes == 0] = 1
    mask = none if none.any() else None
    return pa.array(hashes, mask=mask), pa.array(forms, mask=mask)


def digest_columns(array: pa.Array | None, absent: pa.Array) -> dict[str, pa.Array]:
    """`digests` by the names of `schemas.OBSERVATIONS`; of `absent` where there is no such column."""
    return dict(zip(("digest_hash", "digest_form"), digests(absent if array is None else array), strict=True))


def _odd(texts: Texts, blanks: bool) -> Mask:
    """Texts that may be more than a digest, or none: (n,) bool."""
    names = np.zeros(1 << 16, np.bool_)
    for start in (b"urn", *{name[:3].encode() for name in _ALGORITHMS}):
        names[_mixed(np.array([int.from_bytes(start, "little")], np.uint64))] = True
    odd = np.zeros(len(texts), np.bool_)
    if not len(texts.data):
        return odd
    for a, b in texts.chunks():
        lane = texts.first_lanes(a, b)
        first, part = lane & np.uint64(255), odd[a:b]
        part |= texts.size[a:b] < 5
        part |= first == ord('"')
        if blanks:
            last = texts.data.take(texts.start[a:b] + texts.size[a:b] - 1, mode="clip")
            part |= (first <= 32) | (last <= 32)
        part |= (lane & np.uint64(0xFFFFDF)) == int.from_bytes(b'W/"', "little")
        part |= names.take(_mixed(lane | np.uint64(0x202020)))
    odd &= texts.size > 0
    return odd


def _mixed(lane: Hashes) -> NDArray[np.intp]:
    spread = (lane & np.uint64(0xFFFFFF)) * np.uint64(0x9E3779B97F4A7C15)
    return (spread >> np.uint64(48)).astype(np.intp)


def _unwrapped(array: pa.Array, odd: Mask, blanks: bool) -> tuple[pa.Array, Forms]:
    """Digests alone, empty where there is none; and of the forms what their wrapping says."""
    mask = pa.array(odd)
    before = array.filter(mask).cast(pa.binary())
    rows = trim(before.view(pa.string())).cast(pa.binary()) if blanks else before
    forms = np.zeros(len(array), np.uint32)
    found = np.zeros(len(rows), np.uint32)
    quoted = np.asarray(pc.or_(pc.starts_with(rows, '"'), pc.starts_with(rows, 'W/"', ignore_case=True)))
    named = ~quoted
    named[named] = np.asarray(pc.match_substring_regex(rows.filter(pa.array(named)), _NAMED))
    if named.any():
        some = rows.filter(pa.array(named))
        name = pc.replace_substring_regex(some, rf"(?s){_NAMED}.*$", r"\1").dictionary_encode()
        codes = np.array([_algorithm(n) for n in name.dictionary.to_pylist()], np.uint32)
        found[named] = codes[name.indices.to_numpy()] << np.uint32(16)
        bare = pc.replace_substring_regex(some, _NAMED, "")
        rows = pc.replace_with_mask(rows, pa.array(named), bare)
    if quoted.any():
        rows, found[quoted] = _validators(rows, quoted)
    short = pc.less(pc.binary_length(rows), 5)
    words = pc.ascii_lower(pc.if_else(short, rows, b"").filter(short).cast(pa.string(), safe=False))
    nothing = pc.or_(pc.is_in(words, NOTHING), pc.is_in(words, pa.array(['""', "''"])))
    rows = pc.replace_with_mask(rows, short, pc.if_else(nothing, b"", rows.filter(short)))
    forms[odd] = found
    return pc.replace_with_mask(array, mask, rows.view(array.type)), forms


def _validators(rows: pa.Array, quoted: Mask) -> tuple[pa.Array, Forms]:
    """Quoted texts in their strong, uncoded form, among others; the forms of the quoted ones."""
    some = rows.filter(pa.array(quoted))
    forms = np.full(len(some), _VALIDATED, np.uint32)
    weak = pc.invert(pc.starts_with(some, '"'))
    if pc.any(weak).as_py():
        forms[np.asarray(weak)] |= np.uint32(REWRITTEN)
        some = pc.replace_with_mask(some, weak, pc.binary_replace_slice(some.filter(weak), 0, 2, b""))
    # Regular expressions are slow: most validators are left as they are, by their last letters.
    texts = Texts(some)
    end = texts.start + texts.size
    second, third, last = (texts.data.take(end - at, mode="clip").astype(np.int64) for at in (3, 2, 1))
    endings = np.zeros(1 << 16, np.bool_)
    endings[[int.from_bytes(ending, "big") for ending in _ENDINGS]] = True
    odd_end = (last != ord('"')) | (third == ord(";")) | endings[(second | 32) << 8 | third | 32]
    coded = pa.array(odd_end)
    if pc.any(coded).as_py():
        before = some.filter(coded)
        plainly = pc.replace_substring_regex(before, _VALIDATOR, r'"\1"')
        changed = np.flatnonzero(odd_end)[np.asarray(pc.not_equal(before, plainly))]
        forms[changed] |= np.uint32(REWRITTEN)
        some = pc.replace_with_mask(some, coded, plainly)
        # What is no validator to its end is a text like any other.
        forms[np.asarray(pc.invert(pc.ends_with(some, '"')))] = 0
    return pc.replace_with_mask(rows, pa.array(quoted), some), forms


def _algorithm(name: bytes) -> int:
    """Number of an algorithm, by name without what its digests' lengths say again."""
    known = re.sub("[-_/]", "", name.decode().lower()).replace("hash", "")
    known = re.sub("^xx(?=3|32|64|128|$)", "xxh", known)
    for end in range(len(known), 2, -1):
        if known[:end] in _ALGORITHMS:
            return 1 + _ALGORITHMS.index(known[:end])
    return 0


def _classes(texts: Texts) -> NDArray[np.uint8]:
    """For each text, what it is not, see `_CLASSES`: (n,) uint8."""
    classes = np.zeros(len(texts), np.uint8)
    for a, b in texts.chunks():
        rows = a + np.flatnonzero(texts.size[a:b])
        if not len(rows):
            continue
        start, low = texts.start[rows], int(texts.start[rows[0]])
        span = texts.data[low : int(start[-1] + texts.size[rows[-1]])]
        if (((span - np.uint8(48)) < 10) | ((span - np.uint8(97)) < 6)).all():
            classes[a:b] = ~(_NOT_LOWER_HEX | _NOT_HEX | _NOT_TEXT)
        elif int(texts.size[rows].sum()) == len(span):
            size = int(texts.size[rows[0]])
            found = _CLASSES.take(span)
            if size % 8 == 0 and (texts.size[rows] == size).all():  # eight bytes at a time
                lanes = found.view(np.uint64).reshape(len(rows), size >> 3)
                lane = lanes[:, 0] | lanes[:, -1]
                for column in lanes.T[1:-1]:
                    lane |= column
                for shift in (32, 16, 8):
                    lane |= lane >> np.uint64(shift)
                classes[rows] = lane.astype(np.uint8)
            else:
                classes[rows] = np.bitwise_or.reduceat(found, start - low)
        else:  # what lies between rows is of none
            ends = np.stack([start, start + texts.size[rows]], axis=1).ravel() - low
            padded = np.append(_CLASSES.take(span), np.uint8(0))
            classes[rows] = np.bitwise_or.reduceat(padded, ends)[::2]
    return classes


def _folded(texts: Texts, classes: NDArray[np.uint8]) -> tuple[Mask, Mask]:
    """Hex to be written in lower case, and base32 to be written in upper case: (n,) bool each."""
    size = texts.size
    lower, hexadecimal = (classes & _NOT_LOWER_HEX) == 0, (classes & _NOT_HEX) == 0
    long = size >= 16
    of_32 = _at(_form_tables()[1], size) > 0
    down = ~lower & hexadecimal & (long | ((size >= 8) & ((classes & _NOT_UPPER_HEX) == 0)))
    down &= ~(of_32 & ((classes & _NOT_UPPER32) == 0))
    up = ~hexadecimal & ((classes & _NOT_LOWER32) == 0) & of_32
    return down, up


def _forms(texts: Texts, classes: NDArray[np.uint8], wrapping: Forms) -> Forms:
    """Forms of digests without their wrapping: (n,) uint32."""
    size = texts.size
    by_hex, by_32, by_64, padded = _form_tables()
    of_32 = _at(by_32, size)
    # What may be both is base32 in upper case, hex in lower case: as they are usually written.
    upper = ((classes & _NOT_UPPER32) == 0) & (of_32 > 0)
    hexadecimal = ((classes & _NOT_HEX) == 0) & ~upper
    base32 = upper | (~hexadecimal & ((classes & _NOT_LOWER32) == 0))
    forms = np.where(hexadecimal, _at(by_hex, size), np.uint32(0))
    np.copyto(forms, of_32, where=base32)
    rest = ~hexadecimal & (forms == 0) & ((classes & _NOT_64) == 0)
    if rest.any():
        last = texts.data.take(texts.start + size - 1, mode="clip")
        rest &= (last == ord("=")) | ~_at(padded, size)
        np.copyto(forms, _at(by_64, size), where=rest)
    binary = (classes & _NOT_TEXT) != 0
    np.copyto(forms, (_RAW | np.minimum(size, _MOST - 1) << 4).astype(np.uint32), where=binary)
    algorithm, flags = wrapping & np.uint32(0x7FFF0000), wrapping & np.uint32(REWRITTEN | 7)
    if algorithm.any():
        # A name that says what the length says already makes no other form.
        usual = np.array([0, *(_usual_size(n) for n in _ALGORITHMS)], np.uint32)
        whole = _sizes().take(forms & np.uint32(0xFFFF))
        code = algorithm >> np.uint32(16)
        np.copyto(algorithm, np.uint32(0), where=(usual[code] == whole) | (forms == 0))
    other = forms == 0
    forms[other] = OTHER | np.minimum(size[other], _MOST - 1).astype(np.uint32) << np.uint32(4)
    validated = (flags & np.uint32(7)) == _VALIDATED
    forms = np.where(validated, np.uint32(_VALIDATED), forms | algorithm)
    return forms | (flags & np.uint32(REWRITTEN))


@cache
def _sizes() -> Forms:
    """Bytes of the digests of each form."""
    sizes = np.zeros(1 << 16, np.uint32)
    for n in _SIZES:
        b32, b64 = len(base64.b32encode(bytes(n)).rstrip(b"=")), len(base64.b64encode(bytes(n)))
        lengths = ((_HEX, 2 * n), (_BASE32, b32), (_BASE32, -(-b32 // 8) * 8), (_BASE64, b64))
        lengths += ((_BASE64, -(-8 * n // 6)), (_RAW, n))
        for alphabet, length in lengths:
            sizes[alphabet | length << 4] = n
    return sizes


def _usual_size(name: str) -> int:
    """Bytes of the digests that are taken for those of an algorithm without its name, else a size of none."""
    return next((size for size, usual in _USUAL.items() if usual == name), 1 << 16)


def _at(table: NDArray[np.generic], size: NDArray[np.int64]) -> NDArray[np.generic]:
    return table.take(np.minimum(size, _MOST - 1))


def _empty(hashes: Hashes) -> Mask:
    """Whether hashes are those of an empty body's digest: (n,) bool."""
    known = _empty_bodies()
    near = np.zeros(1 << 16, np.bool_)
    near[known >> np.uint64(48)] = True
    found = near.take((hashes >> np.uint64(48)).view(np.int64))
    rows = np.flatnonzero(found)
    found[rows] = np.isin(hashes[rows], known)
    return found
