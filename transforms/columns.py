"""Readers of single columns: whatever type a file has, to the type of `schemas`, with a mask of bad values.

Each takes an Arrow array of n values and returns `(values, bad)`: an Arrow array of n values, null where
there is none, and a bool (n,) mask of values that mean nothing, or None if there are none.
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

from transforms.hashing import Hashes, Texts, hash_and_watch, stable_hash
from transforms.schemas import COUNT_UNIT
from transforms.urls import trim

Mask = NDArray[np.bool_]
Column = tuple[pa.Array, Mask | None]

NOTHING = pa.array(["", "-", "null", "none", "nan", "na", "n/a", "\\n"])
# A text "nan" is the number NaN, which a count must not be.
_NO_NUMBER = NOTHING.filter(pc.not_equal(NOTHING, "nan"))
MAX_COUNT = 2.0**40
MAX_AMOUNT = 1e30  # what the search takes

_TRUE = pa.array(["true", "1", "t", "yes", "y", "1.0"])
_FALSE = pa.array(["false", "0", "f", "no", "n", "0.0"])


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text, or bytes that may be."""
    t = pa.types
    return (
        t.is_string(kind)
        or t.is_large_string(kind)
        or t.is_string_view(kind)
        or t.is_binary(kind)
        or t.is_large_binary(kind)
    )


def is_scalar(kind: pa.DataType) -> bool:
    """Whether a column holds numbers, booleans or text: what a table on paper could hold."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    t = pa.types
    return (
        is_text(kind)
        or t.is_null(kind)
        or t.is_boolean(kind)
        or is_number(kind)
        or t.is_fixed_size_binary(kind)
    )


def is_fixed(kind: pa.DataType) -> bool:
    """Whether a column holds bytes of one length."""
    return bool(pa.types.is_fixed_size_binary(kind))


def is_number(kind: pa.DataType) -> bool:
    """Whether a column holds integers, floats or decimals."""
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _some(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def plain(array: pa.Array) -> pa.Array:
    """Dictionaries decoded, every text as `string`, whether or not its bytes are UTF-8."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    kind = array.type
    if pa.types.is_fixed_size_binary(kind):
        array, kind = array.cast(pa.binary()), pa.binary()
    if pa.types.is_binary(kind):
        return array.view(pa.string())
    if pa.types.is_large_binary(kind):
        return array.view(pa.large_string())
    return array.cast(pa.large_string()) if pa.types.is_string_view(kind) else array


def invalid_utf8(array: pa.Array) -> Mask | None:
    """Rows of a string array whose bytes are not UTF-8; one fast pass where all are."""
    if Texts(array).span().max(initial=0) < 128:
        return None
    try:
        array.validate(full=True)
        return None
    except pa.ArrowInvalid:
        pass
    bad = np.zeros(len(array), np.bool_)
    for a in range(0, len(array), 1024):
        part = array.slice(a, 1024)
        try:
            part.validate(full=True)
        except pa.ArrowInvalid:
            for i, raw in enumerate(part.cast(pa.large_binary()).to_pylist()):
                try:
                    (raw or b"").decode()
                except UnicodeDecodeError:
                    bad[a + i] = True
    return bad


def clean(array: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Text with ill-formed bytes replaced, and where that was: for columns that pass through, and samples."""
    array = plain(array)
    bad = invalid_utf8(array)
    if bad is None:
        return array, None
    raw = array.cast(pa.large_binary()).to_pylist()
    return pa.array([None if r is None else r.decode("utf-8", "replace") for r in raw], pa.string()), bad


def text(array: pa.Array) -> Column:
    """Any scalar as a string."""
    array = plain(array)
    if pa.types.is_string(array.type):
        return array, invalid_utf8(array)
    if pa.types.is_large_string(array.type):
        bad = invalid_utf8(array)
        return array.view(pa.large_binary()).cast(pa.binary()).view(pa.string()), bad
    return array.cast(pa.string()), None


def numbers(array: pa.Array, groups: str = "") -> Column:
    """Integers, floats, decimals or their text as float64; text that says "nothing" is null.

    `groups` reads texts with thousands set apart: "counts" or "amounts", see `_groups`.
    """
    array = plain(array)
    kind = array.type
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.float64()), None
    if is_number(kind):
        return array.cast(pa.float64(), safe=False), None
    if pa.types.is_boolean(kind):
        return array.cast(pa.int8()).cast(pa.float64()), None
    if groups and _MARKS[Texts(array).span()].any():
        encoded = trim(array).dictionary_encode()
        values, bad = _spelled(encoded.dictionary, groups)
        if bad is not None:
            bad = bad[encoded.indices.fill_null(0).to_numpy()] & np.asarray(array.is_valid())
        return values.take(encoded.indices), bad
    try:
        return array.cast(pa.float64()), None
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return _spelled(trim(array))


def _spelled(array: pa.Array, groups: str = "") -> Column:
    """Texts of numbers, one by one."""
    array, broken = clean(array)
    form = r"^\+?(-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|-?(?i:inf|infinity|nan))$"
    good = _true(pc.match_substring_regex(array, form))
    # What is left of a text, and its mark of a fraction.
    readings = [(good, r"^\+", ".")]
    if groups:
        english, other, doubtful = _groups(array, counts=groups == "counts")
        readings += [(english, r"[^\d.-]", "."), (other, r"[^\d,-]", ",")]
        good = (good | english | other) & ~doubtful
    if broken is not None:
        good &= ~broken
    wrong = ~good & ~_true(pc.is_in(pc.utf8_lower(array), _NO_NUMBER)) & np.asarray(array.is_valid())
    values = np.zeros(len(array))
    for mask, drop, mark in readings:
        rows = np.flatnonzero(mask & good)
        # Not `if_else` on texts: on a slice it returns bytes of other rows (pyarrow 23).
        digits = pc.replace_substring_regex(array.take(pa.array(rows)), drop, "")
        digits = pc.replace_substring(digits, mark, ".")
        values[rows] = digits.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return pa.array(values, mask=~good), _some(wrong)


# Bytes of marks of thousands and of fractions in UTF-8; of those beyond ASCII all.
_MARKS = np.zeros(256, np.bool_)
_MARKS[[ord(c) for c in ",.' "]] = True
_MARKS[128:] = True
_APART = r"[ '\x{a0}\x{2007}\x{2009}\x{202f}\x{2019}\x{66c}]"


def _form(group: str, fraction: str) -> str:
    """Numbers with groups of three behind a mark, and a fraction or none behind another."""
    return rf"^[+-]?[1-9]\d{{0,2}}(?:{group}\d{{3}})+(?:{fraction}\d+)?$"


def _groups(array: pa.Array, counts: bool) -> tuple[Mask, Mask, Mask]:
    """Where thousands are set apart, with a point before a fraction, with a comma there; where nobody knows.

    `1,234` and `1.234` may have a group or a fraction: that is as in the other numbers of the column. If no
    other number tells, it is a group in counts, for a fraction of a click does not exist; if they contradict
    each other, or as an amount `1,234`, it is in doubt.
    """

    def matches(*forms: str) -> Mask:
        return np.logical_or.reduce([_true(pc.match_substring_regex(array, form)) for form in forms])

    one_comma, one_point = matches(r"^[+-]?[1-9]\d{0,2},\d{3}$"), matches(r"^[+-]?[1-9]\d{0,2}\.\d{3}$")
    indian = r"^[+-]?[1-9]\d?(?:,\d\d)+,\d{3}(?:\.\d+)?$"
    english = matches(_form(",", r"\."), indian) & ~one_comma
    other = matches(_form(r"\.", ",")) & ~one_point
    apart = matches(_form(_APART, r"\."))
    apart_comma = matches(_form(_APART, ",")) & ~apart
    points = english.any() or (matches(r"^[+-]?(?:\d+|\d.*\D\d{3})?\.\d+$") & ~one_point & ~other).any()
    fractions = matches(r"^[+-]?\d+,\d+$") & ~one_comma
    commas = other.any() or apart_comma.any() or fractions.any()
    unknown = not (points or commas)
    if unknown and counts:
        points, commas = one_comma.any(), one_point.any()
    doubtful = np.zeros(len(array), np.bool_)
    if points and commas:
        doubtful = one_comma | one_point | fractions
    elif unknown and not counts:
        doubtful = one_comma
    elif points:
        english |= one_comma
    else:
        other |= one_point | fractions | one_comma
    return english | apart, other | apart_comma, doubtful


def _true(array: pa.Array) -> Mask:
    """Where an array of booleans is true; null counts as false."""
    return np.asarray(pc.fill_null(array, False))


def status(array: pa.Array) -> Column:
    """HTTP status as int16. "-" and its like are null; fractions and numbers beyond int16 are bad."""
    if array.type == pa.int16():
        return array, None
    values, bad = numbers(array)
    # A float column with gaps (as pandas writes one) has NaN for nothing.
    number = values.fill_null(np.nan).to_numpy()
    null = np.isnan(number)
    whole = np.where(null, 0.0, number)
    wrong = (np.abs(whole) > 32767) | (np.rint(whole) != whole)
    out = np.where(wrong, 0.0, whole).astype(np.int16)
    if bad is not None:
        wrong |= bad
    return pa.array(out, mask=null | wrong), _some(wrong)


def flag(array: pa.Array) -> Column:
    """Booleans, 0 and 1, or words for them."""
    array = plain(array)
    if pa.types.is_boolean(array.type):
        return array, None
    if pa.types.is_null(array.type):
        return array.cast(pa.bool_()), None
    if is_number(array.type):
        number = array.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy()
        null = np.isnan(number)
        wrong = ~null & (number != 0) & (number != 1)
        return pa.array(number == 1, mask=null | wrong), _some(wrong)
    words, _ = clean(trim(array))
    words = pc.utf8_lower(words)
    yes = np.asarray(pc.is_in(words, _TRUE))
    nothing = np.asarray(pc.or_(pc.is_in(words, NOTHING), pc.is_null(words)))
    wrong = ~yes & ~nothing & ~np.asarray(pc.is_in(words, _FALSE))
    return pa.array(yes, mask=nothing | wrong), _some(wrong)


def count(array: pa.Array) -> Column:
    """A count of requests as fixed point (`schemas.COUNT_UNIT`); null is 0, negative or not finite is bad."""
    values, bad = numbers(array, "counts")
    number = values.fill_null(0.0).to_numpy()
    wrong = ~((number >= 0) & (number <= MAX_COUNT))
    fixed = np.rint(np.where(wrong, 0.0, number) / COUNT_UNIT).astype(np.int64)
    if bad is not None:
        wrong |= bad
    return pa.array(fixed), _some(wrong)


def digits(array: pa.Array, rows: Mask) -> int:
    """About what counts that could not be read add up to, in `schemas.COUNT_UNIT`: by their digits alone."""
    bad = plain(array).filter(pa.array(rows))
    if not is_text(bad.type):
        return 0
    bad = clean(trim(bad))[0].drop_null()
    bad = bad.filter(pc.invert(pc.starts_with(bad, "-")))
    whole = pc.replace_substring_regex(pc.replace_substring_regex(bad, r"[.,]\d{1,2}$", ""), r"\D", "")
    whole = whole.filter(pc.match_substring_regex(whole, r"^\d{1,12}$"))
    return int(pc.sum(whole.cast(pa.int64())).as_py() or 0) * round(1 / COUNT_UNIT)


def amount(array: pa.Array) -> Column:
    """A non-negative number up to `MAX_AMOUNT`, null where there is none."""
    values, bad = numbers(array, "amounts")
    number = values.fill_null(0.0).to_numpy()
    wrong = ~((number >= 0) & (number <= MAX_AMOUNT))
    if bad is not None:
        wrong |= bad
    return values, _some(wrong)


_ALGORITHM = re.compile(
    rb"^(urn:)?(md5|sha-?1|sha-?224|sha-?256|sha-?384|sha-?512|blake2b|blake3|xxh64|crc32)[:=-]\s*",
    re.IGNORECASE,
)
_LOWER = np.uint64(0x2020202020202020)
_COLONS = np.uint64(0x3A3A3A3A3A3A3A3A)
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_BYTE = np.uint64(0xFF)
_THREE = np.uint64(0xFFFFFF)
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


@cache
def _empty_body() -> frozenset[bytes]:
    """Digests of an empty body in the usual spellings, lower case."""
    spelled: set[bytes] = set()
    for name in ("md5", "sha1", "sha256", "sha512"):
        raw = hashlib.new(name, b"", usedforsecurity=False).digest()
        b32, b64 = base64.b32encode(raw), base64.b64encode(raw)
        spelled |= {raw, raw.hex().encode(), b32, b32.rstrip(b"="), b64, b64.rstrip(b"=")}
    return frozenset(s.lower() for s in spelled)


@cache
def _suspects() -> tuple[Mask, Mask]:
    """Two filters over 16 bits of a mixed lane: beginnings of an empty body's digests, of algorithm names."""

    def marked(beginnings: list[bytes]) -> Mask:
        lanes = np.array([int.from_bytes(b, "little") for b in beginnings], np.uint64)
        table = np.zeros(1 << 16, np.bool_)
        # A lane of fewer than 8 bytes is compared in its first three only.
        lanes |= _LOWER if len(beginnings[0]) == 8 else _LOWER & _THREE
        table[(lanes * _SPREAD) >> np.uint64(48)] = True
        return table

    return marked([d[:8] for d in _empty_body()]), marked([b"sha", b"md5", b"bla"])


class _Watch:
    """Finds digests to look at: prefixes, words for nothing, beginnings of an empty body's digest."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.bodies, self.names = _suspects()
        self.found: list[NDArray[np.intp]] = []
        self.blank = False

    def see(self, a: int, lane: Hashes) -> None:
        if not len(self.texts.data):  # a column of empty texts
            return
        b = a + len(lane)
        start, size = self.texts.start[a:b], self.texts.size[a:b]
        odd = size < 5
        x = lane ^ _COLONS
        t = x - _ONES
        np.invert(x, out=x)
        t &= x
        t &= _HIGH
        odd |= t != 0
        # An empty text is taken for a blank one here, at worst for nothing.
        last = self.texts.data.take(start + size - 1, mode="clip")
        self.blank = self.blank or bool(last.min(initial=255) <= 32) or bool(((lane & _BYTE) <= 32).any())
        lane |= _LOWER
        np.multiply(lane, _SPREAD, out=x)
        x >>= np.uint64(48)
        odd |= self.bodies.take(x.view(np.int64), mode="clip")
        lane &= _THREE
        lane *= _SPREAD
        lane >>= np.uint64(48)
        odd |= self.names.take(lane.view(np.int64), mode="clip")
        if odd.any():
            odd &= size > 0
            self.found.append(a + np.flatnonzero(odd))

    def rows(self) -> NDArray[np.intp]:
        return np.concatenate(self.found) if self.found else np.empty(0, np.intp)


def digest(array: pa.Array) -> Column:
    """The stable hash of a digest: uint64, null where there is none.

    Blanks around a text and a name of the algorithm in front of it do not count. The digest of an empty
    body is none: a fetch that brought nothing says nothing about the page. Case counts, for base64 uses it.
    """
    kind = array.type
    if pa.types.is_dictionary(kind):
        values, _ = digest(array.dictionary)
        return values.take(array.indices), None
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.uint64()), None
    array = plain(array) if is_text(kind) or is_fixed(kind) else array.cast(pa.string())
    texts = Texts(array)
    watch = _Watch(texts)
    hashes = hash_and_watch(texts, watch.see)
    # Raw bytes may well end in a byte that is a blank.
    if watch.blank and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or is_fixed(kind)):
        trimmed = trim(array)
        if trimmed is not array:
            return digest(trimmed)
    null = texts.size == 0
    rows = watch.rows()
    if len(rows):
        hashes[rows], null[rows] = _odd_digests(array.take(pa.array(rows)))
    # 0 means "none" downstream.
    hashes[hashes == 0] = 1
    return pa.array(hashes, mask=null) if null.any() else pa.array(hashes), None


def _odd_digests(array: pa.Array) -> tuple[Hashes, Mask]:
    encoded = array.cast(pa.large_binary()).dictionary_encode()
    codes = encoded.indices.to_numpy()
    values = [_ALGORITHM.sub(b"", v) for v in encoded.dictionary.to_pylist()]
    nothing = {n.encode() for n in NOTHING.to_pylist()} | _empty_body()
    none = np.array([v.lower() in nothing for v in values], np.bool_)
    hashes = np.array([stable_hash(v) for v in values], np.uint64)
    return hashes[codes], none[codes]
